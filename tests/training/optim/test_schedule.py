import pytest

from training.config import OptimConfig
from training.optim.schedule import lr_factor


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
