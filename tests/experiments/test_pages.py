"""The pages in a real browser: they open without errors and show the right numbers."""

import csv
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, train_tiny
from pages_in_browser import (
    can_press,
    check_looks,
    click,
    faults_found_by_axe,
    find,
    open_page,
    query,
    rows,
    set_caret,
    set_field,
    texts,
    type_text,
    wait_for,
    wait_for_maps,
)

from experiments.heads.__main__ import main as heads_command
from experiments.heads.silence import silenced
from experiments.playground.__main__ import main as playground
from experiments.report.__main__ import main as report_command
from model.generate import window_start
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder
from training.trained_model import load_model

pytestmark = pytest.mark.slow
READ = " bottles of be\n2"
TEXT = "9 bottles of b"
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\n中😀אב\n"
PAGES = {"report.html": 3, "names.html": 3, "heads.html": 3, "two.html": 5}  # and their charts and drawings
WINDOWS = pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["dark phone", "light desktop"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with four runs, their report, another with longer names, and the pages of one or two runs."""
    folder = tmp_path_factory.mktemp("pages")
    for seed in (0, 1):
        for n in (2, 3):
            settings = [f"train.name={n}-{seed}", f"train.seed={seed}", f"model.n_head={n}", "train.keep_checkpoints=6"]
            train_tiny(folder, *settings, "train.device=cpu", "train.dtype=float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runs = [f"runs/{n}-{seed}" for seed in (0, 1) for n in (2, 3)]
        assert report_command([*runs, "--output", "report"]) == 0
        train_tiny(folder, "train.name=long", "model.norm=layer", "model.mlp=gelu", "optim.lr=0.0123")
        assert report_command([*runs, "runs/long", "--output", "names"]) == 0
        assert heads_command(["--checkpoint", "runs/2-0", "--prompt", READ, "--output", "heads.html"]) == 0
        two = ["--checkpoint", "runs/2-0", "runs/3-0", "--prompt", READ, "--output", "two.html"]
        assert heads_command(two) == 0
    return folder


@pytest.mark.parametrize("page", PAGES)
@WINDOWS
def test_a_page_opens_without_an_error_and_all_of_it_can_be_read(browser, folder, page, width, dark):
    """No chart scrolls. Also write a screenshot to the folder SCREENSHOTS, if that is set, for people to look at."""
    open_page(browser, folder / page, width, dark=dark)
    browser.execute_script("document.querySelectorAll('.inside, #train').forEach((each) => (each.open = true))")
    wait_for(lambda: len(find(browser, "table tbody tr")) >= 2)
    wait_for(lambda: not find(browser, "#train") or find(browser, "#learning text"))
    check_looks(browser, width, dark=dark)
    labels = browser.execute_script(
        """return [...document.querySelectorAll("figure svg text")].map(text => {
            const label = text.getBoundingClientRect(), chart = text.ownerSVGElement.getBoundingClientRect();
            const inside = label.left >= chart.left - 1 && label.right <= chart.right + 1 &&
                           label.top >= chart.top - 1 && label.bottom <= chart.bottom + 1;
            return [text.textContent, inside];
        })"""
    )
    size = """return [...document.querySelectorAll("figure svg text")].map(
        (text) => text.ownerSVGElement.getScreenCTM().a * parseFloat(getComputedStyle(text).fontSize))"""
    assert all(10 < pixels < 20 for pixels in browser.execute_script(size))
    hidden = "return [...document.querySelectorAll('figure')].map((each) => each.scrollWidth - each.clientWidth)"
    assert not any(browser.execute_script(hidden))
    assert len(find(browser, "figure svg")) == PAGES[page]
    assert len(labels) >= 3 * PAGES[page]
    assert [label for label, inside in labels if not inside] == []
    if target := os.environ.get("SCREENSHOTS"):
        browser.save_screenshot(f"{target}/{page.partition('.')[0]}-{width}.png")


@WINDOWS
@pytest.mark.parametrize("page", ["report.html", "heads.html", "two.html", ROOT / "textbook/playground.html"])
def test_axe_finds_no_fault_in_a_page(browser, folder, page, width, dark):
    open_page(browser, folder / page, width, dark=dark)
    browser.execute_script("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    wait_for(lambda: not find(browser, "#models") or find(browser, ".steps td"))
    wait_for(lambda: not find(browser, ".stale"))
    browser.execute_async_script("setTimeout(arguments[0], 700)")  # until nothing is faded any more
    assert faults_found_by_axe(browser) == []


def test_heads_open_on_the_sharpest_and_show_what_the_chosen_character_attends_to(browser, folder):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.support.ui import Select

    open_page(browser, folder / "heads.html")
    wait_for_maps(browser)
    with Path(folder / "heads.csv").open(encoding="utf-8") as file:
        measured = [row for row in csv.DictReader(file) if row["model"].startswith("runs/2-0/")]
    changes = [f"{float(row['loss increase']):+.4f}".replace("-", "\N{MINUS SIGN}") for row in measured]
    assert texts(browser, "button.head span:last-child") == [f"loss {change}" for change in changes]
    assert "203 characters of the validation split" in find(browser, ".summary")[0].text
    weights = torch.cat(load_model(folder / "runs/2-0", "cpu").attention_weights(READ))  # (4, T, T)
    labels = [{" ": "␣", "\n": "⏎"}.get(c, c) for c in READ]
    sharpest = weights[:, 7].max(-1).values.argmax()  # 7: the middle of the longer line
    assert texts(browser, "button.head[aria-pressed=true] b") == [f"L{sharpest // 2}H{sharpest % 2}"]
    assert query(browser) == 7
    assert texts(browser, ".key-axis span") == texts(browser, ".query-axis span") == labels
    assert "weight 0.25" in texts(browser, ".scale span")
    heads = find(browser, "button.head")
    for option in find(browser, ".roles option")[1:]:
        Select(find(browser, ".roles")[0]).select_by_value(role := option.get_attribute("value"))
        visible = [head for head in heads if head.is_displayed()]
        assert option.text == f"{role} ({len(visible)})"
        assert all(role.replace("no fixed", "no") in head.text.replace("\n", " ") for head in visible)
        assert "true" in [head.get_attribute("aria-pressed") for head in visible]
    Select(find(browser, ".roles")[0]).select_by_value("")
    click(browser, "[data-by=attention]")
    for number, q in [(0, 15), (3, 9), (2, 0), (1, 14)]:
        heads[number].click()
        set_caret(browser, q + 1)
        expected = weights[number, q]
        shown = find(browser, "#writing .text span")
        shades = [float(re.search(r"--w: ([\d.e-]+)%", span.get_attribute("style"))[1]) for span in shown]
        assert shades == pytest.approx([100 * w**0.5 for w in expected.tolist()], abs=0.8)
        k = int(expected.argmax())
        place, _, weight = texts(browser, ".keys li")[0].rpartition(": ")
        assert (place, float(weight)) == (f"{labels[k]} at {k}", pytest.approx(float(expected[k]), abs=2e-3))
        looking = find(browser, ".looking")[0].text
        assert looking.startswith(f"Head L{number // 2}H{number % 2} ({measured[number]['role']}, ")
        change, error = changes[number], float(measured[number]["standard error"])
        verb = "rises" if change[0] == "+" else "falls"
        assert f"; the loss {verb} by {change[1:]} ± {error:.4f} without it): " in looking
    ActionChains(browser).move_to_element(find(browser, "#writing .text span")[8]).perform()
    assert query(browser) == 8
    ActionChains(browser).move_to_element(find(browser, "h1")[0]).perform()
    assert query(browser) == 14  # which was clicked
    find(browser, "#text")[0].send_keys("\ue012\ue012")  # the left arrow, from the end
    assert query(browser) == 13
    map_ = find(browser, ".map")[0]
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", map_)
    cell = map_.size["width"] / len(READ)
    ActionChains(browser).move_to_element_with_offset(map_, round(-5.5 * cell), round(0.5 * cell)).perform()
    assert find(browser, ".place")[0].text == f"␣ at 8 looks at o at 2: weight {weights[1, 8, 2]:.3f}"


def test_a_character_is_chosen_in_both_of_two_models_and_a_phone_shows_one_of_them(browser, folder):
    open_page(browser, folder / "two.html")
    wait_for_maps(browser)
    viewers = find(browser, ".viewer")
    assert [len(viewer.find_elements("css selector", "button.head")) for viewer in viewers] == [4, 6]
    set_caret(browser, 10)
    assert [viewer.find_element("css selector", ".looking").text.partition(": ")[2] for viewer in viewers] == [
        "o at 9 looks at"
    ] * 2
    open_page(browser, folder / "two.html", 390)
    wait_for(lambda: find(browser, ".next button"))
    browser.execute_script("document.querySelectorAll('.inside').forEach((each) => (each.open = true))")
    assert [viewer.is_displayed() for viewer in find(browser, ".viewer")] == [True, False]
    find(browser, "#letters button")[1].click()
    assert [viewer.is_displayed() for viewer in find(browser, ".viewer")] == [False, True]


def test_pointing_at_a_curve_shows_step_loss_and_run(browser, folder):
    open_page(browser, folder / "report.html")
    loss = """const svg = [...document.querySelectorAll("svg[data-points]")].at(-1), box = svg.getBoundingClientRect();
        const points = JSON.parse(svg.dataset.points), [x, y] = points.at(-1), { width, height } = svg.viewBox.baseVal;
        const place = { clientX: box.left + (x / width) * box.width, clientY: box.top + (y / height) * box.height };
        svg.dispatchEvent(new PointerEvent("pointermove", place));
        return svg.previousElementSibling.textContent"""
    runs = [(folder / "runs" / f"3-{seed}" / "metrics.jsonl") for seed in (0, 1)]
    losses = [[each for each in read_records(run) if each.get("step") == 40 and "val_loss" in each][-1] for run in runs]
    mean = sum(each["val_loss"] for each in losses) / 2
    assert browser.execute_script(loss) == f"n_head=3: step 40, validation loss {mean:.4f}"


@pytest.fixture
def play(folder, browser, monkeypatch):
    """Return a function that opens the playground of some runs."""
    monkeypatch.chdir(folder)

    def open_playground(*runs, **window):
        checkpoints = ["--checkpoint", *(f"runs/{run}" for run in runs)]
        kept = ["--all-steps"] if any(RunFolder(Path("runs", run)).all_kept() for run in runs) else []
        assert playground([*checkpoints, *kept, "--no-browser", "--output", "playground.html"]) == 0
        open_page(browser, folder / "playground.html", **window)
        wait_for_maps(browser)

    return open_playground


def bars(browser):
    """Return the label and probability of each next character of the first model."""
    script = """return [...document.querySelector(".next").querySelectorAll("button")].map(
        (button) => [...button.children].map((child) => child.textContent))"""
    return [(label, float(share.removesuffix(" %"))) for label, share in browser.execute_script(script)]


def log_probabilities(run, text, off=()):
    """Return the log-probabilities (T, V) after each character, by the model in float64."""
    trained = load_model(f"runs/{run}", "cpu")
    model, ids = trained.model.double(), torch.from_numpy(trained.vocabulary.encode(text).astype(np.int64))
    ids = ids[window_start(len(ids), model.config.block_size) :]
    with torch.inference_mode(), silenced(model, off):
        return model(ids[None])[0].log_softmax(-1), trained.vocabulary.characters


def shows_bars(browser, run, text, off=()):
    """Return whether the bars are the ten likeliest characters; the weights of the page are rounded."""
    after, characters = log_probabilities(run, text, off)
    expected = {
        {" ": "␣", "\n": "⏎"}.get(c, c): 100 * p for c, p in zip(characters, after[-1].exp().tolist(), strict=True)
    }
    shown = bars(browser)
    shares = [share for _, share in shown]
    is_right = all(share == pytest.approx(expected[label], abs=0.7) for label, share in shown)
    likeliest = sorted(expected.values(), reverse=True)[:10]
    return is_right and shares == sorted(shares, reverse=True) and shares == pytest.approx(likeliest, abs=0.7)


def test_the_playground_predicts_looks_inside_and_switches_heads_off(browser, play):
    play("3-0")
    type_text(browser, TEXT)
    wait_for(lambda: shows_bars(browser, "3-0", TEXT))
    label, _ = bars(browser)[0]
    click(browser, ".next button")
    taken = TEXT + {"␣": " ", "⏎": "\n"}.get(label, label)
    assert find(browser, "#text")[0].get_attribute("value") == taken
    nats = -load_model("runs/3-0", "cpu").log_probabilities(taken).sum()
    wait_for(lambda: f"14 characters cost {nats:.2f}"[:-2] in find(browser, ".totals")[0].text)
    assert "".join(texts(browser, "#writing .text span")) == taken
    click(browser, "#undo")
    assert find(browser, "#text")[0].get_attribute("value") == TEXT

    shorter = load_model("runs/3-0", "cpu")  # a model without its last layer predicts what the lens shows of the first
    shorter.model.blocks = shorter.model.blocks[:1]
    ids = torch.from_numpy(shorter.vocabulary.encode(TEXT).astype(np.int64))
    likeliest = [shorter.vocabulary.characters[i] for i in shorter.model(ids[None])[0, 4].topk(3).indices]
    set_caret(browser, 5)
    shown = [{" ": "␣", "\n": "⏎"}.get(character, character) for character in likeliest]
    wait_for(lambda: [text.split(" ")[0] for text in texts(browser, ".lens td")[:3]] == shown)
    assert len(find(browser, ".viewer button.head")) == 6

    browser.execute_script("[1, 2].forEach((i) => document.querySelectorAll('.switches button')[i].click())")  # at once
    wait_for(lambda: shows_bars(browser, "3-0", TEXT, [(0, 1), (0, 2)]))
    click(browser, ".switches button:nth-child(2)")
    wait_for(lambda: len(find(browser, ".costs tbody tr")) >= 3)
    for name, cost, _ in rows(browser, ".costs tbody tr"):
        off = [] if name == "none" else [(0, int(head[-1])) for head in name.split()]
        after, characters = log_probabilities("3-0", TEXT, off)
        nats = -sum(after[t, characters.index(c)].item() for t, c in enumerate(TEXT[1:]))
        assert float(cost) == pytest.approx(nats / np.log(2) / 13, abs=3e-3)  # the page has weights in float16
    type_text(browser, TEXT[:-1])
    wait_for(lambda: not find(browser, ".costs")[0].is_displayed())  # another passage begins anew
    assert rows(browser, ".costs tbody tr")[0][::2] == ["L0H2", ""]


def test_the_playground_writes_and_again_takes_the_next_seed(browser, play):
    play("3-0")
    trained = load_model("runs/3-0", "cpu")
    box = type_text(browser, TEXT)
    set_field(browser, "length", 40)
    set_field(browser, "temperature", 0)
    box.send_keys("\ue009\ue007")  # Ctrl+Enter
    wait_for(lambda: box.get_attribute("value") == trained.generate(TEXT, 40, temperature=0))
    wait_for(lambda: re.fullmatch(r"Wrote 40 characters, \d+ per second\.", texts(browser, "#message.faint")[0]))
    set_field(browser, "temperature", 0.8)
    wait_for(lambda: can_press(browser, "#again"))
    set_field(browser, "length", "")
    click(browser, "#again")  # the length is missing: nothing is lost
    set_field(browser, "length", 40)
    click(browser, "#again")
    wait_for(lambda: can_press(browser, "#write"))
    assert find(browser, "#seed")[0].get_attribute("value") == "1"
    assert len(box.get_attribute("value")) == len(TEXT) + 40
    assert box.get_attribute("value") != trained.generate(TEXT, 40, temperature=0)
    set_field(browser, "length", 1)
    click(browser, "#write")
    wait_for(lambda: re.fullmatch(r"Wrote 1 character, \d+ per second\.", texts(browser, "#message")[0]))
    wait_for(lambda: can_press(browser, "#write"))
    set_field(browser, "length", -1)
    click(browser, "#write")
    assert find(browser, "#settings input:invalid")[0].is_displayed()


@WINDOWS
def test_two_models_stand_side_by_side_with_any_of_their_checkpoints(browser, play, width, dark):
    play("3-0", "2-0", width=width, dark=dark)
    check_looks(browser, width, dark=dark)
    assert [name.text[:3] for name in find(browser, "h2.name")] == (["A: ", ""] if width == 390 else ["A: ", "B: "])
    assert texts(browser, "#writer option") == ["A", "B"]
    type_text(browser, TEXT)
    wait_for(lambda: shows_bars(browser, "3-0", TEXT))
    slider = find(browser, ".checkpoint")[0]
    browser.execute_script("arguments[0].value = 0; arguments[0].dispatchEvent(new Event('input'))", slider)
    wait_for(lambda: find(browser, "h2.name")[0].text == "A: 3-0, step 0")
    wait_for(lambda: max(p for _, p in bars(browser)) < 5)  # a new model predicts all characters equally


def test_the_playground_introduces_itself_and_continues_as_one_types(browser, play):
    play("3-0")
    trained = load_model("runs/3-0", "cpu")
    box = browser.switch_to.active_element
    assert (box.get_attribute("id"), box.get_attribute("value")) == ("text", trained.opening(16))
    assert find(browser, ".guide")[0].text.startswith("This page is the model")
    assert texts(browser, "#writing .scale.surprise span")[::2] == ["expected: 0 bits", "surprising: 8 or more"]
    wait_for(lambda: find(browser, "button.head[aria-pressed=true]"))
    set_field(browser, "temperature", 0)
    click(browser, "#along")
    type_text(browser, TEXT)
    wait_for(lambda: texts(browser, "#ahead") == [trained.generate(TEXT, 60, temperature=0)[len(TEXT) :]])
    click(browser, "#copy")
    wait_for(lambda: find(browser, "#message")[0].text == f"Copied {len(TEXT)} characters.")
    curve = """const svg = document.querySelector(".losses"), box = svg.getBoundingClientRect();
        svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.right, clientY: box.bottom }));
        return document.querySelector("figure:has(.losses) .tip").textContent"""
    assert re.fullmatch(r"(training|validation), step 40: \d\.\d{4}", browser.execute_script(curve))


def test_the_keyboard_focus_stays_when_the_bars_are_drawn_again(browser, play):
    play("3-0")
    type_text(browser, TEXT)
    wait_for(lambda: shows_bars(browser, "3-0", TEXT))
    for _ in range(3):
        bar, before = find(browser, ".next button")[2], find(browser, "#text")[0].get_attribute("value")
        bar.send_keys("\ue007")  # Enter
        wait_for(lambda: shows_bars(browser, "3-0", find(browser, "#text")[0].get_attribute("value")))
        assert len(find(browser, "#text")[0].get_attribute("value")) == len(before) + 1
        assert browser.switch_to.active_element == find(browser, ".next button")[2]


def test_a_message_of_a_model_goes_with_its_reason(browser, play):
    play("3-0", "2-0")
    type_text(browser, "")
    wait_for(lambda: "Model B: Without a text, the model starts a line." in find(browser, ".model .message")[1].text)
    type_text(browser, "9 b")
    wait_for(lambda: not find(browser, ".model.stale"))
    assert not [message for message in find(browser, ".message") if message.text]
    assert shows_bars(browser, "3-0", "9 b")


def test_a_page_whose_model_it_does_not_implement_says_so_and_predicts_nothing(browser, play):
    play("3-0")
    page = Path("playground.html").read_text(encoding="utf-8")
    other = page.replace('"positions": "rope"', '"positions": "sinusoidal"')
    Path("playground.html").write_text(other, encoding="utf-8")
    open_page(browser, Path("playground.html").resolve())
    sentence = "gpt.js does not implement model.positions=sinusoidal, so this page cannot play the model"
    wait_for(lambda: texts(browser, ".model > .answers > .message") == [sentence])
    assert not find(browser, ".next button")
    click(browser, "#write")
    wait_for(lambda: texts(browser, "#message") == [sentence])


def test_a_pasted_text_of_100000_characters_is_read_from_its_last_window_and_only_that_has_shades(browser, play):
    play("3-0")
    long = f"{TEXT}\n" * 7_000
    box = type_text(browser, long)
    assert len(find(browser, "#writing .text span")) <= 16  # also before the text is read
    box.send_keys("\ue009ax")  # Ctrl+A, Ctrl+X
    assert box.get_attribute("value") == ""
    box.send_keys("\ue009v")
    assert box.get_attribute("value") == long
    start = window_start(len(long), 16)
    wait_for(lambda: f"the context window starts at character {start}" in find(browser, ".totals")[0].text)
    assert shows_bars(browser, "3-0", long)
    assert "".join(texts(browser, "#writing .text span")) == long[start:]
    assert "".join(texts(browser, ".under .text")) == long  # so it has the lines of the box


@pytest.mark.parametrize("missing", ["window.DecompressionStream", "Array.prototype.findLast"])
def test_an_old_browser_shows_one_sentence_even_if_it_cannot_parse_the_page(browser, play, missing):
    play("3-0")
    page = Path("playground.html").read_text(encoding="utf-8")
    Path("playground.html").write_text(page.replace("class Model {", "class Model #"), encoding="utf-8")
    add, remove = (f"Page.{name}ScriptToEvaluateOnNewDocument" for name in ("add", "remove"))
    script = browser.execute_cdp_cmd(add, {"source": f"delete {missing}"})
    open_page(browser, Path("playground.html").resolve())  # without an error
    browser.execute_cdp_cmd(remove, script)
    assert find(browser, "body")[0].text.splitlines()[1:] == [
        "This browser is too old for this page, which needs one of 2023 or newer."
    ]
    check = re.search("<script>(.*?)</script>", page, re.DOTALL)[1]
    assert not re.search(r"=>|`|\?\.|\?\?|\b(const|let|class|async)\b", check)  # which it cannot parse either


def test_text_is_never_interpreted_as_html_and_other_scripts_are_shown(browser, folder, play):
    Path("<img src=x>'.txt").write_text(SCRIPT * 40, encoding="utf-8")
    settings = ["data.corpus=<img src=x>'.txt", "model.n_embd=48", "model.block_size=64", "train.max_steps=300"]
    settings.append("train.eval_every_steps=300")  # the page shows the best checkpoint
    train_tiny(folder, *settings, "train.name=script")
    play("script")
    assert find(browser, ".about")[0].text.endswith("the text <img src=x>'.txt, in 300 steps of training.")
    n_scripts = len(find(browser, "script"))
    box = type_text(browser, SCRIPT)
    set_field(browser, "length", 200)
    set_field(browser, "temperature", 0)
    click(browser, "#write")
    wait_for(lambda: len(box.get_attribute("value")) >= len(SCRIPT) + 200)
    wait_for(lambda: find(browser, ".viewer button"))
    assert "<script>" in box.get_attribute("value")[len(SCRIPT) :]
    assert (browser.title, find(browser, "img"), len(find(browser, "script"))) == ("Playground", [], n_scripts)
    type_text(browser, "中😀אב")
    wait_for(lambda: texts(browser, "#writing .text span") == ["中", "😀", "א", "ב"])
    wait_for(lambda: texts(browser, ".key-axis span") == ["中", "😀", "U+05D0", "U+05D1"])
