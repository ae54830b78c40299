"""The weights of a page: what is rounded, and what is left out."""

from page_weights import packed

from model.config import ModelConfig
from page import weights as packing


def test_weights_are_rounded_to_16_bits_and_rows_of_ngrams_to_8():
    model, header, _, rounded = packed(ModelConfig(n_embd=12, n_head=2, ngrams=(1, 2), ngram_rows=90))
    found = rounded.state_dict()
    assert header["tensors"][packing.ROWS]["dtype"] == "int8"
    for name, x in model.state_dict().items():
        error = (found[name] - x).abs()
        if name == packing.ROWS:
            assert (error <= x.abs().amax(1, keepdim=True) / 127 * 0.51).all()
        else:
            assert (error <= x.abs() * 2**-11 + 2**-25).all(), name
    assert (found["memories.ngrams.counts"] == model.memories["ngrams"].counts).all()
