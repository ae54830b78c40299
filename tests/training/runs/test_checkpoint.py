import ast
import itertools
import json
import math
import os
import pickle
import random

import pytest
import safetensors.torch
import torch
from conftest import ROOT
from helpers import OURS, Malicious, differences, header_of, make_checkpoint, write_sealed

from model.config import ModelConfig
from model.gpt import GPT
from training.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "latest.safetensors"
    save_checkpoint(make_checkpoint(), path)
    return path


def test_loading_returns_the_saved_checkpoint(saved):
    assert differences(load_checkpoint(saved), make_checkpoint()) == []
    assert load_checkpoint(saved).step == 7


def test_the_digest_of_the_weights_changes_with_each_of_them_and_with_nothing_else():
    checkpoint = make_checkpoint()
    digests = {checkpoint.weights_digest()}
    for name in checkpoint.weights:
        changed = make_checkpoint()
        changed.tensors[f"model.{name}"].flatten()[-1] += 1
        digests.add(changed.weights_digest())
    assert len(digests) == 1 + len(checkpoint.weights)
    changed = make_checkpoint()
    changed.tensors["optimizer.exp_avg.lm_head.weight"] += 1
    assert changed.weights_digest() == checkpoint.weights_digest()


def test_other_programs_can_read_a_checkpoint_and_its_first_bytes_say_what_it_is(saved):
    weight = safetensors.torch.load_file(saved)["model.lm_head.weight"]
    assert torch.equal(weight, make_checkpoint().weights["lm_head.weight"])
    beginning = saved.read_bytes()[:3000].decode("utf-8", "replace")
    for part in ('\\"n_layer\\": 1', '\\"step\\": 7', '"sha256":"'):
        assert part in beginning


def test_any_flipped_bit_is_detected(saved):
    content = saved.read_bytes()
    draw = random.Random(0)
    ends = [*range(64), *range(len(content) - 200, len(content))]
    for position in {*ends, *draw.sample(range(len(content)), 400)}:
        damaged = bytearray(content)
        damaged[position] ^= 1 << draw.randrange(8)
        saved.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged"):
            load_checkpoint(saved)


def test_a_truncated_an_extended_an_empty_and_a_zero_filled_file_are_damaged(saved):
    whole = saved.read_bytes()
    for content in (b"", whole[:1], whole[: len(whole) // 2], whole[:-1], whole + b"x", bytes(len(whole))):
        saved.write_bytes(content)
        with pytest.raises(CheckpointError, match="is damaged"):
            load_checkpoint(saved)


def test_code_in_a_checkpoint_is_never_executed(tmp_path):
    canary = tmp_path / "canary"
    torch.save({"model": Malicious(canary)}, tmp_path / "malicious")
    with pytest.raises(CheckpointError, match="not a checkpoint of this project"):
        load_checkpoint(tmp_path / "malicious")
    assert not canary.exists()
    pickle.loads(pickle.dumps(Malicious(canary)))  # the canary notices code that runs
    assert canary.exists()


def test_only_tests_can_read_a_pickle():
    patterns = [pattern for name in OURS for pattern in (f"{name}.py", f"{name}/**/*.py")]  # not .venv
    for path in (file for pattern in patterns for file in ROOT.glob(pattern)):
        nodes = ast.walk(ast.parse(path.read_text()))
        names = {ast.unparse(node) for node in nodes if isinstance(node, (ast.Attribute, ast.alias))}
        assert path.is_relative_to(ROOT / "tests") or not names & {
            "pickle",
            "torch.load",
            "np.load",
            "shelve",
            "marshal",
        }, path


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("settings", [1], "not a checkpoint of this version"),
        ("settings", {"model": {"n_layer": "many"}}, "model.n_layer"),
        ("settings", {"model": {"n_head": 1, "n_embd": 20_000, "block_size": 1_000_000}}, "do not fit"),
        ("vocabulary", "ba", "its vocabulary cannot be 'ba'"),
        ("progress", {"step": "7"}, "step cannot be '7'"),
        ("origin", {}, "without ancestor"),
    ],
)
def test_an_intact_file_with_a_wrong_field_is_an_error_in_one_line(tmp_path, field, value, message):
    checkpoint = make_checkpoint()
    write_sealed(tmp_path / "a", checkpoint.tensors, header_of(checkpoint) | {field: json.dumps(value)})
    with pytest.raises(CheckpointError, match=message) as error:
        load_checkpoint(tmp_path / "a")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["trained.lm_head.weight", "trained.unknown", "loss_sum"])
def test_a_tensor_of_another_name_or_shape_is_an_error(tmp_path, name):
    checkpoint = make_checkpoint()
    write_sealed(tmp_path / "a", checkpoint.tensors | {name: torch.zeros(5)}, header_of(checkpoint))
    with pytest.raises(CheckpointError, match="do not fit"):
        load_checkpoint(tmp_path / "a")


EARLIER = "version wrote it.* commit c797c4b or, if it is older, 8237b76 of this project can read"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": None}, EARLIER),
        ({"format": "7"}, EARLIER),
        ({"format": "99"}, "another version wrote it"),
    ],
)
def test_the_error_for_a_file_of_another_version_says_what_can_read_it(tmp_path, change, message):
    checkpoint = make_checkpoint()
    header = {name: value for name, value in (header_of(checkpoint) | change).items() if value}  # the first had none
    write_sealed(tmp_path / "a", checkpoint.tensors, header)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path / "a")


@pytest.mark.parametrize(
    ("positions", "n_bytes"),
    [
        ("rope", 6_404_000_000),  # cosines and sines as in the cache below
        ("none", 3_204_000_000),  # a cache of 400 channels of keys and as many of values
    ],
)
def test_a_small_file_cannot_ask_for_large_tables_or_a_large_cache(tmp_path, positions, n_bytes):
    shape = {"n_layer": 1, "n_head": 1, "n_embd": 1, "head_size": 400, "positions": positions}
    checkpoint = make_checkpoint(model=GPT(ModelConfig(block_size=5, **shape), 5))
    header = header_of(checkpoint) | {"settings": json.dumps({"model": {"block_size": 1_000_000, **shape}})}
    write_sealed(tmp_path / "a", checkpoint.tensors, header)
    assert (tmp_path / "a").stat().st_size < 30_000
    with pytest.raises(CheckpointError, match=rf"positions and cache would have {n_bytes // 1000:,},\d\d\d bytes"):
        load_checkpoint(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *itertools.product(["model.lm_head.weight"], [math.nan, -math.inf, 1e300, 1, True, 1j]),
        *itertools.product(["optimizer.exp_avg.lm_head.weight"], [math.nan, -math.inf, 1e300]),  # which may count
    ],
)
def test_a_tensor_with_anything_but_finite_real_numbers_is_an_error(tmp_path, name, bad):
    checkpoint = make_checkpoint()
    tensor = checkpoint.tensors[name].to(torch.float64 if isinstance(bad, float) else torch.tensor(bad).dtype)
    tensor[2, 3] = bad
    write_sealed(tmp_path / "a", checkpoint.tensors | {name: tensor}, header_of(checkpoint))
    with pytest.raises(CheckpointError, match=f"{name} must be finite real numbers"):
        load_checkpoint(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "place", "bad"), [("counts", 3, -4.0), ("prior", (), 0.0), ("symbols", 0, 2), ("symbols", 4, 10**9)]
)
def test_negative_counts_of_ngrams_and_symbols_that_no_training_gives_are_errors(tmp_path, name, place, bad):
    """-4 is the pole of c / (c + 4), the weight of a row for a prior of 4."""
    model = GPT(ModelConfig(n_layer=1, n_head=1, n_embd=4, block_size=3, ngrams=(2,), ngram_rows=9), 5)
    checkpoint = make_checkpoint(model=model)
    checkpoint.tensors[f"model.memories.ngrams.{name}"][place] = bad
    write_sealed(tmp_path / "a", checkpoint.tensors, header_of(checkpoint))
    with pytest.raises(CheckpointError, match=r"its n-grams need the symbols 1, 2, \.\.\. once each"):
        load_checkpoint(tmp_path / "a")


def test_buffers_cannot_hide_among_the_weights_that_training_continues_with(tmp_path):
    model = GPT(ModelConfig(n_layer=1, n_head=1, n_embd=4, block_size=3, ngrams=(2,), ngram_rows=9), 5)
    checkpoint = make_checkpoint(model=model)
    tensors = checkpoint.tensors | {"trained.memories.ngrams.counts": torch.full((9,), 200.0)}
    write_sealed(tmp_path / "a", tensors, header_of(checkpoint))
    with pytest.raises(CheckpointError, match="do not fit"):
        load_checkpoint(tmp_path / "a")


def test_a_failed_save_keeps_the_old_checkpoint_and_leaves_no_partial_file(saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(make_checkpoint(8), saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
