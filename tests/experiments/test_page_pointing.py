"""What the page shows of the place under the pointer, or by the colour of the text, is never that of another moment."""

import math

import pytest
from pages_in_browser import click, find, open_page, set_caret, set_field, texts, type_text, wait_for, wait_for_maps

from experiments.playground.__main__ import main as playground
from training.trained_model import load_model

pytestmark = pytest.mark.slow
TEXT = "9 bottles of b"
NUMBER = "table[data-name=scores] tbody tr:last-child td:last-child"
TIPS = {".map": ".place", ".losses": "figure:has(.losses) .tip", NUMBER: ".product"}  # by what one points at

SHADES = """return [...document.querySelectorAll("#writing .text span")].map(
    (span) => parseFloat(span.style.getPropertyValue("--w")))"""


@pytest.fixture
def page(browser, trained, monkeypatch):
    """Return a function that opens the page of the trained run with all its parts."""
    monkeypatch.chdir(trained)
    assert playground(["--no-browser", "--prompt", TEXT, "--output", "page.html"]) == 0

    def open_all(width=1280, parts=".inside, .steps"):
        open_page(browser, trained / "page.html", width)
        wait_for_maps(browser)
        if parts:
            browser.execute_script(f"document.querySelectorAll('{parts}').forEach((each) => (each.open = true))")
            wait_for(lambda: texts(browser, ".lines td"))

    return open_all


def point(browser, selector):
    from selenium.webdriver import ActionChains

    target = find(browser, selector)[0]
    browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", target)
    ActionChains(browser).move_to_element(target).perform()


@pytest.mark.parametrize("target", TIPS)
def test_what_pointing_shows_goes_with_the_pointer(browser, page, target):
    page()
    for _ in range(3):
        point(browser, target)
        wait_for(lambda: texts(browser, TIPS[target])[0])
        point(browser, "h1")
        wait_for(lambda: texts(browser, TIPS[target]) == [""])
        assert not find(browser, ".lit, .lines td.chosen, .losses circle")


@pytest.mark.parametrize("target", [".map", NUMBER])
@pytest.mark.parametrize("change", ["another head", "another text", "a head switched off"])
def test_what_pointing_shows_goes_when_the_numbers_change_or_has_the_new_ones(browser, page, target, change):
    page()
    point(browser, target)
    tip = TIPS[target]
    wait_for(lambda: texts(browser, tip)[0])
    if change == "another head":
        click(browser, "button.head:not([aria-pressed=true])")
    elif change == "another text":
        type_text(browser, TEXT[:-2])
    else:
        click(browser, ".switches button")
    wait_for(lambda: not find(browser, ".stale"))
    new = () if target == ".map" else (f"scores {number}" for number in texts(browser, NUMBER))
    is_new = ("", *new).__contains__
    wait_for(lambda: is_new(texts(browser, tip)[0].partition(" = ")[0]))


def test_the_keyboard_keeps_its_number_when_the_pointer_leaves_or_the_text_changes(browser, page):
    from selenium.webdriver import Keys

    page()
    set_caret(browser, 7)
    wait_for(lambda: texts(browser, ".lines tbody tr:last-child th")[0].endswith("\n6"))
    table = find(browser, "table[data-name=q]")[0]
    table.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    point(browser, "table[data-name=k] tbody td")
    wait_for(lambda: texts(browser, ".product")[0].startswith("k "))
    table.send_keys(Keys.ARROW_DOWN)
    browser.execute_script("point(8, true)")
    wait_for(lambda: texts(browser, ".lines tbody tr:last-child th")[0].endswith("\n8"))
    wait_for(lambda: find(browser, ".lines td.chosen"))
    find(browser, "table[data-name=k]")[0].send_keys(Keys.TAB * 9)  # past all tables
    wait_for(lambda: texts(browser, ".product") == [""])


def test_a_phone_shades_by_attention_while_the_heads_are_closed(browser, page):
    page(390, parts="")
    assert not find(browser, ".inside[open], .steps[open]")
    click(browser, "[data-by=attention]")
    weights = load_model("runs/tiny", "cpu").attention_weights(TEXT)
    for text in (TEXT, TEXT[:-3]):
        type_text(browser, text)
        wait_for(lambda: texts(browser, ".looking")[0].startswith("Head L"))
        set_caret(browser, len(text))
        name = texts(browser, "button.head[aria-pressed=true] b")[0]
        expected = weights[int(name[1])][int(name[3]), len(text) - 1, : len(text)]
        shades = [100 * weight**0.5 for weight in expected.tolist()]
        wait_for(lambda shades=shades: browser.execute_script(SHADES) == pytest.approx(shades, abs=0.8))


def test_the_page_says_what_its_numbers_mean(browser, page):
    page()
    run = load_model("runs/tiny", "cpu")
    assert f"A GPT of {run.model.n_parameters():,} parameters" in find(browser, ".about")[0].text
    assert texts(browser, ".about")[0].endswith(f"of the text text.txt, in {run.checkpoint.step} steps of training.")
    V = len(run.vocabulary.characters)
    assert texts(browser, ".even") == [f"Guessing evenly among its {V} characters costs {math.log2(V):.1f} bits each."]
    before = texts(browser, ".next")
    set_field(browser, "temperature", 0)
    type_text(browser, TEXT + "o")
    type_text(browser, TEXT)
    wait_for(lambda: texts(browser, ".next") == before)
    assert "At temperature 1; the settings change only what Continue writes." in find(browser, ".answers")[0].text
    assert "arker" not in find(browser, "body")[0].text  # stronger colours are lighter in the dark
