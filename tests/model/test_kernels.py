import pytest
import torch
import torch.nn.functional as F
from helpers import make_model

from model.attention import attend
from model.kernels import hand_written

B, T, H, D = 2, 5, 3, 4

pytestmark = pytest.mark.usefixtures("float64")


def plain_attention(q, k, v):
    return attend(q, k, v, causal=True, form="explicit")


def cases():
    """Return each operation with a hand-written backward pass, its plain form, and inputs, by name."""
    torch.manual_seed(4)
    exact = {"dtype": torch.float64, "requires_grad": True}
    x, q, k, v = (torch.randn(B, H, T, D, **exact) for _ in range(4))
    wide, *shared = (torch.randn(B, *shape, **exact) for shape in ((H, T, D + 3), (1, T, D), (1, T, D)))
    factor = torch.rand(H, 1, 1, **exact)
    attention = hand_written.causal_attention, plain_attention
    return {
        "RMS norm": (hand_written.rms_norm, lambda x: F.rms_norm(x, (D,)), (x,)),
        "RMS norm with factors": (hand_written.rms_norm, lambda x, f: F.rms_norm(x, (D,)) * f, (x, factor)),
        "squared ReLU": (hand_written.squared_relu, lambda x: F.relu(x).square(), (x,)),
        "causal attention": (*attention, (q, k, v)),
        "attention with wider values": (*attention, (q, k, wide)),
        "attention with a shared key head": (*attention, (q, *shared)),
    }


@pytest.mark.parametrize(("form", "plain", "inputs"), cases().values(), ids=cases())
def test_an_operation_equals_its_definition_in_values_and_gradients(form, plain, inputs):
    learned = [x for x in inputs if x.requires_grad]
    actual, expected = form(*inputs), plain(*inputs)
    torch.testing.assert_close(actual, expected)
    weights = torch.randn(expected.shape)
    torch.testing.assert_close(
        torch.autograd.grad((actual * weights).sum(), learned),
        torch.autograd.grad((expected * weights).sum(), learned),
    )


@pytest.mark.parametrize("scale", [1e-3, 0.05, 1.0, 300.0])
def test_the_norm_in_bfloat16_equals_pytorchs_to_rounding(scale):
    """Training uses one and evaluation the other. They must agree for small numbers too, for which eps matters."""
    x = (scale * torch.randn(50, 64)).bfloat16().requires_grad_()
    torch.testing.assert_close(hand_written.rms_norm(x), F.rms_norm(x, (64,)), rtol=0.02, atol=0.01)


def test_the_norm_of_zeros_has_finite_gradients():
    x = torch.zeros(3, 4, requires_grad=True)
    hand_written.rms_norm(x).sum().backward()
    assert x.grad.isfinite().all()


def test_a_model_has_the_same_gradients_with_and_without_hand_written_backward_passes(monkeypatch):
    model = make_model(7)
    ids = torch.randint(7, (B, T))

    def gradients():
        model.zero_grad()
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        return [parameter.grad for parameter in model.parameters()]

    with_them = gradients()
    monkeypatch.setattr(hand_written, "is_faster", lambda x: False)
    plain = gradients()
    assert all(gradient.abs().sum() > 0 for gradient in plain)
    torch.testing.assert_close(with_them, plain)


def test_the_norm_returns_the_autocast_dtype_as_linear_layers_do():
    x = torch.randn(B, T, D, dtype=torch.float32, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = hand_written.rms_norm(x)
    assert y.dtype == torch.bfloat16
    y.float().square().sum().backward()
    assert x.grad.dtype == torch.float32
