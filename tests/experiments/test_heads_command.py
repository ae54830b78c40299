"""The command that measures the heads of a checkpoint."""

import csv
import re
from pathlib import Path

import pytest
import torch
from helpers import assert_mistake, models_in

import train
from experiments.heads.__main__ import main as heads_command
from training.runs.checkpoint import load_checkpoint

HEADS = [f"L{layer}H{h}" for layer in (0, 1) for h in (0, 1, 2)]


def figures_in(table):
    return list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))


def test_page_and_table_are_written_to_the_run_folder_and_the_heads_are_listed(run, capsys):
    assert heads_command([]) == 0
    said = capsys.readouterr().out
    weights, best = load_checkpoint(run.best).weights, load_checkpoint(run.best).progress.best_loss
    assert f"Loss {best:.4f} over all 203 characters of the validation split" in said
    assert said.endswith("All figures: runs/tiny/heads.csv\nPage to open in a browser: runs/tiny/heads.html\n")
    assert "nan" not in said
    heading, *lines = [re.split("  +", line) for line in said.splitlines() if line[:4] in ("head", *HEADS)]
    assert heading[:5] == ["head", "role", "loss increase", "standard error", "scale"]
    scales = torch.cat([weights[name].exp() for name in sorted(weights) if name.endswith("log_scale")]).tolist()
    listed = {head: float(scale) for head, _, _, _, scale, *_ in lines}
    assert listed == pytest.approx(dict(zip(HEADS, scales, strict=True)), abs=0.051)
    table = figures_in(run.path / "heads.csv")
    assert [f"L{row['layer']}H{row['head']}" for row in table] == HEADS
    assert [float(row["scale"]) for row in table] == pytest.approx(scales)
    assert {row["on speaker name"] for row in table} == {""}  # no character has this target
    page = (run.path / "heads.html").read_text(encoding="utf-8")
    assert "<title data-own>Heads of tiny</title>" in page
    (model,) = models_in(run.path / "heads.html")
    measured = model["header"]["measured"]
    assert measured["summary"].startswith("Measured over 180 characters of the validation split.")
    assert [role for role, _ in measured["roles"]] == [row["role"] for row in table]
    roles = {head: role for head, role, *_ in lines}
    assert "no fixed target" in roles.values()
    assert [roles[head] for head in HEADS] == [row["role"] for row in table]
    shown = {head: change for head, (change, _) in measured["changes"].items()}
    assert shown == {head: change for head, _, change, *_ in lines}
    rounded = [float(shown[head].replace("\N{MINUS SIGN}", "-")) for head in HEADS]
    increases = [float(row["loss increase"]) for row in table]
    assert rounded == pytest.approx(increases, abs=5.1e-5)
    ranked = sorted(zip(increases, HEADS, strict=True), reverse=True)
    assert [head for head, *_ in lines] == [head for _, head in ranked]
    assert f"a loss of {best:.4f} nats per character over all 203 characters" in measured["summary"]
    assert "http" not in page.replace("http://www.w3.org/", "").replace("http-equiv", "")


def test_the_page_opens_in_a_browser_after_it_is_written_unless_the_user_wants_none(run, monkeypatch):
    page, opened = run.path / "heads.html", []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append((address, page.exists())))
    assert heads_command(["--no-browser"]) == 0
    assert opened == []
    assert heads_command([]) == 0
    assert opened == [(page.as_uri(), True)]


def test_two_models_with_different_heads_are_shown_on_the_same_text(run, workplace, capsys):
    settings = ["train.name=one", "model.n_head=1", "model.qk_norm=false", "train.max_steps=10"]
    assert train.main(["--config", "tiny.yaml", *settings]) == 0
    capsys.readouterr()
    assert heads_command(["--checkpoint", "runs/tiny", "runs/one", "--prompt", "bottles of b"]) == 0
    said = capsys.readouterr().out
    assert sum(line.startswith(("L0", "L1")) for line in said.splitlines()) == 6 + 2
    assert "open in a browser: heads.html" in said
    assert "<title data-own>Heads of tiny and one</title>" in (workplace / "heads.html").read_text(encoding="utf-8")
    first, second = models_in(workplace / "heads.html")
    assert first["opening"] == "bottles of b"
    assert [[*each["header"]["measured"]["changes"]] for each in (first, second)] == [HEADS, ["L0H0", "L1H0"]]
    assert [first["name"], second["name"]] == ["tiny", "one"]
    scales = [row["scale"] != "" for row in figures_in(workplace / "heads.csv")]
    assert scales == [True] * 6 + [False] * 2  # a model without normalised queries has no scales


def test_the_page_says_what_memories_do_for_the_loss(workplace):
    settings = ["model.ngrams=[2]", "model.ngram_rows=50", "model.longest_copy=4", "model.conv_width=3"]
    settings += ["train.max_steps=10"]
    assert train.main(["--config", "tiny.yaml", *settings]) == 0
    assert heads_command([]) == 0
    (model,) = models_in(workplace / "runs/tiny/heads.html")
    measured = model["header"]["measured"]
    assert list(measured["changes"]) == [*HEADS, "n-grams", "copies"]
    ngrams, copies = (f" The memory of {name}: {measured['changes'][name][1]}." for name in ("n-grams", "copies"))
    assert measured["summary"].endswith(ngrams + copies)
    assert len(figures_in(workplace / "runs/tiny/heads.csv")) == 6


def test_a_table_of_the_user_is_not_replaced(run, capsys):
    for _ in range(2):
        assert heads_command([]) == 0
    (run.path / "heads.csv").write_text("head,mine\n")
    assert_mistake(capsys, heads_command, [], "heads.csv was not written by an experiment, so it is not replaced")
    assert_mistake(capsys, heads_command, ["--output", "a" * 300], "File name too long")


def test_another_text_is_named_has_no_validation_loss_and_must_fill_a_window(run, capsys):
    text = (run.path.parents[1] / "text.txt").read_text()
    Path("own.txt").write_text(text[:300])
    Path("short.txt").write_text(text[:10])
    assert heads_command(["--text", "own.txt"]) == 0
    (loss,) = re.findall(
        r"^Loss (.*) over all 299 characters of own.txt, context length 16\.$", capsys.readouterr().out, re.M
    )
    (model,) = models_in(run.path / "heads.html")
    summary = model["header"]["measured"]["summary"]
    assert f"has a loss of {loss} nats per character over all 299 characters of own.txt" in summary
    assert heads_command(["--text", "short.txt"]) == 2
    assert "short.txt has 10 characters; give at least 16, the context length\n" in capsys.readouterr().err
