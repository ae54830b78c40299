"""Updates with an infinite or NaN loss or gradient are never applied."""

import copy

import pytest
import torch
from helpers import metrics

import train
from data.corpus import open_corpus
from training.config_file import load_config
from training.optim.gate import UpdateGate
from training.optim.muon import Muon
from training.runs.checkpoint import load_checkpoint
from training.runs.saving import capture
from training.runtime import Runtime
from training.state import MOST_SKIPPED, TrainingError, TrainingState
from training.step import TrainingStep

CPU = Runtime(torch.device("cpu"), torch.float32)
BAD = {"NaN": torch.nan, "infinity": torch.inf, "a number whose square overflows": 1e25}


def make_step(workplace, *overrides):
    config = load_config(workplace / "tiny.yaml", ["train.max_steps=1000", *overrides])
    corpus = open_corpus(config.data, cache=workplace / "cache")
    state = TrainingState(config, corpus, CPU)
    return TrainingStep(state, corpus.ids), state


def values_of(state):
    """Return copies of all weights and of all tensors in the optimisers' states."""
    states = [o.state_dict()["state"] for o in state.optimizers]
    return copy.deepcopy([list(state.model.parameters()), states])


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
@pytest.mark.parametrize("settings", ["optim.name=muon", "optim.name=adamw", "optim.grad_clip=1"])
@pytest.mark.parametrize("name", ["blocks.1.attention.qkv.weight", "token_embedding.weight"])
def test_an_update_with_a_bad_gradient_changes_nothing_and_is_named(workplace, value, settings, name):
    step, state = make_step(workplace, settings)
    for _ in range(2):
        step.run()
    assert list(state.take_skipped()) == []
    before, losses = values_of(state), state.loss_sum.item()
    hook = state.model.get_parameter(name).register_hook(lambda grad: grad.index_fill(0, torch.tensor([1]), value))
    step.run()
    assert list(state.take_skipped()) == [(2, f"the gradient of {name}")]
    assert_equal(values_of(state), before)
    assert (state.loss_sum.item(), state.loss_count.item()) == (losses, 2)
    hook.remove()
    step.run()
    assert list(state.take_skipped()) == []
    assert state.progress.skipped_in_a_row == 0
    assert not torch.equal(state.model.lm_head.weight, before[0][-1])
    assert all(p.isfinite().all() for p in state.model.parameters())


def test_after_a_skipped_update_training_continues_as_if_it_had_not_been_tried(workplace):
    """Both runs apply the updates of steps 0 and 2, with the learning rate of these steps."""
    (step, state), (other_step, other) = make_step(workplace), make_step(workplace)
    step.run()
    hook = state.model.lm_head.weight.register_hook(lambda grad: grad * torch.nan)
    step.run()
    hook.remove()
    step.run()
    other_step.run()
    other.progress.step, other.progress.windows = 2, 10
    other_step.run()
    assert_equal(values_of(state), values_of(other))


def test_a_loss_that_is_not_finite_is_named(workplace):
    step, state = make_step(workplace, "model.logit_softcap=0", "model.norm=layer")
    with torch.no_grad():
        state.model.lm_head.weight.fill_(1e38)
        state.model.lm_head.weight[0] = -1e38
    before = copy.deepcopy(state.model.state_dict())
    step.run()
    assert list(state.take_skipped()) == [(0, "the loss")]
    assert_equal(state.model.state_dict(), before)


def test_training_ends_after_a_number_of_skipped_updates_in_a_row(workplace):
    step, state = make_step(workplace)
    state.model.lm_head.weight.register_hook(lambda grad: grad * torch.nan)
    named = []
    with pytest.raises(TrainingError, match="10 updates in a row were skipped"):
        for _ in range(2 * MOST_SKIPPED):
            step.run()
            named += state.take_skipped()
    assert len(named) == MOST_SKIPPED


def test_the_last_update_of_a_run_is_named_even_if_the_host_is_a_step_behind_the_device(workplace, monkeypatch):
    """A GPU computes while Python prepares the next step; here, a CPU pretends to."""
    original_init, original_run = UpdateGate.__init__, TrainingStep.run

    def behind(gate, *arguments):
        original_init(gate, *arguments)
        gate.n_behind = 1

    def poisoned(step):
        hook = step.state.model.lm_head.weight.register_hook(lambda grad: grad * torch.nan)
        if step.state.progress.step != 39:
            hook.remove()
        original_run(step)
        hook.remove()

    monkeypatch.setattr(UpdateGate, "__init__", behind)
    monkeypatch.setattr(TrainingStep, "run", poisoned)
    assert train.main(["--config", "tiny.yaml"]) == 0
    assert [record["skipped_step"] for record in metrics(workplace / "runs/tiny") if "skipped_step" in record] == [39]
    assert load_checkpoint(workplace / "runs/tiny/checkpoints/latest.pt").progress["skipped_in_a_row"] == 1


def test_an_optimiser_state_that_is_not_finite_is_never_saved(workplace):
    step, state = make_step(workplace)
    step.run()
    capture(state)
    next(iter(state.optimizers[-1].state.values()))["exp_avg_sq"].view(-1)[0] = torch.inf
    with pytest.raises(TrainingError, match="the optimiser's state became infinite"):
        capture(state)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("skips", [True, False])
def test_the_form_of_muon_for_a_gpu_equals_that_for_a_cpu(skips, weight_decay, monkeypatch):
    """A GPU selects between old and new values; here, on tensors that claim to be elsewhere."""

    class Elsewhere(torch.Tensor):
        device = torch.device("meta")

    start, results = [torch.randn(3, 5), torch.randn(5, 3)], []
    gradients = [torch.randn(3, 5), torch.full((5, 3), torch.nan if skips else 0.3)]
    for found_inf in (torch.tensor(float(skips)), torch.tensor(float(skips)).as_subclass(Elsewhere)):
        parameters = [torch.nn.Parameter(p.clone()) for p in start]
        optimizer = Muon(parameters, weight_decay=weight_decay, dtype=torch.float32)
        for p in parameters:
            p.grad = torch.ones_like(p)
        optimizer.step()
        for p, grad in zip(parameters, gradients, strict=True):
            p.grad = grad.clone()
        optimizer.found_inf = found_inf
        before = [p.clone() for p in parameters]
        optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(before, parameters, strict=True)) == skips
        results.append([*parameters, *(optimizer.state[p]["momentum_buffer"] for p in parameters)])
    assert_equal([t.as_subclass(torch.Tensor) for t in results[0]], [t.as_subclass(torch.Tensor) for t in results[1]])


def test_the_log_and_the_metrics_name_step_batch_and_tensor_of_a_skipped_update(workplace, capsys, monkeypatch):
    run, original = [], TrainingStep.run

    def poisoned(step):
        run.append(step)
        name = "blocks.0.mlp.up.weight"
        hook = step.state.model.get_parameter(name).register_hook(lambda grad: grad * torch.nan)
        if step.state.progress.step != 4:
            hook.remove()
        original(step)
        hook.remove()

    monkeypatch.setattr(TrainingStep, "run", poisoned)
    assert train.main(["--config", "tiny.yaml", "train.accumulate=3", "train.log_every_steps=5"]) == 0
    said = capsys.readouterr().out
    reason = "the gradient of blocks.0.mlp.up.weight"
    assert f"step 5: update skipped, because {reason} was infinite or NaN (batches from 12)" in said
    (record,) = [record for record in metrics(workplace / "runs/tiny") if "skipped_step" in record]
    assert (record["skipped_step"], record["skipped_because"], record["batch"]) == (4, reason, 12)
    latest = load_checkpoint(workplace / "runs/tiny/checkpoints/latest.pt")
    assert all(value.isfinite().all() for value in latest.model.values())
