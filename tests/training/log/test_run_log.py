import contextlib
import copy
import dataclasses
import os
import re
import subprocess

import pytest
import torch
from helpers import make_state, metrics

from training.config_file import to_yaml
from training.evaluation import Evaluation
from training.log import run_log
from training.log.run_log import RunLog
from training.runs.run_folder import RunFolder


@pytest.fixture
def now(monkeypatch):
    """A time that the test sets, in seconds."""
    now = [100.0]
    monkeypatch.setattr(run_log.time, "perf_counter", lambda: now[0])
    return now


def test_the_log_records_a_run_without_changing_its_state(workplace, now, monkeypatch, capsys):
    state = make_state()
    monkeypatch.setattr(run_log, "product_rate", lambda _: 500 * state.model.flops_per_character(16))
    run = RunFolder.create("tiny")
    run.lay_out(to_yaml(state.config))
    state.progress.elapsed_s, state.progress.best_loss = 5.0, 2.5
    state.loss_count.fill_(10)
    state.loss_sum.fill_(31.0)
    after = dataclasses.replace(state.progress, step=20)
    weights = copy.deepcopy(state.model.state_dict())

    now[0] = 95.0
    with contextlib.closing(RunLog(run, state, 90.0)) as log:
        state.progress.step = 10
        now[0] = 100.0  # the setup is no part of the speed
        log.introduce(["train.seed was 0 and is 1"])
        with log.pause():
            now[0] = 108.0
        now[0] = 112.0
        log.step()
        now[0] = 113.0
        state.progress.step = 20
        state.loss_count += 10
        state.loss_sum += 24.0
        log.step()
        log.evaluation(Evaluation(2.5, 203, 203, 16), is_best=True)
        log.finished()

    training, second, evaluation, end = metrics(run.path)
    assert (training["train_loss"], second["train_loss"]) == (pytest.approx(3.1), pytest.approx(2.4))
    assert (training["lr"], second["lr"]) == (0.003 * 10 / 20, 0.003)  # of the 10th and the 20th step
    assert (training["tokens_per_s"], training["product_share"], training["elapsed_s"]) == (10 * 80 / 4, 0.4, 27.0)
    assert (second["tokens_per_s"], second["elapsed_s"]) == (10 * 80 / 1, 28.0)
    assert (evaluation["val_loss"], evaluation["val_characters"]) == (2.5, 203)
    assert (end["finished"], end["best_val_loss"]) == (True, 2.5)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", end["date"])
    printed = capsys.readouterr().out
    assert "36 s left" in printed  # 10 steps took 12 s with the pause, and 30 are left
    assert "  200 characters/s, 40% of the product rate  " in printed
    assert state.progress == after
    torch.testing.assert_close(state.model.state_dict(), weights, rtol=0, atol=0)


def test_the_end_of_a_run_names_the_commit_and_whether_the_code_has_changed_since(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments]
        return subprocess.check_output(command, text=True, env={"PATH": os.environ["PATH"]}).strip()

    monkeypatch.setattr(run_log, "PROJECT", tmp_path)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # as in a hook of another repository
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
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
