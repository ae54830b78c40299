"""The first ten minutes of a visitor who opens page/gpt.html, on a desk and on a phone.

After each step, the page has PyTorch's numbers for the text in the box, its shades lie under their characters, nothing
overlaps or sticks out, and the console has no error.
"""

import os
from pathlib import Path

import pytest
from conftest import ROOT
from page_numbers import check_numbers
from pages_in_browser import (
    can_continue,
    check_looks,
    find,
    misplaced,
    open_page,
    texts,
    value,
    wait_for,
    wait_for_maps,
    wait_to_find,
)

from data.sources import NAMED
from experiments.heads.silence import all_heads
from training.runs.find_checkpoint import BUNDLED_MODEL
from training.trained_model import load_model

webdriver = pytest.importorskip("selenium.webdriver")
Keys, Select = webdriver.Keys, pytest.importorskip("selenium.webdriver.support.select").Select

pytestmark = pytest.mark.nightly

PAGE = ROOT / "page/gpt.html"
TEXT = NAMED["selmere"].read_text(encoding="utf-8")
OTHERS = "a, option, script, template, noscript, svg *, .under *, textarea, #product"
OVERLAPS = """
const pieces = [];  // of text in sight: the element, and the place of a line of it
for (const element of document.querySelectorAll(`body *:not(${arguments[0]})`)) {
  if (!element.checkVisibility()) continue;
  const frames = [];
  for (let outer = element; outer; outer = outer.parentElement) {
    if (getComputedStyle(outer).overflowY !== "visible") frames.push(outer.getBoundingClientRect());
  }
  for (const node of element.childNodes) {
    if (node.nodeType !== 3 || !node.data.trim()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const line of range.getClientRects()) {
      const all = [line, ...frames];
      pieces.push([element, Math.max(...all.map(({ left }) => left)), Math.min(...all.map(({ right }) => right)),
                   Math.max(...all.map(({ top }) => top)), Math.min(...all.map(({ bottom }) => bottom))]);
    }
  }
}
const words = (element) => `${element.tagName} ${element.textContent.slice(0, 40)}`;
return pieces.flatMap(([a, left, right, top, bottom], i) => pieces.slice(i + 1)
  .filter(([b, ...place]) => a !== b && Math.min(right, place[1]) - Math.max(left, place[0]) > 2
                             && Math.min(bottom, place[3]) - Math.max(top, place[2]) > 4)
  .map(([b]) => [words(a), words(b)]));
"""


class Visitor:
    def __init__(self, browser, pictures, *window, dark):
        self.browser, self.pictures, self.window, self.dark = browser, pictures, window, dark
        self.trained, self.off, self.n_looks = load_model(BUNDLED_MODEL, "cpu"), [], 0
        open_page(browser, PAGE, *window, dark=dark, moves=True)
        wait_for_maps(browser)

    def element(self, selector):
        return find(self.browser, selector)[0]

    def presses(self, selector):
        self.element(selector).click()

    def types(self, *keys):
        self.element("#text").send_keys(Keys.CONTROL, Keys.END, Keys.NULL, *keys)

    def replaces(self, text):
        """Paste a text in place of the one in the box; the driver cannot type characters beyond U+FFFF."""
        self.types(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE)
        self.browser.execute_cdp_cmd("Input.insertText", {"text": text})

    def sets(self, name, text):
        self.element(f"[name={name}]").clear()
        self.element(f"[name={name}]").send_keys(text)

    def continues(self, selector="#write"):
        self.presses(selector)
        wait_for(lambda: can_continue(self.browser))

    def points(self, selector):
        webdriver.ActionChains(self.browser).move_to_element(self.element(selector)).perform()

    def looks(self, name, *, read=None, message=""):
        """Check all that the page shows. read: what the model reads of the box, if that is not all of it."""
        wait_for(lambda: can_continue(self.browser))
        text = value(self.browser) if read is None else read
        check_numbers(self.browser, self.trained, text, self.off)
        wrong, n_seen = misplaced(self.browser)
        assert wrong == [] and (n_seen > 0 or not text.strip())
        (said,) = texts(self.browser, "#message")
        assert message in said and (message or not said)
        self.looks_around(name)

    def looks_around(self, name):
        """Check that all of the page can be read, and take a picture."""
        self.n_looks += 1
        kind = f"{self.window[0]}-{'dark' if self.dark else 'light'}"
        self.browser.save_screenshot(str(self.pictures / f"visitor-{kind}-{self.n_looks:02}-{name}.png"))
        assert self.browser.execute_script(OVERLAPS, OTHERS) == []
        check_looks(self.browser, self.window[0], dark=self.dark)
        assert [entry["message"] for entry in self.browser.get_log("browser")] == []


@pytest.mark.parametrize(
    ("width", "height", "dark"), [(1280, 900, False), (390, 844, True)], ids=["light desk", "dark phone"]
)
def test_a_visitor_tries_everything(browser, tmp_path, width, height, dark):
    pictures = Path(os.environ.get("SCREENSHOTS", tmp_path))
    print(f"Pictures are in {pictures}")
    visitor = Visitor(browser, pictures, width, height, dark=dark)
    visitor.looks("opening")

    # Write: ten times Continue, and again, back and forth.
    for n in range(10):
        before = value(browser)
        visitor.continues()
        assert value(browser).startswith(before) and len(value(browser)) == len(before) + 200
        visitor.looks(f"continue-{n + 1}")
    written = value(browser)
    for _ in range(3):
        visitor.continues("#again")
        visitor.looks("again")
        assert value(browser)[:-200] == written[:-200] and value(browser) != written
    for _ in range(3):
        visitor.presses("#undo")
    visitor.looks("undo")
    assert value(browser) == written
    visitor.types(Keys.CONTROL, "yyyz", Keys.NULL)
    visitor.looks("redo")
    assert value(browser) != written

    # Text of one's own: none, a letter, a paste, and what phones and people type.
    visitor.replaces("")
    visitor.looks("empty", message="Without a text, the model starts a line.")
    visitor.types("T")
    visitor.looks("a-letter")
    visitor.replaces(TEXT[5000:6200])
    visitor.looks("a-paste")
    visitor.replaces("I\u2019ll be there\u00a0\u2014 and so")
    visitor.looks("curly", read="I'll be there - and so", message="' for \u2019")
    for odd in ("7", "X", "\U0001f600", "é"):
        visitor.replaces(f"The sea {odd}the shore and the")
        is_known = odd in visitor.trained.vocabulary.characters
        says = "" if is_known else f"The model has never seen “{odd}”"
        visitor.looks("odd", read=None if is_known else "the shore and the", message=says)

    # The next character, by its bar; the shades.
    visitor.replaces("The keeper of the ")
    for n in range(3):
        visitor.looks("bars")
        visitor.presses("#next-a button:first-child")
        assert len(value(browser)) == len("The keeper of the ") + n + 1
    visitor.presses("[data-by=attention]")
    visitor.looks_around("attention")
    visitor.presses("[data-by=surprise]")

    # Every setting, and a stop.
    visitor.presses("#details summary")
    for name, setting in (("length", "3"), ("temperature", "0"), ("seed", "7")):
        visitor.sets(name, setting)
        before = value(browser)
        visitor.continues()
        assert len(value(browser)) == len(before) + 3
        visitor.looks(name)
    visitor.sets("temperature", "-1")
    visitor.presses("#write")
    visitor.looks("impossible-temperature")
    visitor.sets("temperature", "1")
    visitor.sets("length", "5000")
    for stop in (lambda: visitor.presses("#write"), lambda: visitor.types(Keys.ESCAPE)):
        n = len(value(browser))
        visitor.presses("#write")
        wait_for(lambda n=n: len(value(browser)) > n + 9, 10)
        stop()
        visitor.looks("stopped")
    assert len(value(browser)) < 5000

    # Inside: every head, switched off and step by step, and what one points at.
    visitor.replaces("Where is the old keeper of the light?\nHe sees the boat")
    for name in ("off", "steps", "layers"):
        visitor.presses(f"#{name} summary")
    for i, head in enumerate(all_heads(visitor.trained.model)):
        find(browser, ".head")[i].click()
        wait_to_find([f"layer {head.layer}, head {head.number}"], lambda: texts(browser, "#head-name"))
        for visitor.off in ([head], []):
            find(browser, "#switches button")[i].click()
            visitor.looks(f"{head}-{'off' if visitor.off else 'on'}")
    for selector, tip in (("#map", "#place"), ("#lines tbody td", "#product"), ("#curve", "figure .tip")):
        visitor.points(selector)
        wait_for(lambda tip=tip: texts(browser, tip)[0])
        visitor.points("h1")
        wait_to_find([""], lambda tip=tip: texts(browser, tip))

    # Train one here: the page shows what PyTorch makes of the checkpoint. Then its own model again.
    Select(visitor.element("[name=seconds]")).select_by_value("30")
    visitor.presses("#go")
    wait_to_find(["❚❚ Pause"], lambda: texts(browser, "#go"))
    visitor.looks_around("training")
    wait_for(lambda: texts(browser, "#go") == ["▶ Train longer"])
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    visitor.presses("#save-checkpoint")
    wait_for(lambda: [*tmp_path.glob("*.safetensors")])
    own, visitor.trained = visitor.trained, load_model(*tmp_path.glob("*.safetensors"), "cpu")
    visitor.looks("trained-here")
    visitor.continues()
    visitor.looks("trained-here-continued")
    visitor.presses("#tabs button:last-child")
    visitor.trained = own
    visitor.looks("own-model-again")
