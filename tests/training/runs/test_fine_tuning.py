import shutil
from pathlib import Path

import pytest
import torch
import yaml
from conftest import TINY_TEXT
from helpers import assert_mistake, assert_same_state, metrics, resume, train_run

import train
from experiments.sweep.__main__ import main as sweep
from training.runs.checkpoint import load_checkpoint
from training.runs.run_folder import RunFolder
from training.trained_model import load_model

ODD = "~\x85\u2028'\"#:%&*!|>\ufeff😀\t \n"
NEW_TEXT = "Ünder the wall, 9 cats & dogs; 'quoted' \"twice\" #1 ~\t\u2028😀\n" * 30
KEEP = ["train.keep_checkpoints=3", "train.dtype=float32"]
FROM_OLD = ["--config", "tiny.yaml", "train.ancestor=runs/old", "data.corpus=new.txt"]


@pytest.fixture
def ancestor(workplace):
    """Return the folder of a trained run, beside a text with other characters."""
    (workplace / "new.txt").write_text(NEW_TEXT, encoding="utf-8")
    return train_run("old", "train.dtype=float32").path


def descend(name, *settings, status=0):
    start = ["train.ancestor=runs/old", "data.corpus=new.txt", "train.dtype=float32"]
    return train_run(name, *start, *settings, status=status)


def test_the_run_starts_with_the_ancestors_predictions_and_knows_new_characters(ancestor, capsys):
    assert train.main(["--config", "tiny.yaml", "--from", "runs/old", "data.corpus=new.txt", *KEEP]) == 0
    assert "Started from the weights of runs/old" in capsys.readouterr().out
    old, new = load_model(ancestor), load_model("runs/tiny/checkpoints/step-0.safetensors")
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


def test_a_fine_tuned_run_has_all_characters_and_can_be_fine_tuned_with_its_own_config_on_another_text(ancestor):
    known = set(TINY_TEXT)
    for name, text, config in (("second", "text.txt", "tiny.yaml"), ("third", "new.txt", "runs/second/config.yaml")):
        settings = [f"data.corpus={text}", f"train.name={name}", "train.max_steps=2"]
        more = ["data.characters=€ß"] if name == "second" else []
        assert train.main(["--config", config, "--from", str(ancestor), *settings, *more]) == 0
        known |= {*Path(text).read_text(encoding="utf-8"), *"€ß"}
        assert set(load_model(ancestor := f"runs/{name}").vocabulary.characters) == known


def test_rows_of_memories_are_kept_and_counts_of_ngrams_add_up_wherever_a_new_character_sorts(workplace):
    settings = ["model.ngrams=[2,3]", "model.longest_copy=3"]
    memory = train_run("memory", *settings)
    from_it = ["train.ancestor=runs/memory", *settings, "train.max_steps=6", *KEEP]
    texts = {"same": TINY_TEXT, "among": TINY_TEXT.replace("b", "!"), "last": TINY_TEXT.replace("b", "😀")}
    begun = {}
    for name, text in texts.items():
        (workplace / f"{name}.txt").write_text(text, encoding="utf-8")
        begun[name] = train_run(name, *from_it, f"data.corpus={name}.txt", "train.log_every_steps=1")
    paths = [memory.best, *(run.kept(0) for run in begun.values())]
    checkpoints = [load_checkpoint(path) for path in paths]
    old, same, among, last = (checkpoint.weights for checkpoint in checkpoints)
    known = checkpoints[0].vocabulary.characters
    for new, checkpoint in zip((same, among, last), checkpoints[1:], strict=True):
        assert torch.equal(new["memories.ngrams.rows.weight"], old["memories.ngrams.rows.weight"])
        followers = dict(zip(checkpoint.vocabulary.characters, new["memories.copies.followers.weight"], strict=True))
        assert torch.equal(
            torch.stack([followers.pop(each) for each in known]), old["memories.copies.followers.weight"]
        )
        for each in followers.values():  # of a new character
            torch.testing.assert_close(each, old["memories.copies.followers.weight"].mean(0))
    ratio = same["memories.ngrams.prior"] / old["memories.ngrams.prior"]  # rows of the ancestor keep their weights
    torch.testing.assert_close(same["memories.ngrams.counts"], (1 + ratio) * old["memories.ngrams.counts"])
    assert ratio != 1
    assert torch.equal(among["memories.ngrams.counts"], last["memories.ngrams.counts"])
    assert not torch.equal(among["memories.ngrams.counts"], same["memories.ngrams.counts"])
    records = [metrics(begun[name].path) for name in ("among", "last")]
    losses = [[record["train_loss"] for record in each if "train_loss" in record] for each in records]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_it_resumes_exactly_even_without_its_ancestor(ancestor):
    constant = ["optim.decay_fraction=0", "train.log_every_steps=5"]
    whole = descend("whole", *constant, "train.max_steps=30")
    parts = descend("parts", *constant, "train.max_steps=10")
    shutil.rmtree(ancestor)
    resume(parts, "train.max_steps=30")
    assert_same_state(whole.latest, parts.latest)


def test_a_run_that_ended_before_its_first_checkpoint_starts_from_its_ancestor_again(ancestor):
    whole, parts = (descend(name, "train.max_steps=10") for name in ("whole", "parts"))
    for file in (parts.latest, parts.best, parts.previous):
        file.unlink()
    parts.metrics.write_text("")
    resume(parts)
    assert_same_state(whole.latest, parts.latest)


def test_another_shape_is_an_error_that_lists_the_differences(ancestor, capsys):
    descend("new", "model.n_head=2", "model.mlp=gelu", "model.dropout=0", "model.ngrams=[2,3]", status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "model.n_head was 3 and is 2; model.mlp was relu2 and is gelu; model.ngrams was [] and is [2, 3]" in line
    assert "dropout" not in line
    assert [folder.name for folder in ancestor.parent.iterdir()] == ["old"]


def test_characters_that_are_special_in_yaml_survive(workplace):
    (workplace / "odd.txt").write_text((ODD + "abc") * 90, encoding="utf-8", newline="")
    (workplace / "plain.txt").write_text("abcab\n" * 100, encoding="utf-8")
    train_run("odd", "data.corpus=odd.txt", "train.max_steps=1")
    plain = train_run("plain", "train.ancestor=runs/odd", "data.corpus=plain.txt", "train.max_steps=1")
    assert set(load_model(plain.path).vocabulary.characters) == set(ODD + "abc")
    resume(plain, "train.max_steps=2")


def test_a_sweep_with_another_shape_than_its_ancestors_starts_nothing(ancestor, capsys):
    assert_mistake(capsys, sweep, [*FROM_OLD, "model.n_head=3,2"], "model.n_head was 3 and is 2")
    assert [folder.name for folder in ancestor.parent.iterdir()] == ["old"]


def test_a_sweep_of_runs_with_and_without_an_ancestor_resumes_and_grows(ancestor):
    arguments = ["--config", "tiny.yaml", "train.ancestor=null,runs/old", "data.corpus=new.txt", "train.name=both"]
    assert sweep([*arguments, "train.max_steps=2"]) == 0
    assert sweep(["--resume", "runs/both"]) == 0
    assert sweep([*arguments, "train.max_steps=2", "train.seed=0,1"]) == 0
    assert {folder.name for folder in ancestor.parent.iterdir() if folder.is_dir()} == {"old", "both"}


def test_the_ancestor_of_a_run_cannot_change(ancestor, capsys):
    resume(RunFolder(ancestor), "train.ancestor=runs/other", status=2)
    assert "train.ancestor was null and is runs/other" in capsys.readouterr().err
