"""Loss scaling against PyTorch's own, and what float16 does without it."""

import pytest
import torch

from data.corpus import open_corpus
from training.config_file import build_config
from training.optim import loss_scale
from training.optim.loss_scale import LossScale
from training.runtime import choose_runtime
from training.state import TrainingState
from training.step import TrainingStep

SETTINGS = ["data.corpus=selmere", "train.batch_size=2", "model.n_layer=1", "model.n_embd=32", "model.block_size=32"]


def test_the_scale_changes_as_pytorchs_does(monkeypatch):
    monkeypatch.setattr(loss_scale, "GROWTH_STEPS", 3)
    ours, value, age = LossScale(torch.device("cpu")), torch.tensor(2.0**16), torch.zeros((), dtype=torch.int32)
    values = set()
    for overflowed in (1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1):
        found_inf = torch.tensor(float(overflowed))
        ours.update(found_inf)
        torch._amp_update_scale_(value, age, found_inf, 2.0, 0.5, 3)
        assert ours.value == value
        values.add(value.item())
    assert len(values) > 2


@pytest.fixture
def training():
    config = build_config({}, [*SETTINGS, "train.dtype=float16"])
    corpus = open_corpus(config.data)
    state = TrainingState(config, corpus, choose_runtime("cpu", "float16"))
    return state, TrainingStep(state, corpus.ids)


def test_the_optimisers_receive_gradients_without_the_scale(training):
    state, step = training
    seen = []
    for scale in (1.0, 1024.0):
        state.loss_scale.value.fill_(scale)
        state.progress.step = state.progress.windows = 0
        norms = []
        hook = state.optimizers[-1].register_step_pre_hook(
            lambda optimizer, *_, norms=norms: norms.extend(
                p.grad.norm() for g in optimizer.param_groups for p in g["params"]
            )
        )
        before = {name: p.clone() for name, p in state.model.state_dict().items()}
        step.run()
        state.model.load_state_dict(before)
        hook.remove()
        seen.append(torch.stack(norms))
    assert seen[0].max() > 1e-3
    torch.testing.assert_close(*seen, rtol=0.02, atol=1e-5)


def test_an_overflow_skips_the_update_and_halves_the_scale(training):
    state, step = training
    step.run()
    state.loss_scale.value.fill_(2.0**40)
    before = {name: p.clone() for name, p in state.model.state_dict().items()}
    step.run()
    assert state.loss_scale.value == 2.0**39
    assert state.gate.found_inf == 1
    for name, p in state.model.state_dict().items():
        assert torch.equal(p, before[name]), name
