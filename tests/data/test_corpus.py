import hashlib

import pytest
from helpers import load_corpus

from cli.errors import UserError
from data.config import DataConfig


@pytest.fixture
def write(tmp_path):
    """Return a function that writes files, given by name, and returns the path of the last one."""

    def write_files(**files):
        for name, content in files.items():
            path = tmp_path / f"{name}.txt"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write_files


def texts(corpus, parts):
    return [corpus.vocabulary.decode(part[:]) for part in parts]


def test_fractions_divide_a_text_from_its_end_and_sizes_in_characters_from_its_start(write, cache):
    corpus = load_corpus(write(a="abcdefghijklmnopqrst"), cache=cache)
    # Validation and test start with the context of their first prediction.
    assert texts(corpus, corpus.split((0.9, 0.1, 0.0), 2)) == ["abcdefghijklmnopqr", "rst", "t"]
    assert texts(corpus, corpus.split((0.8, 0.1, 0.1), 2)) == ["abcdefghijklmnop", "pqr", "rst"]
    assert texts(corpus, corpus.split((4, 3, 2), 2)) == ["abcd", "defg", "ghi"]
    with pytest.raises(UserError, match=r"data.split=\[4, 3, 14\] needs 21 characters, but .* has 20; lower it"):
        corpus.split((4, 3, 14), 2)


def test_the_files_of_a_folder_are_joined_and_the_boundary_between_them_is_part_of_the_digest(write, tmp_path, cache):
    parts = ["ab".encode("utf-16"), "cd".encode("utf-16")]  # with a byte-order mark each
    write(a=parts[0], b=parts[1])
    folder = load_corpus(tmp_path, "utf-16", cache=cache)
    joined = load_corpus(write(joined=b"".join(parts)), "utf-16", cache=cache)
    assert [texts(corpus, [corpus.ids]) for corpus in (folder, joined)] == [["abcd"], ["ab\ufeffcd"]]
    assert folder.digest != joined.digest


def test_a_file_that_repeats_another_counts_once_and_never_as_training_text_if_it_is_for_validation(write, cache):
    tmp_path = cache.parent
    alone = load_corpus(write(a="abcd" * 5), cache=cache)
    write(copy="abcd" * 5, val="wxyz")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    (tmp_path / "validation").write_bytes(b"wxyz")
    folder = load_corpus(tmp_path, val_corpus=str(tmp_path / "validation"), cache=cache)
    assert texts(folder, folder.split(DataConfig().split, 2)) == ["abcd" * 5, "wxyz", "z"]
    assert folder.n_files == 2
    (tmp_path / "val.txt").unlink()
    assert load_corpus(f"{tmp_path}/*.txt", cache=cache).digest == alone.digest
    with pytest.raises(UserError, match=r"data.val_corpus=.*a.txt is all of data.corpus=.*link.txt; name another text"):
        load_corpus(tmp_path / "link.txt", val_corpus=str(tmp_path / "a.txt"), cache=cache)


def test_a_passage_is_identified_by_its_text_not_by_its_path(write, cache):
    def passage(**options):
        corpus = load_corpus(cache=cache, **options)
        return corpus.passage(corpus.split(DataConfig().split, 2))

    a, b = write(a="abcd" * 5), write(b="abce" * 5)
    moved = write(moved="abcd" * 5)
    assert passage(name=a) == passage(name=moved) != passage(name=b)
    digest = hashlib.sha256(b"abcd" * 5).hexdigest()[:16]
    assert passage(name=a) == f"the text {digest} in utf-8 from 17 to 20"  # with the character before the split
    assert passage(name=b, val_corpus=a) == f"the text {digest} in utf-8 from 0 to 20"
    assert passage(name=a, val_corpus=b) == passage(name="selmere", val_corpus=b)
    assert passage(name=a, val_corpus=b) != passage(name=a, val_corpus=write(c="abcf" * 5))


def test_a_separate_validation_text_is_scored_whole_and_shares_the_vocabulary(write, tmp_path, cache):
    write(a="abc\n" * 5, b="abcd")
    (tmp_path / "validation").write_text("xyz\n", encoding="utf-8")
    corpus = load_corpus(tmp_path, val_corpus=str(tmp_path / "validation"), cache=cache)
    parts = corpus.split(DataConfig().split, 3)
    assert texts(corpus, parts) == ["abc\n" * 5 + "abcd", "xyz\n", "\n"]
    assert corpus.vocabulary.characters == "\nabcdxyz"
    for block_size, error in (
        (4, "data.val_corpus is too short: model.block_size=4 needs 5 characters for validation, but there are 4"),
        (24, f"{tmp_path} is too short: model.block_size=24 needs 25 characters for training, but there are 24"),
    ):
        with pytest.raises(UserError, match=error):
            corpus.split(DataConfig().split, block_size)


def test_the_error_for_a_text_that_is_too_short_names_the_part_and_its_size(write, cache):
    corpus = load_corpus(write(a="0123456789" * 10), cache=cache)
    assert len(corpus.split((0.8, 0.2, 0), 20).validation) == 21
    for split, block_size, error in (
        ((0.8, 0.2, 0), 21, "block_size=21 needs 21 characters for validation, but there are 20; lower"),
        ((0.7, 0.2, 0.1), 11, "block_size=11 needs 11 characters for test, but there are 10; lower"),
        ((0.8, 0.2, 0), 80, "block_size=80 needs 81 characters for training, but there are 80; lower"),
    ):
        with pytest.raises(UserError, match=error):
            corpus.split(split, block_size)
    with pytest.raises(UserError, match="too short"):
        load_corpus(write(b="xy"), cache=cache).split((0.9, 0.1, 0), 1)
