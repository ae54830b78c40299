import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from conftest import ROOT, TINY_TEXT
from helpers import losses, make_state, metrics, resume, run_differences, train_run

import cli.startup
import sample
import train
from experiments.report.__main__ import main as report
from training.log.sentences import introduction
from training.runs.checkpoint import load_checkpoint
from training.runs.run_folder import RunFolder
from training.step import TrainingStep


def test_a_run_writes_its_settings_metrics_samples_and_checkpoints(workplace, capsys):
    run = train_run("tiny", "model.n_head=2").path
    settings = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert (settings["model"]["n_head"], settings["model"]["n_embd"], settings["optim"]["lr"]) == (2, 24, 0.003)

    records = metrics(run)
    assert all({"step", "elapsed_s"} <= record.keys() and record["corpus"] == "text.txt" for record in records)
    assert [r["step"] for r in records if "train_loss" in r] == [10, 20, 30, 40]
    assert all({"lr", "context", "tokens_per_s"} <= r.keys() for r in records if "train_loss" in r)
    evaluations = [r for r in records if "val_loss" in r]
    assert [r["step"] for r in evaluations] == [20, 40]
    assert {r["val_context"] for r in evaluations} == {16}
    assert {r["val_characters"] for r in evaluations} == {len(TINY_TEXT) - int(0.9 * len(TINY_TEXT))}
    times = [r["elapsed_s"] for r in records]
    assert times == sorted(times)
    assert evaluations[-1]["val_loss"] < 3.0  # the logarithm of the vocabulary size is 3.6

    latest, best = (load_checkpoint(run / "checkpoints" / f"{name}.safetensors") for name in ("latest", "best"))
    assert latest.step == 40
    assert best.progress.best_loss == min(r["val_loss"] for r in evaluations)
    assert (run / "samples.txt").read_text(encoding="utf-8").count("--- step") == 2

    output = capsys.readouterr().out
    assert re.search(r"Best validation loss [\d.]+ nats \([\d.]+ bits\) per character, context 16, at step \d+", output)
    assert f"--checkpoint {run}" in output


@pytest.mark.parametrize(
    ("settings", "n_passes", "advice"),
    [
        (["model.dropout=0"], "0.2", ""),
        (["train.batch_size=500"], "17.5", ""),
        (["train.batch_size=500", "model.dropout=0"], "17.5", "; or set model.dropout=0.2, and"),
    ],
)
def test_a_run_says_how_often_it_reads_its_text_and_warns_of_many_times(workplace, capsys, settings, n_passes, advice):
    train_run("tiny", "train.max_steps=4", *settings)  # of 16 characters each of the 1,825 for training
    printed = capsys.readouterr().out
    assert f"\n4 steps read the training text {n_passes} times\n" in printed
    assert ("Warning: " in printed) == bool(advice)
    assert advice in printed


def test_a_run_names_its_corpus_and_the_number_of_files(workplace, monkeypatch):
    monkeypatch.setenv("HOME", str(workplace))
    Path("data").mkdir()
    for name in ("a", "b"):
        Path(f"data/{name}.txt").write_text(f"{name} {TINY_TEXT}", encoding="utf-8")
    for corpus, n_files in {"~/data": "2 files", "data/*.txt": "2 files", "data/a.txt": "1 file"}.items():
        first, *_ = introduction(make_state(f"data.corpus={corpus}"), workplace, [])
        assert first.startswith(f"Corpus {corpus}: {n_files}, ")


def test_a_run_whose_validation_loss_has_risen_says_since_when(workplace, capsys):
    (workplace / "text.txt").write_text("".join(random.Random(0).choices("abcdefgh", k=300)), encoding="utf-8")
    run = train_run("tiny", "train.max_steps=80", "train.eval_every_steps=10", "optim.lr=0.02")
    found = losses(run.path, "val_loss")
    lowest = 10 * (found.index(min(found)) + 1)
    assert lowest <= 50
    last = capsys.readouterr().out.partition("Best validation loss ")[2]
    assert f"\nThe validation loss has not been lower since step {lowest}. If the training loss still falls, " in last


def test_the_same_seed_trains_the_same_model_and_no_run_overwrites_another(workplace):
    for seed in (0, 0, 1):
        train_run("tiny", f"train.seed={seed}")
    one, same, other = (RunFolder(Path("runs") / name) for name in ("tiny", "tiny-2", "tiny-3"))
    assert run_differences(one, same) == []
    assert losses(one.path, "train_loss")[0] != losses(other.path, "train_loss")[0]


def taking(seconds, function, now):
    def slow(*arguments, **options):
        now[0] += seconds
        return function(*arguments, **options)

    return slow


def test_times_contain_evaluations_but_the_speed_of_training_does_not(workplace, monkeypatch):
    """By the clock of this test, a step takes a second, and an evaluation a thousand."""
    now = [time.perf_counter()]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(TrainingStep, "run", taking(1, TrainingStep.run, now))
    monkeypatch.setattr(train, "evaluate", taking(1000, train.evaluate, now))
    run = train_run("tiny")
    assert losses(run.path, "tokens_per_s") == [5 * 16] * 4
    _, first, *others = losses(run.path, "elapsed_s")
    assert [s - first for s in others] == pytest.approx([10, 1010, 1020, 1030, 2030, 2030], abs=0.01)
    assert load_checkpoint(run.latest).progress.elapsed_s == pytest.approx(first + 2030, abs=0.01)


def test_a_run_stops_early_if_its_validation_loss_stops_falling(workplace, capsys):
    settings = ["train.max_steps=2000", "train.eval_every_steps=5", "train.patience=3", "optim.lr=1", "optim.muon_lr=1"]
    run = train_run("tiny", *settings)
    evaluations = [r for r in metrics(run.path) if "val_loss" in r]
    best = min(evaluations, key=lambda r: r["val_loss"])
    assert [r["step"] for r in evaluations if r["step"] > best["step"]] == [best["step"] + 5 * n for n in (1, 2, 3)]
    assert "no better loss in 3 evaluations" in capsys.readouterr().out
    resume(run)
    assert "raise train.patience to train longer" in capsys.readouterr().out
    resume(run, "train.patience=4")
    assert load_checkpoint(run.latest).step > evaluations[-1]["step"]


def test_a_change_to_a_run_that_has_ended_is_refused_and_not_recorded_if_nothing_is_trained_with_it(run, capsys):
    files = (run.metrics, run.config, run.latest)
    before = [file.read_bytes() for file in files]
    for useless in ("optim.lr=0.1", "train.patience=2", "model.dropout=0"):
        resume(run, useless, status=2)
        key = useless.partition("=")[0]
        assert f"so a change of {key} has no effect; raise train.max_steps" in capsys.readouterr().err
    resume(run)
    assert [file.read_bytes() for file in files] == before
    resume(run, "train.sample_length=5", "train.device=auto")
    resume(run, "train.max_steps=41", "optim.lr=0.1")
    assert load_checkpoint(run.latest).step == 41


def test_any_text_can_be_trained_on_and_sampled(workplace, capsys):
    text = "床前明月光,疑是地上霜。\n举头望明月,低头思故乡。\n" * 20 + "🙂🙃 smile 👩‍👩‍👧‍👦 again 🏴‍☠️\n" * 30
    (workplace / "any.txt").write_text(text, encoding="utf-8")
    train_run("tiny", "data.corpus=any.txt", "train.max_steps=20")
    capsys.readouterr()
    assert sample.main(["--length", "20", "--prompt", text[:5]]) == 0
    sampled = capsys.readouterr().out
    assert sampled.startswith(text[:5])
    assert set(sampled) <= set(text)
    assert len(sampled) == 5 + 20 + 1


def test_a_later_run_of_one_process_does_not_count_the_time_of_an_earlier_one(workplace, monkeypatch):
    monkeypatch.setattr(cli.startup, "STARTED_S", time.perf_counter() - 3600)  # of the process
    later = metrics(train_run("later", "train.max_steps=2").path)[-1]
    assert later["elapsed_s"] < 3600


def test_names_that_are_not_utf8_or_control_a_terminal_are_shown_escaped(workplace, capsys):
    for name in ("caf\udce9", "\x1b[31m"):
        shutil.copy("text.txt", f"{name}.txt")
        run = name.strip("\x1b")  # a run's name has no control characters
        shutil.copy("tiny.yaml", f"{run}.yaml")
        assert train.main(["--config", f"{run}.yaml", f"data.corpus={name}.txt", "train.max_steps=2"]) == 0
        assert train.main(["--resume", f"runs/{run}", "train.max_steps=3"]) == 0
        assert report([f"runs/{run}"]) == 0
        assert report([]) == 0
    assert "\x1b" not in "".join(capsys.readouterr())


def test_running_out_of_memory_produces_a_line_that_says_what_to_lower(workplace, capsys):
    assert train.main(["--config", "tiny.yaml", "model.n_head=1", "model.n_embd=1000000"]) == 1
    lower = "lower train.batch_size, model.block_size, model.n_embd or model.ngram_rows"
    assert capsys.readouterr().err == f"train.py: out of memory; {lower}\n"
    assert not (workplace / "runs").exists()


def test_accumulated_batches_equal_one_large_batch(workplace):
    settings = ["model.dropout=0", "train.dtype=float32", "optim.name=adamw", "optim.lr=1e-3", "train.max_steps=20"]
    whole = train_run("whole", *settings, "train.batch_size=10")
    parts = train_run("parts", *settings, "train.batch_size=5", "train.accumulate=2")
    weights = [load_checkpoint(run.latest).weights for run in (parts, whole)]
    torch.testing.assert_close(*weights, atol=2e-4, rtol=1e-3)
    assert losses(parts.path, "train_loss") == pytest.approx(losses(whole.path, "train_loss"), rel=1e-4)


@pytest.mark.nightly
def test_a_recipe_of_the_project_comes_close_to_the_entropy_of_a_text_but_not_below_it(workplace):
    """Only the choice of each word among four cannot be foreseen."""
    words = [each.split() for each in ("The A Her One", "old grey dear calm", "cat owl fox pig", "sat. ran. hid. ate.")]
    draw, n_lines = random.Random(1).choice, 2_000
    text = "".join(" ".join(map(draw, words)) + "\n" for _ in range(n_lines))
    (workplace / "mine.txt").write_text(text, encoding="utf-8")
    settings = ["data.corpus=mine.txt", "train.max_steps=60", "train.eval_every_steps=30"]
    assert train.main(["--config", str(ROOT / "configs/selmere.yaml"), *settings]) == 0
    entropy = n_lines * len(words) * math.log(4) / len(text)
    assert 0.95 * entropy < min(losses(workplace / "runs/selmere")) < 1.3 * entropy


@pytest.mark.slow
def test_a_run_needs_no_call_that_only_linux_has(workplace):
    """macOS has none of these calls."""
    code = """
import os, torch
for name in ("posix_fadvise", "posix_fallocate", "preadv", "pwritev", "sched_getaffinity", "sched_setaffinity"):
    delattr(os, name)
import sample, train
assert train.main(["--config", "tiny.yaml"]) == 0
assert sample.main(["--length", "5"]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
