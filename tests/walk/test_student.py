"""The first hour of a student, who trains on a text of their own, compares numbers of heads and does the exercise."""

import csv
import math
import random
import re
import signal
import statistics

import pytest
from helpers import wait_for
from pages_in_browser import click, find, query, rows, set_field, texts, type_text
from pages_in_browser import wait_for as wait_for_page
from person import Person

pytestmark = pytest.mark.nightly

ADJECTIVES = ["old", "young", "grey", "quiet", "merry", "small"]
NOUNS = ["fisher", "baker", "sailor", "keeper", "child", "queen"]
VERBS = ["sees", "helps", "calls", "follows", "finds", "thanks"]
WORDS = {"The", "the", *ADJECTIVES, *VERBS, *(f"{noun}{end}" for noun in NOUNS for end in ("", "."))}
N_LINES = 1_500
MINE = "--config configs/selmere.yaml data.corpus=my.txt"
BEST = "runs/mine/checkpoints/best.safetensors"


def test_the_first_hour_of_a_student(tmp_path, browser):
    student = Person(tmp_path, browser)
    samples_the_model_of_the_project(student)
    trains_on_a_text_of_their_own(student)
    samples_the_trained_model_while_another_run_trains(student)
    resumes_the_other_run(student)
    compares_numbers_of_heads(student)
    looks_at_the_heads(student)
    writes_in_the_page(student)
    does_the_exercise_of_the_textbook(student)


def samples_the_model_of_the_project(student):
    screen = student.types('python sample.py --prompt "The " --length 100')
    assert "it comes with the project" in screen
    assert "\nThe " in screen


def trains_on_a_text_of_their_own(student):
    """The best possible loss is known: of each line, only the choice of five words among six cannot be foreseen."""
    student.writes("my.txt", (text := sentences()))
    best_possible = N_LINES * 5 * math.log(6) / len(text)
    screen = student.types(f"python train.py {MINE} train.name=mine train.max_steps=60 train.eval_every_steps=30")
    assert f"{len(text):,} characters, a vocabulary of {len(set(text))};" in screen
    loss = student.best_loss("runs/mine")
    assert 0.95 * best_possible < loss < 1.3 * best_possible
    assert f"Best validation loss {loss:.4f} nats" in screen
    screen = student.types("python sample.py --checkpoint runs/mine --temperature 0.7")
    assert f"from {BEST}, step 60" in screen
    assert share_of_words(screen) > 0.9
    assert "did you mean runs/mine?" in student.mistypes("python sample.py --checkpoint runs/mime")
    assert "'H' (U+0048) is not in the vocabulary" in student.mistypes("python sample.py --prompt THE")


def samples_the_trained_model_while_another_run_trains(student):
    settings = "train.name=other train.max_steps=60 train.eval_every_steps=60"
    with student.beside(f"python train.py {MINE} {settings}") as (process, screen):
        wait_for(lambda: (student.home / "runs/other/metrics.jsonl").is_file(), process)
        written = student.types('python sample.py --prompt "The " --length 300')
        assert f"from {BEST}, step 60" in written
        assert share_of_words(written) > 0.9
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
    assert "--resume runs/other" in screen.read_text(encoding="utf-8")
    assert f"from {BEST}, step 60" in student.types("python sample.py --length 1")  # the other has not been evaluated


def resumes_the_other_run(student):
    screen = student.types("python train.py --resume runs/other")
    assert f"Best validation loss {student.best_loss('runs/other'):.4f} nats" in screen
    assert f"from {BEST.replace('mine', 'other')}, step 60" in student.types("python sample.py --length 1")
    listed = student.types("python -m experiments.report")
    for run in ("mine", "other"):
        assert re.search(rf"(?m)^{run} +finished +{student.best_loss(f'runs/{run}'):.4f} on my.txt", listed)


def compares_numbers_of_heads(student):
    settings = "train.name=counts model.n_head=1,2 train.seed=0,1 train.max_steps=24 train.eval_every_steps=12"
    student.types(f"python -m experiments.sweep {MINE} {settings}")
    report = "python -m experiments.report runs/counts"
    assert "not one of the variants: 'n_head=1', 'n_head=2'" in student.mistypes(f"{report} --baseline heads=2")
    screen = student.types(f'{report} --baseline n_head=2 --prompt "The "')
    student.looks_at("runs/counts/report.html", "report")
    in_page = [row[:3] for row in rows(student.browser, "tbody tr")]
    for n in (1, 2):
        losses = [student.best_loss(f"runs/counts/n_head={n},seed={seed}") for seed in (0, 1)]
        mean = f"{statistics.mean(losses):.4f} ± {statistics.stdev(losses) / 2**0.5:.4f}"
        assert re.search(rf"(?m)^n_head={n} +2 +{mean} ", screen)
        assert [f"n_head={n}", "2", mean] in in_page
    for sample in texts(student.browser, ".samples pre"):
        assert sample.startswith("The ")
        assert share_of_words(sample) > 0.5
    charts = sorted(student.home.glob("runs/counts/*.svg"))
    assert len(charts) == len(find(student.browser, "figure svg")) == 3
    for chart in charts:
        student.looks_at_chart(chart, chart.stem)


def looks_at_the_heads(student):
    screen = student.types("python -m experiments.heads --checkpoint runs/mine")
    assert f"Validation loss {student.best_loss('runs/mine'):.4f} over" in screen
    student.looks_at("runs/mine/heads.html", "heads")
    in_page = zip(*(texts(student.browser, f"button.head {part}") for part in ("b", "span:last-child")), strict=True)
    in_page, printed = dict(in_page), dict(re.findall(r"(?m)^(L\dH\d)  .+?  +(\S\d\.\d{4}) ", screen))
    measured = list(csv.DictReader(student.reads("runs/mine/heads.csv").splitlines()))
    assert len(measured) == len(printed) == len(in_page) == 8
    for row in measured:
        head, change = f"L{row['layer']}H{row['head']}", f"{float(row['loss increase']):+.4f}"
        change = change.replace("-", "\N{MINUS SIGN}")
        assert (printed[head], in_page[head]) == (change, f"loss {change}")


def writes_in_the_page(student):
    screen = student.types("python -m experiments.playground --no-browser --checkpoint runs/mine")
    assert f"{BEST}, step 60" in screen
    student.looks_at("runs/mine/playground.html", "playground")
    box = type_text(student.browser, "The old ")
    set_field(student.browser, "length", 60)
    set_field(student.browser, "temperature", 0)
    click(student.browser, "#write")
    wait_for_page(lambda: len(box.get_property("value")) == len("The old ") + 60)
    wait_for_page(lambda: f"at {query(student.browser)} looks at" in texts(student.browser, ".looking")[0])
    student.takes_a_picture("playground-written")
    options = '--checkpoint runs/mine --prompt "The old " --length 60 --temperature 0'
    assert box.get_property("value") in student.types(f"python sample.py {options}")


def does_the_exercise_of_the_textbook(student):
    assert len(re.findall(r"(?m)^Chapter \d: .*\?$", student.types("python -m textbook"))) == 9
    student.types("python -m textbook 4 --output heads.png")
    (student.pictures / "textbook-4.png").write_bytes((student.home / "heads.png").read_bytes())
    student.types("python -m textbook --exercise")
    check = "python -m textbook --check attention_exercise.py"
    assert "average_of_the_past is not written yet." in student.types(check, status=1)
    assert check in student.mistypes("python -m textbook --exercise")  # which would replace what was written
    solution = (student.home / "textbook/exercise/solution.py").read_text(encoding="utf-8")
    student.writes("attention_exercise.py", solution.replace(" / q.size(-1) ** 0.5", ""))
    screen = student.types(check, status=1)
    assert "masked_softmax is right.\nhead is wrong. For\nx = " in screen
    assert "Exactly this comes out if" in screen.replace("\n", " ")
    student.writes("attention_exercise.py", solution)
    assert "All are right." in student.types(check)


def sentences():
    draw = random.Random(1).choice
    a, n, v = ADJECTIVES, NOUNS, VERBS
    return "".join(f"The {draw(a)} {draw(n)} {draw(v)} the {draw(a)} {draw(n)}.\n" for _ in range(N_LINES))


def share_of_words(text):
    """Return the share of known words among the words of what was sampled, without the lines about it and the ends."""
    lines = [line for line in text.splitlines() if not line.startswith(("Sampling on ", "Sampled "))]
    words = " ".join(lines).split()[1:-1]
    assert len(words) > 20
    return statistics.mean(word in WORDS for word in words)
