import dataclasses
import re
import shutil
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from conftest import TINY_TEXT
from helpers import (
    assert_same_state,
    differences,
    losses,
    make_state,
    metrics,
    resume,
    run_differences,
    train_run,
)

import train
from cli.command import Stopped, StopRequest
from data.batches import TrainingBatches
from data.config import DataConfig
from data.corpus import open_corpus
from training.log.run_log import RunLog
from training.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from training.runs.run_folder import RunFolder
from training.step import TrainingStep


def advance(state, n_steps):
    step = TrainingStep(state)
    for _ in range(n_steps):
        step.run()


@pytest.mark.parametrize(
    "settings",
    [
        "optim.name=adamw optim.weight_decay=0.1 train.accumulate=2 optim.grad_clip=1 model.score=gaussian",
        "optim.name=muon train.grow_context_at=[0.2,0.6] model.score=additive",
        "optim.average_fraction=0.2 model.bias=true model.norm=layer",
        "optim.average_fraction=0.2 model.ngrams=[2,3] model.longest_copy=4 model.dropout=0",
        "model.score=dot model.n_head=[6,2] model.n_kv_head=2",
    ],
    ids=["AdamW", "Muon", "averages", "memories", "heads by layer"],
)
def test_a_state_that_was_saved_and_loaded_continues_bit_for_bit(workplace, settings):
    whole, first, second = (make_state(*settings.split()) for _ in range(3))
    advance(whole, 9)
    advance(first, 4)
    save_checkpoint(Checkpoint.of(first), workplace / "a")
    loaded = load_checkpoint(workplace / "a")
    second.load(loaded.progress, loaded.tensors)
    assert differences(Checkpoint.of(second), loaded) == []
    advance(second, 5)
    assert differences(Checkpoint.of(second), Checkpoint.of(whole)) == []
    assert second.take_mean_loss() == whole.take_mean_loss()


def test_a_finished_run_can_be_extended(workplace, capsys):
    constant = ["optim.decay_fraction=0", "train.log_every_steps=5"]
    whole, parts = (train_run(name, *constant, f"train.max_steps={n}") for name, n in (("whole", 60), ("parts", 20)))
    capsys.readouterr()
    resume(parts, "train.max_steps=60", "train.name=whole")
    assert "Changed settings: train.name was parts and is whole; train.max_steps was 20" in capsys.readouterr().out
    (changes,) = losses(parts.path, "changes")
    assert "train.max_steps was 20 and is 60" in changes
    assert_same_state(whole.latest, parts.latest)
    logged = parts.metrics.read_bytes()
    resume(parts)  # nothing left to do: it prints the results again
    assert parts.metrics.read_bytes() == logged
    said = capsys.readouterr().out
    assert "The run is already at step 60; raise train.max_steps to train longer" in said
    assert "Finished" not in said
    resume(parts, "train.max_steps=30", status=2)
    assert "train.max_steps=30 is below the run's current step 60" in capsys.readouterr().err


def test_a_run_killed_after_it_saved_its_best_resumes_from_it_even_with_a_changed_setting(run):
    assert load_checkpoint(run.best).step == load_checkpoint(run.latest).step == 40
    shutil.copy(run.previous, run.latest)
    resume(run, "train.max_steps=60", "optim.lr=1", "optim.muon_lr=1")
    best, finished = load_checkpoint(run.best), metrics(run.path)[-1]
    evaluations = {record["step"]: record["val_loss"] for record in metrics(run.path) if "val_loss" in record}
    assert evaluations.keys() == {20, 40, 60}
    assert best.step == min(evaluations, key=evaluations.get)
    assert best.progress.best_loss == finished["best_val_loss"] == min(evaluations.values())


def test_a_run_can_be_resumed_before_its_first_step(workplace, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(RunLog, "introduce", lambda *_: 1 / 0)  # ends the run as a kill would, without a save
        train_run("parts")
    parts = RunFolder(Path("runs/parts"))
    assert load_checkpoint(parts.latest).step == 0
    resume(parts)
    assert run_differences(parts, train_run("whole")) == []


def test_settings_that_change_are_not_lost_if_the_run_is_killed_before_its_next_save(workplace, monkeypatch):
    run = train_run("tiny", "train.max_steps=20")
    with monkeypatch.context() as patch:
        patch.setattr(TrainingStep, "run", Mock(side_effect=MemoryError))
        resume(run, "train.max_steps=30", "train.seed=7", status=1)
    resume(run)
    checkpoint = load_checkpoint(run.latest)
    assert (checkpoint.step, checkpoint.config.train.seed) == (30, 7)
    (changes,) = losses(run.path, "changes")
    assert "train.seed was 0 and is 7" in changes


def test_a_run_that_resumes_with_larger_batches_continues_at_the_next_window(workplace, monkeypatch):
    visited, original = [], TrainingBatches.starts

    def recording(batches, first):
        starts = original(batches, first)
        visited.extend(starts.tolist())
        return starts

    monkeypatch.setattr(TrainingBatches, "starts", recording)
    run = train_run("tiny", "train.max_steps=7")
    resume(run, "train.max_steps=11", "train.batch_size=4", "train.accumulate=3")
    text = open_corpus(DataConfig(corpus="text.txt")).split((0.9, 0.1, 0), 16).train
    single = TrainingBatches(text, block_size=16, batch_size=1, seed=0)
    assert visited == [int(original(single, window)[0]) for window in range(7 * 5 + 4 * 12)]


def change_tensors(run, change):
    checkpoint = load_checkpoint(run.latest)
    save_checkpoint(dataclasses.replace(checkpoint, tensors=change(checkpoint.tensors)), run.latest)


@pytest.mark.parametrize("what", ["", "exp_avg_sq.", "momentum_buffer.", "step.lm_head", "[a-z_]*.lm_head"])
def test_a_checkpoint_without_all_that_its_optimisers_remember_is_not_resumed_but_may_be_an_ancestor(run, capsys, what):
    change_tensors(run, lambda all: {name: x for name, x in all.items() if not re.match(f"optimizer.{what}", name)})
    resume(run, "train.max_steps=41", status=2)
    assert capsys.readouterr().err.endswith("; start a new run from its weights with --from\n")
    train_run("other", f"train.ancestor={run.latest}", "train.max_steps=2")


@pytest.mark.parametrize(
    ("name", "value"),
    [("exp_avg.lm_head.weight", torch.zeros(2)), ("step.lm_head.weight", torch.tensor(3)), ("a", torch.tensor(3))],
)
def test_an_optimisers_state_of_another_name_shape_or_type_is_an_error(run, capsys, name, value):
    change_tensors(run, lambda tensors: {**tensors, f"optimizer.{name}": value})
    resume(run, "train.max_steps=41", status=2)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_whose_text_was_moved_says_so_and_resumes_with_its_new_place(run, capsys):
    Path("text.txt").rename("moved.txt")
    resume(run, "train.max_steps=41", status=2)
    assert capsys.readouterr().err.endswith("; if you moved the text, add data.corpus=NEW_PATH\n")
    resume(run, "train.max_steps=41", "data.corpus=moved.txt")


def test_resuming_with_another_model_or_text_is_an_error(run, capsys):
    before = run.latest.read_bytes()
    Path("text.txt").write_text(TINY_TEXT + "?", encoding="utf-8")
    resume(run, "model.n_layer=3", "train.eval_characters=5", "optim.name=adamw", "train.max_steps=50", status=2)
    error = capsys.readouterr().err
    for difference in ("n_layer was 2 and is 3", "eval_characters was ", "muon and is adamw", "the text has changed"):
        assert difference in error
    assert "the vocabulary has changed" in error
    Path("text.txt").write_text(TINY_TEXT[:20], encoding="utf-8")
    resume(run, status=2)
    assert "the text has changed" in capsys.readouterr().err
    assert run.latest.read_bytes() == before


def test_a_file_that_moves_from_the_training_text_to_the_validation_text_is_an_error(workplace, capsys):
    for name in "abc":
        Path(f"{name}.txt").write_text(name + TINY_TEXT, encoding="utf-8")
    run = train_run("tiny", "data.corpus=[ab].txt", "data.val_corpus=c.txt", "train.max_steps=1")
    resume(run, "data.corpus=a.txt", "data.val_corpus=[bc].txt", "train.max_steps=2", status=2)
    assert "text (the training part of the text has changed);" in capsys.readouterr().err


def test_a_run_that_is_stopped_before_its_first_step_records_its_settings_once(workplace, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "check", Mock(side_effect=Stopped(signal.SIGINT)))
        run = train_run("tiny", "train.max_steps=4", status=130)
    resume(run)
    assert len(losses(run.path, "settings")) == 1


def test_another_seed_before_the_first_step_gives_other_first_weights(workplace, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "check", Mock(side_effect=Stopped(signal.SIGINT)))
        run = train_run("stopped", "train.max_steps=4", status=130)
    resume(run, "train.seed=1")
    assert run_differences(run, train_run("whole", "train.max_steps=4", "train.seed=1")) == []


def test_weights_that_are_kept_at_the_end_have_its_evaluation_although_it_was_interrupted(workplace, monkeypatch):
    keeping = ["train.max_steps=20", "train.keep_checkpoints=3"]
    whole = train_run("whole", *keeping)
    with monkeypatch.context() as patch:
        patch.setattr(train, "evaluate", Mock(side_effect=Stopped(signal.SIGTERM)))
        parts = train_run("parts", *keeping, status=143)
    checkpoint = load_checkpoint(parts.latest)
    assert (checkpoint.step, checkpoint.progress.evaluation_due, losses(parts.path)) == (20, True, [])
    resume(parts)
    assert run_differences(parts, whole) == []
