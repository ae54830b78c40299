import pytest
import torch
import torch.nn.functional as F

from model import by_hand
from model.attention import attend
from model.config import ModelConfig
from model.gpt import GPT
from model.positions import Rotary

B, T, H, D = 2, 5, 3, 4

pytestmark = pytest.mark.usefixtures("float64")


def plain_rotation(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


def case(name):
    """(form written out, the same in plain operations, inputs)"""
    torch.manual_seed(4)
    x, q, k, v = (torch.randn(B, H, T, D, requires_grad=True) for _ in range(4))
    turns = tuple(t.double() for t in Rotary(D, 9)(2, T))
    return {
        "RMSNorm": (by_hand.RMSNorm.apply, lambda x: F.rms_norm(x, (D,)), (x,)),
        "SquaredReLU": (by_hand.SquaredReLU.apply, lambda x: F.relu(x).square(), (x,)),
        "Rotate": (by_hand.Rotate.apply, plain_rotation, (x.transpose(1, 2), *turns)),
        "CausalAttention": (by_hand.CausalAttention.apply, lambda q, k, v: attend(q, k, v, causal=True), (q, k, v)),
    }[name]


FORMS = ("RMSNorm", "SquaredReLU", "Rotate", "CausalAttention")


@pytest.mark.parametrize("name", FORMS)
def test_a_form_written_out_has_the_values_and_gradients_of_the_plain_operations(name):
    form, plain, inputs = case(name)
    learned = [x for x in inputs if x.requires_grad]
    actual, expected = form(*inputs), plain(*inputs)
    torch.testing.assert_close(actual, expected)
    weights = torch.randn(expected.shape)
    torch.testing.assert_close(
        torch.autograd.grad((actual * weights).sum(), learned),
        torch.autograd.grad((expected * weights).sum(), learned),
    )


@pytest.mark.parametrize("name", FORMS)
def test_a_gradient_written_out_is_the_slope_of_the_values(name):
    form, _, inputs = case(name)
    assert torch.autograd.gradcheck(form, inputs)


@pytest.mark.parametrize("scale", [1e-3, 0.05, 1.0, 300.0])
def test_a_norm_of_coarse_numbers_is_pytorchs_to_their_precision(scale):
    """Training takes the one and evaluation the other: they must agree for small numbers too, where eps counts."""
    x = (scale * torch.randn(50, 64)).bfloat16().requires_grad_()
    torch.testing.assert_close(by_hand.RMSNorm.apply(x), F.rms_norm(x, (64,)), rtol=0.02, atol=0.01)


def test_a_norm_over_zeros_is_zero_and_has_finite_gradients():
    x = torch.zeros(3, 4, requires_grad=True)
    by_hand.RMSNorm.apply(x).sum().backward()
    assert x.grad.isfinite().all()


def test_a_network_has_the_same_loss_and_gradients_with_and_without_them(monkeypatch):
    model = GPT(ModelConfig(n_layer=2, n_head=H, n_embd=H * D, block_size=T), 7)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    ids = torch.randint(7, (B, T))

    def gradients():
        model.zero_grad()
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        return [parameter.grad for parameter in model.parameters()]

    with_them = gradients()
    monkeypatch.setattr(by_hand, "worthwhile", lambda x: False)
    plain = gradients()
    assert all(gradient.abs().sum() > 0 for gradient in plain)
    # Logits are float32 whatever the type of the weights.
    torch.testing.assert_close(with_them, plain, rtol=1e-5, atol=1e-6)


def test_they_compute_in_the_type_of_autocast_as_linear_maps_do():
    x = torch.randn(B, T, D, dtype=torch.float32, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = by_hand.RMSNorm.apply(x)
    assert y.dtype == torch.bfloat16
    y.float().square().sum().backward()
    assert x.grad.dtype == torch.float32


def test_nothing_is_written_out_where_no_gradient_is_asked_for():
    assert by_hand.worthwhile(torch.zeros(2, requires_grad=True))
    assert not by_hand.worthwhile(torch.zeros(2))
