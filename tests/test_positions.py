import pytest
import torch

from model.positions import Rotary, rotate

B, T, H, D = 2, 9, 3, 6


def test_rotation_multiplies_complex_pairs_by_unit_numbers_of_the_published_angles():
    rotary = Rotary(D, T)
    x = torch.randn(B, T, H, D)
    pairs = torch.complex(x[..., : D // 2].double(), x[..., D // 2 :].double())
    angles = torch.arange(T)[:, None].double() * 10_000.0 ** (-2 * torch.arange(D // 2).double() / D)
    expected = pairs * torch.polar(torch.ones_like(angles), angles)[:, None]
    actual = rotate(x, *rotary(0, T))
    torch.testing.assert_close(actual, torch.cat((expected.real, expected.imag), dim=-1).float())


def test_a_score_depends_only_on_the_distance_of_query_and_key():
    rotary = Rotary(D, 40)
    q, k = torch.randn(D).expand(1, 40, 1, D), torch.randn(D).expand(1, 40, 1, D)
    q, k = rotate(q, *rotary(0, 40)).squeeze(), rotate(k, *rotary(0, 40)).squeeze()
    scores = q @ k.T
    for distance in (0, 1, 7, 30):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(scores[5, 5], scores[5, 4])


def test_positions_continue_from_where_they_start():
    rotary = Rotary(D, T)
    for whole, part in zip(rotary(0, T), rotary(4, 3), strict=True):
        assert torch.equal(part, whole[4:7])


def test_a_head_of_odd_size_cannot_be_rotated():
    with pytest.raises(ValueError, match="head_size=5 must be even"):
        Rotary(5, T)
