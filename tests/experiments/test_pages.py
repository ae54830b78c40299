"""The pages in a real browser: they open without errors and show the right numbers."""

import csv
import os
from pathlib import Path

import pytest
from conftest import train_tiny

from experiments.heads.__main__ import main as heads_command
from experiments.report.__main__ import main as report_command
from training.runs.metrics import read_records

pytestmark = pytest.mark.slow
READ = " bottles of be\n2"
TEXT = "9 bottles of b"
PAGES = {"report.html": 2, "names.html": 2, "heads.html": 1, "two.html": 1}  # and their charts
WINDOWS = pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["dark phone", "light desktop"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with four runs, their report, another with longer names, and the pages of one or two runs."""
    folder = tmp_path_factory.mktemp("pages")
    for seed in (0, 1):
        for n in (2, 3):
            settings = [f"train.name={n}-{seed}", f"train.seed={seed}", f"model.n_head={n}", "train.keep_checkpoints=6"]
            train_tiny(folder, *settings, "train.device=cpu", "train.dtype=float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runs = [f"runs/{n}-{seed}" for seed in (0, 1) for n in (2, 3)]
        assert report_command([*runs, "--output", "report"]) == 0
        train_tiny(folder, "train.name=long", "model.norm=layer", "model.mlp=gelu", "optim.lr=0.0123")
        assert report_command([*runs, "runs/long", "--output", "names"]) == 0
        assert heads_command(["--checkpoint", "runs/2-0", "--prompt", READ, "--output", "heads.html"]) == 0
        two = ["--checkpoint", "runs/2-0", "runs/3-0", "--prompt", READ, "--output", "two.html"]
        assert heads_command(two) == 0
    return folder


@pytest.mark.parametrize("page", PAGES)
@WINDOWS
def test_all_of_a_page_can_be_read_and_axe_finds_no_fault(browser, folder, page, width, dark):
    """No chart scrolls. Also write a screenshot to the folder SCREENSHOTS, if that is set, for people to look at."""
    browser.open_page(folder / page, width, dark=dark)
    browser.wait_for(lambda: browser.find("figure svg text"))
    browser.check_looks(width, dark=dark)
    labels = browser.execute_script(
        """return [...document.querySelectorAll("figure svg text")].map(text => {
            const label = text.getBoundingClientRect(), chart = text.ownerSVGElement.getBoundingClientRect();
            const inside = label.left >= chart.left - 1 && label.right <= chart.right + 1 &&
                           label.top >= chart.top - 1 && label.bottom <= chart.bottom + 1;
            return [text.textContent, inside];
        })"""
    )
    size = """return [...document.querySelectorAll("figure svg text")].map(
        (text) => text.ownerSVGElement.getScreenCTM().a * parseFloat(getComputedStyle(text).fontSize))"""
    assert all(10 < pixels < 20 for pixels in browser.execute_script(size))
    hidden = "return [...document.querySelectorAll('figure')].map((each) => each.scrollWidth - each.clientWidth)"
    assert not any(browser.execute_script(hidden))
    assert len(browser.find("figure svg")) == PAGES[page]
    assert len(labels) >= PAGES[page]
    assert [label for label, inside in labels if not inside] == []
    if target := os.environ.get("SCREENSHOTS"):
        Path(target).mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(f"{target}/{page.partition('.')[0]}-{width}.png")
    browser.execute_script("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    browser.wait_for(lambda: not browser.find("#desk") or browser.find("#lines td"))
    assert browser.faults_found_by_axe() == []


def test_the_page_of_heads_shows_what_was_measured_of_each(browser, folder):
    browser.open_page(folder / "heads.html")
    browser.wait_for_maps()
    assert browser.title == "Heads of 2-0"
    with Path(folder / "heads.csv").open(encoding="utf-8") as file:
        measured = [row for row in csv.DictReader(file) if row["model"].startswith("runs/2-0/")]
    for i, row in enumerate(measured):
        browser.click(f"#net .layer:nth-of-type({2 + 2 * (i // 2)}) button.head:nth-child({1 + i % 2})")
        change = f"{float(row['loss increase']):+.4f}".replace("-", "\N{MINUS SIGN}")
        browser.wait_for(lambda i=i: browser.texts("#head-name") == [f"layer {i // 2}, head {i % 2}"])
        assert browser.texts("button.head[aria-pressed=true] span")[0].endswith(change)
        verb, error = ("Rises" if change[0] == "+" else "Falls").lower(), float(row["standard error"])
        sentence = f"The loss {verb} by {change[1:]} ± {error:.4f} without it. Measured over "
        assert browser.texts("#measured")[0].startswith(sentence)
        assert browser.texts("#usually")[0].startswith(f"Measured: {row['role']}")
    assert "203 characters of the validation split" in browser.texts("#measured")[0]


def test_pointing_at_a_curve_shows_step_loss_and_run(browser, folder):
    browser.open_page(folder / "report.html")
    loss = """const svg = [...document.querySelectorAll("svg[data-points]")].at(-1), box = svg.getBoundingClientRect();
        const points = JSON.parse(svg.dataset.points), [x, y] = points.at(-1), { width, height } = svg.viewBox.baseVal;
        const place = { clientX: box.left + (x / width) * box.width, clientY: box.top + (y / height) * box.height };
        svg.dispatchEvent(new PointerEvent("pointermove", place));
        return svg.previousElementSibling.textContent"""
    runs = [(folder / "runs" / f"3-{seed}" / "metrics.jsonl") for seed in (0, 1)]
    losses = [[each for each in read_records(run) if each.get("step") == 40 and "val_loss" in each][-1] for run in runs]
    mean = sum(each["val_loss"] for each in losses) / 2
    assert browser.execute_script(loss) == f"n_head=3: step 40, validation loss {mean:.4f}"
