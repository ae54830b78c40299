"""The command that analyses the heads of a checkpoint, and the commands that use a pruned model."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, run_script, train_tiny, write_tiny
from helpers import metrics

import train
from experiments.heads.__main__ import main as heads_command
from training.runs.checkpoint import load_checkpoint
from training.runs.run_folder import RunFolder

HEADS = [f"L{layer}H{h}" for layer in (0, 1) for h in (0, 1, 2)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    train_tiny(folder, "optim.average_fraction=0.1")
    return folder


@pytest.fixture
def run(trained, workplace):
    """Return a copy of the trained run, which a test may change."""
    shutil.copytree(trained, workplace, dirs_exist_ok=True)
    return RunFolder(workplace / "runs" / "tiny")


def test_the_page_is_written_to_the_run_folder_and_the_heads_are_listed(run, capsys):
    assert heads_command(["--windows", "3"]) == 0
    said = capsys.readouterr().out
    best = load_checkpoint(run.best).progress["best_loss"]
    assert f"Validation loss {best:.4f} over 203 characters" in said
    assert "open in a browser: runs/tiny/heads.html" in said
    assert "nan" not in said
    assert "uniform" in said
    assert sum(line.startswith("L") for line in said.splitlines()) == 6
    page = (run.path / "heads.html").read_text(encoding="utf-8")
    assert page.count('<button class="head">') == 6
    assert "http" not in page.replace("http://www.w3.org/", "")


def test_the_learned_scale_of_each_head_is_in_the_page_and_the_list(run, capsys):
    weights = load_checkpoint(run.best).model
    scales = torch.cat([weights[name].exp() for name in sorted(weights) if name.endswith("log_scale")]).tolist()
    assert heads_command(["--windows", "1"]) == 0
    heading, *lines = [line.split() for line in capsys.readouterr().out.splitlines() if line[:4] in ("head", *HEADS)]
    assert heading[3] == "scale"
    listed = {head: float(scale) for head, _, scale, *_ in lines}
    assert listed == pytest.approx(dict(zip(HEADS, scales, strict=True)), abs=0.051)
    page = (run.path / "heads.html").read_text(encoding="utf-8")
    shown = re.findall(r"<tr><td>(L\dH\d)</td><td>.*?</td><td>.*?</td><td>(.*?)</td>", page)
    assert {head: float(scale) for head, scale in shown} == listed


def test_two_models_with_different_heads_are_shown_on_the_same_text(run, workplace, capsys):
    assert train.main(["--config", "tiny.yaml", "train.name=one", "model.n_head=1", "train.max_steps=10"]) == 0
    capsys.readouterr()
    assert heads_command(["--checkpoint", "runs/tiny", "runs/one", "--text", "bottles of b", "--windows", "2"]) == 0
    said = capsys.readouterr().out
    assert sum(line.startswith("L") for line in said.splitlines()) == 6 + 2
    assert "open in a browser: heads.html" in said
    page = (workplace / "heads.html").read_text(encoding="utf-8")
    assert page.count('<div class="viewer">') == 2
    assert page.count('<button class="head">') == 6 + 2
    assert all(f"{name}/checkpoints/best.pt" in page for name in ("tiny", "one"))


def test_a_model_can_be_compared_with_itself(run, workplace):
    assert heads_command(["--checkpoint", "runs/tiny", "runs/tiny/checkpoints/best.pt", "--windows", "1"]) == 0
    assert "Model A" in (workplace / "heads.html").read_text(encoding="utf-8")


def test_a_pruned_model_of_kept_weights_can_be_trained_further(workplace):
    assert train.main(["--config", "tiny.yaml", "train.keep_checkpoints=3", "train.max_steps=20"]) == 0
    assert heads_command(["--checkpoint", "runs/tiny/checkpoints/step-1.pt", "--prune", "1", "--windows", "1"]) == 0
    assert train.main(["--resume", "runs/tiny-pruned-1", "train.max_steps=30"]) == 0
    assert load_checkpoint(RunFolder(workplace / "runs" / "tiny-pruned-1").latest).step == 30


def test_a_model_without_normalised_queries_has_no_scales_to_show(workplace, capsys):
    assert train.main(["--config", "tiny.yaml", "model.qk_norm=false"]) == 0
    assert heads_command(["--windows", "1"]) == 0
    assert "scale" not in capsys.readouterr().out
    assert ">scale<" not in (workplace / "runs" / "tiny" / "heads.html").read_text(encoding="utf-8")


def test_a_pruned_model_can_be_sampled_from_and_trained_further(run, workplace, capsys):
    step = load_checkpoint(run.best).step
    assert heads_command(["--windows", "2", "--prune", "3"]) == 0
    said = capsys.readouterr().out
    assert "runs/tiny-pruned-3" in said
    assert f"train.max_steps={step + 100}" in said
    pruned = RunFolder(workplace / "runs" / "tiny-pruned-3")
    before, after = load_checkpoint(run.best), load_checkpoint(pruned.best)
    assert sum(after.config().model.n_head) == 3
    assert sum(v.numel() for v in after.model.values()) < sum(v.numel() for v in before.model.values())
    sampled = run_script("sample.py", "--checkpoint", pruned.path, "--length", "20")
    assert sampled.returncode == 0, sampled.stderr
    assert train.main(["--resume", str(pruned.path), f"train.max_steps={step + 100}"]) == 0
    trained = load_checkpoint(pruned.best)
    assert trained.progress["best_loss"] < after.progress["best_loss"]
    assert trained.config().model == after.config().model


@pytest.mark.parametrize(("setting", "extent"), [("100", "112 evenly spread ones of the 203"), ("null", "all 203")])
def test_pruning_says_for_which_characters_the_loss_is(workplace, capsys, setting, extent):
    assert train.main(["--config", "tiny.yaml", f"train.eval_characters={setting}", "train.max_steps=20"]) == 0
    assert heads_command(["--windows", "1", "--prune", "1"]) == 0
    (pruned,) = (record for record in metrics(workplace / "runs" / "tiny-pruned-1") if "val_loss" in record)
    assert f"{pruned['val_loss']:.4f} over {extent} characters of the validation split" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "nowhere"], "nowhere: no such run or checkpoint"),
        (["--text", ""], "the text has 0 characters; give 2 to 16"),
        (["--text", "9"], "the text has 1 characters; give 2 to 16"),
        (["--text", "9" * 17], "the text has 17 characters; give 2 to 16"),
        (["--text", "99 Bottles"], "the text, character 4: 'B' (U+0042) is not in the vocabulary of runs/tiny"),
        (["--prune", "5"], "--prune 5: give 1 to 4 heads"),
        (["--prune", "0"], "--prune: 0 must be a whole number, at least 1"),
        (["--checkpoint", "runs/tiny", "runs/tiny", "--prune", "1"], "--prune takes one model"),
        (["--checkpoint", *["runs/tiny"] * 3], "--checkpoint takes one model or two"),
        (["--over-time", "runs/tiny", "--text", "bottle"], "--over-time takes a run and goes without"),
        (["--windows", "0"], "--windows: 0 must be a whole number, at least 1"),
        (["--output", "."], "--output: . must be the name of a file"),
        (["--device", "cuda:99"], "cuda:99"),
    ],
)
def test_mistakes_produce_a_one_line_error_before_any_work(run, capsys, arguments, message):
    capsys.readouterr()
    try:
        status = heads_command(arguments)
    except SystemExit as error:
        status = error.code
    said = capsys.readouterr()
    assert (status, said.out, said.err.count("\n")) == (2, "", 1)
    assert message in said.err


def test_a_text_that_the_model_was_not_trained_on_is_an_error(run, workplace, capsys):
    text = workplace / "text.txt"
    text.write_text(text.read_text() * 2)
    assert heads_command([]) == 2
    assert "is not the one that" in capsys.readouterr().err


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory):
    """Return a folder with a run of bytes, whose validation split begins inside a character, and one of characters."""
    folder = tmp_path_factory.mktemp("bytes")
    write_tiny(folder)
    text = "99 naïve bottles of bière;\n" * 40 + "é" * 60 + "\x01\t" * 20
    (folder / "text.txt").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        size = len(text.encode())
        split = f"data.split=[{size - 159},159,0]"  # 119 of the 120 bytes of é, and those that follow
        for settings in (["data.level=byte", "train.name=bytes", split], ["train.name=characters"]):
            assert train.main(["--config", "tiny.yaml", "train.max_steps=5", *settings]) == 0
    return folder


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        ([], r"\xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3"),
        (["--text", "naïve\x01\n"], r"n a \xC3 \xAF v e \x01 ⏎"),
        (["--text", "naïve".encode("latin-1").decode("utf-8", "surrogateescape")], r"n a \xEF v e"),
    ],
)
def test_the_page_of_a_model_of_bytes_has_one_label_for_each_row_of_its_maps(of_bytes, monkeypatch, arguments, labels):
    monkeypatch.chdir(of_bytes)
    assert heads_command(["--checkpoint", "runs/bytes", "--windows", "1", *arguments]) == 0
    page = (of_bytes / "runs/bytes/heads.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" class="data">(.*?)</script>', page)
    data = json.loads(data)
    T = len(data["shown"])
    assert data["shown"] == labels.split()
    assert re.findall(r"<span(?: class=\"blank\")?>(.*?)</span>", page)[:T] == labels.split()
    n_weights = len(base64.b64decode(data["weights"])) // 2
    assert n_weights == len(data["heads"]) * T * (T + 1) // 2  # the lower triangles of T rows


def test_models_of_bytes_and_of_characters_are_shown_on_the_same_text_if_it_is_in_ascii(of_bytes, monkeypatch, capsys):
    monkeypatch.chdir(of_bytes)
    both = ["--checkpoint", "runs/bytes", "runs/characters", "--windows", "1", "--text"]
    assert heads_command([*both, "99 bottles"]) == 0
    capsys.readouterr()
    assert heads_command([*both, "naïve"]) == 2
    assert capsys.readouterr().err.endswith("divide this text differently; give a --text in ASCII\n")


@pytest.mark.slow
def test_the_page_is_written_even_if_the_output_pipe_is_closed(run, workplace):
    command = f"{sys.executable} -m experiments.heads --windows 2 | true; exit ${{PIPESTATUS[0]}}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    finished = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=100)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert (run.path / "heads.html").is_file()
