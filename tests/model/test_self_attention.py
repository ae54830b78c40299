import pytest
import torch
from torch import nn

from model.attention import SelfAttention
from model.config import ModelConfig
from model.positions import Places, PositionEmbedding
from textbook.chapter7_gpt import Head

B, T, C, H, D = 2, 7, 12, 3, 5  # all different: a wrong transpose fails loudly

pytestmark = pytest.mark.usefixtures("float64")


def make_layer(**settings):
    torch.manual_seed(1)
    defaults = {"n_embd": C, "n_head": H, "head_size": D, "positions": "learned", "qk_norm": False}
    config = ModelConfig(**defaults | settings)
    return SelfAttention(config, config.layers[0])


def run(layer, x):
    return layer(x, Places(slice(0, x.size(1)), x[..., 0], PositionEmbedding(ModelConfig())))


@pytest.mark.parametrize("form", ["explicit", "fused"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_layer_equals_its_heads_concatenated_and_mapped_back(form, bias):
    layer, x = make_layer(attention=form, bias=bias), torch.randn(B, T, C)
    heads = [Head(C, D, block_size=T) for _ in range(H)]
    width = H * D
    with torch.no_grad():
        for h, head in enumerate(heads):
            for part, linear in enumerate((head.query, head.key, head.value)):
                rows = slice(part * width + h * D, part * width + (h + 1) * D)
                linear.weight.copy_(layer.qkv.weight[rows])
                if bias:
                    linear.bias = nn.Parameter(layer.qkv.bias[rows])
    expected = layer.proj(torch.cat([head(x) for head in heads], dim=-1))
    torch.testing.assert_close(run(layer, x), expected)


def test_shared_keys_and_values_equal_heads_with_copied_maps():
    H, K = 6, 2
    shared, x = make_layer(n_head=H, n_kv_head=K), torch.randn(B, T, C)
    whole = make_layer(n_head=H)
    assert shared.qkv.weight.shape == ((H + 2 * K) * D, C)
    q, k, v = shared.qkv.weight.detach().unflatten(0, (-1, D)).split((H, K, K))
    copies = torch.cat((q, *(maps.repeat_interleave(H // K, dim=0) for maps in (k, v))))
    with torch.no_grad():
        whole.qkv.weight.copy_(copies.flatten(0, 1))
        whole.proj.load_state_dict(shared.proj.state_dict())
    torch.testing.assert_close(run(shared, x), run(whole, x))
