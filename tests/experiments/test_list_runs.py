"""The list of all runs, and what a report says of those that are not finished."""

import shutil
from pathlib import Path

import pytest
from conftest import SHORT, train_tiny
from helpers import losses

from experiments.report.__main__ import main as report
from experiments.report.charts import draw_charts
from experiments.report.comparison import compare
from experiments.report.find_runs import find_runs
from experiments.report.list_runs import list_runs
from training.runs.run_folder import RunFolder


def cut(run, folder, n_lines):
    """Copy a run; keep its settings and n_lines of its metrics, as if it were in progress; the next is half written."""
    copy = RunFolder(shutil.copytree(run, folder))
    lines = copy.metrics.read_text().splitlines()[: 1 + n_lines]
    copy.metrics.write_text("\n".join(lines) + '\n{"step": 12, "fini')
    return copy


def test_an_unfinished_run_is_shown_but_not_compared(runs, runs_folder, tmp_path, capsys):
    unfinished = cut(runs[1], tmp_path / "cut", n_lines=5)  # the last of step 9, after the evaluation of step 8
    so_far = losses(unfinished.path)
    comparison = compare(find_runs([unfinished.path, runs[0], runs[2]])[0])
    row, base, _ = comparison.rows
    assert (row.variant.label, row.verdict, row.difference.n) == ("n_head=2 (unfinished)", "unfinished", 0)
    assert (row.variant.loss, base.verdict) == (min(so_far), "the baseline")
    assert comparison.finished == [row.variant for row in comparison.rows[1:]]
    with_it = {chart.name: chart.svg for chart in draw_charts(comparison)}
    without = {chart.name: chart.svg for chart in draw_charts(compare(find_runs([runs[0], runs[2]])[0]))}
    assert with_it["loss"] == without["loss"]
    assert "unfinished" in with_it["curves"]
    with unfinished.lock():
        assert report([str(unfinished.path), str(runs[0]), "--output", str(tmp_path / "out")]) == 0
    assert "Unfinished: cut, running at step 9 of 12; its losses are those so far." in capsys.readouterr().out
    assert report([str(unfinished.path), "--output", str(tmp_path / "out")]) == 0
    assert "Unfinished: cut, stopped at step 9 of 12" in capsys.readouterr().out


def test_runs_before_their_first_evaluation_are_listed_as_left_out(runs, tmp_path):
    variants, left_out = find_runs([runs[0], cut(runs[1], tmp_path / "cut", n_lines=1).path])
    assert (len(variants), left_out["no validation loss yet"]) == (1, ["cut"])
    with pytest.raises(ValueError, match="no run with a validation loss yet"):
        find_runs([tmp_path / "cut"])


def test_without_arguments_all_runs_are_listed_with_their_state_loss_and_differing_settings(runs, monkeypatch, capsys):
    monkeypatch.setattr("experiments.report.list_runs.WIDTH", 999)
    begun = cut(runs[1], Path("runs/zzz/begun"), n_lines=1)  # whose characters are not counted yet
    begun.config.write_text(begun.config.read_text().replace("  characters: null", r'  characters: "\n\t9b"'))
    cut(runs[1], Path("runs/zzz/point"), n_lines=4)
    cut(runs[1], Path("runs/zzz/damaged"), n_lines=4).metrics.write_text("{\n")
    Path("runs/zzz/folder/config.yaml").mkdir(parents=True)
    try:
        assert report([]) == 0
    finally:
        shutil.rmtree("runs/zzz")
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["run", "state"]
    shown = {line.split()[0]: line for line in lines}
    assert [name for name in shown if name in ("1-0", "context")] == ["context", "1-0"]  # the newest first
    assert {name for name, line in shown.items() if "unreadable" in line} == {"zzz/damaged", "zzz/folder"}
    assert "metrics.jsonl, line 1: is damaged" in shown["zzz/damaged"]
    for run in runs:
        assert "finished" in shown[run.name]
        assert f"{min(losses(run)):.4f} on text.txt" in shown[run.name]
    assert "stopped at step 8 of 12" in shown["zzz/point"]
    assert "no evaluation yet" in shown["zzz/begun"]
    assert r"data.characters=\n\t9b" in shown["zzz/begun"]
    assert shown["context"].endswith("model.block_size=8")
    assert "model.n_head=1" in shown["1-0"]
    assert "train.seed=1" in shown["1-1"]


def test_the_lines_of_the_list_are_cut_to_fit_a_wide_terminal(runs, tmp_path):
    odd = "train.name=odd model.norm=layer model.mlp=gelu model.positions=learned optim.name=adamw train.seed=2"
    train_tiny(tmp_path, *odd.split(), *SHORT)
    for run in runs[:2]:
        shutil.copytree(run, tmp_path / "runs" / run.name)
    lines = {line.split()[0]: line for line in list_runs(tmp_path / "runs").splitlines()}
    assert max(map(len, lines.values())) == 120
    assert lines["odd"].endswith("…")
    assert not lines["1-0"].endswith("…")
