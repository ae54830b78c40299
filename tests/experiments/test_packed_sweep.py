import shutil
from pathlib import Path

import pytest
from conftest import SHORT
from helpers import assert_mistake, finished_sweep

from experiments.report.__main__ import main as report_command
from experiments.report.comparison import compare
from experiments.report.find_runs import find_runs
from experiments.report.table import table
from experiments.sweep.plan import make_plan
from experiments.sweep.sweep_folder import SweepFolder
from training.config_file import load_config, read_settings, to_yaml


def test_a_packed_sweep_has_the_table_and_the_settings_of_its_runs(runs_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs_folder)
    plan = make_plan(read_settings(runs_folder / "tiny.yaml"), [*SHORT, "model.n_head=1,2", "train.seed=0,1"])
    finished_sweep("packed", plan, runs_folder)
    file = tmp_path / "heads.jsonl"
    assert report_command(["runs/packed", "--baseline", "n_head=2"]) == 0
    pages = {page: page.read_text(encoding="utf-8") for page in Path("runs/packed").glob("report*")}
    capsys.readouterr()
    assert report_command(["runs/packed", "--pack", str(file)]) == 0
    assert capsys.readouterr().out.startswith(f"Packed into {file}\n")
    assert len(pages) == 4
    assert {page: page.read_text(encoding="utf-8") for page in Path("runs/packed").glob("report*")} == pages
    of_runs = compare(find_runs([runs_folder / "runs" / "packed"])[0])
    shutil.move(runs_folder / "runs" / "packed", tmp_path)  # the report of the file cannot read it
    assert report_command([str(file)]) == 0
    of_file = compare(find_runs([file])[0])
    speed = table(of_file)[0].index("characters/s")  # packed as an integer
    for ours, theirs in zip(table(of_runs), table(of_file), strict=True):
        assert ours[:speed] + ours[speed + 1 :] == theirs[:speed] + theirs[speed + 1 :]
    for ours, theirs in zip(of_runs.rows, of_file.rows, strict=True):
        assert ours.variant.losses == theirs.variant.losses
        assert ours.variant.median(lambda run: run.tokens_per_s) == pytest.approx(
            theirs.variant.median(lambda run: run.tokens_per_s), abs=0.6
        )
    assert "n_head=2" in (tmp_path / "heads.md").read_text(encoding="utf-8")


def test_a_run_that_was_resumed_with_other_settings_is_not_packed(runs_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(runs_folder)
    plan = make_plan(read_settings(runs_folder / "tiny.yaml"), [*SHORT, "train.seed=0"])
    finished_sweep("resumed", plan, runs_folder)
    config = Path("runs/resumed/seed=0/config.yaml")
    config.write_text(to_yaml(load_config(config, ["optim.lr=1e-4"])))  # as a resumed run writes it
    arguments = ["runs/resumed", "--pack", str(tmp_path / "a.jsonl")]
    assert_mistake(capsys, report_command, arguments, "no longer fits runs/resumed/sweep.yaml (optim.lr was")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not a packed sweep"),
        (
            '{}\n{"point": "seed=0", "records": [{"elapsed_s": 1}]}\n',
            ": line 2: is damaged",
        ),
        ('{"sweep": {"train.seed": [0, 1]}}\n', ": it lacks the run seed=0"),
        (
            '{"model": {"rope_base": 100}}\n',
            "is not a packed sweep of this version (try commit c797c4b or, if it is older, 8237b76): ",
        ),
    ],
)
def test_a_file_that_is_not_a_packed_sweep_produces_a_one_line_error(runs, tmp_path, capsys, content, message):
    file = tmp_path / "a.jsonl"
    file.write_text(content)
    assert_mistake(capsys, report_command, [str(file)], message)


def test_only_a_finished_sweep_can_be_packed(runs, tmp_path, capsys):
    settings = read_settings(runs[0].parents[1] / "tiny.yaml")
    sweep = SweepFolder.open("begun", make_plan(settings, [*SHORT, "train.seed=0,1"]))
    pack = ["--pack", str(tmp_path / "a.jsonl")]
    assert_mistake(capsys, report_command, [str(sweep.path), *pack], "is not finished; finish it with ")
    shutil.rmtree(sweep.path)
    assert_mistake(capsys, report_command, ["runs/1-0", *pack], "is not the folder of a sweep")
