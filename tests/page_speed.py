"""Measure the pages of models in Chromium: python -m tests.page_speed configs/shakespeare.yaml ...

The weights are those after one step: their values do not matter for the speed.
"""

import contextlib
import io
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from pages_in_browser import chromium, find, open_page, wait_for  # noqa: E402

from experiments.playground.__main__ import main as playground  # noqa: E402
from train import main as train  # noqa: E402

N = 200  # characters to write, the length that the page begins with
TEXT = "\nThe king is here, and all his men are gone to sea. "
ASK = """const [path, question, done] = arguments, began = performance.now();
models[0].ask(path, { text: "", off: [], ...question }, () => {}).then(() => done(performance.now() - began))"""
SAMPLING = {"length": N, "seed": 0, "stop": "", "temperature": 0.8, "top_k": None, "top_p": 1, "min_p": 0}


def seconds_of(browser, path: str, **question) -> float:
    return browser.execute_async_script(ASK, path, question) / 1000


def measure(browser, config: Path) -> str:
    """Return the size of the page, and how long it opens, reads a character and a window, and writes."""
    run = [f"train.name={config.stem}", "train.max_steps=1", "train.sample_length=0", "train.dtype=float32"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert train(["--config", str(config), *run]) == 0
        assert playground(["--checkpoint", f"runs/{config.stem}", "--no-browser", "--output", "page.html"]) == 0
    began_s = time.perf_counter()
    open_page(browser, Path("page.html").resolve())
    wait_for(lambda: find(browser, ".next button"))
    opened_s = time.perf_counter() - began_s
    wait_for(lambda: find(browser, "button.head"))
    written_s = seconds_of(browser, "write", **SAMPLING)
    block = browser.execute_script("return models[0].state.measured_on[1]")
    window = (TEXT * 99)[: block - 9]
    read_s = seconds_of(browser, "read", text=window)
    typed_s = [seconds_of(browser, "read", text=window + "nothing o"[: n + 1]) for n in range(9)]
    size_mb = Path("page.html").stat().st_size / 1e6
    return (
        f"{config.name}: {size_mb:.1f} MB, opens in {opened_s:.1f} s, writes "
        f"{N / written_s:.0f} characters/s, reads a window of {block} in {read_s:.1f} s, one more character in "
        f"{1000 * statistics.median(typed_s):.0f} ms"
    )


if __name__ == "__main__":
    files = [Path(each).resolve() for each in sys.argv[1:]]
    browser = chromium()
    browser.set_script_timeout(600)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for file in files:
            print(measure(browser, file), flush=True)
    browser.quit()
