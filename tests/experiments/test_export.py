import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from conftest import train_tiny
from helpers import assert_mistake, new_environment

import sample
from experiments.export.__main__ import main as export
from experiments.score import main as score
from training.runs.checkpoint import save_checkpoint
from training.trained_model import load_model

GPT2 = ["model.positions=learned", "model.norm=layer", "model.mlp=gelu", "model.qk_norm=false", "model.logit_softcap=0"]
MODERN = ["model.head_size=8", "model.conv_width=3", "model.ngrams=[2]", "model.ngram_rows=50"]
TEXT = "3 bottles of beer on the wall,\n2  bottles  😀\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a folder with runs of three shapes, on a text with an emoji."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "words.txt").write_text(TEXT * 40, encoding="utf-8")
    common = ["data.corpus=words.txt", "train.max_steps=20", "train.dtype=float32"]
    train_tiny(folder, *common, *GPT2, "train.name=gpt2")
    train_tiny(folder, *common, *GPT2, "model.bias=true", "train.name=biased")
    train_tiny(folder, *common, *MODERN, "train.name=modern")
    return folder


@pytest.fixture(autouse=True)
def in_folder(trained, monkeypatch):
    monkeypatch.chdir(trained)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def exported(tmp_path, run, form, *options):
    folder = tmp_path / form
    assert export(["--checkpoint", f"runs/{run}", "--to", form, "--output", str(folder), *options]) == 0
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
    for command, options in ((sample.main, ["--length", "40"]), (score, ["--device", "cpu", "--text", "words.txt"])):
        capsys.readouterr()
        assert command(["--checkpoint", f"runs/{run}", *options]) == 0
        of_run = capsys.readouterr().out.replace(f"runs/{run}/checkpoints/best.safetensors", "")
        assert command(["--checkpoint", str(folder), *options]) == 0
        assert capsys.readouterr().out.replace(str(folder / "model.safetensors"), "") == of_run


def test_16_bits_per_weight_give_nearly_the_same_logits(tmp_path):
    ids, expected = ids_and_logits("modern")
    opened = load_model(exported(tmp_path, "modern", "safetensors", "--half"), "cpu")
    dtypes = {name: x.dtype for name, x in opened.checkpoint.tensors.items()}
    assert dtypes.pop("model.memories.ngrams.symbols") == torch.int64  # which float16 could not hold
    assert {*dtypes.values()} == {torch.float16}
    torch.testing.assert_close(opened.model(ids), expected, atol=0.02, rtol=0)


@pytest.mark.parametrize("form", ["safetensors", "huggingface"])
def test_exported_files_contain_no_path_of_this_machine(tmp_path, trained, form):
    texts = [f"data.corpus={trained}/words.txt", f"data.val_corpus={trained}/text.txt"]
    train_tiny(trained, *GPT2, *texts, f"train.ancestor={trained}/runs/gpt2", "train.max_steps=2", "train.name=paths")
    for file in exported(tmp_path, load_model().name, form).iterdir():
        content = file.read_bytes()
        for path in (trained, Path(__file__).parents[2], Path(sys.prefix), tmp_path):
            assert str(path).encode() not in content, (file, path)


IN_TRANSFORMERS = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

folder, text, prompt = json.loads(sys.argv[1])
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
ids = tokenizer(text, return_tensors="pt")["input_ids"]
write = pipeline("text-generation", model=model, tokenizer=tokenizer, max_new_tokens=7, do_sample=False)
print(json.dumps({
    "class": type(model).__name__,
    "ids": ids[0].tolist(),
    "logits": model(ids).logits[0].tolist(),
    "written": write(prompt)[0]["generated_text"],
}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("library", ["", pytest.param("transformers<5", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("run", ["gpt2", "biased"])
def test_a_model_of_gpt2s_shape_is_the_same_in_transformers(tmp_path, run, library):
    pytest.importorskip("transformers")
    folder, ours = exported(tmp_path, run, "huggingface"), load_model(f"runs/{run}", "cpu")
    text, prompt = TEXT[-16:], TEXT[-9:]
    python = new_environment(tmp_path / "environment", library) if library else sys.executable
    its = json.loads(subprocess.check_output([python, "-c", IN_TRANSFORMERS, json.dumps([str(folder), text, prompt])]))
    (lines,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    subprocess.run([python, "-c", lines], cwd=tmp_path, check=True)
    ids, expected = ids_and_logits(run)
    assert (its["class"], its["ids"]) == ("GPT2LMHeadModel", ids[0].tolist())
    torch.testing.assert_close(torch.tensor(its["logits"]), expected[0], atol=1e-5, rtol=0)
    assert its["written"] == ours.generate(prompt, 7, temperature=0)


def test_another_shape_than_gpt2s_is_an_error_that_names_the_settings(workplace, capsys):
    settings = ["model.head_size=4", "model.mlp=swiglu"]
    train_tiny(workplace, *GPT2, *settings, "train.max_steps=1")
    capsys.readouterr()
    assert export(["--to", "huggingface", "--output", "x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(setting.partition("=")[0] in line for setting in settings)
    assert line.count(" instead of ") == len(settings)
    assert not Path("x").exists()


def test_the_model_card_names_text_loss_and_processor(tmp_path):
    card = (exported(tmp_path, "modern", "safetensors", "--license", "cc-by-4.0") / "README.md").read_text()
    front = yaml.safe_load(card.split("---\n")[1])
    assert (front["license"], front["pipeline_tag"]) == ("cc-by-4.0", "text-generation")
    assert "--checkpoint ./safetensors\n" in card  # the Hub may have a model of the plain name
    record = json.loads(Path("runs/modern/metrics.jsonl").read_text().splitlines()[-1])
    assert f"parameters | {record['n_parameters']:,} |" in card
    facts = [f"{record['best_val_loss']:.4f} nats", "context length 16", "words.txt, SHA-256", record["machine"]]
    for fact in (*facts, "tells which strings of 2 characters its text has"):
        assert fact in card


@pytest.mark.parametrize("form", ["safetensors", "huggingface"])
@pytest.mark.parametrize("characters", ["A\\", '0"', "'\"\n", "\u2028😀"])
def test_the_code_and_the_settings_of_a_card_can_be_read_for_any_vocabulary_and_folder(workplace, form, characters):
    (workplace / "odd.txt").write_text(characters * 200, encoding="utf-8", newline="")
    train_tiny(workplace, *GPT2, "data.corpus=odd.txt", f"data.characters={characters}", "train.max_steps=1")
    folder = workplace / 'it\'s a "model": \\'
    assert export(["--to", form, "--output", str(folder), "--license", "o'ther: #"]) == 0
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert yaml.safe_load(card.split("---\n")[1])["license"] == "o'ther: #"
    blocks = dict(re.findall(r"```(\w+)\n(.*?)\n```", card, re.DOTALL))
    assert yaml.safe_load(blocks["yaml"])["data"]["characters"] == characters
    if form == "huggingface":
        constants = [node.value for node in ast.walk(ast.parse(blocks["python"])) if isinstance(node, ast.Constant)]
        assert constants[0] == f"./{folder.name}" and max(characters) in constants
    else:
        assert shlex.split(blocks["bash"])[3] == f"./{folder.name}"


def test_the_model_card_does_not_give_a_loss_of_another_step(tmp_path):
    checkpoint, later, folder = load_model("runs/modern").checkpoint, tmp_path / "later", tmp_path / "given"
    checkpoint.progress.best_step -= 1
    save_checkpoint(checkpoint, later)
    assert export(["--checkpoint", str(later), "--to", "safetensors", "--output", str(folder)]) == 0
    card = (folder / "README.md").read_text()
    assert "not measured" in card and f"{checkpoint.progress.best_loss:.4f}" not in card


def test_an_existing_folder_is_not_overwritten_and_half_is_for_one_format(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert_mistake(capsys, export, ["--to", "safetensors", "--output", str(tmp_path)], "name a new folder")
    half = ["--to", "huggingface", "--half", "--output", str(tmp_path / "x")]
    assert_mistake(capsys, export, half, "--half is for --to safetensors")
