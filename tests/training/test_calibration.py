"""The lowest loss at a temperature, compared with scipy's minimum in float64."""

import math
import re

import numpy as np
import pytest
import torch
from conftest import ROOT
from helpers import make_model
from scipy.optimize import minimize_scalar

from training.calibration import Calibration
from training.evaluation import evaluate
from training.runtime import Runtime
from training.trained_model import load_model

CPU = Runtime(torch.device("cpu"), torch.float32)


def loss_at(temperature, logits, targets):
    log_p = (logits.double() / temperature).log_softmax(-1)
    return -log_p.gather(-1, targets[..., None]).mean().item()


def lowest(logits, targets):
    found = minimize_scalar(loss_at, (0.5, 4), bounds=(0.5, 4), args=(logits, targets), options={"xatol": 1e-6})
    return found.fun, found.x


@pytest.fixture(scope="module")
def predicted():
    """Return the logits (64, 128, V) of the bundled model for the end of its play, and the targets (64, 128)."""
    model = load_model(ROOT / "data/bundled/selmere.safetensors", "cpu")
    ids = model.vocabulary.encode((ROOT / "data/bundled/selmere.txt").read_text(encoding="utf-8"))
    ids = torch.from_numpy(np.asarray(ids[-64 * 128 - 1 :]).astype(np.int64))
    with torch.inference_mode():
        return model.model(ids[:-1].view(64, 128)), ids[1:].view(64, 128)


@pytest.mark.parametrize("factor", [0.6, 0.8, 1, 1.3, 2, 3.5])
@pytest.mark.parametrize("shift", [0, 500])
def test_the_lowest_loss_and_its_temperature_are_those_that_scipy_finds(predicted, factor, shift):
    logits, targets = factor * predicted[0] + shift, predicted[1]
    calibration = Calibration()
    for part in (slice(0, 3), slice(3, 40), slice(40, 64)):  # batches of different sizes
        calibration.add(logits[part], targets[part])
    loss, temperature = calibration.best()
    expected, at = lowest(logits, targets)
    assert loss == pytest.approx(expected, abs=2e-4)
    assert temperature == pytest.approx(at, rel=2e-3)


def test_beyond_the_range_the_loss_is_that_at_its_end(predicted):
    calibration = Calibration()
    calibration.add(10 * predicted[0], predicted[1])
    assert calibration.best() == (pytest.approx(loss_at(4, 10 * predicted[0], predicted[1]), abs=1e-4), 4)


def test_a_temperature_fitted_on_every_other_window_fits_the_rest(predicted):
    logits, targets = predicted
    for here, there in ((slice(0, 64, 2), slice(1, 64, 2)), (slice(1, 64, 2), slice(0, 64, 2))):
        calibration = Calibration()
        calibration.add(logits[here], targets[here])
        _, temperature = calibration.best()
        on_the_other = loss_at(temperature, logits[there], targets[there])
        assert 0 <= on_the_other - lowest(logits[there], targets[there])[0] < 0.0005


def test_an_evaluation_and_its_record_have_both_losses():
    model, ids = make_model(7, n_layer=1, n_embd=12, block_size=6), torch.randint(7, (60,)).numpy()
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
        logits = torch.cat([model(torch.tensor(ids[i : i + 6])[None]) for i in range(0, 54, 6)], dim=1)
    result = evaluate(model, ids[:55], CPU)
    expected, at = lowest(logits, torch.tensor(ids[1:55])[None])
    assert result.calibrated_loss == pytest.approx(expected, abs=1e-4)
    assert math.isclose(result.temperature, at, rel_tol=2e-3)
    assert re.fullmatch(r"\d\.\d{4} at temperature \d\.\d\d", result.calibrated)
    assert result.record()["val_loss"] == result.loss > result.calibrated_loss == result.record()["val_calibrated_loss"]
