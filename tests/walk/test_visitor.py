"""The first minutes of a visitor who opens page/gpt.html, on a desk and on a phone.

After each step, the page has PyTorch's numbers for the text in the box, its shades lie under their characters, nothing
overlaps or sticks out, and the console has no error.
"""

import os
from itertools import count
from pathlib import Path

import pytest
from conftest import ROOT
from page_numbers import check_numbers

from data.sources import NAMED
from experiments.heads.silence import HeadIndex, parts_of
from training.runs.find_checkpoint import BUNDLED_MODEL
from training.trained_model import load_model

TEXT = NAMED["selmere"].read_text(encoding="utf-8")
TEXTS = {  # by name: what the visitor types, what the model reads of it, and what the page says
    "empty": ("", "", "Without a text, the model starts a line."),
    "a-letter": ("T", "T", ""),
    "a-paste": (TEXT[5000:6200], TEXT[5000:6200], ""),
    "curly": ("I\u2019ll be there\u00a0\u2014 and so", "I'll be there - and so", "' for \u2019"),
    "odd": ("The sea \U0001f600the shore", "the shore", "The model has never seen “\U0001f600”"),
    "lines": ("Where is the old keeper?\nHe sees the boat", "Where is the old keeper?\nHe sees the boat", ""),
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("width", "height", "dark"), [(1280, 900, False), (390, 844, True)], ids=["light desk", "dark phone"]
)
def test_a_visitor_tries_everything(browser, tmp_path, width, height, dark):
    pictures, numbers = Path(os.environ.get("SCREENSHOTS", tmp_path)), count(1)
    pictures.mkdir(parents=True, exist_ok=True)
    print(f"Pictures are in {pictures}")

    def look_around(name):
        browser.save_screenshot(str(pictures / f"visitor-{width}-{next(numbers):02}-{name}.png"))
        browser.check_looks(width, dark=dark)
        assert [entry["message"] for entry in browser.get_log("browser")] == []

    def look(name, trained, *, read=None, message="", off=()):
        """Check all that the page shows. read: what the model reads of the box, if that is not all of it."""
        browser.wait_for(browser.can_continue)
        text = browser.value() if read is None else read
        check_numbers(browser, trained, text, off)
        wrong, n_seen = browser.misplaced()
        assert wrong == [] and (n_seen > 0 or not text.strip())
        assert message in browser.said("#message") and (message or not browser.said("#message"))
        look_around(name)

    bundled = load_model(BUNDLED_MODEL, "cpu")
    browser.open_page(ROOT / "page/gpt.html", width, height, dark=dark)
    browser.wait_for_maps()
    look("opening", bundled)
    for name in ("write", "write", "again", "undo"):
        browser.continue_text(f"#{name}")
        look(name, bundled)
    for name, (text, read, message) in TEXTS.items():
        browser.type_text(text)
        look(name, bundled, read=read, message=message)
    browser.click("#next-a button:first-child")
    look("next", bundled)
    browser.click("[data-by=attention]")
    look_around("attention")
    browser.click("[data-by=surprise]")

    browser.open_details()
    for i, head in enumerate(part for part in parts_of(bundled.model) if isinstance(part, HeadIndex)):
        browser.choose_head(i)
        for off in ([head], []):
            browser.click(f"#switches button:nth-child({i + 1})")
            look(f"{head}-{'off' if off else 'on'}", bundled, off=off)

    browser.choose(seconds=30)
    browser.click("#go")
    browser.wait_to_find("❚❚ Pause", lambda: browser.said("#go"))
    look_around("training")
    browser.wait_for(lambda: browser.said("#go") == "▶ Train longer")
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.click("#save-checkpoint")
    browser.wait_for(lambda: [*tmp_path.glob("*.safetensors")])
    browser.continue_text()
    look("trained-here", load_model(*tmp_path.glob("*.safetensors"), "cpu"))
