"""Take the pictures of the page, page/gpt.html, while it trains: python -m tests.pictures

It needs Chromium, its driver and selenium.
"""

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from pages_in_browser import can_press, choose, chromium, click, find, open_page, wait_for, wait_for_maps  # noqa: E402

FOLDER = ROOT / "page/pictures"


def main() -> None:
    argparse.ArgumentParser("tests.pictures", description=__doc__).parse_args()
    try:
        browser = chromium()
    except (ImportError, LookupError) as missing:
        sys.exit(f"tests.pictures needs Chromium, its driver and selenium: {missing}")
    FOLDER.mkdir(exist_ok=True)
    for name, width, height in (("desk", 1280, 900), ("desk_dark", 1280, 900), ("phone", 390, 844)):
        open_page(browser, ROOT / "page/gpt.html", width, height, dark=name == "desk_dark")
        wait_for(lambda: can_press(browser, "#go"))
        choose(browser, beside=1)
        click(browser, "#go")
        time.sleep(20)
        browser.save_screenshot(str(FOLDER / f"{name}.png"))
    open_page(browser, ROOT / "page/gpt.html")
    wait_for_maps(browser)
    click(browser, "#steps summary")
    wait_for(lambda: find(browser, "#lines td"))
    time.sleep(2)
    browser.execute_script("document.querySelector('#focus').scrollIntoView()")
    browser.save_screenshot(str(FOLDER / "steps.png"))
    browser.quit()


if __name__ == "__main__":
    main()
