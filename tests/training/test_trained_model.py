"""Use of a trained model from Python, against the commands and the definitions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT

import sample
from cli.errors import UserError
from training.config_file import load_config
from training.evaluation import evaluate
from training.runs.checkpoint import load_checkpoint, save_checkpoint
from training.runs.find_checkpoint import BUNDLED_MODEL
from training.trained_model import load_model

TEXT = "99 bottles of beer on the wall, 98 bottles"


@pytest.fixture
def model(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return load_model("runs/tiny", "cpu")


def test_generated_text_is_that_of_the_command(model, capsys):
    assert sample.main(["--prompt", "beer", "--length", "50", "--seed", "3", "--top-p", "0.9"]) == 0
    assert model.generate("beer", 50, seed=3, top_p=0.9) + "\n" == capsys.readouterr().out


def test_log_probabilities_are_those_of_each_window_alone(model):
    found, ids = model.log_probabilities(TEXT), torch.tensor(model.vocabulary.encode(TEXT)).long()
    expected, block_size = [], 16
    for start in range(0, len(ids) - 1, block_size):
        window = ids[start : start + block_size + 1]
        logits = model.model(window[None, :-1])[0].double()
        expected += [F.log_softmax(row, dim=0)[i].item() for row, i in zip(logits, window[1:], strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(found) == len(TEXT) - 1
    assert model.log_probabilities("").shape == model.log_probabilities("b").shape == (0,)


@pytest.mark.parametrize("text", ["beer X", "b" * 17, "b"])
def test_a_text_that_does_not_fit_is_the_users_mistake(model, text):
    with pytest.raises(UserError):
        model.attention_weights(text)


def test_the_bundled_model_is_small_and_has_the_recipe_and_the_loss_of_its_page():
    bundled = load_model(BUNDLED_MODEL, "cpu")
    assert BUNDLED_MODEL.stat().st_size < 2_000_000
    assert {x.dtype for x in bundled.checkpoint.tensors.values()} == {torch.float16}
    config = bundled.checkpoint.config
    shape = ["model.n_layer=3", "model.n_embd=128", "model.block_size=128", "optim.lr=1.2e-2"]
    recipe = load_config(ROOT / "configs/page.yaml", shape)
    assert (config.model, config.data, config.optim) == (recipe.model, recipe.data, recipe.optim)
    loss = evaluate(bundled.model, bundled.split("validation"), bundled.runtime).loss
    assert loss == pytest.approx(bundled.checkpoint.progress.best_loss, abs=5e-4)  # measured before it was rounded
    assert f"**{bundled.checkpoint.progress.best_loss:.3f}**" in (ROOT / "data/README.md").read_text(encoding="utf-8")


def test_a_checkpoint_is_in_its_run_wherever_it_is_named_from(run, monkeypatch):
    monkeypatch.chdir(run.checkpoints)
    assert load_model("latest.safetensors", "cpu").run_folder == run.path.absolute()


@pytest.mark.parametrize("corpus", ["text.txt", "*.txt", "gone.txt", "shakespeare", "selmere"])
def test_a_model_outside_of_a_run_folder_opens_no_text_that_it_names(run, corpus, capsys):
    checkpoint = load_checkpoint(run.latest)
    config = replace(checkpoint.config, data=replace(checkpoint.config.data, corpus=corpus))
    save_checkpoint(replace(checkpoint, config=config), Path("lone"))
    with pytest.raises(UserError, match=r"lone is not in a run folder, .*; add --text FILE"):
        load_model("lone", "cpu").split("validation")
    assert "Downloading" not in capsys.readouterr().err
    named = load_model("lone", "cpu", text=Path("text.txt"))
    assert named.vocabulary.decode(named.split()) == Path("text.txt").read_text()
