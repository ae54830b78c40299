"""A full disk, caused by a limit on the size of files, which the operating system enforces in the same way."""

import functools
import resource

import pytest
from conftest import run_script

from training.runs.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow


def with_limit(n_bytes):
    """Return a function that limits the files of a new process to n_bytes."""
    return functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def partial_files(folder):
    return list(folder.rglob("*.part"))


@pytest.fixture
def run(workplace):
    """Return a run folder stopped at step 20 of 40."""
    settings = ["train.max_steps=20", "train.device=cpu"]
    assert run_script("train.py", "--config", "tiny.yaml", *settings).returncode == 0
    return workplace / "runs" / "tiny"


def test_a_checkpoint_that_cannot_be_written_leaves_the_earlier_ones_and_says_how_to_resume(run):
    before = {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    limit = len(before["latest.pt"]) // 2
    failed = run_script("train.py", "--resume", run, "train.max_steps=40", preexec_fn=with_limit(limit))
    assert failed.returncode == 1
    (line,) = failed.stderr.splitlines()
    assert "checkpoints/" in line
    assert f"a checkpoint of {len(before['latest.pt']) // 10_000}" in line.replace(",", "")
    assert f"fix this, then resume with --resume {run}" in line
    assert {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()} == before
    resumed = run_script("train.py", "--resume", run, "train.max_steps=40")
    assert resumed.returncode == 0, resumed.stderr
    assert load_checkpoint(run / "checkpoints/latest.pt").step == 40


def test_without_any_checkpoint_the_error_says_that_nothing_was_saved(workplace):
    failed = run_script("train.py", "--config", "tiny.yaml", "train.device=cpu", preexec_fn=with_limit(20_000))
    assert failed.returncode == 1
    assert "start again: nothing was saved yet" in failed.stderr
    assert partial_files(workplace) == []


def test_metrics_that_cannot_be_written_are_named(run):
    size = (run / "metrics.jsonl").stat().st_size
    settings = ["train.max_steps=40", "train.log_every_steps=1", "train.eval_every_steps=1000"]
    failed = run_script("train.py", "--resume", run, *settings, preexec_fn=with_limit(size + 10))
    assert failed.returncode in (1, 2)
    assert "Traceback" not in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_a_text_that_cannot_be_encoded_is_an_error_that_names_the_file(workplace):
    (workplace / "long.txt").write_text("abcdefgh\n" * 400_000, encoding="utf-8")
    failed = run_script("train.py", "--config", "tiny.yaml", "data.corpus=long.txt", preexec_fn=with_limit(1_000_000))
    assert failed.returncode == 2
    (line,) = failed.stderr.splitlines()
    assert line.endswith(".ids: File too large")
