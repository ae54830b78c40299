import copy
import itertools
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from conftest import TINY_TEXT
from helpers import make_state

from data.batches import TrainingBatches
from training.config import Config, OptimConfig
from training.config_file import build_config
from training.optim.schedule import context_length, lr_factor
from training.step import TrainingStep


def test_the_context_doubles_where_the_config_says_so():
    config = build_config({"model": {"block_size": 64}, "train": {"max_steps": 10, "grow_context_at": [0.25, 0.8]}})
    assert [context_length(config, step) for step in range(10)] == [16] * 3 + [32] * 5 + [64] * 2
    assert context_length(Config(), 0) == Config().model.block_size


def test_the_learning_rate_rises_stays_constant_and_decays():
    linear = OptimConfig(warmup_steps=4, decay_fraction=0.5, final_lr_fraction=0.2)
    factors = [lr_factor(linear, step, 20) for step in range(20)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4:11] == [1.0] * 7
    assert factors[11:] == pytest.approx([0.2 + 0.8 * n / 10 for n in range(9, 0, -1)])
    cosine = OptimConfig(warmup_steps=0, decay="cosine", decay_fraction=1)
    assert [lr_factor(cosine, step, 4) for step in range(4)] == pytest.approx([1.0, 0.853553, 0.5, 0.146447], abs=1e-6)
    constant = OptimConfig(warmup_steps=0, decay_fraction=0)
    assert [lr_factor(constant, step, 3) for step in range(3)] == [1.0, 1.0, 1.0]


def state_of(*settings):
    state = make_state(*settings)
    for parameter in state.model.parameters():  # with initial zeros, attention would write nothing
        torch.nn.init.normal_(parameter, std=0.3)
    return state


def test_a_step_with_a_short_context_trains_on_the_same_characters_in_shorter_windows(workplace):
    """Compare a step's loss with that of windows cut in four, computed without the class under test."""
    state = state_of("train.grow_context_at=[0.2,0.4]", "model.dropout=0", "train.seed=3")
    state.progress.step = 7  # the last one of 40 with the shortest context
    batches = TrainingBatches(state.split.train, block_size=16, batch_size=5, seed=3)
    inputs, targets = (ids.reshape(20, 4) for ids in batches.at(0))
    logits = state.model(inputs)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    squares = [gradient.square().sum() for gradient in torch.autograd.grad(loss, [*state.model.parameters()])]
    TrainingStep(state).run()
    assert state.take_mean_loss() == pytest.approx(loss.item(), rel=1e-6)
    assert state.grad_norm.item() == pytest.approx(sum(squares).sqrt().item(), rel=1e-5)


def test_a_step_has_its_own_learning_rate(workplace):
    state = make_state("optim.warmup_steps=4", "optim.lr=0.01", "optim.muon_lr=0.2")
    step = TrainingStep(state)
    for n in (1, 2, 3):
        step.run()
        rates = [group["lr"] for optimizer in state.optimizers for group in optimizer.param_groups]
        assert rates == pytest.approx([0.2 * n / 4, 0.01 * n / 4, 0.01 * n / 4])


def test_gradients_are_clipped_to_the_given_norm_and_their_norm_before_is_reported(workplace):
    gradients = []
    for grad_clip in (0, 0.05):
        state = state_of("model.dropout=0", f"optim.grad_clip={grad_clip}")
        model = state.model
        state.optimizers[0].register_step_pre_hook(
            lambda *_, model=model: gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        )
        TrainingStep(state).run()
        assert state.grad_norm.item() == pytest.approx(gradients[0].norm().item(), rel=1e-5)
    whole, clipped = gradients
    torch.testing.assert_close(clipped, whole * 0.05 / whole.norm())


def test_dropout_draws_another_mask_for_each_seed_in_each_step_and_each_batch(workplace):
    dropped = []
    for seed in (0, 1):
        state = state_of("model.dropout=0.5", "train.accumulate=2", f"train.seed={seed}")
        step = TrainingStep(state)
        state.model.blocks[0].register_forward_pre_hook(lambda _, inputs: dropped.append(inputs[0] == 0))
        for _ in range(3):
            step.run()
    # Independent masks agree on half of their 1,920 elements, with a standard deviation of 0.011.
    agreement = [(a == b).double().mean().item() for a, b in itertools.combinations(dropped, 2)]
    assert agreement == [pytest.approx(0.5, abs=0.06)] * 66


def test_n_grams_are_counted_in_the_training_text_alone(workplace):
    state = make_state("model.ngrams=[1]")
    seen = Counter(TINY_TEXT[: int(0.9 * len(TINY_TEXT))])
    ids = torch.arange(len(state.corpus.vocabulary))[None]
    rows = state.model.memories["ngrams"].index(ids + 1)[0, :, 0]
    assert len(set(rows.tolist())) == ids.numel()  # no two characters share a row
    counts = state.model.memories["ngrams"].counts[rows].tolist()
    assert counts == [seen[character] for character in state.corpus.vocabulary.characters]


@pytest.mark.parametrize("max_steps", [1, 25])
def test_n_grams_count_less_the_more_often_a_run_reads_its_text(workplace, max_steps):
    settings = "model.ngrams=[1]", "model.block_size=8", "train.batch_size=3"
    state = make_state(*settings, f"train.max_steps={max_steps}")
    n_passes = max_steps * 3 * 8 / int(0.9 * len(TINY_TEXT))
    prior = state.model.memories["ngrams"].prior
    assert prior.item() == pytest.approx(2.4 * n_passes)
    shorter = make_state(*settings, "train.max_steps=1")
    state.load(shorter.progress, shorter.tensors())  # resumed for longer
    assert prior.item() == pytest.approx(2.4 * n_passes)


def test_what_is_due_every_three_steps_is_also_due_after_the_last(workplace):
    state, due = make_state("train.max_steps=7"), []
    for state.progress.step in range(1, 8):
        due.append(state.is_due(3))
    assert due == [False, False, True, False, False, True, True]


def test_only_a_lower_validation_loss_is_better(workplace):
    state = make_state()
    found = []
    for state.progress.step, loss in enumerate([2.0, 1.5, 1.5, 1.7, 1.4, 1.4]):
        is_best = state.note_evaluation(loss)
        found.append((is_best, state.progress.best_step, state.progress.evaluations_since_best))
    assert found == [(True, 0, 0), (True, 1, 0), (False, 1, 1), (False, 1, 2), (True, 4, 0), (False, 4, 1)]
    assert state.progress.best_loss == 1.4


def test_a_step_moves_rows_of_n_grams_by_their_rate_times_the_gradient_summed_over_all_characters(workplace):
    ngrams = ["model.ngrams=[1,3]", "model.ngram_rows=50", "model.ngram_dropout=0"]
    state = state_of(*ngrams, "model.dropout=0", "train.accumulate=2", "optim.warmup_steps=0")
    model, batches = copy.deepcopy(state.model), TrainingBatches(state.split.train, block_size=16, batch_size=5, seed=0)
    for window in (0, 5):
        inputs, targets = batches.at(window)
        F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="sum").backward()
    before, gradient = (
        model.memories["ngrams"].rows.weight.detach(),
        model.memories["ngrams"].rows.weight.grad.to_dense(),
    )
    assert gradient.abs().sum() > 1
    TrainingStep(state).run()
    torch.testing.assert_close(state.model.memories["ngrams"].rows.weight.detach(), before - 0.2 * gradient)
