import gc
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Tiny models are faster on one thread, and two threads would wait for each other whenever anything else is running.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("MPLBACKEND", None)  # Jupyter sets it for its own environment

import pytest
import torch

ROOT = Path(__file__).parent.parent
MIRROR = ROOT.parent / "shared" / "corpora"

# A model and a run small enough to train in a second, with dimensions that are all different.
TINY_CONFIG = """
model: {n_layer: 2, n_head: 3, n_embd: 24, block_size: 16, dropout: 0.1, ngram_rows: 1000}
data: {corpus: text.txt}
train: {max_steps: 40, batch_size: 5, log_every_steps: 10, eval_every_steps: 20, sample_length: 30}
"""
TINY_TEXT = "".join(f"{i} bottles of beer on the wall, {i} bottles of beer;\n" for i in range(99, 60, -1))

# Runs for reports.
HEADS, SEEDS = (1, 2, 3), (0, 1)
SHORT = ["train.max_steps=12", "train.eval_every_steps=4", "train.log_every_steps=3"]

# Reasons to skip a test even with SKIP_NOTHING, as in .ci/run; tests/test_fake_gpu.py simulates the GPU.
MAY_LACK = re.compile("GPU|CUDA|CPU build of PyTorch|right to mount")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Let a test fail that is skipped where everything is installed, because then it runs nowhere."""
    report = yield
    if report.skipped and "SKIP_NOTHING" in os.environ and not MAY_LACK.search(report.longrepr[2]):
        report.outcome = "failed"
    return report


pytest_make_collect_report = pytest_runtest_makereport  # of a file that is skipped as a whole


def pytest_collection_finish():
    """Spare what all tests have imported from each search for garbage; every run begins with one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_random_numbers():
    """The random numbers of a test do not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def corpus_mirror(monkeypatch):
    """Take named corpora from the folder of corpora beside the project, if it exists."""
    if MIRROR.is_dir() and "CORPUS_MIRROR" not in os.environ:
        monkeypatch.setenv("CORPUS_MIRROR", str(MIRROR))


@pytest.fixture(scope="session", autouse=True)
def no_browser():
    """Let no test open a browser, nor any process that it starts: this program does nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROWSER", "true")
        yield


@pytest.fixture
def cache(tmp_path):
    """Return a folder for encoded texts and downloads, which does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """Return a new working directory that contains a tiny text and a tiny config."""
    monkeypatch.chdir(tmp_path)
    write_tiny(tmp_path)
    return tmp_path


def write_tiny(folder):
    (folder / "tiny.yaml").write_text(TINY_CONFIG, encoding="utf-8")
    (folder / "text.txt").write_text(TINY_TEXT, encoding="utf-8")


def train_tiny(folder, *settings):
    write_tiny(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        import train  # after OMP_NUM_THREADS is set

        assert train.main(["--config", "tiny.yaml", *settings]) == 0


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Return a working directory with a trained run, runs/tiny, that tests only read."""
    folder = tmp_path_factory.mktemp("trained")
    settings = ["optim.average_fraction=0.1", "data.split=[0.8, 0.1, 0.1]", "train.keep_checkpoints=3"]
    train_tiny(folder, *settings, "train.dtype=float32", "train.device=cpu")
    return folder


@pytest.fixture
def run(trained, workplace):
    """Return a copy of the trained run, which a test may change, in a new working directory."""
    from training.runs.run_folder import RunFolder  # after OMP_NUM_THREADS is set

    shutil.copytree(trained, workplace, dirs_exist_ok=True)
    return RunFolder(workplace / "runs" / "tiny")


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory):
    """Return a working directory with six tiny runs, runs/1-0 to runs/3-1, and one of another context length."""
    folder = tmp_path_factory.mktemp("report")
    for n in HEADS:
        for seed in SEEDS:
            train_tiny(folder, f"model.n_head={n}", f"train.seed={seed}", f"train.name={n}-{seed}", *SHORT)
    train_tiny(folder, "train.name=context", "model.block_size=8", *SHORT)
    return folder


@pytest.fixture
def runs(runs_folder, monkeypatch):
    """Return the folders of the six runs, in their working directory."""
    monkeypatch.chdir(runs_folder)
    return [runs_folder / "runs" / f"{n}-{seed}" for seed in SEEDS for n in HEADS]


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def browser():
    """Return headless Chromium; skip the test if it is missing."""
    try:
        from pages_in_browser import Browser  # which needs selenium

        started = Browser()
    except (ImportError, LookupError):
        pytest.skip("needs chromium, chromium-driver and selenium")
    yield started
    started.quit()


def run_script(script, *arguments, timeout=300, **options):
    """Run train.py or sample.py as a user does; return the finished process with its output as text."""
    return run_command([sys.executable, str(ROOT / script), *map(str, arguments)], timeout=timeout, **options)


def run_command(command, *, timeout=300, **options):
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=timeout, **options)
