"""Weights kept during a run, and how its heads change over them."""

import numpy as np
import pytest
import torch
from conftest import run_script
from helpers import make_checkpoint

import train
from data.vocabulary import Vocabulary
from experiments.heads.analysis import analyse
from experiments.heads.history import HeadHistory, appearances, trace_heads
from experiments.heads.model_access import HeadIndex
from model.config import ModelConfig
from model.gpt import GPT
from training.runs.checkpoint import load_checkpoint, save_checkpoint
from training.runs.run_folder import RunFolder, kept_steps
from training.runtime import choose_runtime
from training.trained_model import load_model

KEEP = "train.keep_checkpoints=7"


def test_kept_steps_begin_with_0_and_1_end_with_the_last_and_grow_by_a_fixed_factor():
    assert kept_steps(0, 100) == []
    assert kept_steps(8, 10**6) == [0, 1, 10, 100, 1000, 10**4, 10**5, 10**6]
    assert kept_steps(9, 2200)[:4] == [0, 1, 3, 9]
    for n in range(3, 50):
        for max_steps in range(1, 200):
            steps = kept_steps(n, max_steps)
            assert steps == sorted(set(steps))
            assert (len(steps), steps[0], steps[-1]) == (min(n, max_steps + 1), 0, max_steps)


def test_a_run_keeps_its_first_weights_and_its_last(workplace):
    assert train.main(["--config", "tiny.yaml", KEEP, "optim.average_fraction=0.2"]) == 0
    run = RunFolder(workplace / "runs" / "tiny")
    kept = {step: load_checkpoint(path) for step, path in run.all_kept().items()}
    assert list(kept) == kept_steps(7, 40)
    assert all(checkpoint.step == step for step, checkpoint in kept.items())
    config = load_checkpoint(run.latest).config
    torch.manual_seed(config.train.seed)
    fresh = GPT(config.model, len(kept[0].vocabulary)).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in kept[0].weights.items())
    last = load_checkpoint(run.latest).weights  # the averages, which are also evaluated
    assert all(torch.equal(value, last[name]) for name, value in kept[40].weights.items())
    assert all(name.startswith("model.") for name in kept[40].tensors)
    assert run.kept(40).stat().st_size < run.latest.stat().st_size
    sampled = run_script("sample.py", "--checkpoint", run.kept(1), "--length", "5")
    assert sampled.returncode == 0, sampled.stderr


def test_a_resumed_run_replaces_the_weights_that_it_kept_after_its_checkpoint(workplace):
    settings = ["--config", "tiny.yaml", KEEP, "train.checkpoint_every_steps=20"]
    assert train.main([*settings, "train.name=whole"]) == 0
    assert train.main([*settings, "train.name=again"]) == 0
    whole, again = (RunFolder(workplace / "runs" / name) for name in ("whole", "again"))
    train.main([*settings, "train.name=half", "train.max_steps=20", "optim.decay_fraction=0", "optim.warmup_steps=0"])
    half = RunFolder(workplace / "runs" / "half")
    for file in (again.latest, again.best):
        save_checkpoint(load_checkpoint(half.latest), file)  # go back to step 20 of another run
    (again.latest.parent / "step-33.safetensors").write_bytes(b"of an earlier session")
    assert train.main(["--resume", str(again.path), "train.max_steps=40"]) == 0
    assert list(again.all_kept()) == kept_steps(7, 40)
    last = load_checkpoint(again.latest).weights
    assert all(torch.equal(value, last[name]) for name, value in load_checkpoint(again.kept(40)).weights.items())
    of_whole = load_checkpoint(whole.kept(40)).weights
    assert not all(torch.equal(value, of_whole[name]) for name, value in last.items())


def test_the_last_point_of_a_history_equals_the_analysis_of_the_last_checkpoint(workplace):
    assert train.main(["--config", "tiny.yaml", KEEP]) == 0
    run = RunFolder(workplace / "runs" / "tiny")
    opened = load_model(run.latest, "cpu")
    size = {"n_windows": 4, "n_characters": 100}  # 7 windows
    history = trace_heads(run.all_kept(), opened.split("validation"), opened.runtime, **size)
    analysis = analyse(opened.model, opened.checkpoint.vocabulary, opened.split("validation"), opened.runtime, **size)
    assert history.heads == analysis.heads
    assert (history.losses[-1], history.n_characters) == (analysis.loss, 112)
    last = {name: values[-1].tolist() for name, values in history.series.items()}
    figures = {name: values.tolist() for name, values in analysis.measures.figures.items()}
    assert {"on previous", "entropy, bits", "characters back", "scale"} <= last.keys()
    assert last == {name: values for name, values in figures.items() if not np.isnan(values).any()}
    assert history.losses[0] > history.losses[-1]


def test_a_head_that_is_planted_during_a_run_appears_in_its_history(tmp_path):
    """At step 0, all scores are 0, so weights are equal; at step 9, the head attends to the character before."""
    T, characters = 12, "abcdefghijkl"
    settings = {"n_layer": 1, "n_head": 1, "n_embd": T, "block_size": T}
    config = ModelConfig(**settings, positions="learned", qk_norm=False, norm="layer")
    model, files = GPT(config, T), {}
    for step in (0, 9):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
            model.position_embedding.weight.copy_(torch.eye(T))
            model.blocks[0].attention_norm.weight.fill_(1)
            model.blocks[0].attention.qkv.weight[:T] = step * 20 * torch.eye(T).roll(1, dims=1)
            model.blocks[0].attention.qkv.weight[T : 2 * T] = torch.eye(T)
        files[step] = tmp_path / f"{step}.safetensors"
        save_checkpoint(make_checkpoint(step, model=model, characters=characters), files[step])
    ids = Vocabulary(characters).encode(characters)
    history = trace_heads(files, ids, choose_runtime("cpu", "float32"), n_windows=1, n_characters=None)
    rows = range(2, T + 1)  # how many characters each row sees, the first left out
    series = {name: values[:, 0].tolist() for name, values in history.series.items()}
    assert series["on previous"] == pytest.approx([np.mean([1 / n for n in rows]), 1], abs=1e-4)
    assert series["characters back"] == pytest.approx([np.mean([(n - 1) / 2 for n in rows]), 1], abs=1e-4)
    assert series["entropy, bits"] == pytest.approx([np.mean(np.log2(rows)), 0], abs=1e-3)
    assert history.losses[0] == pytest.approx(np.log(T))
    assert "on same earlier" not in series  # no character of this text repeats


def test_a_head_has_formed_at_the_first_step_from_which_it_stays_above_half():
    previous = [0.1, 0.6, 0.2, 0.5, 0.9]  # half of 0.1 to 0.9 is 0.5
    series = {"on previous": np.array([[0.1, share] for share in previous]), "scale": np.full((5, 2), 9.0)}
    series["on line start"] = np.full((5, 2), 0.2)  # less than a head with equal weights has
    heads, steps = [HeadIndex(0, 0), HeadIndex(0, 1)], [0, 1, 4, 16, 64]
    uniform = {"on previous": 0.1, "on line start": 0.3, "on itself": np.nan}
    history = HeadHistory(heads, steps, [4.0] * 5, series, uniform, 9, 9)
    assert appearances(history) == [
        "Most weight on the character before: L0H1, 0.90 at step 64 (0.10 for a head with equal weights); half of the "
        "difference had formed by step 16."
    ]
