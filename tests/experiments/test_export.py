"""Exported models in the programs that they are for: the same logits, and the same characters."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import train_tiny

import sample
from experiments.export.__main__ import main as export
from experiments.score import main as score
from training.trained_model import load_model

GPT2 = [
    "model.positions=learned",
    "model.norm=layer",
    "model.mlp=gelu",
    "model.qk_norm=false",
    "model.logit_softcap=0",
    "train.dtype=float32",
]
TEXT = "3 bottles of beer on the wall,\n2  bottles  😀\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a folder with runs of three shapes, on a text with an emoji."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "words.txt").write_text(TEXT * 40, encoding="utf-8")
    common = ["data.corpus=words.txt", "train.max_steps=20", "train.dtype=float32"]
    train_tiny(folder, *common, *GPT2, "train.name=gpt2")
    train_tiny(folder, *common, *GPT2, "model.bias=true", "train.name=biased")
    train_tiny(folder, *common, "model.head_size=8", "model.conv_width=3", "train.name=modern")
    return folder


@pytest.fixture(autouse=True)
def in_folder(trained, monkeypatch):
    monkeypatch.chdir(trained)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def exported(tmp_path, run, form):
    folder = tmp_path / form
    assert export(["--checkpoint", f"runs/{run}", "--to", form, "--output", str(folder)]) == 0
    return folder


def ids_and_logits(run):
    opened = load_model(f"runs/{run}", "cpu")
    ids = torch.from_numpy(opened.vocabulary.encode(TEXT[-16:]).astype(np.int64))[None]
    return ids, opened.model(ids)


@pytest.mark.parametrize("run", ["gpt2", "modern"])
def test_safetensors_are_loaded_by_every_command_with_identical_logits(tmp_path, run, capsys):
    folder = exported(tmp_path, run, "safetensors")
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "model.safetensors"]
    ids, expected = ids_and_logits(run)
    opened, original = load_model(folder, "cpu"), load_model(f"runs/{run}", "cpu")
    assert torch.equal(opened.model(ids), expected)
    assert opened.checkpoint.config.model == original.checkpoint.config.model
    assert opened.checkpoint.tensors.keys() < original.checkpoint.tensors.keys()  # without the optimisers'
    assert opened.path.stat().st_size < original.path.stat().st_size / 1.5
    for command, options in ((sample.main, ["--length", "40"]), (score, ["--device", "cpu"])):
        capsys.readouterr()
        assert command(["--checkpoint", f"runs/{run}", *options]) == 0
        of_run = capsys.readouterr().out.replace(f"runs/{run}/checkpoints/best.safetensors", "")
        assert command(["--checkpoint", str(folder), *options]) == 0
        assert capsys.readouterr().out.replace(str(folder / "model.safetensors"), "") == of_run


def test_half_of_the_bits_give_nearly_the_same_logits(tmp_path, capsys):
    ids, expected = ids_and_logits("modern")
    command = ["--checkpoint", "runs/modern", "--half", "--output", str(tmp_path / "half"), "--to"]
    assert export([*command, "huggingface"]) == 2
    assert "--half is for --to safetensors" in capsys.readouterr().err
    assert export([*command, "safetensors"]) == 0
    opened = load_model(tmp_path / "half", "cpu")
    assert all(x.dtype == torch.float16 for x in opened.checkpoint.tensors.values())
    torch.testing.assert_close(opened.model(ids), expected, atol=0.02, rtol=0)


def test_a_copy_of_a_checkpoint_is_a_model_of_its_own(tmp_path):
    shutil.copy("runs/modern/checkpoints/best.safetensors", tmp_path / "mine.safetensors")
    ids, expected = ids_and_logits("modern")
    opened = load_model(tmp_path / "mine.safetensors", "cpu")
    assert torch.equal(opened.model(ids), expected)
    assert opened.name == "mine"


def test_exported_files_contain_no_path_of_this_machine(tmp_path, trained):
    train_tiny(trained, f"data.corpus={trained}/words.txt", "train.max_steps=2", "train.name=paths")
    for file in exported(tmp_path, "paths", "safetensors").iterdir():
        content = file.read_bytes()
        for path in (trained, Path(__file__).parents[2], Path(sys.prefix), tmp_path):
            assert str(path).encode() not in content, (file, path)


@pytest.mark.parametrize("run", ["gpt2", "biased"])
def test_a_model_of_gpt2s_shape_has_the_same_logits_in_transformers(tmp_path, run):
    transformers = pytest.importorskip("transformers")
    folder = exported(tmp_path, run, "huggingface")
    ids, expected = ids_and_logits(run)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert type(model).__name__ == "GPT2LMHeadModel"
    torch.testing.assert_close(model(ids).logits, expected, atol=1e-5, rtol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer(TEXT[-16:])["input_ids"] == ids[0].tolist()
    assert tokenizer.decode(tokenizer(TEXT)["input_ids"]) == TEXT
    write = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
    (written,) = write("3 bott", max_new_tokens=8, do_sample=False)
    assert written["generated_text"] == load_model(f"runs/{run}").generate("3 bott", 8, temperature=0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["model.positions=rope"], ["model.positions=rope"]),
        (["model.n_kv_head=1", "model.mlp=swiglu"], ["model.n_kv_head", "model.mlp=swiglu"]),
        (["model.head_size=4"], ["model.head_size"]),
        (["data.level=byte"], ["data.level=byte"]),
    ],
)
def test_another_shape_than_gpt2s_is_one_line_that_names_the_settings(trained, tmp_path, settings, named, capsys):
    train_tiny(trained, *GPT2, *settings, "train.max_steps=1", "train.name=other")
    capsys.readouterr()
    newest = sorted(Path("runs").glob("other*"), key=lambda path: path.stat().st_mtime_ns)[-1]
    assert export(["--checkpoint", str(newest), "--to", "huggingface", "--output", str(tmp_path / "x")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(setting in line for setting in named)
    assert line.count(" instead of ") == len(named)
    assert not (tmp_path / "x").exists()


def test_the_model_card_names_text_loss_and_processor(tmp_path):
    card = (exported(tmp_path, "modern", "safetensors") / "README.md").read_text()
    record = json.loads(Path("runs/modern/metrics.jsonl").read_text().splitlines()[-1])
    for fact in (f"{record['best_val_loss']:.4f} nats", "context length 16", "words.txt, SHA-256", record["machine"]):
        assert fact in card


def test_an_existing_folder_is_not_overwritten_and_a_missing_library_is_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    assert export(["--to", "safetensors", "--output", str(tmp_path)]) == 2
    assert "name a new folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert export(["--checkpoint", "runs/gpt2", "--to", "huggingface", "--output", str(tmp_path / "x")]) == 2
    assert "pip install transformers" in capsys.readouterr().err
    shutil.rmtree(tmp_path)
