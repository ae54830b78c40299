"""Take the pictures of the pages, with the bundled model: python -m tests.pictures

It needs Chromium, its driver and selenium.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from pages_in_browser import chromium, find, open_page, wait_for, wait_for_maps  # noqa: E402

STEPS = """document.querySelector(".how").click(); point(7, true);
setTimeout(() => models[0].steps.explain(["output", 5, 2]), 1000)"""
TRAIN = """document.querySelector("#train").open = true; document.querySelector("[name=beside]").value = 1;
setTimeout(() => document.querySelector("#go").click(), 1000)"""  # when the text is open


def main() -> None:
    argparse.ArgumentParser("tests.pictures", description=__doc__).parse_args()
    try:
        browser, playground = chromium(), ROOT / "textbook/playground.html"
    except (ImportError, LookupError) as missing:
        sys.exit(f"tests.pictures needs Chromium, its driver and selenium: {missing}")
    for name, width, height, script, last in (
        ("playground", 1400, 820, "", "main"),
        ("playground_phone", 390, 900, "", "main"),
        ("playground_steps", 1400, 1040, STEPS, ".steps td"),
        ("playground_training", 1400, 1040, TRAIN, "#comparison td"),
    ):
        open_page(browser, playground, width, height)
        wait_for_maps(browser)
        browser.execute_script(script)
        wait_for(lambda last=last: find(browser, last))
        browser.execute_async_script("setTimeout(arguments[0], 2000)")
        browser.save_screenshot(str(ROOT / "experiments" / "studies" / f"{name}.png"))
    browser.quit()


if __name__ == "__main__":
    main()
