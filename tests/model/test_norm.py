import pytest
import torch
import torch.nn.functional as F

from model.norm import rms_norm

H, D = 3, 4


@pytest.mark.parametrize("has_factor", [False, True])
def test_the_norm_equals_that_of_pytorch_in_values_and_gradients(has_factor):
    x = torch.randn(2, 5, H, D, dtype=torch.float64, requires_grad=True)
    factor = torch.rand(H, 1, dtype=torch.float64, requires_grad=True) if has_factor else None
    actual, expected = rms_norm(x, factor), F.rms_norm(x, (D,)) * (1 if factor is None else factor)
    torch.testing.assert_close(actual, expected)
    inputs, weights = (x,) if factor is None else (x, factor), torch.randn(expected.shape, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad((actual * weights).sum(), inputs), torch.autograd.grad((expected * weights).sum(), inputs)
    )


@pytest.mark.parametrize("scale", [1e-3, 0.05, 1.0, 300.0])
def test_the_norm_in_bfloat16_equals_that_of_pytorch_to_rounding(scale):
    """They must agree for small numbers too, for which eps matters."""
    x = (scale * torch.randn(50, 64)).bfloat16()
    torch.testing.assert_close(rms_norm(x), F.rms_norm(x, (64,)), rtol=0.02, atol=0.01)


def test_the_norm_of_zeros_has_finite_gradients():
    x = torch.zeros(3, D, requires_grad=True)
    rms_norm(x).sum().backward()
    assert x.grad.isfinite().all()
