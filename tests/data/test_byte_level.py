"""Models of bytes (data.level=byte), and separate validation texts (data.val_corpus)."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from helpers import load_corpus

from data.config import DataConfig
from data.corpus import open_corpus
from data.vocabulary import ByteVocabulary
from training.runs.checkpoint import load_checkpoint

ANY_BYTES = bytes(range(256)) * 20 + "naïve 🙂\n".encode() * 20


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def test_the_ids_of_any_file_are_its_bytes(tmp_path, cache):
    path = tmp_path / "picture.png"
    path.write_bytes(ANY_BYTES)
    corpus = load_corpus(str(path), level="byte", cache=cache)
    assert corpus.ids[:].tobytes() == ANY_BYTES
    assert corpus.ids.dtype == np.uint8
    assert len(corpus.vocabulary) == 256


def test_a_file_without_some_bytes_still_has_a_vocabulary_of_256(tmp_path, cache):
    path = tmp_path / "a.txt"
    path.write_text("aaab")
    corpus = load_corpus(str(path), level="byte", cache=cache)
    assert (len(corpus.vocabulary), corpus.ids[:].tolist()) == (256, [97, 97, 97, 98])


def test_the_same_file_can_be_read_at_both_levels(tmp_path, cache):
    path = tmp_path / "a.txt"
    path.write_text("éa", encoding="utf-8")
    assert load_corpus(str(path), cache=cache).ids[:].tolist() == [1, 0]
    assert load_corpus(str(path), level="byte", cache=cache).ids[:].tolist() == [0xC3, 0xA9, 97]


def test_bytes_become_text_when_a_character_is_complete():
    vocabulary = ByteVocabulary()
    text = "a🙂é\n"
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    decode = vocabulary.stream_decoder()
    assert [decode(i) for i in ids.tolist()] == ["a", "", "", "", "🙂", "", "é", "\n"]
    assert vocabulary.decode([0xC3, 97]) == "\ufffda"
    assert "🙂" in vocabulary


def test_an_encoding_of_bytes_is_refused():
    with pytest.raises(ValueError, match=r"data.encoding=latin-1 has no meaning with data.level=byte"):
        DataConfig(level="byte", encoding="latin-1")


def test_a_model_of_bytes_trains_samples_and_resumes(workplace):
    (workplace / "any.bin").write_bytes(ANY_BYTES)
    import train

    settings = ["data.corpus=any.bin", "data.level=byte", "train.max_steps=10", "train.name=bytes"]
    assert train.main(["--config", "tiny.yaml", *settings]) == 0
    assert train.main(["--resume", "runs/bytes", "train.max_steps=12"]) == 0
    checkpoint = load_checkpoint(workplace / "runs/bytes/checkpoints/latest.pt")
    assert isinstance(checkpoint.vocabulary, ByteVocabulary)
    command = [sys.executable, str(ROOT / "sample.py"), "--prompt", "naïve 🙂", "--length", "50"]
    result = subprocess.run(command, capture_output=True, check=True)
    assert result.stdout.decode("utf-8").startswith("naïve 🙂")


def test_a_separate_validation_text_is_scored_whole_and_shares_the_vocabulary(tmp_path, cache):
    (tmp_path / "train.txt").write_text("abcabc\n" * 5, encoding="utf-8")
    (tmp_path / "val.txt").write_text("xyz\n", encoding="utf-8")
    config = DataConfig(corpus=str(tmp_path / "train.txt"), val_corpus=str(tmp_path / "val.txt"))
    corpus = open_corpus(config, cache=cache)
    train, validation, test = corpus.split(config.split, 3)
    decode = corpus.vocabulary.decode
    assert (decode(train[:]), decode(validation[:])) == ("abcabc\n" * 5, "xyz\n")
    assert len(test) == 1
    assert corpus.vocabulary.characters == "\nabcxyz"
    with pytest.raises(ValueError, match="needs 5 characters for validation, but there are 4"):
        corpus.split(config.split, 4)


def test_a_folder_can_be_the_training_text_of_a_separate_validation_text(tmp_path, cache):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in "123":
        (folder / f"{name}.txt").write_text(name * 4)
    (tmp_path / "val.txt").write_text("9999")
    corpus = load_corpus(str(folder), val_corpus=str(tmp_path / "val.txt"), cache=cache)
    train, validation, _ = corpus.split(DataConfig().split, 2)
    assert [corpus.vocabulary.decode(part[:]) for part in (train, validation)] == ["111122223333", "9999"]


def test_a_split_and_a_separate_validation_text_exclude_each_other():
    with pytest.raises(ValueError, match=r"data.split divides one text"):
        DataConfig(val_corpus="val.txt", split=(0.8, 0.1, 0.1))
