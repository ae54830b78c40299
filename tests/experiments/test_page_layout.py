"""The parts of pages have room: tables stay in their column, and the chosen head is in sight."""

import pytest
from conftest import ROOT, train_tiny
from pages_in_browser import click, find, open_page, texts, wait_for, wait_for_maps

from experiments.playground.__main__ import main as playground
from experiments.report.__main__ import main as report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the page of a model with 48 heads."""
    folder = tmp_path_factory.mktemp("layout")
    train_tiny(folder, "model.n_layer=6", "model.n_head=8", "model.n_embd=32", "train.name=heads")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert playground(["--no-browser", "--output", "page.html"]) == 0
    return folder / "page.html"


@pytest.mark.parametrize("width", [390, 980, 1280])
def test_the_table_of_silenced_heads_stays_in_its_column(browser, page, width):
    open_page(browser, page, width)
    wait_for_maps(browser)
    for count in range(1, 4):
        click(browser, f".switches button:nth-child({count})")
        wait_for(lambda count=count: len(texts(browser, ".costs tbody tr")) == count + 1)
    table, column = (find(browser, selector)[0].rect for selector in (".costs", ".answers"))
    assert table["x"] + table["width"] <= column["x"] + column["width"] + 1


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_the_chosen_head_is_in_sight_in_the_list(browser, page, width, height):
    open_page(browser, page, width, height)
    wait_for_maps(browser)
    browser.execute_script("document.querySelector('.inside').open = true")
    wait_for_maps(browser)
    for place in (47, 0, 20):
        browser.execute_script("models[0].viewer.chooseHead(arguments[0])", place)
        chosen, grid = (find(browser, selector)[0].rect for selector in ("button.head[aria-pressed=true]", ".grid"))
        assert chosen["y"] >= grid["y"] - 1
        assert chosen["y"] + chosen["height"] <= grid["y"] + grid["height"] + 1
    assert grid["height"] > height / 2  # as much as there is room for


def test_all_columns_of_a_report_are_in_sight_and_lines_of_text_stay_short(browser, tmp_path):
    """The variants have long labels, and those of one of the two sweeps were measured on another text."""
    sweeps = [str(ROOT / f"experiments/studies/{name}.jsonl") for name in ("heads/tuned", "ngrams/code")]
    assert report([*sweeps, "--output", str(tmp_path / "out")]) == 0
    for width in (1280, 1700):
        open_page(browser, tmp_path / "out.html", width)
        visible, whole = browser.execute_script(
            "const table = document.querySelector('.wide'); return [table.clientWidth, table.scrollWidth]"
        )
        assert whole == visible == width - 32  # without the margins of the page
        assert max(each.rect["width"] for each in find(browser, "p, li")) == 46 * 16
