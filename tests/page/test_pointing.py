"""What the page shows of the place under the pointer, or of the chosen head, is never that of another moment."""

import re

import pytest
from page_numbers import SHADES, check_numbers, labelled
from pages_in_browser import (
    choose_head,
    click,
    find,
    open_details,
    open_models,
    query,
    set_caret,
    texts,
    type_text,
    wait_for,
    wait_to_find,
)

from experiments.heads.silence import silenced
from training.trained_model import load_model

pytestmark = pytest.mark.slow
TEXT = "9 bottles of b"
NUMBER = "table[data-name=scores] tbody tr:last-child td:last-child"
TIPS = {"#map": "#place", "#curve": "figure .tip", NUMBER: "#product"}  # by what one points at
CHANGES = pytest.mark.parametrize("kind", ["another head", "another text", "heads switched off"])
LAST = "#lines tbody tr:last-child th"


@pytest.fixture
def page(browser, trained, monkeypatch):
    """Return a function that opens the page of the trained run with all its parts."""
    monkeypatch.chdir(trained)

    def open_all(**window):
        no_scrolling = {"height": 4000}  # which would move the page under the pointer
        open_models(browser, "runs/tiny", options=["--prompt", TEXT], **no_scrolling, **window)
        browser.execute_async_script("setTimeout(arguments[0], 600)")  # until the maps have followed the pause
        open_details(browser)
        choose_head(browser, 4)
        check_numbers(browser, load_model("runs/tiny", "cpu"), TEXT)
        wait_to_find(["layer 1, head 1"], lambda: texts(browser, "#head-name"))

    return open_all


def point(browser, selector, *place):
    from selenium.webdriver import ActionChains

    ActionChains(browser).move_to_element_with_offset(find(browser, selector)[0], *place or (0, 0)).perform()


def point_at_map(browser, q, k):
    cell = find(browser, "#map")[0].size["width"] / len(TEXT)
    point(browser, "#map", *(round((each + 0.5 - len(TEXT) / 2) * cell) for each in (k, q)))


def check_place(browser, text, q, k, off=()):
    """Assert that the page comes to say what the chosen head gives at a place of the map."""
    layer, head = map(int, re.findall(r"\d+", texts(browser, "#head-name")[0]))
    trained = load_model("runs/tiny", "cpu")
    with silenced(trained.model, off):
        weight = trained.attention_weights(text)[layer][head, q, k].item()

    def found():
        words, _, shown = texts(browser, "#place")[0].partition(": weight ")
        return words, float(shown or "nan")

    place = f"{labelled(text[q])} at {q} looks at {labelled(text[k])} at {k}"
    wait_to_find((place, pytest.approx(weight, abs=3e-3)), found)


def change(browser, kind):
    """Change what the page shows, and wait for new numbers; return the text and what is off."""
    before, text, off = texts(browser, NUMBER), TEXT, []
    if kind == "another head":
        choose_head(browser, 1)
    elif kind == "another text":
        type_text(browser, text := TEXT[2:])
    else:
        off = [(0, 0), (0, 2)]
        for _, h in off:
            click(browser, f"#switches button:nth-child({h + 1})")
    wait_for(lambda: texts(browser, NUMBER) != before)
    return text, off


@pytest.mark.parametrize("target", TIPS)
def test_what_pointing_shows_goes_with_the_pointer(browser, page, target):
    page()
    for _ in range(3):
        point(browser, target)
        wait_for(lambda: texts(browser, TIPS[target])[0])
        point(browser, "h1")
        wait_to_find([""], lambda: texts(browser, TIPS[target]))
        assert not find(browser, ".lit, #lines td.chosen, #curve circle")


@CHANGES
def test_a_number_that_is_explained_goes_or_is_the_new_one_when_the_numbers_change(browser, page, kind):
    page()
    point(browser, NUMBER)
    wait_for(lambda: texts(browser, "#product")[0])
    change(browser, kind)
    wait_for(lambda: texts(browser, "#product")[0].partition(" = ")[0] in ("", f"scores {texts(browser, NUMBER)[0]}"))


@CHANGES
def test_the_weight_under_a_pointer_that_rests_on_the_map_is_that_of_the_new_maps(browser, page, kind):
    page()
    point_at_map(browser, 9, 3)
    check_place(browser, TEXT, 9, 3)
    text, off = change(browser, kind)
    check_place(browser, text, 9, 3, off)


def test_a_character_is_chosen_by_a_click_the_arrow_keys_or_a_row_of_the_map(browser, page):
    page()
    set_caret(browser, 14)
    assert query(browser) == 13
    find(browser, "#text")[0].send_keys("\ue012\ue012")  # the left arrow
    assert query(browser) == 11
    wait_to_find(["where “f” looks"], lambda: texts(browser, "#looks-title"))
    point_at_map(browser, 8, 2)
    check_place(browser, TEXT, 8, 2)
    assert query(browser) == 8
    point_at_map(browser, 8, 11)
    assert texts(browser, "#place")[0].endswith("f at 11: not visible yet")


def test_the_keyboard_keeps_its_number_when_the_pointer_leaves_or_the_text_changes(browser, page):
    from selenium.webdriver import Keys

    page()
    set_caret(browser, 7)
    wait_for(lambda: texts(browser, LAST)[0].endswith("\n6"))
    table = find(browser, "table[data-name=q]")[0]
    table.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    point(browser, "table[data-name=k] tbody td")
    wait_for(lambda: texts(browser, "#product")[0].startswith("k "))
    point(browser, "h1")
    table.send_keys(Keys.ARROW_DOWN)
    cell = lambda: browser.execute_script("return document.querySelector('.chosen')?.place")  # noqa: E731
    assert cell() == ["k", 1, 0]
    set_caret(browser, 9)
    wait_for(lambda: texts(browser, LAST)[0].endswith("\n8"))
    assert cell() == ["k", 1, 0]
    find(browser, "table[data-name=k]")[0].send_keys(Keys.TAB * 9)  # past all tables
    wait_to_find([""], lambda: texts(browser, "#product"))


@pytest.mark.parametrize("width", [1280, 390])
def test_shades_by_attention_are_those_of_the_chosen_head_and_character(browser, page, width):
    page(width=width)
    click(browser, "[data-by=attention]")
    weights = load_model("runs/tiny", "cpu").attention_weights
    for text, h, q in ((TEXT, 1, 13), (TEXT, 5, 9), (TEXT[:-3], 5, 10), (TEXT[:-3], 0, 0)):
        type_text(browser, text)
        choose_head(browser, h)
        set_caret(browser, q + 1)
        shades = [100 * weight**0.5 for weight in weights(text)[h // 3][h % 3, q].tolist()]
        wait_to_find(pytest.approx(shades, abs=0.8), lambda: browser.execute_script(SHADES))
    click(browser, "[data-by=surprise]")
    check_numbers(browser, load_model("runs/tiny", "cpu"), text)
