import json

import pytest
from helpers import metrics

from experiments import loss_over_time
from experiments.race import main as race_command
from experiments.race import race


def test_a_race_ends_at_the_first_evaluation_that_reaches_the_target(workplace):
    result = race(workplace / "tiny.yaml", 3.0, 1, ["train.max_steps=400", "train.eval_every_steps=20"])
    evaluations = [r for r in metrics(workplace / "runs/race-tiny-1") if "val_loss" in r]
    losses = [r["val_loss"] for r in evaluations]
    assert losses[result.step // 20 - 1] == result.loss <= 3.0
    assert all(loss > 3.0 for loss in losses[: result.step // 20 - 1])
    assert result.elapsed_s == evaluations[result.step // 20 - 1]["elapsed_s"]
    assert result.elapsed_s > 0.5  # it includes the imports of Python and PyTorch


@pytest.mark.slow
def test_an_unreached_target_is_reported_with_the_best_loss_of_the_run(workplace, capsys):
    for name, steps in (("race-tiny-0", 60), ("race-tiny-0-2", 20)):
        options = ["--config", "tiny.yaml", "--target", "0.01", "--seeds", "1", f"train.max_steps={steps}"]
        assert race_command(options) == 1
        best = min(r["val_loss"] for r in metrics(workplace / "runs" / name) if "val_loss" in r)
        assert f"seed 0: NOT REACHED, best {best:.4f} at step" in capsys.readouterr().out


def test_a_race_with_an_invalid_config_produces_a_one_line_error_and_no_folder(workplace, capsys):
    assert race_command(["--config", "tiny.yaml", "--target", "1", "model.n_head=7"]) == 2
    said = capsys.readouterr().err
    assert "model.n_head=7 does not divide" in said
    assert said.count("\n") == 1
    assert not (workplace / "runs").exists()


@pytest.mark.slow
def test_a_race_whose_run_fails_reports_the_error_of_the_training_command(workplace):
    settings = ["optim.name=adamw", "optim.lr=1e30", "model.logit_softcap=0", "model.norm=layer"]
    with pytest.raises(ValueError, match=r"train\.py: 10 updates in a row were skipped"):
        race(workplace / "tiny.yaml", 1.0, 0, settings)


def test_curves_are_read_from_the_evaluations_of_a_run_and_drawn(tmp_path):
    records = [{"step": 1, "elapsed_s": 2.0, "train_loss": 4.0}]
    records += [{"step": s, "elapsed_s": 3.0 * s, "val_loss": 4.0 - s, "val_context": 64} for s in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    curve = loss_over_time.read_curve(tmp_path)
    assert curve == ([3.0, 6.0], [3.0, 2.0], 64)
    pytest.importorskip("matplotlib")
    loss_over_time.draw(tmp_path / "chart.svg", {"a run": curve}, [2.5])
    assert (tmp_path / "chart.svg").read_text().count("<path") > 10


def test_the_error_for_a_run_without_an_evaluation_names_the_run(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_text("")
    assert loss_over_time.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"experiments.loss_over_time: {tmp_path} has no evaluation yet\n"
