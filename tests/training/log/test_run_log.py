import contextlib
import copy
import dataclasses
import os
import re
import subprocess
import time

import pytest
import torch
from helpers import make_state, metrics, recomputed

from model.generate import Sampling
from training.config_file import to_yaml
from training.evaluation import Evaluation
from training.log import run_log
from training.log.run_log import RunLog
from training.runs.run_folder import RunFolder
from training.state import Progress


@pytest.fixture
def now(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_the_log_records_a_run_without_changing_its_state(workplace, now, capsys):
    settings = ["train.accumulate=2", "train.grow_context_at=[0.5]", "train.seed=7", "train.log_every_steps=5"]
    state = make_state(*settings, "optim.average_fraction=0.5")
    for parameter in state.average.model.parameters():  # which writes the sample
        torch.nn.init.normal_(parameter, std=0.5)
    run = RunFolder.create("tiny")
    run.lay_out(to_yaml(state.config))
    state.progress = Progress(step=10, elapsed_s=5.0, best_loss=2.5, best_step=7)
    state.loss_count.fill_(10)
    state.loss_sum.fill_(31.0)
    state.grad_norm.fill_(3.0)
    after = dataclasses.replace(state.progress, step=25)
    weights = copy.deepcopy(state.model.state_dict())

    now[0] = 95.0
    with contextlib.closing(RunLog(run, state, 90.0)) as log:
        state.progress.step = 20
        now[0] = 100.0  # the setup is no part of the speed
        log.introduce(["train.seed was 0 and is 1"])
        with log.clock.pause():
            now[0] = 108.0
        now[0] = 112.0
        log.step()
        now[0] = 113.0
        state.progress.step = 25
        state.loss_count += 10
        state.loss_sum += 24.0
        log.step()
        log.evaluation(Evaluation(2.5, 203, 203, 16), is_best=True)
        log.finished()

    training, second, evaluation, end = metrics(run.path)
    assert (training["train_loss"], second["train_loss"]) == (pytest.approx(3.1), pytest.approx(2.4))
    # The 20th step is the last before the learning rate falls, to 0 after the 40th, and before the context grows.
    assert (training["lr"], second["lr"]) == (0.003, pytest.approx(0.003 * 16 / 20))
    assert (training["context"], second["context"], training["grad_norm"]) == (8, 16, 3)
    assert (training["tokens_per_s"], training["elapsed_s"]) == (10 * 160 / 4, 27.0)
    assert (second["tokens_per_s"], second["elapsed_s"]) == (5 * 160 / 1, 28.0)
    assert (evaluation["val_loss"], evaluation["val_characters"]) == (2.5, 203)
    assert (end["finished"], end["best_val_loss"]) == (True, 2.5)
    assert end["n_parameters"] == sum(weight.numel() for weight in weights.values())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", end["date"])
    printed = capsys.readouterr().out
    assert "validation loss 2.5000 best  " in printed
    assert "24 s left" in printed  # 10 steps took 12 s with the pause, and 20 are left
    assert "  400 characters/s  " in printed
    assert "2.5000 nats (3.607 bits) per character, context 16, at step 7\n" in printed  # 2.5 / ln 2
    characters, line_end = state.corpus.vocabulary.characters, torch.zeros(1, 1, dtype=torch.long)
    ids = recomputed(state.average.model.eval(), line_end, 30, seed=7, sampling=Sampling(temperature=0.8))
    sample = "".join(characters[i] for i in ids[0])
    assert run.samples.read_text() == f"--- step 25, validation loss 2.5000 ---\n{sample}\n\n"
    assert state.progress == after
    torch.testing.assert_close(state.model.state_dict(), weights, rtol=0, atol=0)


def test_the_end_of_a_run_names_the_commit_and_whether_the_code_has_changed_since(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments]
        return subprocess.check_output(command, text=True, env={"PATH": os.environ["PATH"]}).strip()

    monkeypatch.setattr(run_log, "PROJECT", tmp_path)
    assert run_log.commit() is None
    git("init")
    (tmp_path / "train.py").write_text("one")
    git("add", ".")
    git("commit", "-m", "first")
    assert run_log.commit() == git("rev-parse", "HEAD")
    (tmp_path / "train.py").write_text("two")
    assert run_log.commit() == git("rev-parse", "HEAD") + "-dirty"
    (tmp_path / "copy").mkdir()
    monkeypatch.setattr(run_log, "PROJECT", tmp_path / "copy")  # inside another repository
    assert run_log.commit() is None
