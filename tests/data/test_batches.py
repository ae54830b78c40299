import numpy as np
import pytest
import torch

from data.batches import TrainingBatches, evaluation_windows


def make_batches(n_characters=103, block_size=7, batch_size=5, seed=0):
    ids = np.arange(n_characters, dtype=np.uint32)
    return TrainingBatches(ids, block_size=block_size, batch_size=batch_size, seed=seed)


def epochs(batches, n_epochs):
    """Return the window starts (n_epochs, windows_per_epoch) in order."""
    n = n_epochs * batches.windows_per_epoch
    starts = np.concatenate([batches.starts(first) for first in range(0, n, batches.batch_size)])
    return starts[:n].reshape(n_epochs, -1)


@pytest.mark.parametrize("n_characters", [8, 9, 14, 15, 100, 103])
def test_every_epoch_covers_every_character(n_characters):
    for starts in epochs(make_batches(n_characters), 5):
        inputs = {s + t for s in starts for t in range(7)}
        assert inputs == set(range(n_characters - 1))  # the last character is only ever a target


def test_every_epoch_has_a_new_order_and_a_new_offset():
    visited = epochs(make_batches(), 30)
    assert len({tuple(starts) for starts in visited}) == 30
    assert len({tuple(sorted(starts)) for starts in visited}) == 7


def test_the_order_of_the_windows_is_the_published_one():
    published = [869150, 694366, 55070, 946078, 591710, 799006]
    assert make_batches(10**6, 64, 6, seed=3).starts(20).tolist() == published
    by_twos = make_batches(10**6, 64, 2, seed=3)
    assert np.concatenate([by_twos.starts(first) for first in (20, 22, 24)]).tolist() == published


def test_a_batch_depends_only_on_the_seed_and_its_first_window_and_its_targets_are_the_next_characters():
    forwards, backwards = make_batches(), make_batches()
    expected = [forwards.at(window) for window in range(30)]
    for window in reversed(range(30)):
        inputs, targets = backwards.at(window)
        assert inputs.shape == targets.shape == (5, 7)
        assert inputs.dtype == targets.dtype == torch.int64
        assert inputs.equal(expected[window][0])
        assert targets.equal(inputs + 1)  # the text counts upwards
        assert inputs.equal(inputs[:, :1] + torch.arange(7))
    assert not make_batches(seed=1).at(0)[0].equal(expected[0][0])


@pytest.mark.parametrize("n_characters", [2, 7, 8, 9, 57, 60])
def test_an_evaluation_scores_every_character_except_the_first_once_and_in_order(n_characters):
    ids = np.arange(n_characters, dtype=np.uint8)
    windows = list(evaluation_windows(ids, block_size=7, batch_size=3))
    assert torch.cat([targets.flatten() for _, targets in windows]).tolist() == list(range(1, n_characters))
    for inputs, targets in windows:
        assert torch.equal(targets, inputs + 1)
        assert inputs.size(0) <= 3
        assert inputs.size(1) == 7 or (inputs is windows[-1][0] and len(inputs) == 1)


@pytest.mark.parametrize(("wanted", "scored"), [(1, 7), (7, 7), (15, 21), (29, 35), (56, 56), (57, 59), (999, 59)])
def test_some_characters_are_scored_in_evenly_spread_windows_and_the_remainder_only_if_it_is_needed(wanted, scored):
    ids = np.arange(60, dtype=np.uint8)
    windows = list(evaluation_windows(ids, block_size=7, batch_size=3, n_characters=wanted))
    assert sum(targets.numel() for _, targets in windows) == scored
    whole = [start for inputs, _ in windows for start in inputs[:, 0].tolist() if start < 56]
    distances = np.diff([*whole, 56])
    assert whole[0] == 0
    assert distances.max() - distances.min() <= 7
