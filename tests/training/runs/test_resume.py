"""Resuming runs that were stopped, killed, damaged or extended."""

import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import ROOT, TINY_TEXT, run_script
from helpers import assert_same_but_for_the_name, assert_same_state, heed_signals, metrics, untimed

import train
from data.batches import TrainingBatches
from data.config import DataConfig
from data.corpus import open_corpus
from experiments.heads.__main__ import main as heads
from training.runs.checkpoint import load_checkpoint, save_checkpoint
from training.runs.run_folder import RunFolder


def stopped_run(config, *overrides, after_step, with_signal):
    """Start a run as a user does and send it a signal after it prints a step; return the finished process."""
    command = [sys.executable, str(ROOT / "train.py"), "--config", config, *overrides]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(f"step {after_step}/"):
            process.send_signal(with_signal)
            break
    rest, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, "".join(lines) + rest, errors)


@pytest.mark.parametrize(
    ("number", "status", "settings"),
    [
        (signal.SIGINT, 130, ["optim.name=muon", "train.grow_context_at=[0.2,0.6]"]),
        pytest.param(
            signal.SIGTERM,
            143,
            ["optim.name=adamw", "train.accumulate=2", "optim.grad_clip=1", "model.score=additive"],
            marks=pytest.mark.slow,
        ),
        pytest.param(signal.SIGHUP, 129, ["train.dtype=float32", "optim.average_fraction=0.2"], marks=pytest.mark.slow),
    ],
    ids=[
        "Ctrl-C with Muon and a growing context",
        "termination with AdamW",
        "a closed terminal in float32 with averages",
    ],
)
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one_bit_for_bit(workplace, number, status, settings):
    settings = [*settings, "train.max_steps=150", "train.checkpoint_every_steps=110"]
    assert train.main(["--config", "tiny.yaml", *settings, "train.name=whole"]) == 0
    stopped = stopped_run("tiny.yaml", *settings, "train.name=parts", after_step=60, with_signal=number)
    assert stopped.returncode == status, stopped.stderr
    assert (
        stopped.stderr == "\nStopping after this step and saving; press Ctrl-C again to stop at once without saving.\n"
    )
    parts = workplace / "runs" / "parts"
    assert 60 <= load_checkpoint(parts / "checkpoints/latest.pt").step < 150
    assert f"--resume {parts.relative_to(workplace)}" in stopped.stdout

    assert train.main(["--resume", str(parts)]) == 0
    whole = workplace / "runs" / "whole"
    for name in ("latest.pt", "best.pt"):
        assert_same_but_for_the_name(whole / "checkpoints" / name, parts / "checkpoints" / name)
    assert untimed(metrics(parts)) == untimed(metrics(whole))
    assert (parts / "samples.txt").read_bytes() == (whole / "samples.txt").read_bytes()


@pytest.mark.slow
def test_a_killed_run_resumes_bit_for_bit_from_its_last_checkpoint(workplace):
    settings = ["train.max_steps=250", "train.checkpoint_every_steps=33", "train.eval_every_steps=70"]
    assert train.main(["--config", "tiny.yaml", *settings, "train.name=whole"]) == 0
    killed = stopped_run("tiny.yaml", *settings, "train.name=parts", after_step=100, with_signal=signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    parts, whole = workplace / "runs" / "parts", workplace / "runs" / "whole"
    assert train.main(["--resume", str(parts)]) == 0
    assert_same_but_for_the_name(whole / "checkpoints/latest.pt", parts / "checkpoints/latest.pt")
    assert untimed(metrics(parts)) == untimed(metrics(whole))


@pytest.mark.slow
def test_ctrl_c_interrupts_an_evaluation_and_the_resumed_run_starts_with_it(workplace):
    (workplace / "text.txt").write_text(TINY_TEXT * 400, encoding="utf-8")
    settings = ["data.split=[0.1,0.9,0]", "train.max_steps=40", "train.log_every_steps=20"]
    assert train.main(["--config", "tiny.yaml", *settings, "train.name=whole"]) == 0
    parts, whole = workplace / "runs" / "parts", workplace / "runs" / "whole"
    # The line of a step is printed just before its evaluation, which takes longer than a signal.
    stopped = stopped_run("tiny.yaml", *settings, "train.name=parts", after_step=20, with_signal=signal.SIGINT)
    assert stopped.returncode == 130
    assert "Stopped by SIGINT after step 20" in stopped.stdout
    checkpoint = load_checkpoint(parts / "checkpoints/latest.pt")
    assert (checkpoint.step, checkpoint.progress["evaluation_due"]) == (20, True)
    assert not any("val_loss" in record for record in metrics(parts))
    assert train.main(["--resume", str(parts)]) == 0
    for name in ("latest.pt", "best.pt"):
        assert_same_but_for_the_name(whole / "checkpoints" / name, parts / "checkpoints" / name)
    assert untimed(metrics(parts)) == untimed(metrics(whole))


@pytest.mark.slow
def test_the_evaluation_at_the_end_of_a_run_can_be_interrupted_too(workplace, capsys):
    (workplace / "text.txt").write_text(TINY_TEXT * 400, encoding="utf-8")
    settings = ["data.split=[0.1,0.9,0]", "train.max_steps=20"]
    stopped = stopped_run("tiny.yaml", *settings, after_step=20, with_signal=signal.SIGTERM)
    assert stopped.returncode == 143
    assert "Finished" not in stopped.stdout
    capsys.readouterr()
    assert train.main(["--resume", "runs/tiny"]) == 0
    assert [record["step"] for record in metrics(workplace / "runs/tiny") if "val_loss" in record] == [20]
    assert "already at step" not in capsys.readouterr().out


def test_the_part_of_the_text_that_a_run_evaluates_cannot_change(workplace, capsys):
    """A best loss on another part would not be comparable."""
    assert train.main(["--config", "tiny.yaml", "train.eval_characters=32"]) == 0
    assert train.main(["--resume", "runs/tiny", "train.max_steps=60", "train.eval_characters=null"]) == 2
    assert "train.eval_characters was 32 and is None" in capsys.readouterr().err


def test_a_finished_run_can_be_extended(workplace, capsys):
    constant = ["optim.decay_fraction=0", "train.log_every_steps=5"]
    assert train.main(["--config", "tiny.yaml", *constant, "train.name=whole", "train.max_steps=60"]) == 0
    assert train.main(["--config", "tiny.yaml", *constant, "train.name=parts", "train.max_steps=20"]) == 0
    capsys.readouterr()
    assert train.main(["--resume", "runs/parts", "train.max_steps=60", "train.name=whole"]) == 0
    assert "Changed settings: train.name was parts and is whole; train.max_steps was 20" in capsys.readouterr().out
    (changes,) = [record["changes"] for record in metrics(workplace / "runs/parts") if "changes" in record]
    assert "train.max_steps was 20 and is 60" in changes
    assert_same_state(workplace / "runs/whole/checkpoints/latest.pt", workplace / "runs/parts/checkpoints/latest.pt")
    capsys.readouterr()
    logged = (workplace / "runs/parts/metrics.jsonl").read_bytes()
    assert train.main(["--resume", "runs/parts"]) == 0  # nothing left to do: it prints the results again
    assert (workplace / "runs/parts/metrics.jsonl").read_bytes() == logged
    assert "The run is already at step 60; raise train.max_steps to train longer" in capsys.readouterr().out
    assert train.main(["--resume", "runs/parts", "train.max_steps=30"]) == 2
    assert "train.max_steps=30 is below the run's current step 60" in capsys.readouterr().err


def test_a_run_resumes_from_the_checkpoint_before_a_damaged_one(workplace, capsys):
    assert train.main(["--config", "tiny.yaml"]) == 0
    latest = workplace / "runs/tiny/checkpoints/latest.pt"
    latest.write_bytes(latest.read_bytes()[:1000])
    assert train.main(["--resume", "runs/tiny", "train.max_steps=50"]) == 0
    assert "warning: runs/tiny/checkpoints/latest.pt: is damaged" in capsys.readouterr().err
    assert load_checkpoint(latest).step == 50


def test_a_run_whose_checkpoints_were_deleted_never_starts_again_from_its_beginning(workplace, capsys):
    """The run was stopped before its first line in metrics.jsonl."""
    settings = ["train.max_steps=100000", "train.log_every_steps=10", "train.eval_every_steps=100000"]
    stopped = stopped_run("tiny.yaml", *settings, after_step=10, with_signal=signal.SIGTERM)
    assert stopped.returncode == 143
    run = RunFolder(workplace / "runs" / "tiny")
    run.latest.unlink()
    run.metrics.write_bytes(b"")
    assert train.main(["--resume", str(run.path)]) == 2
    assert "no checkpoint to resume from (its files are missing" in capsys.readouterr().err


def test_a_run_that_resumes_with_larger_batches_continues_at_the_next_window(workplace, monkeypatch):
    visited, original = [], TrainingBatches.starts

    def recording(batches, first):
        starts = original(batches, first)
        visited.extend(starts.tolist())
        return starts

    monkeypatch.setattr(TrainingBatches, "starts", recording)
    assert train.main(["--config", "tiny.yaml", "train.max_steps=7"]) == 0
    assert train.main(["--resume", "runs/tiny", "train.max_steps=11", "train.batch_size=4", "train.accumulate=3"]) == 0
    text = open_corpus(DataConfig(corpus="text.txt")).split((0.9, 0.1, 0), 16).train
    single = TrainingBatches(text, block_size=16, batch_size=1, seed=0)
    expected = [int(original(single, window)[0]) for window in range(7 * 5 + 4 * 12)]
    assert visited == expected


def test_an_interrupted_run_of_an_older_version_resumes_at_the_next_window(workplace):
    """Its checkpoints have the number of steps, but neither windows nor the settings that came later."""
    assert train.main(["--config", "tiny.yaml", "train.max_steps=20", "train.accumulate=2", "train.name=old"]) == 0
    run = RunFolder(workplace / "runs/old")
    for path in (run.latest, run.best):
        checkpoint = load_checkpoint(path)
        assert checkpoint.progress.pop("windows") == 200
        checkpoint.settings["train"]["sharded_checkpoints"] = False
        save_checkpoint(checkpoint, path)
    settings = run.config.read_text().replace("train:", "train:\n  sharded_checkpoints: false")
    run.config.write_text(settings)
    assert train.main(["--resume", "runs/old", "optim.decay_fraction=0", "train.max_steps=30"]) == 0
    assert load_checkpoint(run.latest).progress["windows"] == 300


def test_a_run_whose_text_was_moved_says_so_and_resumes_with_its_new_place(workplace, capsys):
    assert train.main(["--config", "tiny.yaml", "train.max_steps=20"]) == 0
    (workplace / "text.txt").rename(workplace / "moved.txt")
    capsys.readouterr()
    more = ["--resume", "runs/tiny", "train.max_steps=21"]
    assert train.main(more) == 2
    assert capsys.readouterr().err.endswith("; if you moved the text, add data.corpus=NEW_PATH\n")
    assert heads(["--checkpoint", "runs/tiny"]) == 2
    assert capsys.readouterr().err.endswith("; if you moved the text, put it back\n")
    assert train.main([*more, "data.corpus=moved.txt"]) == 0


def test_resuming_with_another_model_or_text_is_an_error(workplace, capsys):
    assert train.main(["--config", "tiny.yaml"]) == 0
    before = (workplace / "runs/tiny/checkpoints/latest.pt").read_bytes()
    (workplace / "text.txt").write_text(TINY_TEXT + "?", encoding="utf-8")
    assert train.main(["--resume", "runs/tiny", "model.n_layer=3", "optim.name=adamw", "train.max_steps=50"]) == 2
    error = capsys.readouterr().err
    for difference in (
        "model.n_layer was 2 and is 3",
        "optim.name was muon and is adamw",
        "SHA-256 was",
        "vocabulary was with nothing else and is with '?'",
    ):
        assert difference in error
    assert (workplace / "runs/tiny/checkpoints/latest.pt").read_bytes() == before


@pytest.mark.slow
def test_the_shakespeare_recipe_on_two_threads_resumes_bit_for_bit(workplace):
    config, environment = ROOT / "configs" / "selmere.yaml", os.environ | {"OMP_NUM_THREADS": "2"}
    settings = ["optim.decay_fraction=0", "train.name=a", "train.sample_length=0"]
    for arguments in (
        ("--config", config, *settings, "train.max_steps=10"),
        ("--resume", "runs/a", "train.max_steps=20"),
        ("--config", config, *settings, "train.max_steps=20"),
    ):
        finished = run_script("train.py", *arguments, env=environment)
        assert finished.returncode == 0, finished.stderr
    assert_same_state(workplace / "runs/a/checkpoints/latest.pt", workplace / "runs/a-2/checkpoints/latest.pt")


def test_a_run_without_a_first_checkpoint_restarts_but_a_run_that_lost_its_checkpoint_does_not(workplace, capsys):
    assert train.main(["--config", "tiny.yaml"]) == 0
    run = RunFolder(workplace / "runs" / "tiny")
    whole = untimed(metrics(run.path))
    for path in (run.best, run.latest, run.previous):
        path.unlink()
    assert train.main(["--resume", str(run.path)]) == 2
    assert "its files are missing" in capsys.readouterr().err
    lines = run.metrics.read_text().splitlines()
    last = json.loads(lines[-1]) | {"step": 20}
    run.metrics.write_text(json.dumps(last) + "\n")  # finished at its first save
    assert train.main(["--resume", str(run.path)]) == 2
    run.saved_note.unlink()  # as in a run of an earlier version
    assert train.main(["--resume", str(run.path)]) == 2
    run.metrics.write_text('{"step": 10, "train_loss": 3.0}\n{"step": 20, "val')  # killed in the first save
    assert train.main(["--resume", str(run.path)]) == 0
    assert untimed(metrics(run.path)) == whole
