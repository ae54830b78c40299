import helpers
import pytest
import torch
from helpers import recomputed

from model.generate import Sampling, generate, window_start
from model.positions import POSITIONS

V, BLOCK_SIZE = 13, 8


def make_model(**settings):
    return helpers.make_model(V, **{"n_layer": 3, "block_size": BLOCK_SIZE} | settings)


def write(model, prompt, length, *, seed=0, **options):
    ids = generate(model, prompt, length, seed=seed, streams=range(len(prompt)), **options)
    return torch.stack(list(ids), dim=1)  # (B, length)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("attention", ["explicit", "fused"])
@pytest.mark.parametrize("n_prompt", [1, 5, 8, 9, 21])
def test_the_text_is_the_same_with_and_without_the_cache_also_past_the_context_length(positions, attention, n_prompt):
    model, prompt = make_model(positions=positions, attention=attention), torch.randint(V, (2, n_prompt))
    cached = write(model, prompt, 40)
    assert torch.equal(cached, recomputed(model, prompt, 40))
    assert cached.unique().numel() > 3  # a text of one repeated character would prove nothing


def test_the_context_is_the_whole_text_until_the_window_is_full_and_then_at_least_half_a_window():
    for block_size in (1, 2, 7, 8):
        for n_seen in range(1, 60):
            n_context = n_seen - window_start(n_seen, block_size)
            assert n_context == n_seen if n_seen <= block_size else block_size / 2 <= n_context <= block_size
    moves = [window_start(n, 8) for n in range(1, 20)]
    assert sorted(set(moves)) == [0, 4, 8, 12]


def test_one_prompt_begins_all_streams():
    memories = {"ngrams": (2,), "ngram_rows": 50, "longest_copy": 4}
    model, prompt = make_model(conv_width=3, **memories), torch.randint(V, (1, 5))
    texts = torch.stack(list(generate(model, prompt, 40, streams=range(2, 6))), dim=1)
    assert torch.equal(texts, torch.stack(list(generate(model, prompt.expand(4, -1), 40, streams=range(2, 6))), dim=1))
    alone = torch.stack(list(generate(model, prompt, 40, streams=range(3, 4))), dim=1)
    assert torch.equal(texts[1], alone[0])
    other_seed = torch.stack(list(generate(model, prompt, 40, seed=1, streams=range(2, 6))), dim=1)
    assert len({tuple(text) for text in (*texts.tolist(), *other_seed.tolist())}) == 8


def test_characters_are_drawn_with_their_probabilities():
    model = make_model()
    n = 4_000
    probabilities = Sampling().probabilities(model(torch.tensor([[4]]))[:, -1])[0]
    counts = write(model, torch.full((n, 1), 4), 1)[:, 0].bincount(minlength=V)
    spread = (n * probabilities * (1 - probabilities)).sqrt()
    assert ((counts - n * probabilities).abs() < 5 * spread).all()


LOGITS = torch.tensor([[0.4, 0.1, 0.3, 0.2]]).log()


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.4, 0.1, 0.3, 0.2]),
        (Sampling(temperature=0), [1, 0, 0, 0]),
        (Sampling(temperature=0.5), [16 / 30, 1 / 30, 9 / 30, 4 / 30]),
        (Sampling(top_k=2), [4 / 7, 0, 3 / 7, 0]),
        (Sampling(top_k=100), [0.4, 0.1, 0.3, 0.2]),
        (Sampling(top_p=0.69), [4 / 7, 0, 3 / 7, 0]),
        (Sampling(top_p=0.71), [4 / 9, 0, 3 / 9, 2 / 9]),
        (Sampling(top_p=0.7), [4 / 7, 0, 3 / 7, 0]),
        (Sampling(top_p=1e-50), [1, 0, 0, 0]),
        (Sampling(temperature=1e-50), [1, 0, 0, 0]),
        (Sampling(min_p=0.6), [4 / 7, 0, 3 / 7, 0]),
        (Sampling(min_p=1), [1, 0, 0, 0]),
        (Sampling(top_k=3, top_p=0.5, min_p=0.9), [1, 0, 0, 0]),
    ],
    ids=repr,
)
def test_filters_keep_the_characters_that_their_definitions_require(sampling, expected):
    torch.testing.assert_close(sampling.probabilities(LOGITS), torch.tensor([expected], dtype=torch.float32))
