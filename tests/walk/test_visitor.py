"""The first ten minutes of a visitor who opens textbook/playground.html, on a desk and on a phone.

After each step, the page has PyTorch's numbers for the text in the box, its shades lie under their characters, nothing
overlaps or sticks out, and the console has no error.
"""

import os
import re
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from pages_in_browser import can_press, check_looks, find, misplaced, open_page, texts, value, wait_for, wait_for_maps

from data.sources import NAMED
from experiments.heads.silence import all_heads, silenced
from model.generate import window_start
from training.runs.find_checkpoint import BUNDLED_MODEL
from training.trained_model import load_model

webdriver = pytest.importorskip("selenium.webdriver")
Keys, Select = webdriver.Keys, pytest.importorskip("selenium.webdriver.support.select").Select

pytestmark = pytest.mark.nightly

PAGE = ROOT / "textbook/playground.html"
TEXT = NAMED["selmere"].read_text(encoding="utf-8")
OTHERS = "a, option, script, template, noscript, svg *, .under *, textarea, .axis *, .product"
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
    def __init__(self, browser, pictures, width, height, dark):
        self.browser, self.pictures, self.width, self.dark = browser, pictures, width, dark
        self.trained, self.off, self.n_looks = load_model(BUNDLED_MODEL, "cpu"), set(), 0
        open_page(browser, PAGE, width, height, dark=dark)
        wait_for_maps(browser)

    def element(self, selector):
        return find(self.browser, selector)[0]

    def presses(self, selector):
        self.element(selector).click()

    def types(self, *keys):
        self.element("#text").click()
        self.element("#text").send_keys(Keys.CONTROL, Keys.END, Keys.NULL, *keys)

    def pastes(self, text):
        """Paste into the box, as its last characters; the driver cannot type characters beyond U+FFFF."""
        self.types("")
        self.browser.execute_cdp_cmd("Input.insertText", {"text": text})

    def clears(self):
        self.types(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE)

    def sets(self, name, text):
        field = self.element(f"[name={name}]")
        field.clear()
        field.send_keys(text)

    def continues(self):
        self.presses("#write")
        self.waits()

    def waits(self):
        """Wait until the page has answered."""
        wait_for(lambda: can_press(self.browser, "#write"))
        wait_for(lambda: not find(self.browser, ".model.stale, [open] > .viewer.stale"))

    def looks(self, name, *, read=None, message=""):
        """Check all that the page shows. read: what the model reads of the box, if that is not all of it."""
        self.waits()
        self.n_looks += 1
        self.takes_a_picture(f"{self.n_looks:02}-{name}")
        text = value(self.browser) if read is None else read
        self.compares_with_pytorch(text or "\n")
        self.browser.execute_script("document.querySelector('.sheet').scrollIntoView({ block: 'nearest' })")
        wrong, n_seen = misplaced(self.browser)
        assert wrong == [] and (n_seen > 0 or not text.strip())
        assert message in " ".join(texts(self.browser, ".message"))
        assert message or not "".join(texts(self.browser, ".answers .message"))
        assert self.browser.execute_script(OVERLAPS, OTHERS) == []
        check_looks(self.browser, self.width, dark=self.dark)
        assert [entry["message"] for entry in self.browser.get_log("browser")] == []

    @torch.inference_mode()
    def compares_with_pytorch(self, text):
        model, vocabulary = self.trained.model, self.trained.vocabulary
        window = text[window_start(len(text), model.config.block_size) :]
        ids = torch.from_numpy(vocabulary.encode(window).astype("int64"))[None]
        with silenced(model, [*self.off]):
            logs = model(ids)[0].double().log_softmax(-1)
        character, share = texts(self.browser, ".next button:first-child span")
        highest = logs[-1].exp().max().item()
        known = {"␣": " ", "⏎": "\n"}.get(character, character)
        assert logs[-1].exp()[vocabulary.characters.index(known)].item() == pytest.approx(highest, abs=0.02)
        assert float(share.removesuffix(" %")) == pytest.approx(100 * highest, abs=1.5)
        totals = self.element(".totals").text
        if len(window) > 1:
            nats = -logs[:-1].gather(1, ids[0, 1:, None]).sum().item()
            assert totals.startswith(f"{len(window) - 1} characters cost ")
            assert float(re.search(r"cost ([\d.]+) nats", totals)[1]) == pytest.approx(nats, rel=0.01, abs=0.1)
        else:
            assert totals == "The first character is not predicted; type a second one."

    def takes_a_picture(self, name):
        scheme = "dark" if self.dark else "light"
        self.browser.save_screenshot(str(self.pictures / f"visitor-{self.width}-{scheme}-{name}.png"))


@pytest.mark.parametrize(
    ("width", "height", "dark"), [(1280, 900, False), (390, 844, True)], ids=["light desk", "dark phone"]
)
def test_a_visitor_tries_everything(browser, tmp_path, width, height, dark):
    pictures = Path(os.environ.get("SCREENSHOTS", tmp_path))
    print(f"Pictures are in {pictures}")
    visitor = Visitor(browser, pictures, width, height, dark)
    visitor.looks("opening")

    # Write: ten times Continue, and again, back and forth.
    for n in range(10):
        before = value(browser)
        visitor.continues()
        assert value(browser).startswith(before) and len(value(browser)) == len(before) + 200
        visitor.looks(f"continue-{n + 1}", message="Wrote 200 characters")
    written = value(browser)
    for _ in range(3):
        visitor.presses("#again")
        visitor.looks("again", message="Wrote 200 characters")
        assert value(browser)[:-200] == written[:-200] and value(browser) != written
    for button, there in (("#undo", -1), ("#redo", 1)):
        for _ in range(3):
            visitor.presses(button)
        visitor.looks(button[1:])
        assert (value(browser) == written) == (there < 0)
    visitor.types(Keys.CONTROL, "z", Keys.NULL)
    visitor.presses("#copy")
    visitor.looks("copy", message="Copied ")

    # Text of one's own: none, a letter, a paste, and what phones and people type.
    visitor.clears()
    visitor.looks("empty", message="Without a text, the model starts a line.")
    visitor.types("T")
    visitor.looks("a-letter")
    visitor.pastes(TEXT[5000:6200])
    visitor.looks("a-paste")
    visitor.clears()
    visitor.pastes("I\u2019ll be there\u00a0\u2014 and so")
    visitor.looks("curly", read="I'll be there - and so", message="' for \u2019")
    for odd in ("7", "X", "\U0001f600", "é"):
        visitor.clears()
        visitor.pastes(f"The sea {odd}the shore and the")
        is_known = odd in visitor.trained.vocabulary.characters
        says = "" if is_known else f"The model has never seen '{odd}'"
        visitor.looks("odd", read=None if is_known else "the shore and the", message=says)
    visitor.types(Keys.CONTROL, "z", Keys.NULL)

    # The next character, by its bar; the preview; the shades.
    visitor.clears()
    visitor.types("The keeper of the ")
    for _ in range(3):
        visitor.presses(".next button:first-child")
        visitor.waits()
    visitor.looks("bars")
    visitor.presses("#along")
    wait_for(lambda: texts(browser, "#ahead") != [""])
    visitor.looks("preview")
    visitor.types("s")
    visitor.presses("#along")
    visitor.presses("[data-by=attention]")
    wait_for(lambda: texts(browser, ".looking")[0].startswith("Head L"))
    visitor.looks("attention")
    visitor.presses("[data-by=surprise]")

    # Every setting.
    visitor.presses("#details summary")
    visitor.looks("settings")
    for name, setting in (("length", "3"), ("temperature", "0"), ("top_k", "2"), ("top_p", "0.9"), ("min_p", "0.1")):
        visitor.sets(name, setting)
        before = value(browser)
        visitor.continues()
        assert len(value(browser)) == len(before) + 3
        visitor.looks(name, message="Wrote 3 characters")
    visitor.sets("length", "300")
    visitor.sets("stop", " ")
    before = value(browser)
    visitor.continues()
    assert " " not in value(browser)[len(before) :]
    visitor.sets("stop", "\u00e9")
    visitor.presses("#write")
    visitor.looks("impossible-stop", message="Stop at")
    visitor.sets("stop", "")
    visitor.sets("temperature", "-1")
    visitor.presses("#write")
    visitor.looks("impossible-temperature")
    visitor.sets("temperature", "1")
    visitor.sets("length", "5000")
    visitor.presses("#write")
    visitor.presses("#stop")
    visitor.looks("stopped", message="Wrote ")
    assert len(value(browser)) < 5000

    # Every part off and on again, and all of them off.
    visitor.clears()
    visitor.types("Where is the old keeper of the light?\nHe sees the boat")
    visitor.presses("details:has(.switches) summary")
    parts = {str(part): part for part in all_heads(visitor.trained.model)}
    for name in texts(browser, ".switches button"):
        button = next(each for each in find(browser, ".switches button") if each.text == name)
        for visitor.off in ({parts[name]}, set()):
            button.click()
            visitor.waits()
            visitor.compares_with_pytorch(value(browser))
        visitor.looks(f"switch-{name}")

    # Inside: every head, every role, the map, the drawing, and a head step by step.
    if not find(browser, ".inside[open]"):
        visitor.presses(".inside summary")
        wait_for(lambda: find(browser, "button.head[aria-pressed=true]"))
    for head in find(browser, "button.head"):
        head.click()
        assert texts(browser, ".looking")[0].startswith(f"Head {head.text.split()[0]} (")
    roles = Select(visitor.element(".roles"))
    for role in [*roles.options]:
        roles.select_by_visible_text(role.text)
    roles.select_by_index(0)
    visitor.looks("heads")
    webdriver.ActionChains(browser).move_to_element(visitor.element(".map")).perform()
    wait_for(lambda: texts(browser, ".place")[0])
    webdriver.ActionChains(browser).move_to_element(visitor.element("h1")).perform()
    wait_for(lambda: not texts(browser, ".place")[0])
    browser.execute_script("document.querySelector('.diagram .head').dispatchEvent(new Event('click'))")
    assert texts(browser, ".looking")[0].startswith("Head L0H0 (")
    visitor.presses(".how")
    wait_for(lambda: texts(browser, ".lines td"))
    visitor.looks("steps")
    for name in texts(browser, ".which option"):
        Select(visitor.element(".which")).select_by_visible_text(name)
        wait_for(lambda: texts(browser, ".looking")[0].startswith(f"Head {name} ("))  # noqa: B023
    visitor.looks("last-head")

    # A reload keeps the text.
    text = value(browser)
    browser.refresh()
    wait_for_maps(browser)
    assert value(browser) == text
    visitor.looks("reload")

    # Train one here: the page shows what PyTorch makes of the checkpoint. Then its own model again.
    visitor.presses("#train summary")
    Select(visitor.element("[name=seconds]")).select_by_value("30")
    wait_for(lambda: can_press(browser, "#go"))
    visitor.presses("#go")
    wait_for(lambda: "Over 17,195 characters" in texts(browser, "#progress")[0])  # all that is held out
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    visitor.presses("#save-checkpoint")
    wait_for(lambda: (tmp_path / "gpt.safetensors").is_file())
    own, visitor.trained = visitor.trained, load_model(tmp_path / "gpt.safetensors", "cpu")
    visitor.looks("trained-here", message="Saved the model")
    visitor.continues()
    visitor.looks("trained-here-continued", message="Wrote ")
    visitor.presses("#others")
    wait_for(lambda: "trained here" not in texts(browser, "h2.name")[0])
    wait_for_maps(browser)
    visitor.trained = own
    visitor.looks("own-model-again", message="Saved the model")
