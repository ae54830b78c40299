import torch
from torch import nn

from model.attention import causal_mask
from textbook.chapter8_encoder_decoder import DecoderBlock, EncoderBlock, EncoderDecoder, cross_attention_weights

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
    x, padding = torch.randn(B, S, C), random_mask(B, S)
    torch.testing.assert_close(block(x, padding), oracle(x, src_key_padding_mask=~padding))


def test_a_decoder_block_equals_pytorchs(float64):
    block = randomise(DecoderBlock(C, H))
    oracle = nn.TransformerDecoderLayer(C, H, 4 * C, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    norms = {"norm1": block.attention_norm, "norm2": block.cross_norm, "norm3": block.mlp_norm}
    attentions = attention_state("self_attn", block.attention) | attention_state(
        "multihead_attn", block.cross_attention
    )
    oracle.load_state_dict(attentions | module_state(linear1=block.mlp.up, linear2=block.mlp.proj, **norms))
    x, memory, padding = torch.randn(B, T, C), torch.randn(B, S, C), random_mask(B, S)
    expected = oracle(x, memory, tgt_mask=~causal_mask(T, T), memory_key_padding_mask=~padding)
    torch.testing.assert_close(block(x, memory, padding), expected)


def test_the_weights_of_the_last_decoder_block_equal_pytorchs(float64):
    model, source, target = make_model().double(), torch.randint(V, (1, S)), torch.randint(V, (1, T))
    first, last = model.decoder
    oracle = nn.MultiheadAttention(C, H, batch_first=True)
    state = attention_state("oracle", last.cross_attention)
    oracle.load_state_dict({name.removeprefix("oracle."): p for name, p in state.items()})
    memory = model._embed(source)
    for block in model.encoder:
        memory = block(memory)
    memory = model.encoder_norm(memory)
    x = first(model._embed(target), memory)
    queries = last.cross_norm(x + last.attention(last.attention_norm(x), causal=True))
    _, expected = oracle(queries, memory, memory, average_attn_weights=False)  # (1, H, T, S)
    torch.testing.assert_close(cross_attention_weights(model, source, target), expected[0].transpose(0, 1))


def test_padding_of_the_source_changes_nothing_in_the_encoder_and_the_decoder():
    model, source, target = make_model().double(), torch.randint(V, (1, S)), torch.randint(V, (1, T))
    filled_up = torch.cat((source, torch.randint(V, (1, 3))), dim=1)
    mask = torch.arange(S + 3)[None] < S
    torch.testing.assert_close(model(filled_up, target, mask), model(source, target))


def test_greedy_decoding_takes_the_likeliest_id_at_each_position():
    torch.manual_seed(1)  # with another seed, the text may repeat one character
    model, source = make_model(), torch.randint(V, (B, S))
    mask = torch.tensor([[1] * S, [1] * 4 + [0] * (S - 4)])
    ids = torch.ones(B, 1, dtype=torch.long)
    for _ in range(12):
        logits = model(source, ids, mask)
        ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(model.greedy(source, 1, 12, mask), ids[:, 1:])
    assert len(ids.unique()) > 3  # not one character over and over
