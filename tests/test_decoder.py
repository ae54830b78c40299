import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model.attention import causal_mask
from model.config import ModelConfig
from model.decoder import DecoderBlock, EncoderDecoder

B, T, S, C, H, V = 2, 5, 7, 12, 3, 11


def make_config(**settings):
    defaults = {"n_layer": 2, "n_embd": C, "n_head": H, "block_size": 16, "positions": "learned", "qk_norm": False}
    return ModelConfig(**defaults | settings)


def make_model(**settings):
    torch.manual_seed(9)
    model = EncoderDecoder(make_config(**settings), V).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    return model


def test_a_textbook_decoder_block_equals_pytorchs(float64):
    torch.manual_seed(1)
    block = DecoderBlock(make_config(norm="layer", mlp="gelu", bias=True))
    oracle = nn.TransformerDecoderLayer(C, H, 4 * C, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    cross = block.memory_attention
    oracle.load_state_dict(
        {
            "self_attn.in_proj_weight": block.attention.qkv.weight,
            "self_attn.in_proj_bias": block.attention.qkv.bias,
            "self_attn.out_proj.weight": block.attention.proj.weight,
            "self_attn.out_proj.bias": block.attention.proj.bias,
            "multihead_attn.in_proj_weight": torch.cat([m.weight for m in (cross.query, cross.key, cross.value)]),
            "multihead_attn.in_proj_bias": torch.cat([m.bias for m in (cross.query, cross.key, cross.value)]),
            "multihead_attn.out_proj.weight": cross.proj.weight,
            "multihead_attn.out_proj.bias": cross.proj.bias,
            "linear1.weight": block.mlp.up.weight,
            "linear1.bias": block.mlp.up.bias,
            "linear2.weight": block.mlp.proj.weight,
            "linear2.bias": block.mlp.proj.bias,
            "norm1.weight": block.attention_norm.weight,
            "norm1.bias": block.attention_norm.bias,
            "norm2.weight": block.memory_norm.weight,
            "norm2.bias": block.memory_norm.bias,
            "norm3.weight": block.mlp_norm.weight,
            "norm3.bias": block.mlp_norm.bias,
        }
    )
    x, memory = torch.randn(B, T, C), torch.randn(B, S, C)
    padding, memory_padding = torch.ones(B, T, dtype=torch.bool), torch.rand(B, S) < 0.7
    padding[1, 3:] = False
    memory_padding[:, 0] = True
    between = torch.rand(T, S) < 0.7
    between[:, 0] = True
    actual = block(x, block.read(memory), padding_mask=padding, memory_padding_mask=memory_padding, memory_mask=between)
    expected = oracle(
        x,
        memory,
        tgt_mask=~causal_mask(T, T),
        tgt_key_padding_mask=~padding,
        memory_key_padding_mask=~memory_padding,
        memory_mask=~between,
    )
    torch.testing.assert_close(actual, expected)


def test_padding_of_the_source_changes_nothing():
    model, target = make_model(), torch.randint(V, (1, T))
    source = torch.randint(V, (1, S))
    padded = torch.cat((source, torch.randint(V, (1, 4))), dim=1)
    mask = torch.arange(S + 4)[None] < S
    torch.testing.assert_close(model(padded, target, source_mask=mask), model(source, target))


def test_the_encoder_sees_both_ways_and_the_decoder_only_its_past():
    model = make_model()
    source, target = torch.randint(V, (1, S)), torch.randint(V, (1, T))
    before = model(source, target)
    changed = source.clone()
    changed[0, -1] = (changed[0, -1] + 1) % V
    assert not torch.allclose(model.encode(changed)[0, 0], model.encode(source)[0, 0])
    assert not torch.allclose(model(changed, target)[0, 0], before[0, 0])
    changed = target.clone()
    changed[0, 3:] = (changed[0, 3:] + 1) % V
    torch.testing.assert_close(model(source, changed)[:, :3], before[:, :3])


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
def test_greedy_decoding_with_both_caches_equals_decoding_anew(score):
    model, source = make_model(score=score), torch.randint(V, (B, S))
    mask = torch.tensor([[1] * S, [1] * 4 + [0] * (S - 4)])
    cached = model.greedy(source, 1, 12, source_mask=mask)
    assert torch.equal(cached, model.greedy(source, 1, 12, source_mask=mask, use_cache=False))
    ids = torch.ones(B, 1, dtype=torch.long)
    for _ in range(12):
        ids = torch.cat((ids, model(source, ids, source_mask=mask)[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(cached, ids[:, 1:])


def test_rotary_positions_and_overlong_sequences_are_refused():
    with pytest.raises(ValueError, match="an EncoderDecoder has learned positions"):
        EncoderDecoder(make_config(positions="rope"), V)
    with pytest.raises(ValueError, match="17 positions do not fit"):
        make_model()(torch.zeros(1, 17, dtype=torch.long), torch.zeros(1, 2, dtype=torch.long))


LETTERS, START, END, LONGEST = 12, 12, 13, 10  # ids 0 to 11 are letters


def reversal_batch(n, generator):
    """Strings of 1 to LONGEST letters, padded; their mask; and their reversals, each followed by END."""
    lengths = torch.randint(1, LONGEST + 1, (n, 1), generator=generator)
    source = torch.randint(LETTERS, (n, LONGEST), generator=generator)
    places = torch.arange(LONGEST + 1)
    reversed_places = (lengths - 1 - places).clamp(min=0)
    target = torch.where(places < lengths, source.gather(1, reversed_places), END)
    return source, places[:-1] < lengths, target


@pytest.mark.slow
def test_a_small_encoder_decoder_learns_to_reverse_strings():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    config = ModelConfig(n_layer=2, n_head=4, n_embd=64, block_size=LONGEST + 1, positions="learned", qk_norm=False)
    model = EncoderDecoder(config, vocab_size=14)
    steps = 600
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    seen = set()
    began_s = time.perf_counter()
    for _ in range(steps):
        source, mask, target = reversal_batch(128, generator)
        seen.update(map(tuple, target.tolist()))
        inputs = F.pad(target[:, :-1], (1, 0), value=START)
        loss = F.cross_entropy(model(source, inputs, source_mask=mask).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"trained for {time.perf_counter() - began_s:.0f} s, loss {loss.item():.4f}")
    model.eval()
    source, mask, target = reversal_batch(4000, generator)
    unseen = torch.tensor([tuple(row) not in seen for row in target.tolist()])
    source, mask, target = source[unseen], mask[unseen], target[unseen]
    assert len(target) > 2000
    exact = (model.greedy(source, START, LONGEST + 1, source_mask=mask) == target).all(1)
    print(f"exact match {exact.double().mean():.4f} on {len(target)} unseen strings")
    assert exact.double().mean() > 0.99
