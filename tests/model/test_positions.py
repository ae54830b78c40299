from dataclasses import replace

import pytest
import torch
from helpers import make_model

from model.config import ModelConfig
from model.positions import Alibi, Places, PositionEmbedding, Rotary, alibi_slopes

B, T, H, D, C = 2, 9, 3, 6, 12
CONFIG = ModelConfig(n_layer=2, n_head=(2, 3), n_embd=C, block_size=T)  # heads of 6 and of 4 channels


def places(start, end):
    return Places(slice(start, end), torch.zeros(1, end), PositionEmbedding(CONFIG))


def test_rotation_multiplies_complex_pairs_by_unit_numbers_with_the_published_angles():
    x = torch.randn(B, T, H, D)
    pairs = torch.complex(x[..., : D // 2].double(), x[..., D // 2 :].double())
    angles = torch.arange(T)[:, None].double() * 10_000.0 ** (-2 * torch.arange(D // 2).double() / D)
    expected = pairs * torch.polar(torch.ones_like(angles), angles)[:, None]
    actual = Rotary(CONFIG).rotate(x, places(0, T))
    torch.testing.assert_close(actual, torch.cat((expected.real, expected.imag), dim=-1).float())


def test_a_float64_model_rotates_by_angles_that_are_not_rounded_to_float32(float64):
    model = make_model(n_layer=1, n_head=1, n_embd=D, block_size=T)
    x = torch.randn(1, T, 1, D)
    angle = torch.tensor((T - 1) * 10_000.0 ** (-2 / D))
    turned = model.position_embedding.rotate(x, places(0, T))[0, -1, 0]
    expected = x[0, -1, 0, 1] * torch.cos(angle) - x[0, -1, 0, 1 + D // 2] * torch.sin(angle)
    torch.testing.assert_close(turned[1], expected, atol=1e-14, rtol=0)


def test_alibi_slopes_are_those_of_the_paper():
    assert alibi_slopes(8).flatten().tolist() == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(2).flatten().tolist() == [2.0**-4, 2.0**-8]
    sixteen = [2 ** (-i / 2) for i in range(1, 17)]
    assert alibi_slopes(12).flatten().tolist() == pytest.approx([2.0**-i for i in range(1, 9)] + sixteen[0:8:2])
    assert alibi_slopes(1).flatten().tolist() == [2.0**-8]


@pytest.mark.parametrize("index", [slice(2, 5), torch.tensor([2, 3, 4])], ids=["slice", "tensor"])
def test_alibi_lowers_each_score_by_slope_times_distance(index):
    alibi = Alibi(replace(CONFIG, n_head=3))
    bias = alibi.bias(3, Places(index, torch.zeros(1, 5), alibi), 5)
    slopes = alibi_slopes(3).flatten().tolist()
    for h in range(3):
        for t in range(3):
            for s in range(t + 3):
                assert bias[h, t, s].item() == pytest.approx(-slopes[h] * (t + 2 - s))


def test_without_positions_the_order_of_earlier_characters_does_not_matter_to_one_layer(float64):
    model = make_model(n_layer=1, positions="none")
    ids = torch.tensor([[0, 1, 2, 3, 4]])
    torch.testing.assert_close(model(ids)[0, -1], model(ids[:, [2, 0, 3, 1, 4]])[0, -1])
