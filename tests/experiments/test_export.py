"""Exported models in the programs that they are for: the same logits, and the same characters."""

import json
import re
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
from training.runs.checkpoint import CheckpointError
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
    pytest.importorskip("safetensors")
    folder = exported(tmp_path, run, "safetensors")
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "vocabulary.json",
    ]
    ids, expected = ids_and_logits(run)
    opened = load_model(folder, "cpu")
    assert torch.equal(opened.model(ids), expected)
    assert opened.checkpoint.config().model == load_model(f"runs/{run}").checkpoint.config().model
    for command, options in ((sample.main, ["--length", "40"]), (score, ["--device", "cpu"])):
        capsys.readouterr()
        assert command(["--checkpoint", f"runs/{run}", *options]) == 0
        of_run = capsys.readouterr().out.replace(f"runs/{run}/checkpoints/best.pt", "")
        assert command(["--checkpoint", str(folder), *options]) == 0
        assert capsys.readouterr().out.replace(str(folder / "model.safetensors"), "") == of_run


def test_exported_files_contain_no_path_of_this_machine(tmp_path, trained):
    pytest.importorskip("safetensors")
    train_tiny(trained, f"data.corpus={trained}/words.txt", "train.max_steps=2", "train.name=paths")
    for file in exported(tmp_path, "paths", "safetensors").iterdir():
        content = file.read_bytes()
        for path in (trained, Path(__file__).parents[2], Path(sys.prefix), tmp_path):
            assert str(path).encode() not in content, (file, path)


def damage(folder, kind):
    config = json.loads((folder / "config.json").read_text())
    if kind == "a flipped bit of a weight":
        content = bytearray((folder / "model.safetensors").read_bytes())
        content[-1] ^= 1
        (folder / "model.safetensors").write_bytes(content)
    elif kind == "another setting":
        config["settings"]["model"]["logit_softcap"] = 14.0
        (folder / "config.json").write_text(json.dumps(config))
    elif kind == "another character":
        (folder / "vocabulary.json").write_text((folder / "vocabulary.json").read_text().replace("b", "c"))
    elif kind == "nested":
        (folder / "config.json").write_text("[" * 10**6)
    elif kind == "a list":
        (folder / "config.json").write_text("[]")
    elif kind == "not JSON":
        (folder / "config.json").write_bytes(b"\x80\x04")
    else:
        (folder / kind).unlink()


@pytest.mark.parametrize(
    "kind",
    [
        *("a flipped bit of a weight", "another setting", "another character", "nested", "a list", "not JSON"),
        *("config.json", "vocabulary.json"),
    ],
)
def test_a_damaged_folder_is_one_line(tmp_path, kind, capsys):
    pytest.importorskip("safetensors")
    folder = exported(tmp_path, "modern", "safetensors")
    damage(folder, kind)
    capsys.readouterr()
    assert sample.main(["--checkpoint", str(folder)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert str(folder) in err


def resealed(folder, change):
    """Change the settings of a folder and correct its checksum, as somebody hostile could."""
    from training.runs.portable import _digest

    config = json.loads((folder / "config.json").read_text())
    config.pop("sha256")
    change(config)
    files = [(folder / name).read_bytes() for name in ("vocabulary.json", "model.safetensors")]
    (folder / "config.json").write_text(json.dumps(config | {"sha256": _digest(config, *files)}))


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("data", "corpus", "/etc/passwd"),
        ("data", "corpus", "../secret.txt"),
        ("data", "corpus", "*"),
        ("data", "val_corpus", "/etc/passwd"),
        ("model", "n_embd", 900_000),
        ("model", "block_size", 10_000_000),
        ("model", "n_layer", "many"),
        ("train", "steps", 3),
        ("train", "name", "\ud800"),
        ("data", "characters", "\ud800"),
    ],
)
def test_a_hostile_folder_is_refused_before_it_opens_a_file_or_takes_memory(tmp_path, section, name, value):
    pytest.importorskip("safetensors")
    folder = exported(tmp_path, "modern", "safetensors")
    resealed(folder, lambda config: None)
    load_model(folder)
    resealed(folder, lambda config: config["settings"][section].update({name: value}))
    with pytest.raises(CheckpointError, match=re.escape(str(folder))):
        load_model(folder)


@pytest.mark.parametrize("value", ["x", None, [], {}])
@pytest.mark.parametrize("name", ["best_loss", "best_step", "step"])
def test_wrong_types_of_progress_are_refused(tmp_path, name, value):
    pytest.importorskip("safetensors")
    folder = exported(tmp_path, "modern", "safetensors")
    resealed(folder, lambda config: config["progress"].update({name: value}))
    with pytest.raises(CheckpointError):
        load_model(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_finite_numbers_are_refused(tmp_path, value):
    library = pytest.importorskip("safetensors.torch")
    folder = exported(tmp_path, "modern", "safetensors")
    weights = library.load_file(folder / "model.safetensors")
    weights["lm_head.weight"][0, 0] = value
    library.save_file(weights, folder / "model.safetensors")
    resealed(folder, lambda config: None)
    with pytest.raises(CheckpointError, match="not finite"):
        load_model(folder)


@pytest.mark.parametrize("change", [lambda v: "".join(v), lambda v: ["".join(v)], lambda v: {"a": v}, lambda v: [3]])
def test_a_vocabulary_that_is_no_list_of_characters_is_refused(tmp_path, change):
    pytest.importorskip("safetensors")
    folder = exported(tmp_path, "modern", "safetensors")
    file = folder / "vocabulary.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    resealed(folder, lambda config: None)
    with pytest.raises(CheckpointError, match="no list of characters"):
        load_model(folder)


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
    pytest.importorskip("safetensors")
    card = (exported(tmp_path, "modern", "safetensors") / "README.md").read_text()
    record = json.loads(Path("runs/modern/metrics.jsonl").read_text().splitlines()[-1])
    for fact in (f"{record['best_val_loss']:.4f} nats", "context length 16", "words.txt, SHA-256", record["machine"]):
        assert fact in card


def test_an_existing_folder_is_not_overwritten_and_a_missing_library_is_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    assert export(["--to", "safetensors", "--output", str(tmp_path)]) == 2
    assert "name a new folder" in capsys.readouterr().err
    for form, library in (("safetensors", "safetensors"), ("huggingface", "transformers")):
        monkeypatch.setitem(sys.modules, library, None)
        monkeypatch.setitem(sys.modules, f"{library}.torch", None)
        run = "gpt2" if form == "huggingface" else "modern"
        assert export(["--checkpoint", f"runs/{run}", "--to", form, "--output", str(tmp_path / form)]) == 2
        assert f"pip install {library}" in capsys.readouterr().err
    shutil.rmtree(tmp_path)
