import pytest
import torch
import torch.nn.functional as F

from data.batches import TrainingBatches
from data.corpus import open_corpus
from training.config import Config
from training.config_file import build_config, load_config
from training.optim.schedule import context_length
from training.runtime import Runtime
from training.state import TrainingState
from training.step import TrainingStep


def test_the_context_doubles_where_the_config_says_so():
    config = build_config({"model": {"block_size": 64}, "train": {"max_steps": 10, "grow_context_at": [0.25, 0.8]}})
    assert [context_length(config, step) for step in range(10)] == [16] * 3 + [32] * 5 + [64] * 2
    assert context_length(Config(), 0) == Config().model.block_size


def test_a_step_with_a_short_context_trains_on_the_same_characters_in_shorter_windows(workplace):
    """Compare the first step's loss with that of windows cut in four, computed without the class under test."""
    config = load_config(workplace / "tiny.yaml", ["train.grow_context_at=[0.2,0.4]", "model.dropout=0"])
    corpus = open_corpus(config.data, cache=workplace / "cache")
    state = TrainingState(config, corpus, Runtime(torch.device("cpu"), torch.float32))
    for parameter in state.model.parameters():  # with initial zeros, attention would write nothing
        torch.nn.init.normal_(parameter, std=0.3)
    batches = TrainingBatches(state.split.train, block_size=16, batch_size=5, seed=0)
    inputs, targets = (ids.reshape(20, 4) for ids in batches.at(0))
    logits = state.model(inputs)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    squares = [gradient.square().sum() for gradient in torch.autograd.grad(loss, [*state.model.parameters()])]
    TrainingStep(state).run()
    assert state.take_mean_loss() == pytest.approx(loss.item(), rel=1e-6)
    assert state.grad_norm.item() == pytest.approx(sum(squares).sqrt().item(), rel=1e-5)
