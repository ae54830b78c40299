"""What the chapters say in words is true: a table of their sentences, and what the code computes about each.

A sentence that changes must change here, too, with what it claims.
"""

import contextlib
import functools
import io
import math
import re

import pytest
import torch
from conftest import ROOT
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

from model.attention import causal_mask, masked_softmax
from model.scoring import Additive, Gaussian, dot, scaled_dot, uniform
from textbook.__main__ import main as textbook
from textbook.chapter1_average import average_by_softmax
from textbook.chapter2_similarity import EMBEDDINGS, SENTENCE, attend_by_matrix
from textbook.chapter3_head import EMBEDDINGS as WORDS
from textbook.chapter3_head import KEY_MAP, QUERY_MAP, VALUE_MAP, one_head
from textbook.chapter4_heads import join_heads, split_heads, what_gave_reads
from textbook.chapter5_layer import MultiHeadAttention
from textbook.chapter6_encoder_decoder import DecoderBlock, EncoderBlock
from textbook.chapter7_scores import epanechnikov_kernel, gaussian_kernel, pooling
from textbook.chapter8_bigram import Bigram
from textbook.chapter9_gpt import TextbookGPT

B, T, S, C, H, D, V = 2, 5, 7, 12, 3, 4, 11


def close(actual, expected):
    return torch.allclose(torch.as_tensor(actual).double(), torch.as_tensor(expected).double(), atol=1e-5)


def likeness(word):
    """Return the dot product of a word of chapter 2 with each other word."""
    return {e: torch.tensor(EMBEDDINGS[e]) @ torch.tensor(EMBEDDINGS[word]) for e in EMBEDDINGS if e != word}


generator = torch.Generator().manual_seed(0)
z, x, q, k = (torch.randn(*shape, generator=generator) for shape in ((6,), (B, T, C), (T, D), (S, D)))
a, b, tril = torch.tensor([[1, 2], [3, 4]]), torch.tensor([[5, 6], [7, 8]]), torch.ones(T, T).tril()
by_softmax, by_matrix = average_by_softmax(x, tril), attend_by_matrix(x)
words, *maps = (torch.tensor(m, dtype=torch.float64) for m in (WORDS, QUERY_MAP, KEY_MAP, VALUE_MAP))
sentence = attend_by_matrix(torch.tensor([EMBEDDINGS[word] for word in SENTENCE]).double())
seen, past = one_head(words, *maps), one_head(words, *maps, tril=tril[:3, :3])
raw = one_head(words, maps[0], maps[0], maps[2])["raw scores"]
layer, biased = MultiHeadAttention(C, H), MultiHeadAttention(C, H, bias=True, output_bias=True)
wide, block, linear = MultiHeadAttention(C, H, head_size=4, value_head_size=6), EncoderBlock(C, H), nn.Linear(C, 3)
traced, unseen = layer.trace(x), layer.trace(x, padding_mask=torch.zeros(B, T))
per_head, y = x.unflatten(2, (H, D)), x + block.attention(block.attention_norm(x))
additive, gpt = Additive(D, D, 8), TextbookGPT(V, n_layer=1, n_head=H, n_embd=C, block_size=T)
xs, u = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([[-0.3, 1.0, -2.0]])  # u: from each x_i to x = 0
pool = functools.partial(pooling, torch.zeros(1), ys=z[:3], kernel=gaussian_kernel)

CLAIMS = {
    "1": {
        "itself and the positions before it, never those after": torch.equal(by_softmax["weights"] > 0, tril > 0),
        "row t of y is the sum of the rows of x, each times its weight in row t": close(
            by_softmax["y"][0, 1], sum(w * row for w, row in zip(by_softmax["weights"][1], x[0], strict=True))
        ),
        "= exp(z_i) / sum_j exp(z_j) The weights add up to 1.": close(z.softmax(0), z.exp() / z.exp().sum()),
        "The largest score gets the largest weight": z.softmax(0).argmax() == z.argmax(),
        "are -inf, and exp(-inf) = 0. All other scores are 0": torch.equal(by_softmax["scores"].exp(), tril),
    },
    "2": {
        "the same sign add to the score, opposite signs subtract": (dot(q.abs(), k.abs()) >= dot(q, k)).all(),
        "y = softmax(x x^T) x": close(by_matrix["y"], sdpa(x, x, x, scale=1.0)),
        "lies between 0 and 1": 0 < by_matrix["weights"].min() < by_matrix["weights"].max() < 1,
        "'cat' matches 'walks'": max(likeness("cat"), key=likeness("cat").get) == "walks",
        "'the' matches no other word": max(likeness("the").values()) == 0,
        "both rows of 'the' are still the same": torch.equal(*sentence["y"][[0, 4]]),
        "it is c sqrt(C)": close(torch.full((C,), 2.0).norm(), 2 * math.sqrt(C)),
        "Chapter 3 adds D products, and divides by sqrt(D)": close(
            seen["scores"], seen["raw scores"] / math.sqrt(seen["K"].size(-1))
        ),
    },
    "3": {
        "attention(Q, K, V) = softmax(Q K^T / sqrt(D)) V": close(seen["output"], sdpa(seen["Q"], seen["K"], seen["V"])),
        "with d_k = D = 3 channels in a key": seen["K"].size(-1) == 3,
        "every word sees every word, as in an encoder block": (seen["weights"] > 0).all(),
        "weights that are 0 for the future": (past["weights"].triu(1) == 0).all(),
        "each word sees itself and the words before": (past["weights"].tril()[tril[:3, :3] > 0] > 0).all(),
        "raw scores with Wk = Wq, symmetric": torch.equal(raw, raw.mT),
        "One weight takes all; gradients vanish": (64 * torch.tensor([0.1, -0.2, 0.3, -0.2, 0.5])).softmax(0)[4] > 0.99,
    },
    "4": {
        "each with D = C / H channels": split_heads(x, H).shape == (B, H, T, C // H),
        "return H sums side by side": close(join_heads(split_heads(x, H)), x),
        "then sums over the letters that are missing": torch.einsum("i,i->", a[0], b[0]) == sum(a[0] * b[0]),
        "One head for giver, gift and receiver: the same": torch.equal(*what_gave_reads([[0, 2, 4]])),
        "Three heads: giver, gift and receiver are kept apart": not torch.equal(*what_gave_reads([[0], [2], [4]])),
        "for words do not notice the exchange": torch.equal(*what_gave_reads([[0], [2], [4]], by_place=False)),
        "the fourth root of D equals dividing the scores": close(dot(q / D**0.25, k / D**0.25), scaled_dot(q, k)),
    },
    "5": {
        "W_i^Q and W_i^K (d_model, d_k), W_i^V (d_model, d_v), W^O (h d_v, d_model)": (
            [p.T.shape for p in wide.parameters()] == [(C, H * 4), (C, H * 4), (C, H * 6), (H * 6, C)]
        ),
        "eight steps: linear maps, split into heads, scores, mask, softmax, sum of values, join (merge)": (
            list(traced) == ["X", "Q", "K", "V", "scores", "weights", "heads", "joined", "output"]
        ),
        "The maps have no biases here": all(p.ndim == 2 for p in layer.parameters()),
        "bias=True and output_bias=True add them": sum(p.ndim == 1 for p in biased.parameters()) == 4,
        "0 or False means hidden": (layer.trace(x, attention_mask=tril)["weights"].triu(1) == 0).all(),
        "A query that sees no key gets weights of 0": (unseen["weights"] == 0).all(),
        "a plain softmax gives NaN": masked_softmax(z, visible=z > 9).isnan().all(),
    },
    "6": {
        "a decoder without cross-attention": "cross" not in str(gpt) and "cross" in str(DecoderBlock(C, H)),
    },
    "7": {
        "uniform 0 the plain": (uniform(q, k) == 0).all(),
        "dot q . k chapter 2": close(dot(q, k)[1, 2], sum(q[1] * k[2])),
        "scaled dot q . k / sqrt(D) chapter 3": close(scaled_dot(q, k)[1, 2], sum(q[1] * k[2]) / math.sqrt(D)),
        "additive w_v . tanh(Wq q + Wk k)": close(
            additive(q, k)[1, 2], additive.weight(torch.tanh(additive.query(q[1]) + additive.key(k[2])))
        ),
        "gaussian -|(q - k) w|^2 / 2": close(Gaussian(3.0)(q, k)[1, 2], -sum(((q[1] - k[2]) * 3) ** 2) / 2),
        "f(x) = sum_i y_i K(x - x_i) / sum_j K(x - x_j)": close(
            pool(xs=xs)["prediction"], sum(z[:3] * torch.exp(-(xs**2) / 2)) / sum(torch.exp(-(xs**2) / 2))
        ),
        "K(u) = exp(-u^2 / 2) / sqrt(2 pi), the factor 1 / sqrt(2 pi) is in every term and cancels": close(
            torch.exp(gaussian_kernel(u)), torch.exp(-(u**2) / 2)
        ),
        "the weight of y_i is softmax(-(x - x_i)^2 / 2)": close(pool(xs=xs)["weights"], (-(u**2) / 2).softmax(1)),
        "K(u) = max(1 - u^2, 0), reads only": close(torch.exp(epanechnikov_kernel(u)), (1 - u**2).clamp(min=0)),
        "w of K(w u), whose width is 1 / w": close(pool(xs=xs, w=3.0)["weights"], pool(xs=xs * 3)["weights"]),
        "equal key scores best, not the longer one": Gaussian(1.0)(q[:1], torch.stack((3 * q[0], q[0]))).argmax() == 1,
    },
    "8": {"a guess among V characters has log V": close(Bigram(V).mean_loss(torch.arange(V)), math.log(V))},
    "9": {
        "(at most block_size)": gpt(torch.zeros(1, T, dtype=torch.long)).shape == (1, gpt.block_size, V),
        "to mean 0 and variance 1": close(gpt.norm(1e4 * x).var(-1, correction=0), 1)
        and close(gpt.norm(x).mean(-1), 0),
        "without biases and dropout": "Dropout" not in str(gpt) and "bias" not in str(gpt.state_dict().keys()),
    },
    "head.svg": {
        "scores = q · k / √d": close(scaled_dot(q, k)[1, 2], q[1] @ k[2] / math.sqrt(D)),
        "weights: each row sums to 1": close(traced["weights"].sum(-1), 1),
        "e is the future, so it is masked": causal_mask(5, 5)[3].tolist() == [True] * 4 + [False],
    },
    "README.md": {
        "row i of X: a one-hot row times the table of embeddings": close(torch.eye(3)[1].double() @ words, words[1]),
        "| d_k, d_model / h, head dimension | D, `head_size`": traced["Q"].size(-1) == C / H,
        "| num_heads, h; r counts the heads | H, `n_head` |": traced["Q"].size(1) == layer.n_head,
        "B; T for queries, S for keys": layer.trace(x, x[:, :3])["scores"].shape == (B, H, T, 3),
        "matrix W; with biases only if asked for": layer.query.bias is None and biased.query.bias is not None,
        "(B, H, T, S): batch, head, query, key; softmax over the last axis": close(
            traced["weights"], traced["scores"].softmax(-1)
        ),
        "`causal_mask`: lower triangle (tril) of the visible keys": torch.equal(causal_mask(T, T), tril > 0),
        "NaN if a row sees nothing | weights and output of such a row are 0": (unseen["output"] == 0).all(),
        '"ij,jk->ik" is `a @ b`': torch.equal(torch.einsum("ij,jk->ik", a, b), a @ b),
        '"id,jd->ij" is `q @ k.T`': close(torch.einsum("id,jd->ij", q, k), q @ k.T),
        '"bihd,bjhd->bijh" is that for each head': close(
            torch.einsum("bihd,bjhd->bijh", per_head, per_head)[:, :, :, 1], per_head[:, :, 1] @ per_head[:, :, 1].mT
        ),
        "the first W, (out, in), and computes x W^T": close(linear(x) - linear.bias, x @ linear.weight.T),
        "q = W a for a column a | q = a W for a row": torch.equal(b @ a[0], a[0] @ b.T),
        "the weights (T, S) of one head": traced["weights"][0, 0].shape == (T, T),
        "`@`: one product of matrices for each sequence": close((x @ x.mT)[1], x[1] @ x[1].T),
        "the same numbers, copied if necessary": per_head.data_ptr() == x.data_ptr(),
        "`join_heads`: the heads side by side": close(join_heads(torch.stack((x, -x), 1)), torch.cat((x, -x), -1)),
        "`proj`, the last linear map of the layer": close(layer(x), traced["joined"] @ layer.proj.weight.T),
        "another order gives the same outputs in that order": close(layer(x.flip(1)), layer(x).flip(1)),
        "the memory (B, S, C) that cross-attention reads": layer(x, torch.zeros(B, S, C)).shape == (B, T, C),
        "attention and MLP, each added to its input": close(block(x), y + block.mlp(block.mlp_norm(y))),
    },
}


@functools.cache
def read(page):
    """Return the words of a page, or of what the command prints of a chapter, with single spaces."""
    if not page.isdigit():
        return re.sub(r"\s+", " ", (ROOT / "textbook" / page).read_text(encoding="utf-8"))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert textbook([page, *(["--steps", "1"] if page in "69" else [])]) == 0
    return re.sub(r"\s+", " ", printed.getvalue())


@pytest.mark.parametrize(("page", "sentence"), [(page, sentence) for page in CLAIMS for sentence in CLAIMS[page]])
def test_a_sentence_is_there_and_is_true(page, sentence):
    assert sentence in read(page)
    assert CLAIMS[page][sentence]
