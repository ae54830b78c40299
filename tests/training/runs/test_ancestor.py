"""Runs that start from the weights of another model."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from conftest import TINY_TEXT
from helpers import assert_same_state

import train
from data.vocabulary import Vocabulary
from experiments.export.__main__ import main as export
from experiments.report.__main__ import main as report
from experiments.sweep.__main__ import main as sweep
from training.runs.ancestor import with_vocabulary
from training.runs.checkpoint import load_checkpoint
from training.runs.run_folder import RunFolder
from training.trained_model import load_model

ODD = "~\x85\u2028'\"#:%&*!|>\ufeff😀\t \n"
NEW_TEXT = "Ünder the wall, 9 cats & dogs; 'quoted' \"twice\" #1 ~\t\u2028😀\n" * 30
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
    old, new = load_model(ancestor), load_model("runs/new/checkpoints/step-0.pt")
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


def test_it_resumes_exactly_even_without_its_ancestor(ancestor):
    constant = ["optim.decay_fraction=0", "train.log_every_steps=5"]
    descend(*constant, "train.name=whole", "train.max_steps=30")
    descend(*constant, "train.name=parts", "train.max_steps=10")
    shutil.rmtree(ancestor)
    assert train.main(["--resume", "runs/parts", "train.max_steps=30", "train.name=whole"]) == 0
    assert_same_state(Path("runs/whole/checkpoints/latest.pt"), Path("runs/parts/checkpoints/latest.pt"))


def test_a_run_that_ended_before_its_first_checkpoint_starts_from_its_ancestor_again(ancestor):
    descend("train.name=whole", "train.max_steps=10")
    descend("train.name=parts", "train.max_steps=10")
    for file in ("latest.pt", "best.pt", "previous.pt"):
        (ancestor.parent / "parts/checkpoints" / file).unlink(missing_ok=True)
    (ancestor.parent / "parts/has-saved.txt").unlink()
    (ancestor.parent / "parts/metrics.jsonl").write_text("")
    assert train.main(["--resume", "runs/parts", "train.name=whole"]) == 0
    assert_same_state(Path("runs/whole/checkpoints/latest.pt"), Path("runs/parts/checkpoints/latest.pt"))


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


@pytest.mark.parametrize("path", ["", "null", "runs/none"])
def test_an_ancestor_that_does_not_exist_is_an_error_before_anything_is_written(workplace, capsys, path):
    with pytest.raises(SystemExit, match="2"):
        train.main([*OPTIONS, "--from", path])
    assert "no such file or folder" in capsys.readouterr().err
    assert not (workplace / "runs").exists()


def test_a_sweep_with_another_shape_than_its_ancestors_starts_nothing(ancestor, capsys):
    assert sweep([*OPTIONS, "train.ancestor=runs/old", "data.corpus=new.txt", "model.n_head=3,2"]) == 2
    assert "model.n_head was 3 and is 2" in capsys.readouterr().err
    assert [folder.name for folder in ancestor.parent.iterdir()] == ["old"]


def test_the_ancestor_of_a_run_cannot_change(ancestor, capsys):
    assert train.main(["--resume", "runs/old", "train.ancestor=runs/other"]) == 2
    assert "train.ancestor was None and is runs/other" in capsys.readouterr().err


def test_an_exported_model_can_be_the_ancestor(ancestor):
    pytest.importorskip("safetensors")
    assert export(["--checkpoint", str(ancestor), "--to", "safetensors", "--output", "given"]) == 0
    descend("train.name=run", "train.max_steps=5")
    assert train.main([*OPTIONS, "--from", "given", "data.corpus=new.txt", "train.name=file", "train.max_steps=5"]) == 0
    a, b = (load_checkpoint(RunFolder(ancestor.parent / name).latest) for name in ("run", "file"))
    assert all(torch.equal(a.model[name], b.model[name]) for name in a.model)


def test_every_run_of_a_sweep_starts_from_it_and_the_report_says_so(ancestor):
    settings = ["train.ancestor=runs/old", "data.corpus=new.txt", "train.max_steps=4", "train.eval_every_steps=2"]
    assert sweep([*OPTIONS, *settings, "train.name=sweep", "train.seed=0,1"]) == 0
    page = (ancestor.parent / "sweep/report.md").read_text()
    assert "All runs started from the weights of runs/old." in page
    assert report(["runs/sweep"]) == 0


def test_new_characters_have_the_mean_row():
    weights = {"token_embedding.weight": torch.tensor([[1.0], [3.0]]), "other": torch.ones(2)}
    weights["lm_head.weight"] = -weights["token_embedding.weight"]
    result = with_vocabulary(weights, Vocabulary("bd"), Vocabulary("abcd"))
    np.testing.assert_array_equal(result["token_embedding.weight"][:, 0], [2, 1, 2, 3])
    np.testing.assert_array_equal(result["lm_head.weight"][:, 0], [-2, -1, -2, -3])
    assert result["other"] is weights["other"]
