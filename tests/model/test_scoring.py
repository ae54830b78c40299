import pytest
import torch

from model.scoring import Additive, Gaussian, dot, make_score, scaled_dot, uniform

B, H, T, S, D = 2, 3, 5, 7, 4

pytestmark = pytest.mark.usefixtures("float64")


def test_every_score_equals_its_formula_computed_pair_by_pair():
    torch.manual_seed(0)
    q, k = torch.randn(B, H, T, D), torch.randn(B, H, S, D)
    gaussian = Gaussian(0.7)
    additive = Additive(D, D, hidden=6)
    query, key, weight = additive.parameters()
    formulas = {
        uniform: lambda a, b: torch.tensor(0.0),
        dot: lambda a, b: sum(a * b),
        scaled_dot: lambda a, b: sum(a * b) / 2,
        gaussian: lambda a, b: -sum(((a - b) * 0.7) ** 2) / 2,
        additive: lambda a, b: weight[0] @ torch.tanh(query @ a + key @ b),
    }
    for score, formula in formulas.items():
        scores = score(q, k)
        assert scores.shape == (B, H, T, S)
        for t, s in ((0, 0), (1, 4), (4, 6)):
            torch.testing.assert_close(scores[1, 2, t, s], formula(q[1, 2, t], k[1, 2, s]))


def test_a_learned_gaussian_starts_as_the_scaled_dot_product_of_normalised_vectors():
    q, k = (torch.nn.functional.normalize(torch.randn(4, 8), dim=-1) for _ in range(2))
    gaussian = make_score("gaussian", 8)
    difference = gaussian(q, k) - scaled_dot(q, k)
    torch.testing.assert_close(difference, difference[:1, :1].expand_as(difference))  # a softmax removes a constant
