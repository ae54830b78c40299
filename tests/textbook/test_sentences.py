"""What the chapters say in words is true: a table of their sentences and of computations that check them.

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
from torch.nn.functional import scaled_dot_product_attention

from model.attention import causal_mask, masked_softmax
from model.scoring import Additive, Gaussian, dot, scaled_dot, uniform
from textbook.__main__ import main as textbook
from textbook.chapter2_similarity import EMBEDDINGS, attend_by_matrix
from textbook.chapter3_head import EMBEDDINGS as WORDS
from textbook.chapter3_head import KEY_MAP, QUERY_MAP, VALUE_MAP, one_head
from textbook.chapter4_heads import join_heads, split_heads, what_gave_reads
from textbook.chapter5_layer import MultiHeadAttention
from textbook.chapter6_encoder_decoder import END, EncoderBlock, EncoderDecoder, reversal_batch
from textbook.chapter7_scores import gaussian_kernel, pooling
from textbook.chapter8_bigram import Bigram
from textbook.chapter9_gpt import TextbookGPT

B, T, S, C, H, D, V = 2, 5, 7, 12, 3, 4, 11
generator = torch.Generator().manual_seed(0)
z, x, q, k = (torch.randn(*shape, generator=generator) for shape in ((6,), (B, T, C), (T, D), (S, D)))
softmax = [math.exp(a) / sum(math.exp(b) for b in z) for a in z]
cat, the, walks = (torch.tensor(EMBEDDINGS[word]) for word in ("cat", "the", "walks"))
words, maps = (
    torch.tensor(WORDS, dtype=torch.float64),
    [torch.tensor(m).double() for m in (QUERY_MAP, KEY_MAP, VALUE_MAP)],
)
seen, past = one_head(words, *maps), one_head(words, *maps, tril=torch.ones(3, 3).tril())
additive, layer = Additive(D, D, 8), MultiHeadAttention(C, H)
gpt = TextbookGPT(V, n_layer=1, n_head=H, n_embd=C, block_size=T)
source, _, target = reversal_batch(1, torch.Generator().manual_seed(0))
differences, a, b = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([[1, 2], [3, 4]]), torch.tensor([[5, 6], [7, 8]])


def close(actual, expected):
    return torch.allclose(torch.as_tensor(actual).double(), torch.as_tensor(expected).double(), atol=1e-5)


def kernel(u):
    return torch.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)


CLAIMS = {
    "1": {
        "may use itself and the positions before it, never those after": lambda: (
            causal_mask(3, 3).nonzero().tolist() == [[0, 0], [1, 0], [1, 1], [2, 0], [2, 1], [2, 2]]
        ),
        "softmax(z)_i = exp(z_i) / sum_j exp(z_j)": lambda: close(z.softmax(0), softmax),
        "The weights add up to 1. The largest score gets the largest weight": lambda: (
            close(sum(softmax), 1) and z.softmax(0).argmax() == z.argmax()
        ),
        "exp(-inf) = 0": lambda: math.exp(-math.inf) == 0,
        "The softmax makes each weight positive, and never divides by zero": lambda: (
            (z.softmax(0) > 0).all() and z.min() < 0
        ),
    },
    "2": {
        "Features of the same sign add to the score, opposite signs subtract from it": lambda: (
            q.abs() @ k.abs().mT >= q @ k.mT
        ).all(),
        "1 x 2 + -1 x -1 = 3": lambda: torch.tensor([1, -1]) @ torch.tensor([2, -1]) == 3,
        "y = softmax(x x^T) x": lambda: close(attend_by_matrix(x)["y"], torch.softmax(x @ x.mT, -1) @ x),
        "lies between 0 and 1": lambda: (
            0 < attend_by_matrix(x)["weights"].min() < attend_by_matrix(x)["weights"].max() < 1
        ),
        "'cat' matches 'walks'": lambda: (
            cat @ walks == max(cat @ torch.tensor(e) for e in EMBEDDINGS.values() if e != EMBEDDINGS["cat"])
        ),
        "'the' matches no other word": lambda: (
            max(the @ torch.tensor(e) for word, e in EMBEDDINGS.items() if word != "the") == 0
        ),
        "it is c sqrt(C)": lambda: close(torch.full((9,), 2.0).norm(), 2 * math.sqrt(9)),
        "chapter 3 divides by sqrt(C)": lambda: close(scaled_dot(q, k), dot(q, k) / math.sqrt(D)),
    },
    "3": {
        "attention(Q, K, V) = softmax(Q K^T / sqrt(D)) V": lambda: close(
            seen["output"], scaled_dot_product_attention(*(words @ m for m in maps))
        ),
        "Three linear maps turn each vector into a query, a key and a value": lambda: [*seen][:3] == ["Q", "K", "V"],
        "with d_k = D = 3 channels in a key": lambda: seen["K"].size(-1) == 3,
        "weights that are 0 for the future": lambda: (past["weights"].triu(1) == 0).all(),
        "every word sees every word, as in an encoder block": lambda: (seen["weights"] > 0).all(),
        "each word sees itself and the words before": lambda: torch.equal(past["weights"] > 0, causal_mask(3, 3)),
        "raw scores with Wk = Wq, symmetric": lambda: torch.equal(
            *(lambda s: (s, s.mT))(words @ maps[0] @ (words @ maps[0]).mT)
        ),
        "One weight takes all; gradients vanish": lambda: (
            (64 * torch.tensor([0.1, -0.2, 0.3, -0.2, 0.5])).softmax(0).max() > 0.999
        ),
    },
    "4": {
        "each with D = C / H channels": lambda: split_heads(x, H).shape == (B, H, T, C // H),
        "return H sums side by side": lambda: close(join_heads(split_heads(x, H)), x),
        "multiplies, then sums over the letters that are missing in the result": lambda: close(
            torch.einsum("ij,jk->ik", a, b), [[sum(a[i, j] * b[j, n] for j in (0, 1)) for n in (0, 1)] for i in (0, 1)]
        ),
        "One head for giver, gift and receiver: the same in both sentences": lambda: torch.equal(
            *what_gave_reads([[0, 2, 4]])
        ),
        "Three heads: giver, gift and receiver are kept apart": lambda: (
            not torch.equal(*what_gave_reads([[0], [2], [4]]))
        ),
        "Heads that look for words do not notice the exchange": lambda: torch.equal(
            *what_gave_reads([[0], [2], [4]], by_place=False)
        ),
        "by the fourth root of D equals dividing the scores by sqrt(D)": lambda: close(
            (q / D**0.25) @ (k / D**0.25).mT, scaled_dot(q, k)
        ),
    },
    "5": {
        "W_i^Q and W_i^K (d_model, d_k), W_i^V (d_model, d_v), W^O (h d_v, d_model)": lambda: (
            [p.T.shape for p in MultiHeadAttention(C, H, head_size=4, value_head_size=6).parameters()]
            == [(C, H * 4), (C, H * 4), (C, H * 6), (H * 6, C)]
        ),
        "eight steps: linear maps, split into heads, scores, mask, softmax, sum of values, join (merge)": lambda: (
            [*layer.trace(x)][1:] == ["Q", "K", "V", "scores", "weights", "heads", "joined", "output"]
        ),
        "The maps have no biases here": lambda: not any("bias" in name for name, _ in layer.named_parameters()),
        "bias=True and output_bias=True add them": lambda: (
            sum(p.ndim == 1 for p in MultiHeadAttention(C, H, bias=True, output_bias=True).parameters()) == 4
        ),
        "In every mask, 0 or False means hidden": lambda: (
            layer.trace(x, attention_mask=torch.eye(T))["weights"] == torch.eye(T)
        ).all(),
        "A query that sees no key gets weights of 0; a plain softmax gives NaN": lambda: (
            (layer.trace(x, padding_mask=torch.zeros(B, T))["weights"] == 0).all()
            and masked_softmax(z, visible=z > 9).isnan().all()
        ),
    },
    "6": {
        "position t of the target needs one position of the source": lambda: (
            target[0].tolist()
            == [*reversed(source[0, : (target[0] != END).sum()].tolist()), *[END] * (11 - (target[0] != END).sum())]
        ),
        "The GPT of chapter 9 is a decoder without cross-attention": lambda: (
            not any("cross" in name for name, _ in gpt.named_modules())
            and any(
                "cross" in name
                for name, _ in EncoderDecoder(V, width=C, n_head=H, n_layer=1, block_size=T).named_modules()
            )
        ),
    },
    "7": {
        "uniform 0 the plain": lambda: (uniform(q, k) == 0).all(),
        "dot q . k chapter 2": lambda: close(dot(q, k)[1, 2], (q[1] * k[2]).sum()),
        "scaled dot q . k / sqrt(D) chapter 3": lambda: close(
            scaled_dot(q, k)[1, 2], (q[1] * k[2]).sum() / math.sqrt(D)
        ),
        "additive w_v . tanh(Wq q + Wk k)": lambda: close(
            additive(q, k)[1, 2], additive.weight(torch.tanh(additive.query(q[1]) + additive.key(k[2])))
        ),
        "gaussian -|(q - k) w|^2 / 2": lambda: close(Gaussian(3.0)(q, k)[1, 2], -(((q[1] - k[2]) * 3).norm() ** 2) / 2),
        "f(x) = sum_i y_i K(x - x_i) / sum_j K(x - x_j)": lambda: close(
            pooling(torch.zeros(1), -differences, z[:3], gaussian_kernel)["prediction"],
            (z[:3] * kernel(differences)).sum() / kernel(differences).sum(),
        ),
        "K(u) = exp(-u^2 / 2) / sqrt(2 pi)": lambda: close(kernel(torch.linspace(-9, 9, 9001)).sum() * 18 / 9000, 1),
        "the weight of y_i is softmax(-(x - x_i)^2 / 2)": lambda: close(
            kernel(differences) / kernel(differences).sum(), (-(differences**2) / 2).softmax(0)
        ),
        "w of K(w u), whose width is 1 / w": lambda: close(
            kernel(torch.tensor(3.5 * (1 / 3.5))), kernel(torch.tensor(1.0))
        ),
        "the equal key scores best, not the longer one": lambda: (
            Gaussian(1.0)(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 0.0]])).argmax() == 0
        ),
    },
    "8": {
        "this validation loss, the mean of -log p(next)": lambda: close(
            Bigram(V).mean_loss(torch.arange(V)), -math.log(1 / V)
        ),
    },
    "9": {
        "(at most block_size)": lambda: (
            gpt.block_size == T and gpt(torch.zeros(1, T, dtype=torch.long)).shape == (1, T, V)
        ),
        "without biases and dropout": lambda: (
            not any(isinstance(m, nn.Dropout) or getattr(m, "bias", None) is not None for m in gpt.modules())
        ),
    },
    "head.svg": {
        "scores = q · k / √d": lambda: close(scaled_dot(q, k)[1, 2], q[1] @ k[2] / math.sqrt(D)),
        "weights: each row sums to 1": lambda: close(scaled_dot(q, k).softmax(-1).sum(-1), torch.ones(T)),
        "e is the future, so it is masked": lambda: causal_mask(5, 5)[3].tolist() == [True] * 4 + [False],
    },
    "README.md": {
        "row i of X: a one-hot row times the table of embeddings": lambda: close(
            torch.eye(3, dtype=torch.float64)[1] @ words, words[1]
        ),
        "| d_k, d_model / h, head dimension | D, `head_size`": lambda: layer.trace(x)["Q"].size(-1) == C / H,
        "| num_heads, h; r counts the heads | H, `n_head` |": lambda: layer.trace(x)["Q"].size(1) == layer.n_head,
        "B; T for queries, S for keys": lambda: layer.trace(x, x[:, :3])["scores"].shape == (B, H, T, 3),
        "linear map: a matrix W; with biases only if asked for": lambda: layer.query.bias is None,
        "(B, H, T, S): batch, head, query, key; softmax over the last axis": lambda: close(
            layer.trace(x)["weights"], layer.trace(x)["scores"].softmax(-1)
        ),
        "`causal_mask`: lower triangle (tril) of the visible keys": lambda: torch.equal(
            causal_mask(T, T), torch.ones(T, T).tril() == 1
        ),
        "NaN if a row sees nothing | weights and output of such a row are 0": lambda: (
            layer.trace(x, padding_mask=torch.zeros(B, T))["output"] == 0
        ).all(),
        '"ij,jk->ik" is `a @ b`': lambda: torch.equal(torch.einsum("ij,jk->ik", a, b), a @ b),
        '"id,jd->ij" is `q @ k.T`': lambda: close(torch.einsum("id,jd->ij", q, k), q @ k.T),
        '"bihd,bjhd->bijh" is that for each head': lambda: close(
            torch.einsum("bihd,bjhd->bijh", y := x.unflatten(2, (H, D)), y)[:, :, :, 1], y[:, :, 1] @ y[:, :, 1].mT
        ),
        "`nn.Linear` stores the first W, (out, in), and computes x W^T": lambda: close(
            (linear := nn.Linear(C, 3, bias=False))(x), x @ linear.weight.T
        ),
        "q = W a for a column a | q = a W for a row": lambda: close(b @ a[0], a[0] @ b.T),
        "the weights (T, S) of one head": lambda: layer.trace(x)["weights"][0, 0].shape == (T, T),
        "`@`: one product of matrices for each sequence": lambda: close((x @ x.mT)[1], x[1] @ x[1].T),
        "the same numbers, copied if necessary": lambda: x.unflatten(2, (H, D)).data_ptr() == x.data_ptr(),
        "`join_heads`: the heads side by side": lambda: close(
            join_heads(torch.stack((x, z[0] * x), 1)), torch.cat((x, z[0] * x), -1)
        ),
        "`proj`, the last linear map of the layer": lambda: close(
            layer(x), layer.trace(x)["joined"] @ layer.proj.weight.T
        ),
        "another order gives the same outputs in that order": lambda: close(layer(x.flip(1)), layer(x).flip(1)),
        "the memory (B, S, C) that cross-attention reads": lambda: layer(x, torch.zeros(B, S, C)).shape == (B, T, C),
        "attention and MLP, each added to its input": lambda: close(
            (block := EncoderBlock(C, H))(x),
            (y := x + block.attention(block.attention_norm(x))) + block.mlp(block.mlp_norm(y)),
        ),
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
    assert CLAIMS[page][sentence]()
