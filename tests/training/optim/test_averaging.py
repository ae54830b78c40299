import copy

import pytest
import torch

import train
from data.corpus import open_corpus
from experiments.score import main as score_command
from model.config import ModelConfig
from model.gpt import GPT
from training.config_file import build_config
from training.optim.averaging import WeightAverage
from training.runs.checkpoint import load_checkpoint
from training.runs.run_folder import RunFolder
from training.runs.saving import capture, restore
from training.runtime import choose_runtime
from training.state import TrainingState


def averages(fraction, n_steps):
    """Return the average after each step of a model whose weights are all 1 after step 1, 2 after step 2, ..."""
    model = GPT(ModelConfig(n_layer=1, n_head=1, n_embd=4, block_size=4), 5)
    average = WeightAverage(model, copy.deepcopy(model), fraction)
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


def test_the_mean_age_of_the_weights_is_the_given_fraction_of_the_run():
    *_, average = averages(0.1, 1000)
    assert (1000 - average) / 1000 == pytest.approx(0.1, rel=0.02)


def test_a_run_evaluates_samples_and_saves_with_its_averages(workplace, capsys):
    assert train.main(["--config", "tiny.yaml", "optim.average_fraction=0.5"]) == 0
    run = RunFolder(workplace / "runs" / "tiny")
    checkpoint = load_checkpoint(run.latest)
    assert any(not torch.equal(checkpoint.model[name], checkpoint.trained[name]) for name in checkpoint.model)
    capsys.readouterr()
    assert score_command([]) == 0
    assert f": {checkpoint.progress['best_loss']:.4f} nats" in capsys.readouterr().out


def test_an_average_that_starts_on_resuming_does_not_contain_older_weights(workplace):
    assert train.main(["--config", "tiny.yaml"]) == 0
    assert train.main(["--resume", "runs/tiny", "train.max_steps=41", "optim.average_fraction=0.5"]) == 0
    first = load_checkpoint(workplace / "runs" / "tiny" / "checkpoints" / "latest.pt")
    assert all(torch.equal(first.model[name], first.trained[name]) for name in first.model)
    assert train.main(["--resume", "runs/tiny", "train.max_steps=42"]) == 0
    second = load_checkpoint(workplace / "runs" / "tiny" / "checkpoints" / "latest.pt")
    for name in second.model:
        torch.testing.assert_close(second.model[name], (first.trained[name] + second.trained[name]) / 2)


def test_a_run_that_resumes_without_averages_continues_from_the_trained_weights(workplace):
    assert train.main(["--config", "tiny.yaml", "optim.average_fraction=0.5"]) == 0
    checkpoint = load_checkpoint(workplace / "runs" / "tiny" / "checkpoints" / "latest.pt")
    config = build_config(checkpoint.settings, ["optim.average_fraction=0"])
    state = TrainingState(config, open_corpus(config.data), choose_runtime("cpu", "float32"))
    restore(state, checkpoint)
    for name, weight in state.model.state_dict().items():
        assert torch.equal(weight, checkpoint.trained[name])
    assert state.average.model is state.model
    assert capture(state).trained is None
    assert state.progress.averaged_steps == 0
