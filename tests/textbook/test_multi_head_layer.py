import random

import pytest
import torch
from torch import nn

from textbook.chapter5_layer import MultiHeadAttention

N, T, H = 3, 5, 2

pytestmark = pytest.mark.usefixtures("float64")


def gradients(y, inputs):
    torch.manual_seed(8)
    return torch.autograd.grad((y * torch.randn(y.shape)).sum(), inputs)


@pytest.mark.parametrize("seed", range(20))
def test_the_layer_equals_pytorchs_multihead_attention_for_random_shapes_and_masks(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    n_head, head_size, n, t, s = (draw.randint(1, 5) for _ in range(5))
    width = n_head * head_size
    key_size = width + draw.randint(1, 9)  # for equal sizes, PyTorch's layer has one big map
    bias = draw.random() < 0.5
    ours = MultiHeadAttention(width, n_head, key_size=key_size, bias=bias)
    theirs = nn.MultiheadAttention(width, n_head, bias=bias, batch_first=True, kdim=key_size, vdim=key_size)
    with torch.no_grad():
        own_maps = {"q_proj_weight": ours.query, "k_proj_weight": ours.key, "v_proj_weight": ours.value}
        for name, linear in own_maps.items():
            getattr(theirs, name).copy_(linear.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in own_maps.values()]))
        theirs.out_proj.load_state_dict(ours.proj.state_dict())
    inputs = [torch.randn(*shape, requires_grad=True) for shape in ((n, t, width), (n, s, key_size), (n, s, key_size))]
    padding, first, second = (torch.rand(shape) < 0.8 for shape in ((n, s), (t, s), (t, s)))
    padding[:, 0] = first[:, 0] = second[:, 0] = True
    actual = ours(*inputs, padding_mask=padding.long(), attention_mask=first.double(), memory_mask=second)
    expected, _ = theirs(*inputs, key_padding_mask=~padding, attn_mask=~(first & second), need_weights=False)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, inputs), gradients(expected, inputs))


def test_causal_attention_equals_a_triangular_attention_mask():
    layer, x = MultiHeadAttention(8, H), torch.randn(N, T, 8)
    torch.testing.assert_close(layer(x, causal=True), layer(x, attention_mask=torch.ones(T, T).tril()))


def test_a_query_that_sees_no_key_gets_weights_of_zero_and_passes_on_no_gradient():
    layer, x = MultiHeadAttention(8, H), torch.randn(N, T, 8, requires_grad=True)
    padding = torch.ones(N, T)
    padding[0], padding[1, :2] = 0, 0
    traced = layer.trace(x, padding_mask=padding, causal=True)
    sums = torch.ones(N, H, T)
    sums[0], sums[1, :, :2] = 0, 0
    torch.testing.assert_close(traced["weights"].sum(-1), sums)
    (gradient,) = gradients(traced["output"], [x])
    assert gradient.isfinite().all()
    assert (gradient[0] == 0).all() and gradient[1:].abs().sum() > 0
