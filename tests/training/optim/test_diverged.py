import math
import re

import pytest
import torch
from helpers import losses, make_state, train_run

from training.runs.open_run import load_newest
from training.state import TrainingError
from training.step import TrainingStep


@pytest.mark.parametrize("settings", ["optim.name=muon", "optim.name=adamw", "optim.grad_clip=1"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["blocks.1.attention.qkv.weight", "token_embedding.weight"])
def test_a_bad_gradient_is_found_and_the_step_is_named(workplace, settings, value, name):
    state = make_state(settings)
    step = TrainingStep(state)
    step.run()
    state.check_finite()
    state.model.get_parameter(name).register_hook(lambda grad: grad.index_fill(0, torch.tensor([1]), value))
    step.run()
    with pytest.raises(TrainingError, match="infinite or NaN by step 2; lower"):
        state.check_finite()


def test_a_bad_loss_is_found(workplace):
    state = make_state("model.logit_softcap=0", "model.norm=layer")
    with torch.no_grad():
        state.model.lm_head.weight.fill_(1e38)
        state.model.lm_head.weight[0] = -1e38
    TrainingStep(state).run()
    with pytest.raises(TrainingError, match="the loss, the weights"):
        state.check_finite()


def test_a_bad_optimiser_state_is_found(workplace):
    state = make_state()
    TrainingStep(state).run()
    next(iter(state.optimizers[-1].state.values()))["exp_avg_sq"].view(-1)[0] = torch.inf
    with pytest.raises(TrainingError, match="the optimiser's state"):
        state.check_finite()


@pytest.mark.parametrize("noticed_at", ["log", "eval"])
def test_a_diverged_run_ends_with_status_1_and_keeps_its_good_checkpoint(workplace, monkeypatch, capsys, noticed_at):
    original = TrainingStep.run

    def poisoned(step):
        original(step)
        if step.state.progress.step == 33:
            step.state.model.lm_head.weight.data[0, 0] = torch.nan

    monkeypatch.setattr(TrainingStep, "run", poisoned)
    rare = [f"train.{name}_every_steps=20" for name in ("log", "eval")]
    run = train_run("tiny", *rare, f"train.{noticed_at}_every_steps=5", status=1)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("train.py: ")]
    assert "became infinite or NaN by step 35; lower optim.lr" in line
    newest = load_newest(run)
    assert newest.step in (20, 30) and not capsys.readouterr().err
    assert all(weight.isfinite().all() for weight in newest.tensors.values())
    assert max(losses(run.path, "step")) < 35


@pytest.mark.parametrize("loss", [8.04e37, 100.0, torch.nan])
def test_an_absurd_validation_loss_of_finite_weights_ends_the_run(workplace, loss):
    with pytest.raises(TrainingError, match=re.escape(f"the validation loss is {loss:.3g} at step 0; lower")):
        make_state().note_evaluation(loss)


def test_a_run_that_ends_worse_than_guessing_says_so(workplace, capsys):
    train_run("good", "train.max_steps=4")
    assert "guessing" not in capsys.readouterr().out
    settings = ["train.max_steps=4", "train.eval_every_steps=4", "train.dtype=float32"]
    run = train_run("bad", *settings, "optim.lr=10", "optim.warmup_steps=0")
    last, said = losses(run.path)[-1], capsys.readouterr().out
    assert f"The last loss, {last:.4f}, is worse than that of guessing, {math.log(26):.4f}: lower optim.lr" in said
