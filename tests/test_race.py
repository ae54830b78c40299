import json

import pytest
from test_train import metrics

from experiments import loss_over_time
from experiments.race import RaceError, race


def test_a_race_ends_at_the_first_evaluation_that_reaches_the_target(workplace):
    result = race(workplace / "tiny.yaml", 3.0, 1, ["train.max_steps=400", "train.eval_every_steps=20"])
    assert result.reached
    losses = [r["val_loss"] for r in metrics(workplace / "runs/race-tiny-1") if "val_loss" in r]
    assert losses[result.step // 20 - 1] == result.loss <= 3.0
    assert all(loss > 3.0 for loss in losses[: result.step // 20 - 1])
    assert result.elapsed_s > 0.5  # Python and PyTorch are part of it


def test_a_target_out_of_reach_is_told_with_the_best_loss(workplace):
    result = race(workplace / "tiny.yaml", 0.01, 0, [])
    assert not result.reached
    assert result.loss == min(r["val_loss"] for r in metrics(workplace / "runs/race-tiny-0") if "val_loss" in r)
    assert "NOT REACHED" in str(result)


def test_a_race_that_cannot_run_says_what_the_training_command_said(workplace):
    with pytest.raises(RaceError, match=r"model\.n_head=7 does not divide"):
        race(workplace / "tiny.yaml", 1.0, 0, ["model.n_head=7"])


def test_curves_are_read_from_the_evaluations_of_a_run_and_drawn(tmp_path):
    records = [{"step": 1, "elapsed_s": 2.0, "train_loss": 4.0}]
    records += [{"step": s, "elapsed_s": 3.0 * s, "val_loss": 4.0 - s, "val_context": 64} for s in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
    curve = loss_over_time.read_curve(tmp_path)
    assert curve == ([3.0, 6.0], [3.0, 2.0], 64)
    pytest.importorskip("matplotlib")
    loss_over_time.draw(tmp_path / "chart.svg", {"a run": curve}, [2.5])
    assert (tmp_path / "chart.svg").read_text().count("<path") > 10


def test_a_run_without_an_evaluation_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="holds no evaluation yet"):
        loss_over_time.read_curve(tmp_path)
