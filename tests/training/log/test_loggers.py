import json
import sqlite3
import sys
from pathlib import Path

import pytest
from conftest import run_script
from helpers import losses, metrics

import train


def losses_of_tensorboard(_):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    return [pytest.approx(event.value) for event in events.EventAccumulator("runs/tiny").Reload().Scalars("val_loss")]


def losses_of_trackio(_):
    rows = sqlite3.connect("trackio/character-gpt.db").execute("select metrics from metrics order by id")
    return [record["val_loss"] for (text,) in rows if "val_loss" in (record := json.loads(text))]


def losses_of_wandb(recorded):
    content = b"".join(file.read_bytes() for file in Path("wandb").glob("offline-run-*/*.wandb"))
    return [loss for loss in recorded if json.dumps(loss).encode() in content and b"tiny from step 40" in content]


@pytest.mark.slow
@pytest.mark.parametrize("losses_of", [losses_of_tensorboard, losses_of_trackio, losses_of_wandb])
def test_a_run_and_its_resumption_log_every_loss_with_the_real_library(workplace, monkeypatch, losses_of):
    name = losses_of.__name__.removeprefix("losses_of_")
    pytest.importorskip(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(workplace / "trackio"))
    assert run_script("train.py", "--config", "tiny.yaml", f"train.logger={name}").returncode == 0
    assert run_script("train.py", "--resume", "runs/tiny", "train.max_steps=60").returncode == 0
    recorded = losses(workplace / "runs/tiny")
    assert len(recorded) == 3
    assert recorded == losses_of(recorded)


@pytest.mark.parametrize(
    ("method", "fails", "status", "said"),
    [
        ("init", "sys.exit(3)", 1, "train.logger=trackio does not start (3); use train.logger=none; fix this,"),
        ("log", "1 / 0", 0, "warning: train.logger=trackio failed (ZeroDivisionError: division by zero); the run"),
        ("finish", "sys.exit(3)", 0, "warning: train.logger=trackio failed (SystemExit: 3); the run goes on"),
    ],
)
def test_a_library_that_fails_ends_a_run_only_at_its_start(workplace, monkeypatch, capsys, method, fails, status, said):
    working = "import sys\ninit = log = finish = lambda *_, **__: None\n"
    (workplace / "trackio.py").write_text(f"{working}def {method}(*_, **__): {fails}\n")
    monkeypatch.syspath_prepend(workplace)
    monkeypatch.setitem(sys.modules, "trackio", None)  # to be as it was for the next test
    del sys.modules["trackio"]
    ended = train.main(["--config", "tiny.yaml", "train.logger=trackio"])
    (line,) = capsys.readouterr().err.splitlines()
    assert (ended, line.startswith(f"train.py: {said}")) == (status, True), line
    assert any("finished" in record for record in metrics(workplace / "runs/tiny")) == (not status)
