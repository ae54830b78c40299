import dataclasses
import io
import os
import pickle
import random
import zipfile

import pytest
import torch
from helpers import make_checkpoint

from model.config import ModelConfig
from model.gpt import GPT
from training.config import Config
from training.config_file import to_dict
from training.runs import checkpoint as checkpoint_module
from training.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "latest.pt"
    save_checkpoint(make_checkpoint(), path)
    return path


def test_a_checkpoint_with_an_old_parameter_name_still_loads(tmp_path):
    config = ModelConfig(n_layer=1, n_head=1, n_embd=4, block_size=3)
    weights = GPT(config, 5).state_dict()
    weights["head.weight"] = torch.randn_like(weights.pop("lm_head.weight"))
    checkpoint = dataclasses.replace(make_checkpoint(), settings=to_dict(Config(model=config)), model=weights)
    save_checkpoint(checkpoint, tmp_path / "old.pt")
    model = load_checkpoint(tmp_path / "old.pt").build_model()
    assert torch.equal(model.lm_head.weight, weights["head.weight"])


def test_a_checkpoint_without_todays_settings_gets_the_values_that_applied_then(tmp_path):
    settings = to_dict(Config())
    del settings["model"]["qk_scale"], settings["data"]["split"]
    settings["data"]["val_fraction"] = 0.2
    save_checkpoint(dataclasses.replace(make_checkpoint(), settings=settings), tmp_path / "old.pt")
    config = load_checkpoint(tmp_path / "old.pt").config()
    assert config.model.qk_scale == "sqrt_head_size"
    assert config.data.split == (0.8, 0.2, 0.0)


def test_loading_returns_the_saved_checkpoint(saved):
    expected, actual = make_checkpoint(), load_checkpoint(saved)
    assert (actual.step, actual.characters, actual.corpus) == (7, expected.characters, expected.corpus)
    assert actual.config() == Config()
    for name, tensor in expected.model.items():
        assert torch.equal(actual.model[name], tensor)
    buffer = expected.optimizers[0][0]["momentum_buffer"]
    assert torch.equal(actual.optimizers[0][0]["momentum_buffer"], buffer)


def test_torch_load_can_read_a_checkpoint(saved):
    assert torch.equal(torch.load(saved, weights_only=True)["model"]["w"], make_checkpoint().model["w"])
    assert zipfile.ZipFile(saved).testzip() is None


def test_any_flipped_bit_is_detected(saved):
    content = saved.read_bytes()
    draw = random.Random(0)
    ends = [*range(64), *range(len(content) - 200, len(content))]
    for position in {*ends, *draw.sample(range(len(content)), 400)}:
        damaged = bytearray(content)
        damaged[position] ^= 1 << draw.randrange(8)
        saved.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_checkpoint(saved)


@pytest.mark.parametrize("keep", [0, 1, 0.5, -1])
def test_a_truncated_file_is_reported_as_damaged(saved, keep):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(saved)


def test_a_file_of_zeros_is_reported_as_damaged(saved):
    saved.write_bytes(bytes(len(saved.read_bytes())))
    with pytest.raises(CheckpointError, match="is damaged"):
        load_checkpoint(saved)


def test_a_missing_file_a_folder_and_a_foreign_file_have_different_errors(tmp_path):
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_checkpoint(tmp_path / "gone.pt")
    with pytest.raises(IsADirectoryError):
        load_checkpoint(tmp_path)
    torch.save({"w": torch.zeros(3)}, tmp_path / "foreign.pt")
    with pytest.raises(CheckpointError, match="is not a checkpoint of this project"):
        load_checkpoint(tmp_path / "foreign.pt")


class Malicious:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.mkdir, (str(self.canary),)


def test_code_in_a_checkpoint_is_rejected_and_never_executed(tmp_path):
    canary = tmp_path / "canary"
    buffer = io.BytesIO()
    torch.save({"format": 1, "model": Malicious(canary)}, buffer)
    path = tmp_path / "malicious.pt"
    path.write_bytes(checkpoint_module._with_checksum(buffer))
    with pytest.raises(CheckpointError, match="is not a checkpoint of this project"):
        load_checkpoint(path)
    assert not canary.exists()
    pickle.loads(pickle.dumps(Malicious(canary)))  # the canary notices code that runs
    assert canary.exists()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("settings", [1], "not a checkpoint of this project"),
        ("settings", {"model": {"n_layer": "many"}}, r"cannot be read \(model.n_layer"),
        ("settings", {"model": {"n_layer": 0}}, r"cannot be read \(model.n_layer=0"),
        ("settings", {"data": {"val_fraction": "x"}}, "cannot be read"),
        ("characters", 7, "not a checkpoint of this project"),
        ("characters", "ba", "its characters cannot be 'ba'"),
        ("characters", "", "its characters cannot be ''"),
        ("corpus", {"name": 3, "digest": "d"}, "its corpus cannot be"),
        ("corpus", None, "not a checkpoint of this project"),
        ("model", {"w": 1.0}, "its model cannot be"),
        ("model", 5, "not a checkpoint of this project"),
        ("optimizers", [{0: 1}], "its optimizers cannot be"),
        ("progress", {"step": "7"}, "its progress cannot be"),
        ("progress", {"step": -1}, "its progress cannot be"),
        ("progress", {}, "its progress cannot be"),
        ("trained", "w", "not a checkpoint of this project"),
        ("no_such_field", 1, "not a checkpoint of this project"),
    ],
)
def test_a_whole_file_with_a_field_of_a_wrong_type_is_an_error_in_one_line(tmp_path, field, value, message):
    fields = {"format": checkpoint_module.FORMAT, **vars(make_checkpoint()), field: value}
    buffer = io.BytesIO()
    torch.save(fields, buffer)
    (tmp_path / "a.pt").write_bytes(checkpoint_module._with_checksum(buffer))
    with pytest.raises(CheckpointError, match=message) as error:
        load_checkpoint(tmp_path / "a.pt").build_model()
    assert "\n" not in str(error.value)


def test_weights_that_do_not_fit_the_settings_are_an_error_in_one_line():
    with pytest.raises(CheckpointError, match="the checkpoint's weights do not fit its settings") as error:
        make_checkpoint().build_model()
    assert "\n" not in str(error.value)


def test_another_checkpoint_format_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "FORMAT", 99)
    save_checkpoint(make_checkpoint(), tmp_path / "a.pt")
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="another version"):
        load_checkpoint(tmp_path / "a.pt")


def test_a_failed_save_keeps_the_old_checkpoint_and_leaves_no_partial_file(saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=r"checkpoint of [\d,]+ bytes could not be saved \(No space left"):
        save_checkpoint(make_checkpoint(8), saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_a_new_checkpoint_replaces_the_old_one(saved):
    save_checkpoint(make_checkpoint(8), saved, saved.with_name("best.pt"))
    assert [load_checkpoint(path).step for path in (saved, saved.with_name("best.pt"))] == [8, 8]
