"""Take the pictures of the pages, with the bundled model: python -m tests.pictures

It needs Chromium, its driver and selenium.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from pages_in_browser import chromium, find, open_page, wait_for  # noqa: E402

from experiments.heads.__main__ import main as heads_command  # noqa: E402
from training.runs.find_checkpoint import BUNDLED_MODEL  # noqa: E402

STEPS = """document.querySelector(".how").click(); point(7, true);
setTimeout(() => models[0].steps.explain(["output", 7, 2]), 1000)"""
TABLES = "document.querySelector('#desk ~ h2').scrollIntoView()"


def main() -> None:
    browser, playground = chromium(), ROOT / "textbook/playground.html"
    with tempfile.TemporaryDirectory() as folder:
        heads = Path(folder) / "heads.html"
        assert heads_command(["--checkpoint", str(BUNDLED_MODEL), "--output", str(heads)]) == 0
        for name, page, width, height, script in (
            ("playground", playground, 1400, 820, ""),
            ("playground_phone", playground, 390, 900, ""),
            ("playground_steps", playground, 1400, 1040, STEPS),
            ("heads_page", heads, 1280, 1000, TABLES),
        ):
            open_page(browser, page, width, height)
            wait_for(lambda: find(browser, ".next button") and find(browser, "button.head, .inside:not([open])"))
            browser.execute_script(script)
            browser.execute_async_script("setTimeout(arguments[0], 2000)")
            browser.save_screenshot(str(ROOT / "experiments" / "studies" / f"{name}.png"))
    browser.quit()


if __name__ == "__main__":
    main()
