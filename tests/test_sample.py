import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, TINY_TEXT
from helpers import assert_mistake, read_available, train_run

import sample
from training.copied import longest_stretch
from training.runs.checkpoint import load_checkpoint, save_checkpoint
from training.sampling import StopText, TextSampler
from training.trained_model import load_model


@pytest.fixture
def written(trained, monkeypatch, capsys):
    """Return a function that runs sample.py with arguments; it returns the output."""
    monkeypatch.chdir(trained)

    def run(*arguments):
        assert sample.main(list(map(str, arguments))) == 0
        return capsys.readouterr().out

    return run


def test_the_newest_run_is_sampled_at_the_given_length(written):
    assert len(written("--length", 50)) == 50 + 1
    assert written("--length", 0) == "\n"
    assert written("--length", 0, "--prompt", "99 bottles") == "99 bottles\n"


def test_temperature_0_and_the_strictest_filters_give_the_greedy_text(written):
    likeliest = written("--length", 99, "--temperature", 0)
    for strictest in (["--top-k", 1], ["--top-p", 1e-9], ["--min-p", 1]):
        assert written("--length", 99, *strictest) == likeliest
    assert written("--length", 99) != likeliest


def test_a_prompt_of_many_characters_can_be_continued(written):
    assert len(written("--prompt", "98 bottles of beer" * 6_000, "--length", 5)) == 18 * 6_000 + 5 + 1


def test_many_samples_are_the_same_texts_as_few_and_at_most_64_are_sampled_at_once(written, monkeypatch):
    batches, stream = [], TextSampler.stream
    monkeypatch.setattr(TextSampler, "stream", lambda *a, **b: batches.append(b.get("streams")) or stream(*a, **b))
    alone, many = (written("--length", 30, "--prompt", "99 bot", "--samples", n) for n in (1, 130))
    numbers, texts = zip(*re.findall(r"--- sample (\d+) ---\n(99 bot.{30})\n\n", many, re.DOTALL), strict=True)
    assert list(numbers) == [str(n) for n in range(1, 131)]
    assert len(set(texts)) == 130
    assert texts[0] + "\n" == alone
    assert batches == [None, range(64), range(64, 128), range(128, 130)]
    for n in (2, 64, 65):
        few = written("--length", 30, "--prompt", "99 bot", "--samples", n)
        assert few == many.partition(f"--- sample {n + 1} ---\n")[0]


def test_the_last_line_gives_the_speed_of_all_texts_together(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    assert sample.main(["--prompt", "99 bot", "--stop", " b", "--samples", "3"]) == 0
    output, errors = capsys.readouterr()
    line = r"Sampled (\d+) characters in (\d+\.\d\d) s: ([\d,]+) characters/s"
    n, seconds, speed = re.fullmatch(line, errors.splitlines()[-1]).groups()
    assert int(n) == len(output) - 3 * len("--- sample 1 ---\n99 bot\n\n")
    assert float(seconds) == pytest.approx(int(n) / float(speed.replace(",", "")), abs=0.01)


@pytest.mark.parametrize("samples", [1, 3])
def test_sampling_ends_before_the_first_stop_text(written, samples):
    whole = written("--length", 200, "--samples", samples)
    stopped = written("--length", 200, "--samples", samples, "--stop", " b", "--stop", "ssss")
    assert " b" in whole
    texts, cut = (re.split(r"--- sample \d ---\n", output) for output in (whole, stopped))
    ending = "\n" if samples == 1 else "\n\n"
    for before, after in zip(texts, cut, strict=True):
        assert after == (before.removesuffix(ending).split(" b")[0] + ending if before else "")


def test_the_longest_copied_stretch_of_each_sample_is_named(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    options = ["--length", "80", "--samples", "2", "--temperature", "0.1", "--prompt", "7", "--copied"]
    assert sample.main(options) == 0
    printed = capsys.readouterr()
    texts = re.findall(r"--- sample \d ---\n7(.{80})\n\n", printed.out, re.DOTALL)
    training = TINY_TEXT[: int(0.9 * len(TINY_TEXT))]
    for number, text in enumerate(texts, start=1):
        stretch = longest_stretch(text, training)
        sentence = "the longest stretch that stands in the training text has"
        assert f"Sample {number}: {sentence} {len(stretch)} characters: {stretch!r}\n" in printed.err


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_texts_that_are_lines_end_with_their_lines_and_the_new_ones_are_counted(workplace, capsys, end):
    names = f"anna{end}bob{end}eve{end}otto{end}"
    (workplace / "text.txt").write_text(names * 90, encoding="utf-8", newline="")
    train_run("names", "data.lines=true", "train.max_steps=30", "train.batch_size=16", "optim.lr=0.02")
    capsys.readouterr()
    assert sample.main(["--samples", "30", "--temperature", "1.3", "--copied"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.removesuffix("\n").split("\n")
    assert len(lines) == 30
    n_known = sum(line in {"anna", "bob", "eve", "otto"} for line in lines)
    assert 0 < n_known < 30
    assert f"\n{30 - n_known} of 30 texts are new: " in printed.err
    assert sample.main(["--prompt", "ot", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == "otto\n"
    assert load_model("runs/names").generate("ot", temperature=0) == "otto"
    assert_mistake(capsys, sample.main, ["--copied", "--stop", "a"], "leave out --stop")
    assert sample.main(["--samples", "30", "--temperature", "1.3", "--copied", "--length", "4"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.removesuffix("\n").split("\n")
    n_cut = sum(len(line) == 4 for line in lines)  # even a name, which might go on
    n_new = sum(line not in {"bob", "eve"} for line in lines if len(line) < 4)
    words = f"{n_new} of 30 texts are new: they are no lines of the training text; {n_cut} were cut by --length\n"
    assert printed.err.endswith(words) and {"anna", "otto"} & {*lines}
    for length, words in ((9, "0 of 1 texts are new: [^;]*"), (2, "0 of 1 texts are new: .*; 1 was cut by --length")):
        prompt = ["--prompt", f"bob{end}ot", "--length", str(length), "--temperature", "0", "--copied"]
        assert sample.main(prompt) == 0
        assert re.fullmatch(words, capsys.readouterr().err.splitlines()[-1])


@pytest.mark.parametrize("lines", [False, True])
def test_a_model_outside_a_run_folder_is_compared_with_all_of_a_text_that_is_named(run, capsys, lines):
    checkpoint = load_checkpoint(run.best)
    config = replace(checkpoint.config, data=replace(checkpoint.config.data, lines=lines))
    save_checkpoint(replace(checkpoint, config=config), Path("lone"))
    command = ["--checkpoint", "lone", "--length", "300", "--copied"]
    assert_mistake(capsys, sample.main, command, "lone is not in a run folder, so no text that it names is read; add ")
    assert_mistake(capsys, sample.main, [*command, "--text", "gone.txt"], "gone.txt: No such file")
    assert sample.main(command[:-1]) == 0
    text = capsys.readouterr().out.removesuffix("\n")
    Path("other.txt").write_text(TINY_TEXT + text)
    assert sample.main([*command, "--text", "other.txt"]) == 0
    words = "0 of 1 texts are new: they are no lines of the training text\n" if lines else f"300 characters: {text!r}\n"
    assert capsys.readouterr().err.endswith(words)


@pytest.mark.parametrize(("text", "before", "after"), [("zabcabx!", "zabca", "zabca"), ("xabc", "x", "xabc")])
def test_the_possible_beginning_of_a_stop_text_is_held_back_and_an_incomplete_one_printed(text, before, after):
    stop = StopText(["abcd", "bx"])
    passed = "".join(map(stop.add, text))
    assert passed == before
    assert passed + stop.end() == after


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temperature", "nan"], "temperature=nan"),
        (["--top-k", "0"], "top_k=0 must be at least 1"),
        (["--top-p", "2"], "top_p=2.0 must be above 0"),
        (["--length", "-1"], "argument --length: -1 must be a whole number, at least 0"),
        (["--seed", str(2**63)], "and below 2^63"),
        (["--stop", ""], "--stop needs"),
        (["--text", "text.txt"], "--text is for --copied"),
        (["--stop", r"\n"], r"'\\' (U+005C) is not in the vocabulary"),
        (["--prompt", r"98\n"], r"in bash, $'\n' is a line break"),
        (["--checkpoint", "runs/gone"], "no such run or checkpoint"),
        (["--checkpoint", "text.txt"], "is not a checkpoint of this project"),
        (["--checkpoint", "runs/tiny/checkpoints"], "has no checkpoints/best.safetensors; give its run, runs/tiny"),
        (["runs/tiny"], "unrecognized arguments: runs/tiny; does it lack the name of its option"),
        (["--prompt", "--"], "argument --prompt: expected one argument"),
        (["--prompt", "99\tbottles"], r"'\t' (U+0009) is not in the vocabulary (character 3 of the text), which has"),
        (["--prompt", "\x1b[31m"], r"'\x1b' (U+001B)"),
        (["--prompt", "\udcff"], r"'\udcff' (U+DCFF)"),
    ],
)
def test_a_mistake_produces_a_one_line_error_and_status_2(capsys, arguments, message):
    assert_mistake(capsys, sample.main, arguments, message)


def test_before_the_first_run_the_bundled_model_writes_and_says_how_to_train_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sample.main(["--prompt", "The Duke", "--length", "30"]) == 0
    output, errors = capsys.readouterr()
    assert output.startswith("The Duke") and len(output) == len("The Duke") + 30 + 1
    line, _ = errors.splitlines()
    assert "it comes with the project: train your own with " in line
    assert line.endswith(f"{ROOT}/train.py --config {ROOT}/configs/selmere.yaml")


def test_control_characters_of_a_model_and_a_prompt_are_escaped_on_a_terminal_only(workplace, monkeypatch, capsys):
    (workplace / "text.txt").write_text("\x1b[2J\x9b\tab\n" * 90, encoding="utf-8")
    train_run("tiny", "train.max_steps=1")
    options = ["--prompt", "\x1b[", "--length", "90"]
    capsys.readouterr()
    assert sample.main(options) == 0
    piped = capsys.readouterr().out
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal, os.fdopen(leader):
        monkeypatch.setattr(sys, "stdout", terminal)
        assert sample.main(options) == 0
        shown = read_available(leader).replace("\r\n", "\n")
    assert piped.count("\x1b") > 2 and "\x9b" in piped and "\t" in piped
    assert shown == piped.replace("\x1b", r"\x1b").replace("\x9b", r"\x9b")


@pytest.mark.slow
def test_text_is_printed_while_it_is_sampled(trained):
    command = [sys.executable, str(ROOT / "sample.py"), "--length", "10000000"]
    with subprocess.Popen(command, cwd=trained, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert len(process.stdout.read(300)) == 300  # long before the end
        process.stdout.close()  # as `head` does
        errors = process.stderr.read().decode()
        assert process.wait(timeout=180) == 0
    assert "Error" not in errors
    assert "Exception" not in errors
