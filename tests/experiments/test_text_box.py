"""The text box of the playground in a browser: what it holds is what the model reads, and nothing typed is lost."""

import re
from pathlib import Path

import pytest
from conftest import TINY_TEXT, train_tiny
from pages_in_browser import (
    can_press,
    click,
    continue_text,
    find,
    misplaced,
    open_page,
    set_caret,
    set_field,
    texts,
    type_text,
    value,
    wait_for,
    wait_for_maps,
)

from experiments.playground.__main__ import main as playground
from training.trained_model import load_model

pytestmark = pytest.mark.slow
TEXT = "9 bottles of b"
LONG = "".join(f"The quick\tbrown fox {i} 中😀\njumps over the lazy dog,  and so on. אב\n\n" for i in range(2_000))
CTRL, SHIFT, ENTER, BACKSPACE = "\ue009", "\ue008", "\ue007", "\ue003"
CORPORA = {  # their line ends, and the apostrophe of one
    "lf": TINY_TEXT,
    "crlf": "".join(f"{i} o' beer\r\n" for i in range(300)),
    "cr": TINY_TEXT.replace("\n", "\r"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("box")
    for name, text in CORPORA.items():
        (folder / f"{name}.txt").write_bytes(text.encode())
        settings = [f"data.corpus={name}.txt", f"train.name={name}", "train.device=cpu", "train.dtype=float32"]
        train_tiny(folder, *settings, "train.max_steps=150")
    return folder


@pytest.fixture
def play(folder, browser, monkeypatch):
    """Return a function that opens the playground of some runs, with some words of its scripts replaced."""
    monkeypatch.chdir(folder)

    def open_playground(*runs, changes=(), width=1280, prompt=TEXT):
        checkpoints = ["--checkpoint", *(f"runs/{run}" for run in runs)]
        file = Path("playground.html").resolve()
        assert playground([*checkpoints, "--prompt", prompt, "--no-browser", "--output", file.name]) == 0
        page = file.read_text(encoding="utf-8")
        for before, after in changes:
            assert before in page
            page = page.replace(before, after)
        file.write_text(page, encoding="utf-8")
        open_page(browser, file, width)
        wait_for_maps(browser)
        set_field(browser, "temperature", 0)
        set_field(browser, "length", 40)

    return open_playground


def rests(browser):
    """Return whether the box shows all of its text, which scrolls only together with its shades."""
    script = """const box = document.querySelector("#text"), under = document.querySelector(".under");
        return box.scrollTop === 0 && box.scrollHeight === box.clientHeight && box.clientHeight === under.clientHeight
          && document.querySelector(".under .text").textContent === box.value"""
    return browser.execute_script(script)


def end_is_in_sight(browser):
    script = """const frame = document.querySelector(".sheet").getBoundingClientRect();
        const last = [...document.querySelectorAll(".text span")].at(-1).getBoundingClientRect();
        return frame.top <= last.top && last.bottom <= frame.bottom"""
    return browser.execute_script(script)


def press(browser, *keys):
    browser.switch_to.active_element.send_keys(*keys)


def nats(browser):
    return float(re.search(r"cost ([\d.]+) nats", find(browser, ".totals")[0].text)[1])


def shows_loss(browser, run, text):
    """Return whether the page has the loss that PyTorch has; the weights of the page are rounded."""
    return nats(browser) == pytest.approx(-load_model(f"runs/{run}", "cpu").log_probabilities(text).sum(), abs=0.02)


@pytest.mark.parametrize("width", [1280, 390])
def test_text_and_shades_lie_over_each_other_at_every_length(browser, play, width):
    play("lf", width=width)
    for n in (0, 30, 1_200, 100_000):
        box = type_text(browser, LONG[:n])
        box.send_keys("so, bottles ")
        assert value(browser) == LONG[:n] + "so, bottles "
        wait_for(lambda: "character" in find(browser, ".totals")[0].text and not find(browser, ".model.stale"))
        assert rests(browser)
        assert end_is_in_sight(browser)
        wrong, n_seen = misplaced(browser)
        assert wrong == []
        assert n_seen >= 6


def test_the_end_stays_in_sight_while_a_text_is_continued_unless_the_user_scrolls_up(browser, play):
    play("lf", width=390)
    set_field(browser, "length", 400)
    for _ in range(4):
        continue_text(browser)
        assert end_is_in_sight(browser)
        assert rests(browser)
        assert misplaced(browser)[0] == []
    assert len(value(browser)) == len(TEXT) + 4 * 400
    set_field(browser, "length", 100_000)
    n = len(value(browser))
    click(browser, "#write")
    wait_for(lambda: len(value(browser)) > n)
    browser.execute_script("document.querySelector('.sheet').scrollTop = 0")
    n = len(value(browser))
    wait_for(lambda: len(value(browser)) > n + 400)
    click(browser, "#stop")
    wait_for(lambda: can_press(browser, "#write"))
    assert browser.execute_script("return document.querySelector('.sheet').scrollTop") == 0
    set_field(browser, "length", 20)
    continue_text(browser)
    assert end_is_in_sight(browser)


def test_each_change_of_a_long_text_brings_its_place_in_sight(browser, play):
    play("lf", width=390)
    box = type_text(browser, LONG[:3_000])
    box.send_keys(CTRL + "ax" + CTRL)
    type_text(browser, "9 bottles")
    set_caret(browser, 2)
    box.send_keys(CTRL + "v")
    assert value(browser) == f"9 {LONG[:3_000]}bottles"
    wait_for(lambda: not find(browser, ".model.stale"))
    for press_it in (".next button", "#undo", "#redo"):
        assert rests(browser)
        assert end_is_in_sight(browser)
        browser.execute_script("document.querySelector('.sheet').scrollTop = 0")
        click(browser, press_it)
    assert end_is_in_sight(browser)


def test_a_character_that_the_model_has_never_seen_is_marked_and_the_model_reads_what_follows(browser, play):
    play("lf")
    trained = load_model("runs/lf", "cpu")
    type_text(browser, "7X bΩttles of b")
    wait_for(lambda: texts(browser, ".text .unknown") == ["X", "Ω"])
    assert texts(browser, ".model .message") == ["The model has never seen 'Ω'. It reads only what follows it."]
    assert shows_loss(browser, "lf", "ttles of b")
    assert "starts at character 5" in find(browser, ".totals")[0].text
    assert "".join(texts(browser, ".text span")) == "X bΩttles of b"
    set_caret(browser, 8)
    assert find(browser, "#pointed")[0].text.startswith("Outlined: l at 2;")
    wait_for(lambda: find(browser, ".looking")[0].text.endswith("l at 2 looks at"))
    set_caret(browser, 5)
    assert find(browser, "#pointed")[0].text == "The model does not read this character."
    continue_text(browser)
    assert value(browser) == "7X bΩ" + trained.generate("ttles of b", 40, temperature=0)
    wait_for(lambda: texts(browser, ".model .message") == [""])  # it is out of the window
    assert find(browser, ".text .unknown") == []
    type_text(browser, "9 bottlesX")
    wait_for(lambda: texts(browser, ".text .unknown") == ["X"])
    assert "'X'. Nothing follows it, so the model starts a line." in texts(browser, ".model .message")[0]
    assert find(browser, ".totals")[0].text.startswith("The first character is not predicted")
    continue_text(browser)
    assert value(browser) == "9 bottlesX" + trained.generate("\n", 40, temperature=0)[1:]
    assert browser.get_log("browser") == []


def test_a_character_that_looks_like_a_known_one_is_read_as_that_one(browser, play):
    play("crlf", "lf")
    type_text(browser, "9\to\N{RIGHT SINGLE QUOTATION MARK} beer")
    message = "The model reads ␣ for ⇥, ' for \N{RIGHT SINGLE QUOTATION MARK}."
    wait_for(lambda: texts(browser, ".model .message")[0] == f"Model A: {message}")
    assert shows_loss(browser, "crlf", "9 o' beer")
    never = "Model B: The model has never seen '\N{RIGHT SINGLE QUOTATION MARK}'. It reads only what follows it."
    wait_for(lambda: texts(browser, ".model .message")[1] == never)
    assert find(browser, ".text .unknown") == []
    click(browser, "#letters button:last-of-type")
    assert texts(browser, ".text .unknown") == ["\N{RIGHT SINGLE QUOTATION MARK}"]
    continue_text(browser)
    written = load_model("runs/crlf", "cpu").generate("9 o' beer", 40, temperature=0)
    assert value(browser) == "9\to\N{RIGHT SINGLE QUOTATION MARK}" + boxed(written[4:])


def test_an_impossible_stop_text_is_blamed_itself(browser, play):
    play("crlf", prompt="9 ")
    set_field(browser, "stop", "7X")
    continue_text(browser)
    assert texts(browser, "#message") == ["“Stop at” has 'X', which the model never writes."]
    assert value(browser) == "9 "
    set_field(browser, "stop", "\N{RIGHT SINGLE QUOTATION MARK} b")
    continue_text(browser)
    written = load_model("runs/crlf", "cpu").generate("9 ", 40, temperature=0)
    assert value(browser) == boxed(written.partition("' b")[0])


def boxed(text):
    return text.replace("\r", "␍")


def test_a_model_reads_and_writes_the_line_ends_of_its_text(browser, play):
    text = "9 o' beer\r\n10 o"
    play("crlf", prompt=text)
    assert value(browser) == boxed(text)
    assert shows_loss(browser, "crlf", text)
    assert "".join(texts(browser, ".text span")) == boxed(text)
    assert texts(browser, ".key-axis span")[9:11] == ["␍", "⏎"]
    continue_text(browser)
    written = load_model("runs/crlf", "cpu").generate(text, 40, temperature=0)
    assert "\r\n" in written[len(text) :]  # so it writes them
    assert value(browser) == boxed(written)
    type_text(browser, "").send_keys("9 b", ENTER, "8 b")
    assert value(browser) == boxed("9 b\r\n8 b")
    wait_for(lambda: find(browser, ".totals")[0].text.startswith("7 characters"))
    assert shows_loss(browser, "crlf", "9 b\r\n8 b")


def test_a_paste_keeps_its_carriage_returns_and_a_copy_has_them_again(browser, play):
    play("crlf", prompt="9 beers\r\n8 b")
    find(browser, "#copy")[0].click()
    wait_for(lambda: texts(browser, "#message")[0].startswith("Copied"))
    box = type_text(browser, "")
    box.send_keys(CTRL + "v")
    assert value(browser) == boxed("9 beers\r\n8 b")


def test_a_model_whose_lines_end_with_carriage_returns_alone_has_lines_in_the_box(browser, play):
    text = "9 bottles\r8 bott"
    play("cr", prompt=text)
    assert value(browser) == text.replace("\r", "\n")
    assert shows_loss(browser, "cr", text)
    assert texts(browser, ".key-axis span")[9] == "␍"
    continue_text(browser)
    assert value(browser) == load_model("runs/cr", "cpu").generate(text, 40, temperature=0).replace("\r", "\n")


def test_progress_belongs_to_a_long_reading_and_a_screen_reader_hears_little(browser, play):
    """Every reading is a long one here."""
    changes = [("PATIENCE_MS = 500;", "PATIENCE_MS = 0;"), ("TURN_MS = 30;", "TURN_MS = -1;")]
    play("lf", changes=changes)
    script = """window.seen = { progress: 0, spoken: [] };
        const progress = document.querySelector(".progress");
        new MutationObserver(() => (seen.progress += !progress.hidden)).observe(progress, { attributes: true });
        new MutationObserver((changes) => {
          const spoken = changes.filter(({ target }) => target.closest("[aria-live]:not([aria-live=off])"));
          seen.spoken.push(...spoken.map(({ target }) => target.textContent));
        }).observe(document.body, { childList: true, subtree: true });"""
    browser.execute_script(script)
    type_text(browser, "so, 9 bottles")
    wait_for(lambda: browser.execute_script("return seen.progress") > 0)
    wait_for(lambda: not find(browser, ".model.stale"))
    assert not find(browser, ".progress")[0].is_displayed()
    browser.execute_script("seen.progress = 0")
    set_field(browser, "length", 1000)
    continue_text(browser)
    wait_for(lambda: not find(browser, ".model.stale"))
    progress, spoken = browser.execute_script("return [seen.progress, seen.spoken]")
    assert progress == 0
    assert [re.sub(r"\d+ per", "N per", sentence) for sentence in spoken] == ["Wrote 1000 characters, N per second."]


def test_continue_and_stop_keep_the_focus_of_the_keyboard(browser, play):
    play("lf")
    for name, keys in (("write", ENTER), ("again", ENTER)):
        browser.execute_script(f"document.querySelector('#{name}').focus()")
        press(browser, keys)
        wait_for(lambda: len(value(browser)) == len(TEXT) + 40 and can_press(browser, "#write"))
        assert browser.switch_to.active_element.get_attribute("id") == name
    set_field(browser, "length", 100_000)
    click(browser, "#write")
    browser.execute_script("document.querySelector('#stop').focus()")
    press(browser, ENTER)
    wait_for(lambda: can_press(browser, "#write"))
    assert browser.switch_to.active_element.get_attribute("id") == "stop"
    assert not can_press(browser, "#stop")


def test_every_change_can_be_undone_and_made_again_with_buttons_and_keys(browser, play):
    play("lf")
    found = [value(browser)]

    def note():
        assert value(browser) != found[-1]
        found.append(value(browser))

    press(browser, " typed")
    note()
    click(browser, "#write")
    wait_for(lambda: can_press(browser, "#write"))
    note()
    click(browser, "#again")
    set_field(browser, "temperature", 2)
    wait_for(lambda: can_press(browser, "#write"))
    click(browser, "#again")
    wait_for(lambda: can_press(browser, "#write"))
    note()
    press(browser, " more")
    note()
    press(browser, BACKSPACE * 9)
    note()
    wait_for(lambda: not find(browser, ".model.stale"))
    click(browser, ".next button")
    note()
    press(browser, CTRL + "a" + CTRL, BACKSPACE)
    note()
    steps = {"z": lambda: press(browser, CTRL + "z" + CTRL), "undo": lambda: click(browser, "#undo")}
    forth = {"y": lambda: press(browser, CTRL + "y" + CTRL), "redo": lambda: click(browser, "#redo")}
    forth["Z"] = lambda: press(browser, CTRL + SHIFT + "z" + SHIFT + CTRL)
    for back, again in (("z", "y"), ("undo", "redo"), ("z", "Z")):
        for expected in found[-2::-1]:
            steps[back]()
            assert value(browser) == expected
        assert not can_press(browser, "#undo")
        for expected in found[1:]:
            forth[again]()
            assert value(browser) == expected
        assert not can_press(browser, "#redo")


def test_a_reload_keeps_the_text_and_a_new_visit_begins_anew(browser, play):
    play("lf")
    press(browser, ", 8 bottles")
    browser.refresh()
    wait_for(lambda: find(browser, ".next button"))
    assert value(browser) == f"{TEXT}, 8 bottles"
    assert rests(browser)
    play("lf")
    assert value(browser) == TEXT
