import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model.attention import causal_mask
from model.block import MLP, Block, CausalConv
from model.config import ModelConfig
from model.positions import Places, PositionEmbedding

B, T, C, H = 2, 7, 12, 3


def config(**settings):
    return ModelConfig(n_embd=C, n_head=H, positions="learned", qk_norm=False, **settings)


def make_mlp(kind):
    return MLP(kind, C, bias=False, dropout=0.0)


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("relu2", lambda up: torch.where(up > 0, up * up, 0.0)),
        ("gelu", lambda up: up * 0.5 * (1 + torch.erf(up / 2**0.5))),
        ("swiglu", lambda up: up[..., :32] / (1 + torch.exp(-up[..., :32])) * up[..., 32:]),
    ],
)
def test_the_mlp_computes_its_published_formula(kind, formula):
    mlp, x = make_mlp(kind), torch.randn(B, T, C)
    torch.testing.assert_close(mlp(x), formula(x @ mlp.up.weight.T) @ mlp.proj.weight.T)


def test_swiglu_has_as_many_parameters_as_the_other_mlps():
    sizes = {kind: sum(p.numel() for p in make_mlp(kind).parameters()) for kind in ("relu2", "gelu", "swiglu")}
    assert sizes == {"relu2": 8 * C * C, "gelu": 8 * C * C, "swiglu": 8 * C * C}


def test_a_gpt2_block_equals_pytorchs_transformer_layer(float64):
    torch.manual_seed(1)
    settings = config(norm="layer", mlp="gelu", bias=True)
    block = Block(settings, settings.layers[0])
    oracle = nn.TransformerEncoderLayer(C, H, 4 * C, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    pairs = {"linear1": block.mlp.up, "linear2": block.mlp.proj, "norm1": block.attention_norm, "norm2": block.mlp_norm}
    pairs["self_attn.out_proj"] = block.attention.proj
    state = {f"{name}.{key}": p for name, module in pairs.items() for key, p in module.state_dict().items()}
    state |= {f"self_attn.in_proj_{key}": p for key, p in block.attention.qkv.state_dict().items()}
    oracle.load_state_dict(state)
    x = torch.randn(B, T, C)
    places = Places(slice(0, T), x[..., 0], PositionEmbedding(settings))
    torch.testing.assert_close(block(x, places), oracle(x, src_mask=~causal_mask(T, T)))


@pytest.mark.parametrize("width", [2, 3, 9])
def test_the_convolution_equals_pytorchs_with_one_group_per_channel(width, float64):
    conv, x = CausalConv(C, width), torch.randn(B, T, C)
    torch.nn.init.normal_(conv.weight)
    filters = torch.cat((conv.weight.flip(0), torch.ones(1, 1, C))).permute(2, 1, 0)  # (C, 1, W), the oldest first
    expected = F.conv1d(F.pad(x.mT, (width - 1, 0)), filters, groups=C).mT
    torch.testing.assert_close(conv(x, Places(slice(0, T), x[..., 0], PositionEmbedding(config()))), expected)


def test_the_weights_of_the_convolution_are_not_matrices_and_so_are_not_orthogonalised():
    assert CausalConv(C, 3).weight.ndim == 3
