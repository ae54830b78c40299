"""`train.py --estimate`: the expected time and memory of a run."""

import re

import pytest
import yaml

import train
from training.config_file import build_config
from training.log.estimate import measure, n_validation_characters

TINY = ["model.n_layer=1", "model.n_head=1", "model.n_embd=16", "model.block_size=16", "train.batch_size=2"]


def row(line):
    name, minutes, seconds, memory = re.fullmatch(r"(\S.*?) +(\d+) min +(\d+) s +([\d,]+) MB", line).groups()
    return name, 60 * int(minutes) + int(seconds), int(memory.replace(",", ""))


def test_an_estimate_prints_time_and_memory_and_writes_nothing(workplace, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")  # so that there is no compiler to measure
    monkeypatch.setenv("CXX", "/nonexistent")
    config = {"data": {"corpus": "shakespeare"}}
    (workplace / "shakespeare.yaml").write_text(yaml.safe_dump(config))
    (workplace / "shakespeare_fast.yaml").write_text(yaml.safe_dump(config))
    before = sorted(workplace.rglob("*"))
    overrides = [*TINY, "train.max_steps=1000000", "train.grow_context_at=[0.5]"]
    assert train.main(["--config", "shakespeare.yaml", "--estimate", *overrides]) == 0
    machine, slow, fast = capsys.readouterr().out.splitlines()
    assert re.match(r"On cpu, (float32|bfloat16), \S", machine)
    (slow_name, slow_s, memory), (fast_name, _, _) = row(slow), row(fast)
    assert (slow_name, fast_name) == ("shakespeare.yaml", "shakespeare_fast.yaml")
    assert slow_s > 100  # a million steps
    assert 50 < memory < 5000
    assert sorted(workplace.rglob("*")) == before


def test_the_estimate_grows_with_the_steps_and_the_evaluations():
    def estimate(*overrides):
        return measure(build_config({}, [*TINY, "data.corpus=shakespeare", *overrides]))

    short, long = (estimate(f"train.max_steps={n}", "train.eval_every_steps=100000") for n in (1000, 100_000))
    assert 30 < long.steps_s / short.steps_s < 300
    often = estimate("train.max_steps=1000", "train.eval_every_steps=10")
    assert 30 < often.evaluations_s / short.evaluations_s < 300


@pytest.mark.parametrize(
    ("overrides", "n"),
    [
        (["data.corpus=shakespeare"], 111_539),
        (["data.corpus=shakespeare", "data.split=[0.81,0.09,0.1]"], 100_385),
        (["data.corpus=shakespeare", "data.split=[1000,500,0]"], 500),
        (["data.corpus=shakespeare", "train.eval_characters=2000"], 2000),
        (["data.corpus=enwik8", "data.val_corpus=shakespeare"], 1_115_394),
    ],
)
def test_the_number_of_validation_characters_needs_no_download(overrides, n):
    assert n_validation_characters(build_config({}, overrides)) == n


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume", "runs/x", "--estimate"], "--estimate needs --config, without --sweep"),
        (["--config", "tiny.yaml", "--estimate", "--sweep", "train.seed=0,1"], "--estimate needs --config"),
        (["--config", "tiny.yaml", "--estimate", "train.processes=2"], "add train.processes=1"),
        (["--config", "tiny.yaml", "--estimate", "data.corpus=nowhere.txt"], "no such file, folder or named corpus"),
    ],
)
def test_what_cannot_be_estimated_is_an_error_of_one_line(workplace, capsys, arguments, message):
    try:
        status = train.main(arguments)
    except SystemExit as error:
        status = error.code
    assert status == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("train.py:")]
    assert message in line
