import pytest
import torch
from helpers import make_state, resume, train_run

from model.config import ModelConfig
from model.gpt import GPT
from training.optim.optimizers import WeightAverage
from training.runs.checkpoint import load_checkpoint
from training.state import part_of


def averages(fraction, n_steps):
    """Return the average after each step of a model whose weights are all 1 after step 1, 2 after step 2, ..."""
    model = GPT(ModelConfig(n_layer=1, n_head=1, n_embd=4, block_size=4), 5)
    average = WeightAverage(model, fraction)
    for step in range(1, n_steps + 1):
        for p in model.parameters():
            torch.nn.init.constant_(p, step)
        average.update(step)
        values = torch.cat([p.flatten() for p in average.model.parameters()])
        assert values.unique().numel() == 1
        yield values[0].item()


def test_averages_equal_their_closed_forms():
    for n, average in enumerate(averages(0.5, 30), start=1):  # equal weights
        assert average == pytest.approx((n + 1) / 2, rel=1e-5)
    for n, average in enumerate(averages(1 / 3, 30), start=1):  # weights in proportion to the step
        assert average == pytest.approx((2 * n + 1) / 3, rel=1e-5)


def trained(checkpoint):
    return part_of(checkpoint.tensors, "trained.")


def test_an_average_that_starts_on_resuming_does_not_contain_older_weights(workplace):
    run = train_run("tiny")
    resume(run, "train.max_steps=41", "optim.average_fraction=0.5")
    first = load_checkpoint(run.latest)
    assert all(torch.equal(value, trained(first)[name]) for name, value in first.weights.items())
    resume(run, "train.max_steps=42")
    second = load_checkpoint(run.latest)
    for name, value in second.weights.items():
        torch.testing.assert_close(value, (trained(first)[name] + trained(second)[name]) / 2)


def test_a_run_that_resumes_without_averages_continues_from_the_trained_weights(workplace):
    checkpoint = load_checkpoint(train_run("tiny", "optim.average_fraction=0.5").latest)
    state = make_state("optim.average_fraction=0")
    state.load(checkpoint.progress, checkpoint.tensors)
    for name, weight in state.model.state_dict().items():
        assert torch.equal(weight, trained(checkpoint)[name])
    assert state.average.model is state.model
    assert not any(name.startswith("trained.") for name in state.tensors())
    assert state.progress.averaged_steps == 0
