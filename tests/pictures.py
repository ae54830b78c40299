"""Take the pictures of the page, page/gpt.html, while it trains: python -m tests.pictures

It needs Chromium, its driver and selenium.
"""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from pages_in_browser import Browser  # noqa: E402

FOLDER = ROOT / "page/pictures"


def main() -> None:
    browser = Browser()
    FOLDER.mkdir(exist_ok=True)
    for name, width, height in (("desk", 1280, 900), ("desk_dark", 1280, 900), ("phone", 390, 844)):
        browser.open_page(ROOT / "page/gpt.html", width, height, dark=name == "desk_dark")
        browser.wait_for(lambda: browser.can_press("#go"))
        browser.choose(beside=1)
        browser.click("#go")
        time.sleep(40)
        browser.save_screenshot(str(FOLDER / f"{name}.png"))
    browser.open_page(ROOT / "page/gpt.html")
    browser.wait_for_maps()
    browser.click("#steps summary")
    browser.wait_for(lambda: browser.find("#lines td"))
    time.sleep(2)
    browser.execute_script("document.querySelector('#focus').scrollIntoView()")
    browser.save_screenshot(str(FOLDER / "steps.png"))
    browser.quit()


if __name__ == "__main__":
    main()
