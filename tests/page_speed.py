"""Compare training inside the page with train.py, on tiny Shakespeare: python -m tests.page_speed

Both train the model of configs/page.yaml for the same times, on one thread each. It needs Chromium, its driver
and selenium.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from pages_in_browser import Browser  # noqa: E402

from data.sources import cache_folder, find_files  # noqa: E402
from training.evaluation import evaluate  # noqa: E402
from training.runtime import choose_runtime  # noqa: E402
from training.trained_model import load_model  # noqa: E402

SECONDS = (10, 30, 60)
SETTINGS = ["data.corpus=shakespeare", "train.device=cpu", "train.dtype=float32", "train.sample_length=0"]


def main() -> None:
    parser = argparse.ArgumentParser("tests.page_speed", description=__doc__)
    parser.add_argument("--seconds", type=int, nargs="+", default=SECONDS, help="(default: %(default)s)")
    seconds = parser.parse_args().seconds
    rate, _ = train(n_steps=400)
    heads = ("seconds", "page: characters/s", "validation loss", "train.py: characters/s", "validation loss")
    print("|".join(["", *heads, ""]), "|".join(["", *["---"] * len(heads), ""]), sep="\n")
    for each in seconds:
        figures = [f"{rate:,.0f}|{loss:.3f}" for rate, loss in (train_in_page(each), train(round(each * rate / 512)))]
        print("|".join(["", str(each), *figures, ""]), flush=True)


def train(n_steps: int) -> tuple[float, float]:
    """Return the characters per second of train.py, evaluations apart, and its validation loss."""
    with tempfile.TemporaryDirectory() as folder:
        steps = [f"train.{name}={n_steps}" for name in ("max_steps", "eval_every_steps")]
        command = [sys.executable, ROOT / "train.py", "--config", ROOT / "configs/page.yaml", *SETTINGS, *steps]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        metrics = (Path(folder) / "runs/page/metrics.jsonl").read_text(encoding="utf-8")
    newest = {}
    for line in metrics.splitlines():
        newest |= json.loads(line)
    return newest["tokens_per_s"], newest["val_loss"]


def train_in_page(seconds: int) -> tuple[float, float]:
    """Return the characters per second of the page, drawing included, and the validation loss of what it saves."""
    browser = Browser()
    browser.open_page(ROOT / "page/gpt.html")
    browser.choose(seconds=seconds)
    (text,) = find_files("shakespeare", cache=cache_folder())
    browser.find("#file")[0].send_keys(str(text))
    browser.wait_for(lambda: "1,115,394 characters" in browser.texts("#said")[0])
    browser.click("#go")
    time.sleep(seconds)
    browser.wait_for(lambda: browser.texts("#go") == ["▶ Train longer"])
    rate = browser.texts("#rate")[0].split()[0].replace(",", "")
    with tempfile.TemporaryDirectory() as folder:
        browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": folder})
        browser.click("#save-checkpoint")
        browser.wait_for(lambda: [*Path(folder).glob("*.safetensors")])
        trained = load_model(next(Path(folder).glob("*.safetensors")), "cpu", text=text)
    browser.quit()
    found = evaluate(trained.model, trained.split("validation"), choose_runtime("cpu", "float32"))
    return float(rate), found.loss


if __name__ == "__main__":
    main()
