"""Sampled text, compared with the ids that `generate` draws."""

import pytest
import torch
from helpers import make_model

from data.vocabulary import Vocabulary
from model.generate import Sampling, generate
from training.sampling import TextSampler

VOCABULARY = Vocabulary("\nabcdefghij")
SAMPLING = Sampling(temperature=1.3, top_k=5)


@pytest.fixture
def model():
    return make_model(len(VOCABULARY), n_layer=1, n_embd=12, block_size=8, dropout=0.5)


def sampler(model):
    return TextSampler(model, VOCABULARY, SAMPLING)


def drawn(model, prompt, n):
    ids = torch.tensor([[VOCABULARY.characters.index(c) for c in prompt]] * n)
    steps = list(generate(model.eval(), ids, 20, sampling=SAMPLING, seed=3, streams=range(n)))
    return ["".join(VOCABULARY.characters[step[i]] for step in steps) for i in range(n)]


def test_texts_equal_the_drawn_ids_for_any_number_of_samples(model):
    one = sampler(model).text("abc", 20, seed=3)
    assert [one] == drawn(model, "abc", 1)
    pieces = list(sampler(model).stream("abc", 20, seed=3, streams=range(3)))
    third = sampler(model).stream("abc", 20, seed=3, streams=range(2, 3))
    assert [piece for (piece,) in third] == [each[2] for each in pieces]
    assert ["".join(text) for text in zip(*pieces, strict=True)] == drawn(model, "abc", 3)
    assert one == "".join(piece[0] for piece in pieces)


def test_an_empty_prompt_means_the_start_of_a_line(model):
    assert sampler(model).text("", 20, seed=3) == drawn(model, "\n", 1)[0]


@pytest.mark.parametrize("training", [True, False])
def test_the_model_samples_without_dropout_and_keeps_its_training_mode(model, training):
    model.train(training)
    texts = {sampler(model).text("ab", 20, seed=3) for _ in range(2)}
    assert model.training == training
    stream = sampler(model).stream("ab", 20, seed=3)
    next(stream)
    stream.close()  # as at a stop text
    assert model.training == training
    assert texts == set(drawn(model, "ab", 1))
