"""The statements of the source texts on attention, with results to their printed digits: texts 1 and 2."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from model.attention import attend
from model.scoring import dot, scaled_dot
from textbook import chapter4_heads
from textbook.__main__ import main as textbook
from textbook.chapter3_head import EMBEDDINGS, KEY_MAP, QUERY_MAP, VALUE_MAP, one_head
from textbook.chapter4_heads import (
    heads_by_einsum,
    heads_by_loop,
    heads_in_batch,
    join_heads,
    split_heads,
    what_gave_reads,
)
from textbook.chapter5_layer import PATCHES, MultiHeadAttention, identity_layer, join_patches

N, T, S, H, D = 3, 5, 7, 2, 6

pytestmark = pytest.mark.usefixtures("float64")


def randn(*shape):
    return torch.randn(*shape)


def digits(rows):
    """Return a tensor of rows of numbers as printed in a text."""
    return torch.tensor(rows)


# 1. Sequence modelling and multi-head attention


class EinsumAttention(nn.Module):
    """Multi-head attention whose products are named by their axes: batch, query, key, head, channel."""

    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.to_queries, self.to_keys, self.to_values = (nn.Linear(width, width) for _ in range(3))
        self.unify = nn.Linear(width, width)

    def forward(self, x, memory, mask=None):
        """x (batch, query, width), memory (batch, key, width), mask (batch, query, key) with 0 where hidden."""
        queries, keys, values = (
            linear(y).reshape(*y.shape[:2], self.n_heads, -1)
            for linear, y in ((self.to_queries, x), (self.to_keys, memory), (self.to_values, memory))
        )
        energy = torch.einsum("bqhc,bkhc->bhqk", queries, keys)
        if mask is not None:
            energy = energy.masked_fill(mask[:, None] == 0, float("-inf"))
        weights = torch.softmax(energy / queries.shape[-1] ** 0.5, dim=3)
        pooled = torch.einsum("bhqk,bkhc->bqhc", weights, values)
        return self.unify(pooled.flatten(2))


def test_text_1_attention_is_softmax_of_scaled_products_times_values():
    q, k, v = randn(N, T, D), randn(N, S, D), randn(N, S, 4)
    expected = torch.softmax(q @ k.mT / math.sqrt(D), dim=-1) @ v
    torch.testing.assert_close(attend(q, k, v), expected)


def test_text_1_separate_maps_for_queries_and_keys_make_attention_asymmetric():
    x = randn(1, T, D)
    symmetric, mapped = scaled_dot(x, x), scaled_dot(nn.Linear(D, D)(x), nn.Linear(D, D)(x))
    torch.testing.assert_close(symmetric, symmetric.mT)
    assert not torch.allclose(mapped, mapped.mT)


def test_text_1_dividing_by_the_root_of_the_width_keeps_the_variance_and_so_the_gradients():
    torch.manual_seed(0)
    width = 256
    q, k = randn(200, width), randn(200, width)
    assert abs(scaled_dot(q, k).var() - 1) < 0.05
    assert abs(dot(q, k).var() / width - 1) < 0.05

    def gradient(score):
        scores = score(q, k).detach().requires_grad_()
        torch.softmax(scores, dim=-1)[:, 0].sum().backward()
        return scores.grad.abs().mean(), torch.softmax(scores, dim=-1).amax(-1).mean()

    (scaled, scaled_peak), (unscaled, unscaled_peak) = gradient(scaled_dot), gradient(dot)
    assert unscaled_peak > 0.8 > 0.1 > scaled_peak  # without the division, nearly one-hot
    assert unscaled < scaled / 5


def test_text_1_heads_are_slices_of_the_width_attended_separately_and_joined():
    q, k, v = randn(N, T, H * D), randn(N, S, H * D), randn(N, S, H * D)
    slices = [slice(h * D, (h + 1) * D) for h in range(H)]
    expected = torch.cat([attend(q[..., s], k[..., s], v[..., s]) for s in slices], dim=-1)
    torch.testing.assert_close(join_heads(attend(*(split_heads(x, H) for x in (q, k, v)))), expected)


def test_text_1_a_width_that_heads_do_not_divide_is_an_error():
    with pytest.raises(ValueError, match="width=16 cannot be split into n_head=3"):
        MultiHeadAttention(16, 3)
    with pytest.raises(ValueError, match="a width of 16 cannot be split into n_head=3"):
        split_heads(randn(N, T, 16), 3)


def test_text_1_self_attention_is_cross_attention_of_a_sequence_to_itself():
    layer, x, memory = MultiHeadAttention(8, H), randn(N, T, 8), randn(N, S, 8)
    torch.testing.assert_close(layer(x), layer(x, x, x))
    assert layer(x, memory).shape == (N, T, 8)  # keys and values have a different length


def test_text_1_zero_means_hidden_and_the_three_masks_combine():
    layer, x, memory = MultiHeadAttention(8, H), randn(N, T, 8), randn(N, S, 8)
    padding, attention, between = (torch.rand(shape) < 0.7 for shape in ((N, S), (T, S), (T, S)))
    padding[:, 0] = attention[:, 0] = between[:, 0] = True  # every query sees at least one key
    traced = layer.trace(x, memory, padding_mask=padding.long(), attention_mask=attention.double(), memory_mask=between)
    visible = padding[:, None, None, :] & attention & between
    scores = traced["scores"].masked_fill(~visible, -math.inf)
    torch.testing.assert_close(traced["weights"], scores.softmax(-1))
    assert (traced["weights"][(~visible).expand(N, H, T, S)] == 0).all()


def test_text_1_masks_are_keyword_arguments():
    layer, x, memory, padding = MultiHeadAttention(8, H), randn(N, T, 8), randn(N, S, 8), torch.ones(N, S)
    with pytest.raises(TypeError, match="positional arguments"):
        layer(x, memory, memory, padding)
    with pytest.raises(ValueError, match=r"values has shape \(3, 7\)"):
        layer(x, memory, padding)


def test_text_1_keys_have_width_d_k_and_values_another_width_d_v():
    layer, x, memory = MultiHeadAttention(8, H, head_size=3, value_head_size=5), randn(N, T, 8), randn(N, S, 8)
    traced = layer.trace(x, memory)
    assert (traced["K"].shape, traced["V"].shape) == ((N, H, S, 3), (N, H, S, 5))
    assert layer.proj.weight.shape == (8, H * 5)
    torch.testing.assert_close(traced["scores"], traced["Q"] @ traced["K"].mT / math.sqrt(3))
    assert layer(x, memory).shape == (N, T, 8)


def test_text_1_the_layer_equals_one_written_with_einsum_over_batch_query_key_head_and_channel():
    layer = MultiHeadAttention(H * D, H, bias=True, output_bias=True)
    scratch, x, memory = EinsumAttention(H * D, H), randn(N, T, H * D), randn(N, S, H * D)
    names = {"to_queries": layer.query, "to_keys": layer.key, "to_values": layer.value, "unify": layer.proj}
    for name, linear in names.items():
        getattr(scratch, name).load_state_dict(linear.state_dict())
    mask = (torch.rand(N, T, S) < 0.7).index_fill(2, torch.tensor([0]), True)
    torch.testing.assert_close(layer(x, memory), scratch(x, memory))
    padding, between = mask[:, 0], mask[0]
    expected = scratch(x, memory, mask=padding[:, None] & between)
    torch.testing.assert_close(layer(x, memory, padding_mask=padding, memory_mask=between), expected)


# 2. Multi-head attention from tensors


def test_text_2_the_input_can_have_another_width_and_is_mapped_without_bias():
    layer = MultiHeadAttention(16, 2, query_size=10, key_size=11, value_size=12)
    assert [tuple(p.shape) for p in layer.parameters()] == [(16, 10), (16, 11), (16, 12), (16, 16)]
    assert layer(randn(N, T, 10), randn(N, S, 11), randn(N, S, 12)).shape == (N, T, 16)
    layer = MultiHeadAttention(16, 2, query_size=10, key_size=11)  # values come from the keys
    assert layer(randn(N, T, 10), randn(N, S, 11)).shape == (N, T, 16)


def test_text_2_every_shape_equals_that_of_the_printout():
    layer = MultiHeadAttention(16, 2, query_size=10, output_map=False)
    traced = layer.trace(randn(32, 20, 10))
    assert [(name, tuple(value.shape)) for name, value in traced.items()] == [
        ("X", (32, 20, 10)),
        ("Q", (32, 2, 20, 8)),
        ("K", (32, 2, 20, 8)),
        ("V", (32, 2, 20, 8)),
        ("scores", (32, 2, 20, 20)),
        ("weights", (32, 2, 20, 20)),
        ("heads", (32, 2, 20, 8)),
        ("output", (32, 20, 16)),
    ]


def worked_example():
    """Return every value of the worked example: the embeddings of three words, and the maps of one head."""
    return one_head(*(digits(m).double() for m in (EMBEDDINGS, QUERY_MAP, KEY_MAP, VALUE_MAP)))


def test_text_2_a_head_gives_the_worked_example_to_its_printed_digits():
    values = worked_example()
    assert torch.equal(values["Q"], digits([[1.0, 0, 2], [2, 2, 2], [2, 1, 3]]))
    assert torch.equal(values["K"], digits([[0.0, 1, 1], [4, 4, 0], [2, 3, 1]]))
    assert torch.equal(values["V"], digits([[1.0, 2, 3], [2, 8, 0], [2, 6, 3]]))
    scores = [[1.1547, 2.3094, 2.3094], [2.3094, 9.2376, 6.9282], [2.3094, 6.9282, 5.7735]]
    weights = [
        [1.3613e-01, 4.3194e-01, 4.3194e-01],
        [8.9045e-04, 9.0884e-01, 9.0267e-02],
        [7.4449e-03, 7.5471e-01, 2.3785e-01],
    ]
    result = [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]]
    torch.testing.assert_close(values["raw scores"] / math.sqrt(3), values["scores"])
    torch.testing.assert_close(values["scores"], digits(scores), atol=5e-5, rtol=0)
    torch.testing.assert_close(values["weights"], digits(weights), atol=0, rtol=5e-5)
    torch.testing.assert_close(values["output"], digits(result), atol=5e-5, rtol=0)


def test_text_2_chapter_3_prints_the_worked_example_from_words_to_the_output_rounded_as_in_the_text(capsys):
    assert textbook(["3"]) == 0
    printed = capsys.readouterr().out
    order = ["The words cats", "X: the emb", "Q =", "K =", "V =", "raw scores =", "scores = raw", "weights =", "out"]
    places = [printed.index(f"\n\n{name}") for name in order]
    assert places == sorted(places)
    rows = [line.split() for line in printed.splitlines()]
    for row in (
        *("1 0 1 0", "0 2 0 2", "1 1 1 1", "1 0 2", "2 2 2", "2 1 3", "0 1 1", "4 4 0", "2 3 1", "2 8 0", "2 6 3"),
        *("2 4 4", "4 16 12", "4 12 10"),  # q k^T before it is divided
        *("1.1547 2.3094 2.3094", "2.3094 9.2376 6.9282", "2.3094 6.9282 5.7735"),
        *("0.13613 0.43194 0.43194", "0.00089045 0.90884 0.090267", "0.0074449 0.75471 0.23785"),
        *("1.8639 6.3194 1.7042", "1.9991 7.8141 0.2735", "1.9926 7.4796 0.7359"),
    ):
        assert row.split() in rows, row


def test_text_2_queries_keys_and_values_of_all_heads_can_be_given_as_batch_length_and_width():
    q, k, v = randn(N, T, H * D), randn(N, T, H * D), randn(N, T, H * D)
    expected = [scaled_dot_product_attention(*(x[..., h * D : (h + 1) * D] for x in (q, k, v))) for h in range(H)]
    for form in (heads_by_loop, heads_in_batch, heads_by_einsum):
        torch.testing.assert_close(form(q, k, v, H), torch.cat(expected, dim=-1))


def test_text_2_the_four_patches_of_the_picture_have_the_weights_computed_by_hand(capsys):
    traced = identity_layer(16).trace(torch.tensor([PATCHES], dtype=torch.float64))
    weights = traced["weights"].squeeze()
    odd, even = [0.25] * 4, [0.1888, 0.3112, 0.1888, 0.3112]
    torch.testing.assert_close(weights, digits([odd, even, odd, even]), atol=5e-5, rtol=0)
    torch.testing.assert_close(weights[1, 1] / weights[1, 0], torch.tensor(0.5).exp())
    image = join_patches(torch.tensor(PATCHES))
    assert image[1].tolist() == [0, 1, 1, 0, 1, 1, 1, 1]
    assert image[3].tolist() == [0, 1, 1, 0, 0, 1, 1, 0]
    assert image[:4].tolist() == image[4:].tolist()
    assert textbook(["5"]) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    pale, dark = 0.5, 2 * 0.3112296656  # of the weights, those of the two dark patches, where only these are black
    for row in (
        *("0.2500 0.2500 0.2500 0.2500", "0.1888 0.3112 0.1888 0.3112", "0 0 0 0 1 1 1 1 0 0 0 0 0 1 1 0"),
        " ".join(f"{n:.4f}" for n in (pale, 1, 1, pale, dark, 1, 1, dark)),
    ):
        assert row in printed


def test_text_2_several_heads_keep_relations_apart_that_one_head_mixes():
    one, two = what_gave_reads([[0, 4]]), what_gave_reads([[0], [4]])
    torch.testing.assert_close(one[0], one[1])  # who gave to whom is lost
    mary, susan = torch.eye(5)[0], torch.eye(5)[4]
    expected = torch.stack((torch.cat((mary, susan)), torch.cat((susan, mary))))
    torch.testing.assert_close(two, expected, atol=1e-6, rtol=0)
    shown_one, shown_two = (item[1] for item in chapter4_heads.show() if isinstance(item, tuple))
    torch.testing.assert_close((shown_one, shown_two), (one, two))
