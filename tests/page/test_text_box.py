"""The text box of the page: what it holds is what the models read and write, and nothing typed is lost."""

import re
from pathlib import Path

import pytest
from conftest import TINY_TEXT, train_tiny
from page_numbers import check_numbers
from pages_in_browser import (
    can_continue,
    can_press,
    click,
    continue_text,
    find,
    misplaced,
    open_models,
    open_page,
    set_caret,
    set_field,
    texts,
    type_text,
    value,
    wait_for,
    wait_to_find,
)

from training.runs.find_checkpoint import BUNDLED_MODEL
from training.trained_model import load_model

pytestmark = pytest.mark.slow
TEXT, BEFORE = "9 bottles of b", "The bottles of "  # the bundled model reads the second one
LONG = "".join(f"The quick\tbrown fox {i} 中😀\njumps over the lazy dog,  and so on. אב\n\n" for i in range(2_000))
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\n中😀אב\n"
CTRL, SHIFT, ENTER, BACKSPACE, END, ESCAPE = "\ue009", "\ue008", "\ue007", "\ue003", "\ue010", "\ue00c"
CURLY = "\N{RIGHT SINGLE QUOTATION MARK}"
RUNS = {  # the text of each, and its settings
    "lf": (TINY_TEXT, []),
    "crlf": ("".join(f"{i} o' beer\r\n" for i in range(300)), []),
    "cr": (TINY_TEXT.replace("\n", "\r"), []),
    "lines": (TINY_TEXT, ["data.lines=true", "train.max_steps=300"]),
    "<img src=x>'": (SCRIPT * 40, ["model.n_embd=48", "model.block_size=64", "train.name=script"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("box")
    for name, (text, settings) in RUNS.items():
        (folder / f"{name}.txt").write_bytes(text.encode())
        settings = ["train.max_steps=150", "train.device=cpu", "train.dtype=float32", *settings]
        train_tiny(folder, f"data.corpus={name}.txt", *([] if "<" in name else [f"train.name={name}"]), *settings)
    return folder


@pytest.fixture
def desk(folder, browser, monkeypatch):
    """Return a function that opens the page of some runs, with a text, for continuations that are the likeliest."""
    monkeypatch.chdir(folder)

    def open_desk(*runs, prompt=TEXT, **window):
        open_models(browser, *(Path("runs", run) for run in runs), options=["--prompt", prompt], **window)
        assert value(browser) == boxed(prompt)
        set_field(browser, "temperature", 0)
        set_field(browser, "length", 40)

    return open_desk


def boxed(text):
    """Return a text as the box holds it."""
    return text.replace("\r", "␍" if "\n" in text else "\n")


def continued(run, text, length=40):
    """Return what PyTorch makes of a text, as the box holds it."""
    return boxed(load_model(Path("runs", run), "cpu").generate(text, length, temperature=0))


def check(browser, run, text):
    check_numbers(browser, load_model(Path("runs", run), "cpu"), text)


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


def begin_to_write(browser):
    """Press Continue for a long text, and wait until it has grown several times."""
    set_field(browser, "length", 100_000)
    lengths = {len(value(browser))}
    click(browser, "#write")
    wait_for(lambda: lengths.add(len(value(browser))) or len(lengths) > 5, 10)


def type_keys(browser, *keys):
    find(browser, "#text")[0].send_keys(*keys)


@pytest.mark.parametrize("width", [1280, 390])
def test_text_and_shades_lie_over_each_other_at_every_length(browser, desk, width):
    desk("lf", width=width)
    for n in (0, 30, 1_200, 100_000):
        type_text(browser, LONG[:n])
        assert len(find(browser, ".text span")) <= 16  # also before the text is read
        type_keys(browser, "Xso, bottles ")
        assert value(browser) == LONG[:n] + "Xso, bottles "
        check(browser, "lf", "so, bottles ")
        assert rests(browser)
        assert end_is_in_sight(browser)
        wrong, n_seen = misplaced(browser)
        assert wrong == []
        assert n_seen >= 6


def test_the_end_stays_in_sight_while_a_text_is_continued_unless_the_user_scrolls_up(browser, desk):
    desk("lf", width=390)
    set_field(browser, "length", 400)
    for n in range(1, 5):
        continue_text(browser)
        assert len(value(browser)) == len(TEXT) + n * 400
        assert end_is_in_sight(browser)
        assert rests(browser)
        assert misplaced(browser)[0] == []
    desk(BUNDLED_MODEL, width=390, prompt=LONG[:1_000])
    begin_to_write(browser)
    assert end_is_in_sight(browser)
    browser.execute_script("document.querySelector('.sheet').scrollTop = 0")
    n = len(value(browser))
    wait_for(lambda: len(value(browser)) > n + 50)
    continue_text(browser)  # it stops
    assert browser.execute_script("return document.querySelector('.sheet').scrollTop") == 0
    set_field(browser, "length", 20)
    continue_text(browser)
    assert end_is_in_sight(browser)


def test_each_change_of_a_long_text_brings_its_place_in_sight(browser, desk):
    desk("lf", width=390)
    long = f"{LONG[:90_000]}9 "
    type_text(browser, long)
    type_keys(browser, CTRL + "ax" + CTRL)
    type_text(browser, "9 bottles")
    set_caret(browser, 2)
    type_keys(browser, CTRL + "v" + CTRL)
    assert value(browser) == f"9 {long}bottles"
    check(browser, "lf", "9 bottles")
    for change in (lambda: click(browser, "#next-a button"), lambda: click(browser, "#undo")):
        assert rests(browser)
        assert end_is_in_sight(browser)
        browser.execute_script("document.querySelector('.sheet').scrollTop = 0")
        change()
    assert end_is_in_sight(browser)


def test_a_character_that_the_model_has_never_seen_is_marked_and_the_model_reads_what_follows(browser, desk):
    desk("lf")
    type_text(browser, "7X bΩttles of b")
    wait_to_find(["X", "Ω"], lambda: texts(browser, ".text .unknown"))
    assert texts(browser, "#message") == ["The model has never seen “Ω”. It reads only what follows it."]
    check(browser, "lf", "ttles of b")
    assert "The last 10 characters cost" in texts(browser, "#cost")[0]
    assert "".join(texts(browser, ".text span")) == "X bΩttles of b"
    set_caret(browser, 8)
    wait_to_find(["where “l” looks"], lambda: texts(browser, "#looks-title"))
    set_caret(browser, 5)  # Ω, which it does not read
    assert not re.search("Ω|“l”", texts(browser, "#cost")[0])
    continue_text(browser)
    assert value(browser) == "7X bΩ" + continued("lf", "ttles of b")
    wait_to_find([], lambda: texts(browser, ".text .unknown"))  # it is out of the window
    for text, message in (
        ("9 bottlesX", "The model has never seen “X”. Nothing follows it, so the model starts a line."),
        ("", "Without a text, the model starts a line."),
    ):
        type_text(browser, text)
        check(browser, "lf", "")
        wait_to_find([message], lambda: texts(browser, "#message"))
        continue_text(browser)
        assert value(browser) == text + continued("lf", "\n")[1:]
    type_text(browser, "9")
    check(browser, "lf", "9")
    wait_to_find([""], lambda: texts(browser, "#without"))
    assert texts(browser, "#message") == [""]
    assert browser.get_log("browser") == []


def test_a_character_that_looks_like_a_known_one_is_read_as_that_one(browser, desk):
    desk("crlf", "lf")
    type_text(browser, f"9\to{CURLY}")
    wait_to_find([f"The model reads ␣ for ⇥, ' for {CURLY}."], lambda: texts(browser, "#message"))
    check(browser, "crlf", "9 o'")
    assert find(browser, ".text .unknown") == []
    click(browser, "#tabs button:last-child")
    never = f"The model has never seen “{CURLY}”. Nothing follows it, so the model starts a line."
    wait_to_find([never], lambda: texts(browser, "#message"))
    assert texts(browser, ".text .unknown") == [CURLY]
    click(browser, "#tabs button:first-child")
    continue_text(browser)
    assert value(browser) == f"9\to{CURLY}" + continued("crlf", "9 o'")[4:]


@pytest.mark.parametrize(
    ("run", "text", "length"),
    [("crlf", "9 o' beer\r\n10 o", 40), ("cr", "9 bottles\r8 bott", 40), ("lines", TEXT, 400)],
)
def test_a_model_reads_and_writes_the_line_ends_of_its_text_and_one_of_lines_stops_there(
    browser, desk, run, text, length
):
    desk(run, prompt=text)
    check(browser, run, text)
    assert "".join(texts(browser, ".text span")) == boxed(text)
    set_field(browser, "length", length)
    continue_text(browser)
    assert value(browser) == continued(run, text, length)
    assert ("␍\n" in value(browser)[len(text) :]) == (run == "crlf")
    assert len(value(browser)) < 100


def test_text_is_never_interpreted_as_html_and_other_scripts_are_shown(browser, desk):
    desk("script", prompt=SCRIPT)
    assert "the next character of <img src=x>'.txt" in texts(browser, "#promise")[0]
    n_scripts = len(find(browser, "script"))
    set_field(browser, "length", 200)
    continue_text(browser)
    assert "<script>" in value(browser)[len(SCRIPT) :]
    assert (browser.title, find(browser, "img"), len(find(browser, "script"))) == ("script", [], n_scripts)
    type_text(browser, "中😀אב")
    check(browser, "script", "中😀אב")
    set_caret(browser, 6)
    wait_to_find(["where “U+05D1” looks"], lambda: texts(browser, "#looks-title"))
    assert texts(browser, ".text span") == ["中", "😀", "א", "ב"]
    assert {label[:-8] for label in texts(browser, "#looks span:first-child")} == {"中", "😀", "U+05D0", "U+05D1"}


def test_the_first_words_are_written_once_letter_by_letter_until_the_visitor_types_or_stops_them(browser, desk):
    desk("lf")
    file, whole, lengths = Path("page.html").resolve(), len(TEXT) + 60, set()
    open_page(browser, file, moves=True)
    wait_for(lambda: lengths.add(len(value(browser))) or len(value(browser)) == whole)
    assert len(lengths) > 10
    for keys in (END + " typed", ESCAPE):
        open_page(browser, file, moves=True)
        wait_for(lambda: len(value(browser)) > len(TEXT) + 3)
        type_keys(browser, keys)
        wait_for(lambda: can_continue(browser), 2)
        text = value(browser)
        assert len(text) < whole and text.endswith(" typed") == (keys != ESCAPE)


def test_the_visitor_types_and_takes_back_while_a_text_is_written(browser, desk):
    desk(BUNDLED_MODEL, prompt=BEFORE)
    for change, stays in ((lambda: type_keys(browser, END + ", so"), ".+, so"), (lambda: click(browser, "#undo"), "")):
        type_text(browser, BEFORE)
        begin_to_write(browser)
        change()
        wait_for(lambda: can_continue(browser))
        assert re.fullmatch(BEFORE + stays, value(browser), re.DOTALL)
        assert (texts(browser, "#message"), can_press(browser, "#again")) == ([""], False)


def test_continue_and_again_write_what_pytorch_writes_with_the_next_seed_each(browser, desk):
    desk("lf")
    type_keys(browser, CTRL + ENTER + CTRL)
    wait_to_find(continued("lf", TEXT), lambda: value(browser))
    set_field(browser, "temperature", 2)
    found = [value(browser)]
    for seed in ("1", "2"):
        continue_text(browser, "#again")
        assert find(browser, "[name=seed]")[0].get_property("value") == seed
        found.append(value(browser))
    assert [len(text) for text in {*found}] == [len(TEXT) + 40] * 3
    set_field(browser, "length", "")
    for selector in ("#again", "#write"):  # the length is missing: nothing is lost
        click(browser, selector)
        assert find(browser, "#settings input:invalid")[0].is_displayed()
        assert value(browser) == found[-1]


def test_buttons_and_bars_keep_the_focus_of_the_keyboard(browser, desk):
    desk(BUNDLED_MODEL, prompt=BEFORE)
    for name in ("write", "again"):
        find(browser, f"#{name}")[0].send_keys(ENTER)
        wait_for(lambda: len(value(browser)) == len(BEFORE) + 40 and can_continue(browser))
        assert browser.switch_to.active_element.get_attribute("id") == name
    set_field(browser, "length", 100_000)
    for label in ("Stop", "Continue"):
        find(browser, "#write")[0].send_keys(ENTER)
        wait_to_find([label], lambda: texts(browser, "#write"))
        assert browser.switch_to.active_element.get_attribute("id") == "write"
    type_text(browser, text := BEFORE)
    for _ in range(3):
        check(browser, BUNDLED_MODEL, text)
        bar = find(browser, "#next-a button")[2]
        text += bar.text[0].replace("␣", " ").replace("⏎", "\n")
        bar.send_keys(ENTER)
        assert value(browser) == text
        assert browser.switch_to.active_element == find(browser, "#next-a button")[2]


def test_every_change_can_be_undone_and_made_again(browser, desk):
    desk("lf")
    found = [TEXT]
    changes = (
        lambda: type_keys(browser, END + " on"),
        lambda: continue_text(browser),
        lambda: set_field(browser, "temperature", 2) or continue_text(browser, "#again"),
        lambda: type_keys(browser, END + " of the walls"),
        lambda: type_keys(browser, BACKSPACE * 9),
        lambda: check(browser, "lf", value(browser)) or click(browser, "#next-a button"),
        lambda: type_keys(browser, CTRL + "a" + CTRL, BACKSPACE),
    )
    for change in changes:
        change()
        assert value(browser) != found[-1]
        found.append(value(browser))
    undo = lambda: click(browser, "#undo")  # noqa: E731
    for back, again in ((lambda: type_keys(browser, CTRL + "z" + CTRL), "y"), (undo, SHIFT + "z" + SHIFT)):
        for expected in found[-2::-1]:
            back()
            assert value(browser) == expected
        assert not can_press(browser, "#undo")
        for expected in found[1:]:
            type_keys(browser, CTRL + again + CTRL)
            assert value(browser) == expected
