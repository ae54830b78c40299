"""Weights kept during a run."""

import torch
from helpers import resume, train_run

import sample
import train
from model.gpt import GPT
from training.runs.checkpoint import load_checkpoint
from training.runs.run_folder import RunFolder, kept_steps

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
    assert train.main(["--config", "tiny.yaml", KEEP, "optim.average_fraction=0.2", "train.seed=5"]) == 0
    run = RunFolder(workplace / "runs" / "tiny")
    kept = {step: load_checkpoint(path) for step, path in run.all_kept().items()}
    assert list(kept) == kept_steps(7, 40)
    assert all(checkpoint.step == step for step, checkpoint in kept.items())
    config = load_checkpoint(run.latest).config
    torch.manual_seed(5)
    fresh = GPT(config.model, len(kept[0].vocabulary)).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in kept[0].weights.items())
    last = load_checkpoint(run.latest).weights  # the averages, which are also evaluated
    assert all(torch.equal(value, last[name]) for name, value in kept[40].weights.items())
    assert all(name.startswith("model.") for name in kept[40].tensors)
    assert run.kept(40).stat().st_size < run.latest.stat().st_size
    assert sample.main(["--checkpoint", str(run.kept(1)), "--length", "5"]) == 0


def test_a_resumed_run_replaces_the_weights_that_it_kept_after_its_checkpoint(workplace):
    run = train_run("again", KEEP, "train.max_steps=20", "optim.decay_fraction=0")
    for step in (21, 40):
        run.kept(step).write_bytes(b"of an earlier session")
    resume(run, "train.max_steps=40")
    assert [*run.all_kept()] == [*kept_steps(7, 20), *(step for step in kept_steps(7, 40) if step > 20)]
    kept, last = load_checkpoint(run.kept(40)).weights, load_checkpoint(run.latest).weights
    assert all(torch.equal(value, last[name]) for name, value in kept.items())
