"""Runs that start from the weights of another model."""

import shutil
from pathlib import Path

import pytest
import torch
import yaml
from conftest import TINY_TEXT
from helpers import assert_same_state

import train
from experiments.export.__main__ import main as export
from experiments.report.__main__ import main as report
from experiments.sweep.__main__ import main as sweep
from training.runs.checkpoint import load_checkpoint
from training.runs.run_folder import RunFolder
from training.trained_model import load_model

ODD = "~\x85\u2028'\"#:%&*!|>\ufeff😀\t \n"
NEW_TEXT = "Ünder the wall, 9 cats & dogs; 'quoted' \"twice\" #1 ~\t\u2028😀\n" * 30
MEMORIES = ["memory/checkpoints/best.safetensors", "tex/checkpoints/step-0.safetensors"]
MEMORIES += ["new/checkpoints/step-0.safetensors"]
OPTIONS = ["--config", "tiny.yaml", "train.dtype=float32"]


@pytest.fixture
def ancestor(workplace):
    """Return the folder of a trained run, beside a text with other characters."""
    (workplace / "new.txt").write_text(NEW_TEXT, encoding="utf-8")
    assert train.main([*OPTIONS, "train.name=old"]) == 0
    return workplace / "runs/old"


def descend(*arguments, status=0):
    assert train.main([*OPTIONS, "--from", "runs/old", "data.corpus=new.txt", *arguments]) == status


def test_the_run_starts_with_the_ancestors_predictions_and_knows_new_characters(ancestor, capsys):
    descend("train.name=new", "train.keep_checkpoints=3")
    assert "Started from the weights of runs/old" in capsys.readouterr().out
    old, new = load_model(ancestor), load_model("runs/new/checkpoints/step-0.safetensors")
    assert set(new.vocabulary.characters) == set(NEW_TEXT + TINY_TEXT)
    text = TINY_TEXT[:17]
    logits = [each.model(torch.tensor(each.vocabulary.encode(text[:-1]))[None].long())[0] for each in (old, new)]
    known = torch.tensor(new.vocabulary.encode(old.vocabulary.characters)).long()
    torch.testing.assert_close(logits[1][:, known], logits[0])
    unknown = [i for i in range(len(new.vocabulary)) if i not in known]
    capped = 15 * torch.tanh(torch.atanh(logits[0] / 15).mean(1))  # the mean of the logits before the soft cap
    for i in unknown:
        torch.testing.assert_close(logits[1][:, i], capped)
    assert yaml.safe_load((RunFolder(new.run_folder).config).read_text())["train"]["ancestor"] == "runs/old"


def test_rows_of_ngrams_are_kept_and_their_counts_add_up_unless_the_characters_have_other_ids(ancestor):
    ngrams, keep = "model.ngrams=[2,3]", "train.keep_checkpoints=3"
    assert train.main([*OPTIONS, "train.name=memory", ngrams]) == 0
    for text in ("text.txt", "new.txt"):
        start = ["--from", "runs/memory", f"data.corpus={text}", f"train.name={text[:3]}", ngrams, keep]
        assert train.main([*OPTIONS, *start]) == 0
    old, same, other = (load_checkpoint(Path("runs") / path).weights for path in MEMORIES)
    torch.testing.assert_close(same["ngrams.rows.weight"], old["ngrams.rows.weight"], rtol=0, atol=0)
    torch.testing.assert_close(same["ngrams.counts"], 2 * old["ngrams.counts"])
    assert not other["ngrams.rows.weight"].any() and other["ngrams.counts"].any()


def test_it_resumes_exactly_even_without_its_ancestor(ancestor):
    constant = ["optim.decay_fraction=0", "train.log_every_steps=5"]
    descend(*constant, "train.name=whole", "train.max_steps=30")
    descend(*constant, "train.name=parts", "train.max_steps=10")
    shutil.rmtree(ancestor)
    assert train.main(["--resume", "runs/parts", "train.max_steps=30"]) == 0
    assert_same_state(
        Path("runs/whole/checkpoints/latest.safetensors"), Path("runs/parts/checkpoints/latest.safetensors")
    )


def test_a_run_that_ended_before_its_first_checkpoint_starts_from_its_ancestor_again(ancestor):
    descend("train.name=whole", "train.max_steps=10")
    descend("train.name=parts", "train.max_steps=10")
    parts = RunFolder(ancestor.parent / "parts")
    for file in (parts.latest, parts.best, parts.previous):
        file.unlink()
    parts.metrics.write_text("")
    assert train.main(["--resume", "runs/parts"]) == 0
    assert_same_state(RunFolder(ancestor.parent / "whole").latest, parts.latest)


def test_another_shape_is_an_error_that_lists_the_differences(ancestor, capsys):
    descend("model.n_head=2", "model.mlp=gelu", "model.dropout=0", "train.name=new", status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "model.n_head was 3 and is 2; model.mlp was relu2 and is gelu" in line
    assert "dropout" not in line
    descend("data.level=byte", status=2)
    assert "data.level was character and is byte" in capsys.readouterr().err
    assert [folder.name for folder in ancestor.parent.iterdir()] == ["old"]


def test_characters_that_are_special_in_yaml_survive(workplace, capsys):
    (workplace / "odd.txt").write_text((ODD + "abc") * 90, encoding="utf-8", newline="")
    (workplace / "plain.txt").write_text("abcab\n" * 100, encoding="utf-8")
    assert train.main([*OPTIONS, "data.corpus=odd.txt", "train.max_steps=1", "train.name=odd"]) == 0
    descend_from = ["--from", "runs/odd", "data.corpus=plain.txt", "train.max_steps=1", "train.name=plain"]
    assert train.main([*OPTIONS, *descend_from]) == 0
    assert set(load_model("runs/plain").vocabulary.characters) == set(ODD + "abc")
    assert train.main(["--resume", "runs/plain", "train.max_steps=2"]) == 0


@pytest.mark.parametrize(("path", "message"), [("", "the folder has no"), ("runs/none", "no such run or checkpoint")])
def test_an_ancestor_that_does_not_exist_is_an_error_before_anything_is_written(workplace, capsys, path, message):
    assert train.main([*OPTIONS, "--from", path]) == 2
    assert message in capsys.readouterr().err
    assert not (workplace / "runs").exists()


def test_a_sweep_with_another_shape_than_its_ancestors_starts_nothing(ancestor, capsys):
    assert sweep([*OPTIONS, "train.ancestor=runs/old", "data.corpus=new.txt", "model.n_head=3,2"]) == 2
    assert "model.n_head was 3 and is 2" in capsys.readouterr().err
    assert [folder.name for folder in ancestor.parent.iterdir()] == ["old"]


def test_the_ancestor_of_a_run_cannot_change(ancestor, capsys):
    assert train.main(["--resume", "runs/old", "train.ancestor=runs/other"]) == 2
    assert "train.ancestor was None and is runs/other" in capsys.readouterr().err


def test_an_exported_model_can_be_the_ancestor(ancestor):
    assert export(["--checkpoint", str(ancestor), "--to", "safetensors", "--output", "given"]) == 0
    descend("train.name=run", "train.max_steps=5")
    assert train.main([*OPTIONS, "--from", "given", "data.corpus=new.txt", "train.name=file", "train.max_steps=5"]) == 0
    a, b = (load_checkpoint(RunFolder(ancestor.parent / name).latest) for name in ("run", "file"))
    assert all(torch.equal(x, b.weights[name]) for name, x in a.weights.items())


@pytest.mark.slow
def test_every_run_of_a_sweep_starts_from_it_and_the_report_says_so(ancestor):
    settings = ["train.ancestor=runs/old", "data.corpus=new.txt", "train.max_steps=4", "train.eval_every_steps=2"]
    assert sweep([*OPTIONS, *settings, "train.name=sweep", "train.seed=0,1"]) == 0
    page = (ancestor.parent / "sweep/report.md").read_text()
    assert "All runs started from the weights of runs/old." in page
    assert report(["runs/sweep"]) == 0
