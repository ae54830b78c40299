"""Checkpoints in nanoGPT's layout, built here, against a forward pass that is written here."""

import math
import pickle
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import Malicious, assert_mistake
from nanogpt_files import CHARACTERS, C, H, L, T, nanogpt_checkpoint, write_files

import sample
import train
from experiments.heads.__main__ import main as heads
from experiments.import_nanogpt import main as import_nanogpt
from experiments.score import main as score
from training.config_file import load_config
from training.trained_model import load_model

TEXT = "abc xyz\n" * 60


def expected_logits(weights, ids):
    """Return the logits (T, V) of nanoGPT's model for ids (T,), head by head and in float64."""
    w = {name: value.double() for name, value in weights.items()}

    def norm(x, name):
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        return x * w[f"{name}.weight"] + w.get(f"{name}.bias", 0)

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: len(ids)]
    for i in range(L):
        block = f"transformer.h.{i}"
        q, k, v = linear(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn").split(C, dim=1)
        heads = []
        for h in range(H):
            part = slice(h * C // H, (h + 1) * C // H)
            scores = q[:, part] @ k[:, part].T / math.sqrt(C // H)
            scores = scores.masked_fill(torch.ones(len(ids), len(ids)).triu(1) == 1, -math.inf)
            heads.append(scores.softmax(1) @ v[:, part])
        x = x + linear(torch.cat(heads, 1), f"{block}.attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc")), f"{block}.mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["lm_head.weight"].T


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def imported(*options, status=0):
    files = ["--checkpoint", "ckpt.pt", "--vocabulary", "meta.pkl"]
    assert import_nanogpt([*files, "--output", "runs/theirs", *options]) == status


@pytest.mark.parametrize(
    "layout",
    [
        {"bias": True},
        {"bias": False},
        {"bias": False, "n_ids": 64, "prefix": "_orig_mod."},
        {"bias": True, "mask": True},
    ],
    ids=["with biases", "without biases", "compiled, with padded ids", "with masks of older versions"],
)
def test_an_imported_model_has_nanogpts_logits(folder, layout):
    checkpoint = nanogpt_checkpoint(**layout)
    write_files(folder, checkpoint)
    imported()
    model = load_model("runs/theirs")
    weights = {name.removeprefix("_orig_mod."): value for name, value in checkpoint["model"].items()}
    ids = torch.tensor([CHARACTERS.index(c) for c in TEXT[:T]])
    expected = expected_logits({name: x for name, x in weights.items() if not re.search(r"\.attn\.bias$", name)}, ids)
    ours = model.model(torch.tensor(model.vocabulary.encode(TEXT[:T])).long()[None])[0]
    columns = [CHARACTERS.index(c) for c in model.vocabulary.characters]
    torch.testing.assert_close(ours.double(), expected[:, columns], atol=1e-4, rtol=1e-4)


def test_an_imported_model_samples_scores_shows_its_heads_and_trains_further(folder, capsys):
    checkpoint = nanogpt_checkpoint(bias=False)
    checkpoint["model_args"]["dropout"] = 0.2
    write_files(folder, checkpoint)
    for file in ("ckpt.pt", "meta.pkl"):
        assert_mistake(
            capsys, sample.main, ["--checkpoint", file], "-m experiments.import_nanogpt reads those of nanoGPT"
        )
    imported("--corpus", "text.txt")
    assert load_config(Path("runs/theirs/config.yaml")).model.dropout == 0.2
    for command in (sample.main, score, heads):
        assert command(["--checkpoint", "runs/theirs"]) == 0
    assert Path("runs/theirs/heads.csv").exists()
    capsys.readouterr()
    assert train.main(["--resume", "runs/theirs", "train.max_steps=2004"]) == 2  # it has no optimiser's state
    assert "start a new run from its weights with --from" in capsys.readouterr().err
    fine_tuned = ["--from", "runs/theirs", "data.corpus=text.txt", "train.max_steps=4", "train.name=further"]
    assert train.main(["--config", "runs/theirs/config.yaml", *fine_tuned]) == 0
    Path("my.txt").write_text("Another text, and other characters?\n" * 20)
    own = ["--from", "runs/theirs", "data.corpus=my.txt", "train.max_steps=4", "train.name=own"]
    assert train.main(["--config", "runs/theirs/config.yaml", *own]) == 0  # as the command prints it
    assert set(load_model("runs/own").vocabulary.characters) == {*CHARACTERS, *Path("my.txt").read_text()}
    weights = load_model("runs/further").model.state_dict()
    assert not torch.equal(weights["token_embedding.weight"], weights["lm_head.weight"])


@pytest.mark.parametrize("place", ["the vocabulary", "the checkpoint"])
def test_nothing_in_a_pickle_is_executed(folder, place, capsys):
    checkpoint = nanogpt_checkpoint(bias=False)
    if place == "the checkpoint":
        checkpoint["config"]["evil"] = Malicious("canary")
    write_files(folder, checkpoint)
    if place == "the vocabulary":
        (folder / "meta.pkl").write_bytes(pickle.dumps({"itos": Malicious("canary")}))
    imported(status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "execute" in line
    assert not Path("canary").exists()
    assert not Path("runs").exists()
    pickle.loads(pickle.dumps(Malicious("canary")))  # the canary works
    assert Path("canary").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda saved, itos: saved.pop("model_args"), "ckpt.pt: is not a checkpoint of nanoGPT ('model_args')"),
        (lambda saved, itos: saved["model_args"].update(n_head=5), "n_head=5 does not divide"),
        (lambda saved, itos: saved["model_args"].update(n_embd=900_000), "do not fit"),
        (lambda saved, itos: saved["model"].update(other=torch.ones(1)), "do not fit"),
        (lambda saved, itos: saved["model"]["transformer.ln_f.weight"].fill_(math.nan), "must be finite real"),
        (lambda saved, itos: saved["model"].update({"lm_head.weight": torch.ones(8, C).bool()}), "but is torch.bool"),
        (lambda saved, itos: itos.update({8: "d"}), "it has 8 ids, but the vocabulary 9"),
        (lambda saved, itos: itos.update({0: "ab"}), "maps ids to words"),
        (lambda saved, itos: itos.pop(3), "meta.pkl"),
    ],
)
def test_files_that_do_not_fit_are_one_line(folder, change, message, capsys):
    checkpoint, itos = nanogpt_checkpoint(bias=False), dict(enumerate(CHARACTERS))
    change(checkpoint, itos)
    write_files(folder, checkpoint, itos)
    imported(status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"nonsense", b"(" * 10**5, pickle.dumps([1, 2])])
@pytest.mark.parametrize("name", ["ckpt.pt", "meta.pkl"])
def test_damaged_files_are_one_line(folder, name, content, capsys):
    write_files(folder, nanogpt_checkpoint(bias=False))
    (folder / name).write_bytes(content)
    imported(status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
