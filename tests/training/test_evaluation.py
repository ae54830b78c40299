import math
import signal

import helpers
import numpy as np
import pytest
import torch

from cli.command import Stopped
from training.evaluation import evaluate
from training.runtime import Runtime, choose_runtime

V, BLOCK_SIZE = 9, 6
CPU = Runtime(torch.device("cpu"), torch.float32)


def make_model(dropout=0.0):
    return helpers.make_model(V, n_layer=1, n_embd=12, block_size=BLOCK_SIZE, dropout=dropout)


@pytest.mark.parametrize("n_characters", [2, 7, 8, 30])
def test_the_loss_equals_the_mean_over_characters_scored_one_by_one(n_characters):
    model, ids = make_model(), np.random.default_rng(0).integers(0, V, n_characters).astype(np.uint8)
    losses = []
    for t in range(1, n_characters):
        start = (t - 1) // BLOCK_SIZE * BLOCK_SIZE
        context = torch.from_numpy(ids[start:t].astype(np.int64))[None]
        losses.append(-model(context)[0, -1].double().log_softmax(-1)[int(ids[t])].item())
    result = evaluate(model, ids, CPU)
    assert result.n_characters == n_characters - 1
    assert result.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert result.extent == "context 6"
    assert result.bits_per_character == pytest.approx(result.loss / math.log(2))


def test_a_part_of_the_text_is_scored_in_evenly_spread_windows():
    model, ids = make_model(), np.random.default_rng(0).integers(0, V, 5 * BLOCK_SIZE + 3).astype(np.uint8)
    result = evaluate(model, ids, CPU, n_characters=2 * BLOCK_SIZE - 1)
    assert (result.n_characters, result.n_available) == (2 * BLOCK_SIZE, 5 * BLOCK_SIZE + 2)
    assert result.extent == "context 6  12 of 32 characters"
    windows = [ids[start : start + BLOCK_SIZE + 1] for start in (0, 2 * BLOCK_SIZE)]
    losses = [evaluate(model, window, CPU).loss for window in windows]
    assert result.loss == pytest.approx(sum(losses) / 2, rel=1e-6)


def test_an_evaluation_can_be_stopped_and_restores_training():
    model, ids = make_model().train(), np.arange(60, dtype=np.uint8) % V

    def stop():
        raise Stopped(signal.SIGINT)

    with pytest.raises(Stopped):
        evaluate(model, ids, CPU, check_stop=stop)
    assert model.training


def test_evaluation_is_repeatable_and_does_not_affect_training():
    model, ids = make_model(dropout=0.5), np.arange(60, dtype=np.uint8) % V
    random_state = torch.get_rng_state()
    model.train()
    assert evaluate(model, ids, CPU) == evaluate(model, ids, CPU)
    assert model.training
    assert torch.equal(torch.get_rng_state(), random_state)


def test_the_loss_in_bfloat16_is_close_to_that_in_float32():
    model, ids = make_model(), np.arange(600, dtype=np.uint8) % V
    exact = evaluate(model, ids, CPU).loss
    assert evaluate(model, ids, choose_runtime("cpu", "bfloat16")).loss == pytest.approx(exact, abs=0.02)
