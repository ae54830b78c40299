import pytest
import torch

from model.cache import KVCache
from model.config import ModelConfig
from model.decode import Decoder
from model.gpt import GPT

B, V, T = 3, 11, 9
SHAPES = {
    "ours": {"n_head": 3},
    "textbook": {"n_head": 3, "positions": "learned", "norm": "layer", "mlp": "gelu", "qk_norm": False, "bias": True},
    "grouped": {"n_head": 6, "n_kv_head": 2, "mlp": "swiglu", "logit_softcap": 0.0},
    "heads of several sizes": {"n_head": (2, 6), "positions": "rope"},
}


def make(name):
    torch.manual_seed(3)
    model = GPT(ModelConfig(n_layer=2, n_embd=24, block_size=T, **SHAPES[name]), V).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("fixed_shapes", [False, True])
@torch.inference_mode()
def test_a_decoder_says_what_the_network_says_at_every_position(float64, name, fixed_shapes):
    model, ids = make(name), torch.randint(V, (B, T))
    expected = model(ids)
    cache = KVCache(model.config, B, dtype=torch.float64)
    model(ids[:, :4], cache)
    decoder = Decoder(model, cache, fixed_shapes=fixed_shapes)
    for t in range(4, T):
        if fixed_shapes:
            decoder.follow_cache()
        torch.testing.assert_close(decoder(ids[:, t]), expected[:, t], atol=1e-6, rtol=1e-5)
        if fixed_shapes:
            cache.advance()
        assert cache.length == t + 1


def test_a_decoder_is_offered_for_scaled_products_alone():
    assert Decoder.can_decode(make("ours"))
    assert not Decoder.can_decode(GPT(ModelConfig(n_layer=1, n_head=2, n_embd=8, block_size=4, score="dot"), V))
