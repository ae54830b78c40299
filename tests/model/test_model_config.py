import pytest

from model.config import ModelConfig


@pytest.mark.parametrize("n_embd", [64, 100, 97, 130, 384])
@pytest.mark.parametrize("n_head", [7, 31, 1000])
def test_every_suggested_head_count_is_valid(n_head, n_embd):
    with pytest.raises(ValueError) as error:
        ModelConfig(n_head=n_head, n_embd=n_embd, positions="learned")
    offered = str(error.value).split("try ")[1].split(", or set")[0].replace(" or ", ", ").split(", ")
    for n in map(int, offered):
        ModelConfig(n_head=n, n_embd=n_embd, positions="learned")


def test_each_layer_can_have_a_different_head_count():
    layers = ModelConfig(n_layer=3, n_head=(8, 4, 2), n_embd=64, n_kv_head=2).layers
    assert [layer.n_head for layer in layers] == [8, 4, 2]
    assert [layer.head_size for layer in layers] == [8, 16, 32]
    assert [layer.n_kv_head for layer in layers] == [2, 2, 2]
    assert ModelConfig(n_head=4, n_embd=64).layers[2].n_kv_head == 4


def test_a_name_that_a_setting_does_not_have_is_refused_in_python_too():
    with pytest.raises(ValueError, match=r"model\.norm=nonsense must be one of rms, layer"):
        ModelConfig(norm="nonsense")
