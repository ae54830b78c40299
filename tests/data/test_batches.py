import numpy as np
import pytest
import torch

from data.batches import TrainingBatches, evaluation_windows, permute

KEYS = list(np.random.SeedSequence(1).generate_state(6, np.uint64))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 17, 64, 1000, 4097])
def test_a_permutation_maps_every_index_to_a_different_one(n):
    assert sorted(permute(np.arange(n), n, KEYS)) == list(range(n))


def test_permutations_with_different_keys_are_uncorrelated():
    n = 10_000
    a, b = (permute(np.arange(n), n, [key + np.uint64(k) for key in KEYS]) for k in (0, 1))
    for pairs in ((a, b), (a, np.arange(n)), (np.diff(a), np.diff(b))):
        assert abs(np.corrcoef(*pairs)[0, 1]) < 0.05
    assert (a == b).sum() < 10  # one is expected by chance


def test_the_memory_of_a_permutation_does_not_grow_with_its_length():
    n = 10**11
    places = permute(np.arange(1000) * 10**8, n, KEYS)
    assert len(set(places.tolist())) == 1000
    assert 0 <= places.min() < n / 100
    assert n * 0.99 < places.max() < n


def make_batches(n_characters=103, block_size=7, batch_size=4, seed=0):
    ids = np.arange(n_characters, dtype=np.uint16)
    return TrainingBatches(ids, block_size=block_size, batch_size=batch_size, seed=seed)


def epochs(batches, n_epochs):
    """Return the window starts (n_epochs, windows_per_epoch) in order."""
    n = n_epochs * batches.windows_per_epoch
    starts = np.concatenate([batches.starts(first) for first in range(0, n, batches.batch_size)])
    return starts[:n].reshape(n_epochs, -1)


@pytest.mark.parametrize("n_characters", [8, 9, 14, 15, 100, 103])
def test_every_epoch_covers_every_character(n_characters):
    batches = make_batches(n_characters)
    for starts in epochs(batches, 5):
        inputs = {s + t for s in starts for t in range(7)}
        assert inputs == set(range(n_characters - 1))  # the last character is only ever a target


def test_every_epoch_has_a_new_order_and_a_new_offset():
    visited = epochs(make_batches(), 30)
    assert len({tuple(starts) for starts in visited}) == 30
    assert len({tuple(sorted(starts)) for starts in visited}) == 7


def test_targets_are_the_next_characters():
    inputs, targets = make_batches()[3]
    assert inputs.shape == targets.shape == (4, 7)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(targets, inputs + 1)  # the text counts upwards
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(7))


def test_a_batch_depends_only_on_seed_and_number():
    forwards, backwards = make_batches(), make_batches()
    expected = [forwards[number][0] for number in range(30)]
    for number in reversed(range(30)):
        assert torch.equal(backwards[number][0], expected[number])
    assert not torch.equal(make_batches(seed=1)[0][0], expected[0])


def test_the_batch_size_does_not_change_the_order_of_the_windows():
    few, many = make_batches(batch_size=2), make_batches(batch_size=6)
    assert np.array_equal(
        np.concatenate([few.starts(n) for n in range(0, 18, 2)]),
        np.concatenate([many.starts(n) for n in range(0, 18, 6)]),
    )


def test_a_text_that_is_too_short_for_one_window_is_an_error():
    with pytest.raises(ValueError, match="7 characters are too few for a window of 7"):
        make_batches(n_characters=7)


@pytest.mark.parametrize("n_characters", [2, 7, 8, 9, 57, 60])
def test_an_evaluation_scores_every_character_except_the_first_once_and_in_order(n_characters):
    ids = np.arange(n_characters, dtype=np.uint8)
    windows = list(evaluation_windows(ids, block_size=7, batch_size=3))
    assert torch.cat([targets.flatten() for _, targets in windows]).tolist() == list(range(1, n_characters))
    for inputs, targets in windows:
        assert torch.equal(targets, inputs + 1)
        assert inputs.size(0) <= 3
        assert inputs.size(1) == 7 or (inputs is windows[-1][0] and len(inputs) == 1)
