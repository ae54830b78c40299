"""Take the picture of the page, page/gpt.html, while it trains two models: python -m tests.pictures

It needs Chromium, its driver and selenium.
"""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from pages_in_browser import Browser  # noqa: E402

PICTURE = ROOT / "page/pictures/desk.png"


def main() -> None:
    browser = Browser()
    browser.open_page(ROOT / "page/gpt.html")
    browser.wait_for(lambda: browser.can_press("#go"))
    browser.choose(beside=1)
    browser.click("#go")
    time.sleep(40)
    browser.save_screenshot(str(PICTURE))
    browser.quit()


if __name__ == "__main__":
    main()
