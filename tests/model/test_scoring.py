import pytest
import torch

from model import scoring
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


@pytest.mark.parametrize("elements", [1, 500, 1 << 22])
def test_additive_scores_do_not_depend_on_the_number_of_queries_computed_at_once(monkeypatch, elements):
    torch.manual_seed(0)
    score = Additive(D, 3, hidden=6)
    q, k = torch.randn(B, H, T, D, requires_grad=True), torch.randn(B, H, S, 3, requires_grad=True)
    weight = torch.randn(B, H, T, S)

    def values_and_gradients():
        scores = score(q, k)
        return scores, *torch.autograd.grad((scores * weight).sum(), (q, k, *score.parameters()))

    sums = score.query(q).unsqueeze(-2) + score.key(k).unsqueeze(-3)
    at_once = score.weight(torch.tanh(sums)).squeeze(-1)
    expected = at_once, *torch.autograd.grad((at_once * weight).sum(), (q, k, *score.parameters()))
    monkeypatch.setattr(scoring, "ADDITIVE_ELEMENTS", elements)
    torch.testing.assert_close(values_and_gradients(), expected)


def test_additive_scores_never_store_all_sums_of_queries_and_keys():
    n, hidden = 512, 64
    score, q, k = Additive(D, D, hidden), torch.randn(n, D), torch.randn(n, D)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        score(q.requires_grad_(), k).sum()
    assert sum(kept) < n * n * hidden / 10


def test_a_name_selects_the_scoring_function():
    assert make_score("scaled_dot", 8) is scaled_dot
    assert make_score("additive", 8).query.weight.shape == (16, 8)
    assert make_score("gaussian", 8).w.requires_grad


def test_a_learned_gaussian_starts_as_the_scaled_dot_product_of_normalised_vectors():
    q, k = (torch.nn.functional.normalize(torch.randn(4, 8), dim=-1) for _ in range(2))
    gaussian = make_score("gaussian", 8)
    difference = gaussian(q, k) - scaled_dot(q, k)
    torch.testing.assert_close(difference, difference[:1, :1].expand_as(difference))  # a softmax removes a constant
