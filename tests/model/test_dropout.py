import pytest
import torch

from model.attention import attend
from model.dropout import dropout, keep_mask
from model.kernels import hand_written


@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 0.9])
def test_elements_are_dropped_with_the_given_probability_and_the_mean_is_kept(p):
    torch.manual_seed(0)
    n = 400_000
    y = dropout(torch.ones(n), p)
    dropped = (y == 0).double().mean().item()
    assert dropped == pytest.approx(p, abs=5 * (p * (1 - p) / n) ** 0.5)
    kept = y[y != 0]
    assert kept.unique().tolist() == pytest.approx([1 / (1 - p)], rel=1e-3)


def test_neighbouring_elements_are_dropped_independently():
    """Four neighbouring elements share one random number."""
    torch.manual_seed(1)
    kept = (keep_mask(torch.ones(4 * 100_000), 0.5) != 0).double().view(-1, 4)
    correlations = torch.corrcoef(torch.cat((kept, kept.roll(1, 0)), dim=1).T) - torch.eye(8)
    assert correlations.abs().max() < 5 / 100_000**0.5


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0,), (2, 3, 7)])
def test_dropout_keeps_every_shape_and_dtype(shape):
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        y = dropout(torch.ones(shape, dtype=dtype), 0.5)
        assert (y.shape, y.dtype) == (shape, dtype)


def test_only_kept_elements_have_gradients():
    x = torch.ones(1000, requires_grad=True)
    y = dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert dropout(x, 0.25, training=False) is x


def test_the_hand_written_backward_pass_drops_the_same_weights_as_the_explicit_form():
    torch.manual_seed(2)
    q, k, v = (torch.randn(2, 3, 9, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    results = []
    for form in (
        lambda: attend(q, k, v, causal=True, dropout=0.3, form="explicit"),
        lambda: hand_written.causal_attention(q, k, v, 0.3),
    ):
        torch.manual_seed(7)
        y = form()
        results.append((y, *torch.autograd.grad(y.square().sum(), (q, k, v))))
    torch.testing.assert_close(results[1], results[0])
