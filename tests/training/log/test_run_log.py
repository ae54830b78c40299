import contextlib
import copy
import dataclasses
import re
import subprocess

import pytest
import torch
from helpers import make_state, metrics

from training.config_file import to_yaml
from training.evaluation import Evaluation
from training.log import clock as clock_module
from training.log import run_log
from training.log.clock import Clock
from training.log.run_log import RunLog
from training.runs.run_folder import RunFolder


@pytest.fixture
def now(monkeypatch):
    """A time that the test sets, in seconds."""
    now = [100.0]
    monkeypatch.setattr(clock_module.time, "perf_counter", lambda: now[0])
    return now


def test_a_clock_adds_earlier_sessions_and_a_lap_counts_training_without_pauses(now):
    clock = Clock(90.0, earlier_s=1000.0)
    assert (clock.elapsed_s, clock.session_s) == (1010.0, 0.0)
    now[0] = 104.0
    with clock.pause():
        now[0] = 109.0
    now[0] = 110.0
    assert clock.lap_s() == 5.0
    now[0] = 112.0
    assert clock.lap_s() == 2.0
    assert (clock.elapsed_s, clock.session_s) == (1022.0, 12.0)


def test_the_log_records_a_run_without_changing_its_state(workplace, now, monkeypatch, capsys):
    state = make_state()
    monkeypatch.setattr(run_log, "product_rate", lambda _: 500 * state.model.flops_per_character(16))
    run = RunFolder.create("tiny")
    run.lay_out(to_yaml(state.config))
    state.progress.step, state.progress.best_loss = 10, 2.5
    state.loss_count.fill_(10)
    state.loss_sum.fill_(31.0)
    before = copy.deepcopy(state.progress)
    weights = copy.deepcopy(state.model.state_dict())

    state.progress.step = 0
    with contextlib.closing(RunLog(run, state, Clock(90.0, earlier_s=5.0))) as log:
        state.progress.step = 10
        log.introduce(["train.seed was 0 and is 1"])
        now[0] = 104.0
        log.step()
        log.evaluation(Evaluation(2.5, 203, 203, 16), is_best=True)
        log.finished()

    training, evaluation, end = metrics(run.path)
    assert training["train_loss"] == pytest.approx(3.1)
    assert (training["tokens_per_s"], training["product_share"], training["elapsed_s"]) == (10 * 80 / 4, 0.4, 19.0)
    assert (evaluation["val_loss"], evaluation["val_characters"]) == (2.5, 203)
    assert (end["finished"], end["best_val_loss"]) == (True, 2.5)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", end["date"])
    printed = capsys.readouterr().out
    assert "12 s left" in printed  # 10 steps took 4 s, and 30 are left
    assert "  200 characters/s, 40% of the product rate  " in printed
    assert dataclasses.asdict(state.progress) == dataclasses.asdict(before)
    torch.testing.assert_close(state.model.state_dict(), weights, rtol=0, atol=0)


def test_the_end_of_a_run_names_the_commit_and_whether_the_code_has_changed_since(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
        return subprocess.check_output(["git", "-C", str(tmp_path), *identity, *arguments], text=True).strip()

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
