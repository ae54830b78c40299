"""The pictures in textbook/ show numbers that follow from their inputs."""

import math
import re

import numpy as np
import torch
from conftest import ROOT

from textbook.chapter5_layer import MultiHeadAttention

X = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])


def drawn(name):
    return (ROOT / "textbook" / f"{name}.svg").read_text(encoding="utf-8")


def numbers(name):
    return [n.replace("\N{MINUS SIGN}", "-") for n in re.findall(r'class="number">([^<]*)<', drawn(name))]


def written(matrix, digits=2):
    return [f"{number:z.{digits}f}" for number in np.ravel(matrix)]


def softmax(scores):
    return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)


def test_one_head_shows_the_worked_example_of_text_2():
    q, k, v = (
        np.array([[1, 0, 2], [2, 2, 2], [2, 1, 3]]),
        [[0, 1, 1], [4, 4, 0], [2, 3, 1]],
        [[1, 2, 3], [2, 8, 0], [2, 6, 3]],
    )
    scores = q @ np.transpose(k) / math.sqrt(3)
    weights = softmax(scores)
    integers = [number for matrix in (X, q, k, v) for number in written(matrix, 0)]
    assert numbers("one_head") == integers + written(scores) + written(weights) + written(weights @ v)


def test_two_heads_are_joined_and_mapped():
    torch.manual_seed(0)
    wq, wk, wv, last = (p.detach().double().numpy().T for p in MultiHeadAttention(4, 2).parameters())
    heads, expected = [], written(X, 0)
    for part in (slice(0, 2), slice(2, 4)):
        weights = softmax(X @ wq[:, part] @ (X @ wk[:, part]).T / math.sqrt(2))
        heads.append(weights @ X @ wv[:, part])
        expected += written(weights) + written(heads[-1]) * 2  # also where they are joined
    assert numbers("two_heads") == expected + written(np.hstack(heads) @ last)


def test_masks_hide_the_hatched_cells():
    ones, half = {"padding": 4 + 2, "look-ahead": 1 + 2 + 3 + 4, "memory": 2 * 4}, ["0.50"] * 4
    assert numbers("masks") == ["1"] * sum(ones.values()) + ["1.00", *half] + half * 2
    assert drawn("masks").count('class="future"') == 2 + 6 + 4 + (16 - 5) + (12 - 8)


def test_the_patches_before_and_after_are_as_dark_as_their_numbers():
    def darkness(picture, colour):
        return [f"{0.4 * number / np.max(picture):.2f}" for number in np.ravel(picture)]

    row = np.array([[0, 1, 1, 0, 1, 1, 1, 1], [0, 1, 1, 0, 0, 1, 1, 0]])
    before = np.zeros((8, 8))
    before[[1, 5]], before[[3, 7]] = row
    pale, dark = before[:4, :4], before[:4, 4:]
    share = math.exp(1.5) / (2 * math.exp(1.5) + 2 * math.e)  # of each dark patch, for a dark one; for a pale one 1/4
    after_pale, after_dark = (pale + dark) / 2, 2 * share * dark + (1 - 2 * share) * pale
    after = np.block([[after_pale, after_dark]] * 2)
    weights = [[0.25] * 4, [0.5 - share, share] * 2] * 2
    assert numbers("patches") == written(weights)
    assert re.findall(r'series-6\)" fill-opacity="([\d.]+)"', drawn("patches")) == [
        *(f"{0.4 * number:.2f}" for number in before.ravel()),
        *(f"{0.4 * number:.2f}" for number in after.ravel() / after.max()),
    ]
