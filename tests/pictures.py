"""Take the pictures of the pages, in a folder with runs/shakespeare: python PATH/tests/pictures.py

It needs Chromium, its driver and selenium, and the page that `python -m experiments.heads` writes into this run.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from pages_in_browser import chromium, find, open_page  # noqa: E402

from experiments.playground.__main__ import main as playground_command  # noqa: E402

TEXT = "ROMEO:\nShall I hear more, or shall I speak at this?\n\nJULIET:\nO Romeo, Romeo! wherefore art thou "


def main():
    browser = chromium()
    playground_command(["--checkpoint", "runs/shakespeare", "--no-browser"])
    playground = Path("runs/shakespeare/playground.html").resolve()
    heads = Path("runs/shakespeare/heads.html").resolve()
    for name, page, width, height in (
        ("playground", playground, 1400, 820),
        ("playground_phone", playground, 390, 900),
        ("heads_page", heads, 1000, 1000),
    ):
        open_page(browser, page, width, height)
        browser.implicitly_wait(30)
        if page == playground:
            box = find(browser, "#text")[0]
            box.clear()
            box.send_keys(TEXT)
            find(browser, ".model:not(.stale) button.head canvas, .model:not(.stale) .inside:not([open])")
        find(browser, ".next button, .keys li, figure svg")
        browser.execute_script("return new Promise((done) => setTimeout(done, 2000))")
        browser.save_screenshot(str(ROOT / "experiments" / "studies" / f"{name}.png"))
    browser.quit()


if __name__ == "__main__":
    main()
