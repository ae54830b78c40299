import pytest
import torch
from torch import nn

from model.attention import causal_mask, masked_softmax
from textbook import chapter5_layer
from textbook.chapter6_encoder_decoder import DecoderBlock, EncoderBlock, EncoderDecoder

B, T, S, C, H, V = 2, 5, 7, 12, 3, 11


def randomise(module):
    torch.manual_seed(9)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    return module


def make_model():
    return randomise(EncoderDecoder(V, width=C, n_head=H, n_layer=2, block_size=16))


def random_mask(*shape):
    """Return a random mask that shows at least one key in every row."""
    mask = torch.rand(shape) < 0.7
    mask[:, 0] = True
    return mask


def attention_state(prefix, attention):
    """Return the parameters of a `MultiHeadAttention` under the names of `nn.MultiheadAttention`."""
    maps = (attention.query, attention.key, attention.value)
    return {
        f"{prefix}.in_proj_weight": torch.cat([linear.weight for linear in maps]),
        f"{prefix}.in_proj_bias": torch.cat([linear.bias for linear in maps]),
        f"{prefix}.out_proj.weight": attention.proj.weight,
        f"{prefix}.out_proj.bias": attention.proj.bias,
    }


def module_state(**modules):
    return {f"{name}.{key}": p for name, module in modules.items() for key, p in module.state_dict().items()}


def test_an_encoder_block_equals_pytorchs(float64):
    block = randomise(EncoderBlock(C, H))
    oracle = nn.TransformerEncoderLayer(C, H, 4 * C, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    modules = module_state(
        linear1=block.mlp.up, linear2=block.mlp.proj, norm1=block.attention_norm, norm2=block.mlp_norm
    )
    oracle.load_state_dict(attention_state("self_attn", block.attention) | modules)
    x, padding, attention = torch.randn(B, S, C), random_mask(B, S), random_mask(S, S)
    actual = block(x, padding_mask=padding, attention_mask=attention)
    torch.testing.assert_close(actual, oracle(x, src_mask=~attention, src_key_padding_mask=~padding))


def test_a_decoder_block_equals_pytorchs(float64):
    block = randomise(DecoderBlock(C, H))
    oracle = nn.TransformerDecoderLayer(C, H, 4 * C, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    norms = {"norm1": block.attention_norm, "norm2": block.cross_norm, "norm3": block.mlp_norm}
    attentions = attention_state("self_attn", block.attention) | attention_state(
        "multihead_attn", block.cross_attention
    )
    oracle.load_state_dict(attentions | module_state(linear1=block.mlp.up, linear2=block.mlp.proj, **norms))
    x, memory = torch.randn(B, T, C), torch.randn(B, S, C)
    masks = {
        "padding_mask": random_mask(B, T),
        "attention_mask": random_mask(T, T),
        "memory_padding_mask": random_mask(B, S),
        "memory_mask": random_mask(T, S),
    }
    expected = oracle(
        x,
        memory,
        tgt_mask=~(causal_mask(T, T) & masks["attention_mask"]),
        tgt_key_padding_mask=~masks["padding_mask"],
        memory_key_padding_mask=~masks["memory_padding_mask"],
        memory_mask=~masks["memory_mask"],
    )
    torch.testing.assert_close(block(x, memory, **masks), expected)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("source_padding_mask", (B, S)),
        ("source_attention_mask", (S, S)),
        ("padding_mask", (B, T)),
        ("attention_mask", (T, T)),
        ("memory_mask", (T, S)),
    ],
)
def test_every_mask_reaches_the_attention_layers_it_applies_to(name, shape, monkeypatch):
    """Compare each layer's visible keys, as passed to `masked_softmax`, with the mask passed to the model."""
    model, seen = make_model(), []
    mask = random_mask(*shape)
    monkeypatch.setattr(
        chapter5_layer, "masked_softmax", lambda s, **masks: seen.append(masks["visible"]) or masked_softmax(s, **masks)
    )
    model(torch.randint(V, (B, S)), torch.randint(V, (B, T)), **{name: mask})
    encoder, decoder = seen[:2], seen[2:]
    in_encoder, in_self, in_cross = {
        "source_padding_mask": (True, False, True),
        "source_attention_mask": (True, False, False),
        "padding_mask": (False, True, False),
        "attention_mask": (False, True, False),
        "memory_mask": (False, False, True),
    }[name]
    expected = [in_encoder] * 2 + [in_self, in_cross] * 2
    rows = mask if name.endswith(("attention_mask", "memory_mask")) else mask[:, None, None]
    for visible, is_expected in zip(encoder + decoder, expected, strict=True):
        assert (visible is not None) == is_expected
        assert visible is None or torch.equal(visible, rows)


def test_greedy_decoding_takes_the_likeliest_id_at_each_position():
    torch.manual_seed(1)  # with another seed, the text may repeat one character
    model, source = make_model(), torch.randint(V, (B, S))
    masks = {
        "source_padding_mask": torch.tensor([[1] * S, [1] * 4 + [0] * (S - 4)]),
        "source_attention_mask": random_mask(S, S),
    }
    ids = torch.ones(B, 1, dtype=torch.long)
    for _ in range(12):
        logits = model(source, ids, **masks)
        ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(model.greedy(source, 1, 12, **masks), ids[:, 1:])
    assert len(ids.unique()) > 3  # not one character over and over


def test_sequences_that_are_too_long_and_wrong_shapes_are_errors():
    model, source = make_model(), torch.zeros(1, 2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"ids have shape \(1, 17\); expected \(B, length\), length at most 16"):
        model(torch.zeros(1, 17, dtype=torch.long), source)
    with pytest.raises(ValueError, match="length at most 16"):
        model.greedy(source, 1, 17)
    with pytest.raises(ValueError, match=r"have shape \(2,\); expected \(B, length\)"):
        model(source[0], source)
    with pytest.raises(ValueError, match=r"memory_mask has shape \(2, 3\); expected \(T, S\) = \(2, 2\)"):
        model(source, source, memory_mask=torch.ones(2, 3))
