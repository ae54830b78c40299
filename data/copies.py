"""The longest stretches of some texts that stand in another one."""

from collections.abc import Sequence

import numpy as np

from data.batches import Ids

AT_ONCE = 1 << 22  # characters of the text that are searched at once, which limits memory
FACTOR = np.uint64(6364136223846793005)  # odd; the hash of a stretch is the value of a polynomial, modulo 2^64


def longest_copies(pieces: Sequence[Ids], text: Ids) -> list[slice]:
    """Return, for each piece, the place in it of its longest stretch that stands in the text; the first of several.

    All stretches of n characters are compared at once by hashes of 64 bits, for n = 1, 2, ...: only places whose n
    characters were found are searched for n + 1.
    """
    found = [slice(0, 0)] * len(pieces)
    overlap = max(map(len, pieces), default=0)
    for start in range(0, len(text), AT_ONCE):
        part = text[start : start + AT_ONCE + overlap]
        found = [max(pair, key=_length) for pair in zip(found, _longest_copies(pieces, part), strict=True)]
    return found


def _length(place: slice) -> int:
    return place.stop - place.start


def _longest_copies(pieces: Sequence[Ids], text: Ids) -> list[slice]:
    found = [slice(0, 0)] * len(pieces)
    lengths = np.array([len(piece) for piece in pieces])
    begins = np.cumsum(lengths) - lengths  # of the pieces, joined
    joined, text = np.concatenate(pieces).astype(np.uint64) + np.uint64(1), np.asarray(text).astype(np.uint64)
    ends = np.repeat(begins + lengths, lengths)  # for each place, the end of its piece
    ours, theirs = np.arange(len(joined)), np.arange(len(text))
    our_hashes, their_hashes = np.zeros(len(joined), np.uint64), np.zeros(len(text), np.uint64)
    n = 0
    while True:
        fits, fits_there = ours + n < ends[ours], theirs + n < len(text)
        ours, theirs = ours[fits], theirs[fits_there]
        if not len(ours):
            return found
        our_hashes = our_hashes[fits] * FACTOR + joined[ours + n]
        their_hashes = their_hashes[fits_there] * FACTOR + text[theirs + n] + np.uint64(1)
        wanted, which = np.unique(our_hashes, return_inverse=True)
        nearest = np.searchsorted(wanted, their_hashes).clip(max=len(wanted) - 1)
        is_wanted = wanted[nearest] == their_hashes
        stands_there = np.zeros(len(wanted), bool)
        stands_there[nearest[is_wanted]] = True
        ours, our_hashes = ours[stands_there[which]], our_hashes[stands_there[which]]
        theirs, their_hashes = theirs[is_wanted], their_hashes[is_wanted]
        n += 1
        piece_of = np.searchsorted(begins, ours, side="right") - 1
        for piece, first in zip(*np.unique(piece_of, return_index=True), strict=True):
            start = int(ours[first] - begins[piece])
            found[piece] = slice(start, start + n)
