"""What the page shows of the place under the pointer, or of the chosen head, is never that of another moment."""

import re

import pytest
from page_numbers import SHADES, check_numbers, labelled

from experiments.heads.silence import silenced
from training.trained_model import load_model

pytestmark = pytest.mark.slow
TEXT = "9 bottles of b"
NUMBER = "table[data-name=scores] tbody tr:last-child td:last-child"
TIPS = {"#map": "#place", "#curve": "figure .tip"}  # by what one points at
LIT = "return [...document.querySelectorAll('.lit')].map(({ place }) => place)"
CHANGES = pytest.mark.parametrize("kind", ["another head", "another text", "heads switched off"])


@pytest.fixture
def page(browser, trained, monkeypatch):
    """Return a function that opens the page of the trained run with all its parts."""
    monkeypatch.chdir(trained)

    def open_all(**window):
        no_scrolling = {"height": 4000}  # which would move the page under the pointer
        browser.open_models("runs/tiny", options=["--prompt", TEXT], **no_scrolling, **window)
        browser.execute_async_script("setTimeout(arguments[0], 600)")  # until the maps have followed the pause
        browser.open_details()
        browser.choose_head(4)
        check_numbers(browser, load_model("runs/tiny", "cpu"), TEXT)
        browser.wait_to_find(["layer 1, head 1"], lambda: browser.texts("#head-name"))

    return open_all


def point(browser, selector, *place):
    from selenium.webdriver import ActionChains

    ActionChains(browser).move_to_element_with_offset(browser.find(selector)[0], *place or (0, 0)).perform()


def point_at_map(browser, q, k):
    cell = browser.find("#map")[0].size["width"] / len(TEXT)
    point(browser, "#map", *(round((each + 0.5 - len(TEXT) / 2) * cell) for each in (k, q)))


def check_place(browser, text, q, k, off=()):
    """Assert that the page comes to say what the chosen head gives at a place of the map."""
    layer, head = map(int, re.findall(r"\d+", browser.texts("#head-name")[0]))
    trained = load_model("runs/tiny", "cpu")
    with silenced(trained.model, off):
        weight = trained.attention_weights(text)[layer][head, q, k].item()

    def found():
        words, _, shown = browser.texts("#place")[0].partition(": weight ")
        return words, float(shown or "nan")

    place = f"{labelled(text[q])} at {q} looks at {labelled(text[k])} at {k}"
    browser.wait_to_find((place, pytest.approx(weight, abs=3e-3)), found)


def change(browser, kind):
    """Change what the page shows, and wait for new numbers; return the text and what is off."""
    before, text, off = browser.texts(NUMBER), TEXT, []
    if kind == "another head":
        browser.choose_head(1)
    elif kind == "another text":
        browser.type_text(text := TEXT[2:])
    else:
        off = [(0, 0), (0, 2)]
        for _, h in off:
            browser.click(f"#switches button:nth-child({h + 1})")
    browser.wait_for(lambda: browser.texts(NUMBER) != before)
    return text, off


@pytest.mark.parametrize("target", TIPS)
def test_what_pointing_shows_goes_with_the_pointer(browser, page, target):
    page()
    for _ in range(3):
        point(browser, target)
        browser.wait_for(lambda: browser.texts(TIPS[target])[0])
        point(browser, "h1")
        browser.wait_to_find([""], lambda: browser.texts(TIPS[target]))
        assert not browser.find("#curve circle")


def test_a_number_lights_up_with_those_that_went_into_it_while_one_points_at_it(browser, page):
    page()
    for row, column in ((5, 2), (3, 4)):
        point(browser, f"table[data-name=output] tbody tr:nth-child({row + 1}) td:nth-child({column + 2})")
        weights = [["weights", row, i] for i in range(7)]
        lit = [*(["v", i, column] for i in range(6)), *weights, ["output", row, column]]
        browser.wait_to_find(lit, lambda: browser.execute_script(LIT))
    point(browser, "h1")
    browser.wait_to_find([], lambda: browser.find(".lit"))


@CHANGES
def test_the_weight_under_a_pointer_that_rests_on_the_map_is_that_of_the_new_maps(browser, page, kind):
    page()
    point_at_map(browser, 9, 3)
    check_place(browser, TEXT, 9, 3)
    text, off = change(browser, kind)
    check_place(browser, text, 9, 3, off)


def test_a_character_is_chosen_by_a_click_the_arrow_keys_or_a_row_of_the_map(browser, page):
    page()
    browser.set_caret(14)
    assert browser.query() == 13
    browser.find("#text")[0].send_keys("\ue012\ue012")  # the left arrow
    assert browser.query() == 11
    browser.wait_to_find(["where “f” looks"], lambda: browser.texts("#looks-title"))
    point_at_map(browser, 8, 2)
    check_place(browser, TEXT, 8, 2)
    assert browser.query() == 8
    point_at_map(browser, 8, 11)
    assert browser.texts("#place")[0].endswith("f at 11: not visible yet")


@pytest.mark.parametrize("width", [1280, 390])
def test_shades_by_attention_are_those_of_the_chosen_head_and_character(browser, page, width):
    page(width=width)
    browser.click("[data-by=attention]")
    weights = load_model("runs/tiny", "cpu").attention_weights
    for text, h, q in ((TEXT, 1, 13), (TEXT, 5, 9), (TEXT[:-3], 5, 10), (TEXT[:-3], 0, 0)):
        browser.type_text(text)
        browser.choose_head(h)
        browser.set_caret(q + 1)
        shades = [100 * weight**0.5 for weight in weights(text)[h // 3][h % 3, q].tolist()]
        browser.wait_to_find(pytest.approx(shades, abs=0.8), lambda: browser.execute_script(SHADES))
    browser.click("[data-by=surprise]")
    check_numbers(browser, load_model("runs/tiny", "cpu"), text)
