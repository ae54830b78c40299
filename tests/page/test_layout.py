"""The page as a whole: every window has room for it, few words come first, and a browser can save it as it is."""

import re

import pytest
from conftest import ROOT, train_tiny
from page_numbers import check_numbers

from experiments.report.__main__ import main as report
from page.__main__ import main as page_command
from training.runs.find_checkpoint import BUNDLED_MODEL
from training.trained_model import load_model

pytestmark = pytest.mark.slow
WINDOWS = pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["dark phone", "light desk"])
WORDS = """const range = new Range(), words = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode()); ) {
  if (node.parentElement.closest("option, script, style, noscript, textarea, .under")) continue;
  range.selectNodeContents(node);
  const { top, bottom, width } = range.getBoundingClientRect();
  const isSeen = node.parentElement.checkVisibility({ visibilityProperty: true });
  if (isSeen && width && bottom > 0 && top < innerHeight) words.push(...node.data.split(/\\s+/).filter(Boolean));
}
return words"""
COUNT = """const counts = {};
for (const { tagName, className, id, parentElement } of document.querySelectorAll("main *")) {
  const kind = [tagName, className, id, "of", parentElement.id].join(" ");
  counts[kind] = (counts[kind] ?? 0) + 1;
}
return counts"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the page of the bundled model, one of two models, and one of a model with 48 heads."""
    folder = tmp_path_factory.mktemp("layout")
    train_tiny(folder, "model.n_layer=6", "model.n_head=8", "model.n_embd=32", "train.name=heads")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        pages = {"gpt": [BUNDLED_MODEL], "two": ["runs/heads", BUNDLED_MODEL], "heads": ["runs/heads"]}
        for name, models in pages.items():
            command = ["--checkpoint", *map(str, models), "--no-browser", "--output", f"{name}.html"]
            assert page_command(command) == 0
    return folder


def visit(browser, page, *window, **options):
    browser.open_page(page, *window, **options)
    browser.wait_for_maps()
    browser.wait_for(lambda: browser.texts("#without")[0] and browser.texts("#said")[0])


def test_the_first_window_has_at_most_200_words(browser, folder):
    visit(browser, folder / "gpt.html")
    words = browser.execute_script(WORDS)
    assert 80 < len(words) <= 200, words
    assert {"Train", "Continue", "4.09"} <= {*words}


def test_a_phone_reads_nothing_of_the_keys_that_it_lacks(browser, folder):
    visit(browser, folder / "gpt.html", 390, 844)
    browser.open_details()
    assert not re.search("Ctrl|Escape|Enter", browser.find("body")[0].text)


@pytest.mark.parametrize("width", [240, 390, 768, 1280, 2560])
@pytest.mark.parametrize("page", ["gpt", "two"])
def test_no_window_scrolls_sideways(browser, folder, page, width):
    visit(browser, folder / f"{page}.html", width)
    browser.open_details()
    script = """return [...document.querySelectorAll("html, .card, #bar")].map(
        ({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)"""
    assert max(browser.execute_script(script)) == 0


@WINDOWS
@pytest.mark.parametrize("page", ["gpt", "two"])
def test_all_of_the_page_can_be_read_and_axe_finds_no_fault(browser, folder, page, width, dark):
    visit(browser, folder / f"{page}.html", width, dark=dark)
    browser.check_looks(width, dark=dark)
    browser.open_details()
    browser.check_looks(width, dark=dark)
    assert browser.faults_found_by_axe() == []


def test_a_page_that_the_browser_saved_shows_everything_once(browser, folder, tmp_path):
    visit(browser, folder / "two.html")
    browser.type_text("the 9 bees")
    browser.open_details()
    browser.click("#tabs button:last-child")
    browser.click("#switches button")
    browser.click("[data-by=attention]")
    browser.continue_text()
    (tmp_path / "saved.html").write_text(browser.execute_script("return document.documentElement.outerHTML"), "utf-8")
    found = []
    for page in (folder / "two.html", tmp_path / "saved.html"):
        visit(browser, page)
        browser.open_details()
        browser.type_text("the 9 bees")
        check_numbers(browser, load_model(folder / "runs/heads", "cpu"), "the 9 bees")
        found.append(browser.execute_script(COUNT))
    assert found[0] == found[1]
    assert browser.get_log("browser") == []


def test_a_model_that_the_page_does_not_implement_is_named_and_others_can_be_trained(browser, folder):
    page = (folder / "heads.html").read_text(encoding="utf-8")
    (folder / "other.html").write_text(page.replace('"positions": "rope"', '"positions": "sinusoidal"', 1), "utf-8")
    browser.open_page(folder / "other.html")
    sentence = "gpt.js does not implement model.positions=sinusoidal, so this page cannot show the model"
    browser.wait_to_find([sentence], lambda: browser.texts("#message"))
    browser.wait_for(lambda: browser.can_press("#go"))
    browser.click("#write")
    browser.wait_to_find([sentence], lambda: browser.texts("#message"))
    assert not browser.find("#next-a button")
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("missing", ["window.DecompressionStream", "Array.prototype.toSorted"])
def test_an_old_browser_shows_one_sentence_even_if_it_cannot_parse_the_page(browser, folder, missing):
    page = (folder / "heads.html").read_text(encoding="utf-8")
    (folder / "old.html").write_text(page.replace("class Model {", "class Model #"), encoding="utf-8")
    add, remove = (f"Page.{name}ScriptToEvaluateOnNewDocument" for name in ("add", "remove"))
    script = browser.execute_cdp_cmd(add, {"source": f"delete {missing}"})
    browser.open_page(folder / "old.html")  # without an error
    browser.execute_cdp_cmd(remove, script)
    assert browser.find("body")[0].text == "This browser is too old for this page, which needs one of 2023 or newer."
    check = re.search("<script data-own>(.*?)</script>", page, re.DOTALL)[1]
    assert not re.search(r"=>|`|\?\.|\?\?|\b(const|let|class|async)\b", check)  # which it cannot parse either


def test_all_columns_of_a_report_are_in_sight_and_lines_of_text_stay_short(browser, tmp_path):
    """The variants have long labels, and those of one of the two sweeps were measured on another text."""
    sweeps = [str(ROOT / f"experiments/studies/{name}.jsonl") for name in ("heads/tuned", "ngrams/code")]
    assert report([*sweeps, "--output", str(tmp_path / "out")]) == 0
    for width in (1280, 1700):
        browser.open_page(tmp_path / "out.html", width)
        visible, whole = browser.execute_script(
            "const table = document.querySelector('.wide'); return [table.clientWidth, table.scrollWidth]"
        )
        assert whole == visible == width - 32  # without the margins of the page
        assert max(each.rect["width"] for each in browser.find("p, li")) == 46 * 16
