import math
import random

import pytest
import torch
import torch.nn.functional as F

from model import attention
from model.attention import attend
from model.scoring import dot

N, T, S, H, D = 3, 5, 7, 2, 6

pytestmark = pytest.mark.usefixtures("float64")


def gradients(y, inputs):
    torch.manual_seed(8)
    return torch.autograd.grad((y * torch.randn(y.shape)).sum(), inputs, retain_graph=True, allow_unused=True)


def random_case(seed):
    """Return queries, keys and values of random sizes, and a random bias."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    n, h, t, s, d, d_v = (draw.randint(1, 6) for _ in range(6))
    q, k, v = (torch.randn(n, h, *size, requires_grad=True) for size in ((t, d), (s, d), (s, d_v)))
    bias = torch.randn(draw.choice([(n, h, t, s), (n, 1, t, s), (t, s), (n, 1, 1, s)]))
    return q, k, v, bias


@pytest.mark.parametrize("seed", range(40))
def test_attention_equals_pytorch_in_values_and_gradients_for_random_shapes_and_biases(seed):
    q, k, v, bias = random_case(seed)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(*q.shape[:-1], k.size(-2)))
    for form in ("explicit", "fused"):
        actual = attend(q, k, v, bias=bias, form=form)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(gradients(actual, (q, k, v)), gradients(expected, (q, k, v)))


def test_later_keys_and_values_have_no_influence_even_if_they_are_huge():
    q, k, v = (torch.randn(N, n, D) for n in (T, S, S))
    expected = attend(q, k, v, causal=True)[:, :-1]
    k[:, -1], v[:, -1] = 1e300, 1e300
    torch.testing.assert_close(attend(q, k, v, causal=True)[:, :-1], expected)


@pytest.mark.parametrize("form", ["explicit", "fused", "auto"])
@pytest.mark.parametrize("biased", [False, True])
def test_every_form_drops_weights(form, biased):
    q, v = torch.zeros(1, 1, 64, D, requires_grad=True), torch.eye(64)[None, None]
    bias = torch.zeros(64, 64) if biased else None
    weights = attend(q, q, v, bias=bias, dropout=0.5, form=form)  # the values show the weights themselves
    assert 0.4 < (weights == 0).double().mean() < 0.6
    torch.testing.assert_close(weights[weights != 0], torch.full_like(weights[weights != 0], 2 / 64), rtol=1e-3, atol=0)


both_forms = pytest.mark.parametrize("form", ["explicit", "fused"])


@both_forms
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"biased": True}], ids=str)
def test_query_heads_that_share_a_key_head_equal_heads_with_copies_of_that_key_head(form, options):
    H, K, length = 6, 2, 5
    q, k, v = (torch.randn(N, n, length, D, requires_grad=True) for n in (H, K, K))
    masks = {
        "causal": options.get("causal", False),
        "bias": torch.randn(H, length, length) if options.get("biased") else None,
    }
    shared = attend(q, k, v, form=form, **masks)
    copied = attend(q, *(x.repeat_interleave(H // K, dim=1) for x in (k, v)), form="explicit", **masks)
    torch.testing.assert_close(shared, copied)
    torch.testing.assert_close(gradients(shared, (q, k, v)), gradients(copied, (q, k, v)))


@both_forms
@pytest.mark.parametrize(("n_queries", "n_keys"), [(7, 7), (1, 1), (1, 9), (4, 9)])
@pytest.mark.parametrize("biased", [False, True])
def test_causal_attention_sees_the_past_and_adds_a_bias_before_the_softmax(form, n_queries, n_keys, biased):
    q, k, v = (torch.randn(N, H, n, D, requires_grad=True) for n in (n_queries, n_keys, n_keys))
    bias = torch.randn(H, n_queries, n_keys) if biased else None
    past = torch.arange(n_keys) <= torch.arange(n_keys - n_queries, n_keys)[:, None]
    scores = torch.einsum("nhtd,nhsd->nhts", q, k) / math.sqrt(D) + (bias if biased else 0)
    expected = scores.masked_fill(~past, -math.inf).softmax(-1) @ v
    actual = attend(q, k, v, bias=bias, causal=True, form=form)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradients(actual, (q, k, v)), gradients(expected, (q, k, v)))


def test_auto_selects_the_implementation_that_was_measured_to_be_fastest(monkeypatch):
    chosen = []

    def record(name, function):
        return lambda *arguments, **options: chosen.append(name) or function(*arguments, **options)

    monkeypatch.setattr(attention, "fused", record("fused", attention.fused))
    monkeypatch.setattr(attention, "attention_weights", record("explicit", attention.attention_weights))

    def choice(dtype, requires_grad=True, S=8, **options):
        q, k = torch.zeros(1, 2, 8, 4, dtype=dtype, requires_grad=requires_grad), torch.zeros(1, 2, S, 4, dtype=dtype)
        chosen.clear()
        attend(q, k, k.clone(), **options)
        (name,) = chosen
        return name

    assert choice(torch.bfloat16) == choice(torch.bfloat16, causal=True) == "explicit"
    assert choice(torch.float32) == choice(torch.float32, causal=True) == "fused"
    assert choice(torch.bfloat16, requires_grad=False) == "fused"
    assert choice(torch.bfloat16, S=513) == "fused"
    assert choice(torch.float32, dropout=0.1) == "explicit"
    assert choice(torch.float32, score=dot) == "explicit"
    assert choice(torch.bfloat16, form="fused") == "fused"
    assert choice(torch.float32, form="explicit") == "explicit"
