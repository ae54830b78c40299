"""The text box of the page: what it holds is what the models read and write, and nothing typed is lost."""

import re
from pathlib import Path

import pytest
from conftest import TINY_TEXT, train_tiny
from page_numbers import check_numbers

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
    "lines": ("".join(f"{i} bottles of beer\n" for i in range(300)), ["data.lines=true"]),
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
        browser.open_models(*(Path("runs", run) for run in runs), options=["--prompt", prompt], **window)
        assert browser.value() == boxed(prompt)
        browser.set_field("temperature", 0)
        browser.set_field("length", 40)

    return open_desk


def boxed(text):
    return text.replace("\r", "␍" if "\n" in text else "\n")


def continued(run, text, length=40):
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
    browser.set_field("length", 100_000)
    lengths = {len(browser.value())}
    browser.click("#write")
    browser.wait_for(lambda: lengths.add(len(browser.value())) or len(lengths) > 5, 10)


def type_keys(browser, *keys):
    browser.find("#text")[0].send_keys(*keys)


@pytest.mark.parametrize("width", [1280, 390])
def test_text_and_shades_lie_over_each_other_at_every_length(browser, desk, width):
    desk("lf", width=width)
    for n in (0, 30, 1_200, 100_000):
        browser.type_text(LONG[:n])
        assert len(browser.find(".text span")) <= 16  # also before the text is read
        type_keys(browser, "Xso, bottles ")
        assert browser.value() == LONG[:n] + "Xso, bottles "
        check(browser, "lf", "so, bottles ")
        assert rests(browser)
        assert end_is_in_sight(browser)
        wrong, n_seen = browser.misplaced()
        assert wrong == []
        assert n_seen >= 6


def test_the_end_stays_in_sight_while_a_text_is_continued_unless_the_user_scrolls_up(browser, desk):
    desk("lf", width=390)
    browser.set_field("length", 400)
    for n in range(1, 5):
        browser.continue_text()
        assert len(browser.value()) == len(TEXT) + n * 400
        assert end_is_in_sight(browser)
        assert rests(browser)
        assert browser.misplaced()[0] == []
    desk(BUNDLED_MODEL, width=390, prompt=LONG[:1_000])
    begin_to_write(browser)
    assert end_is_in_sight(browser)
    browser.execute_script("document.querySelector('.sheet').scrollTop = 0")
    n = len(browser.value())
    browser.wait_for(lambda: len(browser.value()) > n + 50)
    browser.continue_text()  # it stops
    assert browser.execute_script("return document.querySelector('.sheet').scrollTop") == 0


def test_each_change_of_a_long_text_brings_its_place_in_sight(browser, desk):
    desk("lf", width=390)
    browser.type_text(f"{LONG[:90_000]}9 bottles")
    check(browser, "lf", "9 bottles")
    for button in ("#next-a button", "#undo"):
        browser.execute_script("document.querySelector('.sheet').scrollTop = 0")
        browser.click(button)
        assert rests(browser)
        assert end_is_in_sight(browser)


def test_a_character_that_the_model_has_never_seen_is_marked_and_the_model_reads_what_follows(browser, desk):
    desk("lf")
    browser.type_text("7X bΩttles of b")
    browser.wait_to_find(["X", "Ω"], lambda: browser.texts(".text .unknown"))
    assert browser.texts("#message") == ["The model has never seen “Ω”. It reads only what follows it."]
    check(browser, "lf", "ttles of b")
    assert "Loss on the last 10 characters: " in browser.texts("#text-loss")[0]
    assert "".join(browser.texts(".text span")) == "X bΩttles of b"
    browser.continue_text()
    assert browser.value() == "7X bΩ" + continued("lf", "ttles of b")
    browser.wait_to_find([], lambda: browser.texts(".text .unknown"))  # it is out of the window
    for text, message in (
        ("9 bottlesX", "The model has never seen “X”. Nothing follows it, so the model starts a line."),
        ("", "Without a text, the model starts a line."),
    ):
        browser.type_text(text)
        check(browser, "lf", "")
        browser.wait_to_find([message], lambda: browser.texts("#message"))
        browser.continue_text()
        assert browser.value() == text + continued("lf", "\n")[1:]
    assert browser.get_log("browser") == []


def test_a_character_that_looks_like_a_known_one_is_read_as_that_one(browser, desk):
    desk("crlf", "lf")
    browser.type_text(f"9\to{CURLY}")
    browser.wait_to_find([f"The model reads ␣ for ⇥, ' for {CURLY}."], lambda: browser.texts("#message"))
    check(browser, "crlf", "9 o'")
    assert browser.find(".text .unknown") == []
    browser.click("#tabs button:last-child")
    never = f"The model has never seen “{CURLY}”. Nothing follows it, so the model starts a line."
    browser.wait_to_find([never], lambda: browser.texts("#message"))
    assert browser.texts(".text .unknown") == [CURLY]
    browser.click("#tabs button:first-child")
    browser.continue_text()
    assert browser.value() == f"9\to{CURLY}" + continued("crlf", "9 o'")[4:]


@pytest.mark.parametrize(
    ("run", "text", "length"),
    [("crlf", "9 o' beer\r\n10 o", 40), ("lines", TEXT, 400)],
)
def test_a_model_reads_and_writes_the_line_ends_of_its_text_and_one_of_lines_stops_there(
    browser, desk, run, text, length
):
    desk(run, prompt=text)
    check(browser, run, text)
    assert "".join(browser.texts(".text span")) == boxed(text)
    browser.set_field("length", length)
    browser.continue_text()
    assert browser.value() == continued(run, text, length)
    assert ("␍\n" in browser.value()[len(text) :]) == (run == "crlf")
    assert len(browser.value()) < 100


def test_text_is_never_interpreted_as_html_and_other_scripts_are_shown(browser, desk):
    desk("script", prompt=SCRIPT)
    assert "the next character of <img src=x>'.txt" in browser.texts("#promise")[0]
    n_scripts = len(browser.find("script"))
    browser.set_field("length", 200)
    browser.continue_text()
    assert "<script>" in browser.value()[len(SCRIPT) :]
    assert (browser.title, browser.find("img"), len(browser.find("script"))) == ("script", [], n_scripts)
    browser.type_text("中😀אב")
    check(browser, "script", "中😀אב")
    assert browser.texts(".text span") == ["中", "😀", "א", "ב"]


def test_the_visitor_types_and_takes_back_while_a_text_is_written(browser, desk):
    desk(BUNDLED_MODEL, prompt=BEFORE)
    typed, undone = (lambda: type_keys(browser, END + ", so"), ".+, so"), (lambda: browser.click("#undo"), "")
    for change, stays in (typed, undone, (lambda: type_keys(browser, ESCAPE), ".+")):
        browser.type_text(BEFORE)
        begin_to_write(browser)
        change()
        browser.wait_for(lambda: browser.can_continue())
        assert re.fullmatch(BEFORE + stays, browser.value(), re.DOTALL)
        assert browser.texts("#message") == [""]
        assert browser.can_press("#again") == (change is not typed[0] and change is not undone[0])


def test_continue_and_again_write_what_pytorch_writes_with_the_next_seed_each(browser, desk):
    desk("lf")
    type_keys(browser, CTRL + ENTER + CTRL)
    browser.wait_to_find(continued("lf", TEXT), lambda: browser.value())
    browser.set_field("temperature", 2)
    found = [browser.value()]
    for seed in ("1", "2"):
        browser.continue_text("#again")
        assert browser.find("[name=seed]")[0].get_property("value") == seed
        found.append(browser.value())
    assert [len(text) for text in {*found}] == [len(TEXT) + 40] * 3
    browser.set_field("length", "")
    for selector in ("#again", "#write"):  # the length is missing: nothing is lost
        browser.click(selector)
        assert browser.find("#settings input:invalid")[0].is_displayed()
        assert browser.value() == found[-1]


def test_buttons_keep_the_focus_of_the_keyboard(browser, desk):
    desk(BUNDLED_MODEL, prompt=BEFORE)
    for name in ("write", "again"):
        browser.find(f"#{name}")[0].send_keys(ENTER)
        browser.wait_for(lambda: len(browser.value()) == len(BEFORE) + 40 and browser.can_continue())
        assert browser.switch_to.active_element.get_attribute("id") == name


def test_every_change_can_be_undone_and_made_again(browser, desk):
    desk("lf")
    found = [TEXT]
    changes = (
        lambda: type_keys(browser, END + " on"),
        lambda: browser.continue_text(),
        lambda: browser.set_field("temperature", 2) or browser.continue_text("#again"),
        lambda: type_keys(browser, END + " of the walls"),
        lambda: browser.execute_async_script("setTimeout(arguments[0], 1000)") or type_keys(browser, BACKSPACE * 9),
        lambda: check(browser, "lf", browser.value()) or browser.click("#next-a button"),
        lambda: type_keys(browser, CTRL + "a" + CTRL, BACKSPACE),
    )
    for change in changes:
        change()
        assert browser.value() != found[-1]
        found.append(browser.value())
    undo = lambda: browser.click("#undo")  # noqa: E731
    for back, again in ((lambda: type_keys(browser, CTRL + "z" + CTRL), "y"), (undo, SHIFT + "z" + SHIFT)):
        for expected in found[-2::-1]:
            back()
            assert browser.value() == expected
        assert not browser.can_press("#undo")
        for expected in found[1:]:
            type_keys(browser, CTRL + again + CTRL)
            assert browser.value() == expected
