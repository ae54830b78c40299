"""Every matrix and figure that a chapter prints equals arithmetic that shares no code with the chapter."""

import math
import re
from decimal import Decimal

import numpy as np
import pytest
import torch
from numpy import array, exp, inf

from textbook.__main__ import CHAPTERS
from textbook.__main__ import main as textbook
from textbook.chapter2_similarity import LIKES, fit_features
from textbook.chapter8_encoder_decoder import LETTERS, reversal_batch
from textbook.chapter9_scores import examples_and_kernels

MATRIX = re.compile(r"^(\S.*)  \(([\d, ]+)\)\n((?:  .*\n)+)", re.MULTILINE)


def softmax(scores):
    return exp(scores) / exp(scores).sum(axis=-1, keepdims=True)


def triangle(n, *, past=1.0, future=0.0):
    return array([[past if j <= i else future for j in range(n)] for i in range(n)])


def assert_rounded(cells, expected, where):
    """Check that each printed number is the expected one, rounded to the digits that are printed."""
    assert len(cells) == len(expected), (where, cells)
    for cell, number in zip(cells, expected, strict=True):
        half_a_digit = 0 if "inf" in cell else 0.5001 * 10.0 ** Decimal(cell).as_tuple().exponent
        assert float(cell) == number or abs(float(cell) - number) <= half_a_digit, (where, cell, number)


@pytest.fixture
def printed(capsys):
    """Return a function that compares all matrices of a chapter, and returns its other lines and their numbers."""

    def compare(arguments, expected):
        assert textbook(arguments.split()) == 0
        n_paragraphs = CHAPTERS[int(arguments[0]) - 1].__doc__.partition("\n\nQuestion: ")[0].count("\n\n") + 1
        text = capsys.readouterr().out.split("\n\n", n_paragraphs)[-1].partition("\nQuestion: ")[0]
        for (title, shape, rows), matrix in zip(MATRIX.findall(text), expected.values(), strict=True):
            cells = [[word for word in line.split() if not word[0].isalpha()] for line in rows.splitlines()]
            assert shape == ", ".join(map(str, np.shape(matrix))), title
            assert np.shape(cells) == np.reshape(matrix, (len(matrix), -1)).shape, title
            assert np.ndim(matrix) == 2 or len(rows.split("      ")) == len(matrix) * (np.shape(matrix)[1] - 1) + 1
            assert_rounded(np.ravel(cells), np.ravel(matrix), title)
        sentences = MATRIX.sub("", text)
        without_times = re.sub(r"[\d.]+ ms", "", sentences)
        numbers = re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e-\d+)?", without_times)
        return sentences, [number.replace(",", "") for number in numbers]

    return compare


def test_chapter_1_prints_averages_of_all_and_of_the_past(printed):
    x, past = array([[4, 0], [2, 6], [0, 3]]), triangle(3) / array([[1], [2], [3]])
    matrices = {
        "x, the first": x,
        "weights of a plain average": np.full((3, 3), 1 / 3),
        "y = weights x: each position is the average of all": [[2, 3]] * 3,
        "tril": triangle(3),
        "weights: the triangle": past,
        "scores: zeros, and -inf": triangle(3, past=0, future=-inf),
        "weights = softmax": past,
        "Two rows of other scores": [[0, 1, 2], [5, 6, 7]],
        "Their softmax: each weight is 2.718 times": array([[1, math.e, math.e**2]] * 2) / (1 + math.e + math.e**2),
        "y = weights x": [x[: t + 1].mean(axis=0) for t in range(3)],
        "x, the second": [[1, 1], [1, 1], [7, 1]],
        "y: its averages": [[1, 1], [1, 1], [3, 1]],
    }
    assert printed("1", matrices)[1] == []


def test_chapter_2_prints_how_users_match_films_and_words_match_words(printed):
    x = array([[0, -1, 0], [2, 1, 0], [2, 0, 1], [0, 0, 1], [0, -1, 0], [0, 1, 2]])
    scores = array([[sum(a * b for a, b in zip(p, q, strict=True)) for q in x] for p in x])
    likes = array(LIKES)
    left, values, right = np.linalg.svd(likes)
    nearest = (left[:, :2] * values[:2]) @ right[:2]  # of rank 2 (Eckart and Young, 1936)
    users, films = (x.numpy() for x in fit_features(torch.tensor(likes, dtype=torch.float64), 2))
    assert users @ films.T == pytest.approx(nearest)
    cosines = films @ films.T / np.outer(*[np.linalg.norm(films, axis=1)] * 2)
    assert min(cosines[0, 1], cosines[2, 3]) > 0.99  # films of a kind are alike
    assert cosines[:2, 2:4].max() < -0.7
    assert users.T @ users == pytest.approx(np.eye(2))  # at right angles
    words = ("the", "cat", "walks", "on", "the", "street")
    y_cat = " + ".join(f"{weight:.2f} {word}" for weight, word in zip(softmax(scores)[1], words, strict=True))
    figures = [*softmax(scores)[1], 0, softmax(scores)[0][2], 60]
    matrices = {
        "How much two users, ann and bob, like romance and action": [[1, -1], [0.5, 2]],
        "How much a love story, a war film and a comedy": [[2, -1], [-1, 2], [1, 0.1]],
        "scores = users films^T; ann and the love story, 1 x 2 + -1 x -1 = 3": [
            [2 + 1, -1 - 2, 1 - 0.1],
            [1 - 2, -0.5 + 4, 0.5 + 0.2],
        ],
        "What six users liked": likes,
        "Two fitted features of each film": films,
        "Two fitted features of each user": users,
        "users films^T of the fitted": nearest,
        "x, chosen by hand: rows for the, cat, walks, on, the, street": x,
        "scores = x x^T": scores,
        "weights = softmax": softmax(scores),
        "y = weights x": [np.sum(weights[:, None] * x, axis=0) for weights in softmax(scores)],
    }
    sentences, numbers = printed("2", matrices)
    assert f"\ny_cat = {y_cat}\n" in sentences
    assert_rounded(numbers, figures, "chapter 2")


def test_chapter_3_prints_the_worked_example_of_text_2_and_then_masks_it_in_four_steps(printed):
    scores = array([[1.1547, 2.3094, 2.3094], [2.3094, 9.2376, 6.9282], [2.3094, 6.9282, 5.7735]])
    q, v = array([[1, 0, 2], [2, 2, 2], [2, 1, 3]]), array([[1, 2, 3], [2, 8, 0], [2, 6, 3]])
    masked = np.where(triangle(3), array([[2, 4, 4], [4, 16, 12], [4, 12, 10]]) / math.sqrt(3), -inf)
    # cats, now second, weighs chase by exp(4 / sqrt(3)) and itself by exp(2 / sqrt(3)); mice sees what it saw before
    chase, cats = math.exp(4 / math.sqrt(3)), math.exp(2 / math.sqrt(3))
    exchanged = [v[1], (chase * v[1] + cats * v[0]) / (chase + cats), [1.9926, 7.4796, 0.7359]]
    sharp = softmax(array([[1], [8], [64]]) * [0.1, -0.2, 0.3, -0.2, 0.5])
    matrices = {
        "One-hot rows": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        "X = one-hot": [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]],
        "Wq": [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]],
        "Wk": [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]],
        "Wv": [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]],
        "Q = X Wq": q,
        "K = X Wk": [[0, 1, 1], [4, 4, 0], [2, 3, 1]],
        "V = X Wv": v,
        "raw scores = Q K^T": [[2, 4, 4], [4, 16, 12], [4, 12, 10]],
        "scores = raw scores / sqrt(D)": scores,
        "weights": [[0.13613, 0.43194, 0.43194], [8.9045e-04, 0.90884, 0.090267], [0.0074449, 0.75471, 0.23785]],
        "output": [[1.8639, 6.3194, 1.7042], [1.9991, 7.8141, 0.2735], [1.9926, 7.4796, 0.7359]],
        "1. tril": triangle(3),
        "2. masked_fill(tril == 0, -inf)": masked,
        "3. softmax": softmax(masked),
        "4. weights V": softmax(masked) @ v,
        "X for chase, cats, mice": [[0, 2, 0, 2], [1, 0, 1, 0], [1, 1, 1, 1]],
        "Its output with the mask": exchanged,
        "raw scores with Wk = Wq": [[np.sum(a * b) for b in q] for a in q],
        "Softmax of (0.1, -0.2, 0.3, -0.2, 0.5) times 1, 8 and 64": sharp,
    }
    traced = [2, 4, 1, 4, 3, 0, 3, 12 / math.sqrt(3), *softmax(scores)[2]]
    figures = [*traced, 4, 7, 0, 1, 1, 1, 6, 1, 1, *(np.abs(np.diag(p) - np.outer(p, p)).max() for p in sharp)]
    assert_rounded(printed("3", matrices)[1], figures, "gradients")


def test_chapter_4_prints_what_three_heads_read(printed):
    mary, roses, susan = np.eye(5)[[0, 2, 4]]
    matrices = {
        "One head for giver, gift and receiver": [[(mary + roses + susan) / 3]] * 2,
        "Three heads": [[mary, roses, susan], [susan, roses, mary]],
        "Heads that look for words": [[mary, roses, susan]] * 2,
    }
    assert printed("4", matrices)[1] == []


def test_chapter_5_prints_all_shapes_of_text_2_what_masks_hide_and_its_picture(printed):
    B, T, C, H, S = 32, 20, 16, 2, 7
    q, k = [B, H, T, 8, B, H, T, C, B, H, T, 8], [B, H, T, 8, B, H, T, C, B, H, S, 8]
    scores = [B, H, T, T, B, H, T, T, B, H, T, S]
    shapes = [*[B, T, 10] * 3, *q, *k, *k, *scores, *scores, *q, B, T, C, B, T, 2 * C, B, T, C, *[B, T, C] * 3]
    parameters = [3 * 10 * C + C * C, 3 * 10 * 2 * C + 2 * C * C, (10 + 14 + 14) * C + C * C]
    pale, dark = [0] * 5 + [1, 1] + [0] * 6 + [1, 1, 0], [0] * 4 + [1] * 4 + [0] * 5 + [1, 1, 0]
    weights = array([[0.25] * 4, [0.188770, 0.311230] * 2, [0.25] * 4, [0.188770, 0.311230] * 2])
    mixed = [np.reshape(row, (4, 4)) for row in weights @ [pale, dark, pale, dark]]
    rows = [[0] * 8, [0, 1, 1, 0, 1, 1, 1, 1], [0] * 8, [0, 1, 1, 0, 0, 1, 1, 0]]
    half = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]]
    matrices = {
        "padding mask (B, S)": [[1, 1, 1, 1], [0, 1, 1, 0]],
        "look-ahead mask (T, S)": triangle(4),
        "Weights under both": [[0, 0, 0, 0], [0, 1, 0, 0], [0, 0.5, 0.5, 0], [0, 0.5, 0.5, 0]],
        "memory mask (T, S)": np.sign(half),
        "Weights under this mask": half,
        "A picture": rows + rows,
        "a: the patches": [pale, dark, pale, dark],
        "scores = Q K^T / sqrt(16)": [[1, 1, 1, 1], [1, 1.5, 1, 1.5]] * 2,
        "weights = softmax": weights,
        "output = weights V": np.block([mixed[:2], mixed[2:]]),
    }
    sentences, numbers = printed("5", matrices)
    sizes, terms = [B, T, 10, H, C, S, 14], [parameters[0], 3, 10, C, C, C]
    assert_rounded(
        numbers, [*sizes, C // H, C, *shapes, *parameters, *terms, 16, parameters[0] + 4 * C, C // H], sentences
    )


def test_chapter_8_prints_what_blocks_read_and_which_new_strings_are_reversed(printed):
    matrices = {
        "Encoder block": np.ones((4, 4)),
        "The same without": np.eye(4),
        "Decoder block": np.stack((np.ones((4, 4)), triangle(4)), axis=1),
    }
    sentences, _ = printed("8 --steps 2", matrices)
    sentences = sentences.partition("\nCross-attention")[0]
    numbers = re.findall(r"\d[\d,.]*\d|\d", sentences)
    assert numbers[4:6] == ["14", f"{math.log(14):.4f}"]
    assert float(numbers[8]) == pytest.approx(math.log(14), abs=0.5)
    generator, drawn = torch.Generator().manual_seed(0), []
    for n in (128, 128, 1000):
        source, mask, _ = reversal_batch(n, generator)
        drawn.append(["".join(LETTERS[i] for i in row[m]) for row, m in zip(source, mask, strict=True)])
    new = [string for string in drawn[2] if string not in drawn[0] + drawn[1]]
    answers = re.findall(r"^ *(\w+) -> (\w*) +(correct|wrong)$", sentences, re.MULTILINE)
    assert [string for string, *_ in answers] == new[:5]
    assert all((mark == "correct") == (answer == string[::-1]) for string, answer, mark in answers)
    assert [int(number.replace(",", "")) for number in numbers[-3:-1]] == [1000, len(new)]


def test_chapter_9_prints_five_scores_and_the_weights_and_errors_of_pooling(printed):
    q, k = array([[1, 0], [0, 2]]), array([[1, 0], [0, 2], [3, 0]])
    torch.manual_seed(0)
    wq, wk, wv = (torch.nn.Linear(*sizes, bias=False).weight.detach().numpy() for sizes in ((2, 4), (3, 4), (4, 1)))
    additive = [
        [(wv @ np.tanh(wq @ a + wk @ b)).item() for b in keys] for keys in [torch.randn(3, 3).numpy()] for a in q
    ]
    near = exp([-0.5, 0, -2])
    matrices = {
        "q:": q,
        "k:": k,
        "uniform": np.zeros((2, 3)),
        "dot": [[1, 0, 3], [0, 4, 0]],
        "scaled dot": array([[1, 0, 3], [0, 4, 0]]) / math.sqrt(2),
        "gaussian, w = 1": [[-np.sum((a - b) ** 2) / 2 for b in k] for a in q],
        "additive": additive,
        "the same from an MLP": additive,
        "Pooling, with three examples": [[1, 2, 4], [3, 5, 1]],
        "x - x_i": [[1, 0, -2]],
        "K(x - x_i) / sum_j K(x - x_j)": [near / near.sum()],
    }
    sentences, numbers = printed("9", matrices)
    xs, ys, x = (values.numpy() for values in examples_and_kernels()[:3])
    shapes = [*np.shape(wq.T), *np.shape(wk.T), *np.shape(wv.T), 4, *np.shape(q), 3, 3, 3, 5, 2, 5]
    w, u = float(numbers[-3]), x[:, None] - xs
    figures = [*shapes, 2, (3 * near[0] + 5 * near[1] + near[2]) / near.sum(), 50, 0, 5, 2, 0.8, 0.5, 50]
    for n, kernel in ((1, np.maximum(1 - u**2, 0)), (1, exp(-(u**2) / 2)), (w, exp(-((u * w) ** 2) / 2))):
        figures += [
            n,
            *([1 / w] if n == w else []),
            np.mean((kernel @ ys / kernel.sum(axis=1) - (2 * np.sin(x) + x**0.8)) ** 2),
        ]
    assert_rounded(numbers, figures, sentences)
