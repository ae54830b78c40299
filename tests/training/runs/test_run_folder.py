import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from helpers import assert_mistake, make_checkpoint, make_state, resume

import sample
import train
from cli.errors import UserError, explain
from data.files import is_locked
from experiments.heads.__main__ import main as heads
from experiments.report.__main__ import main as report
from training.config import TrainConfig
from training.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from training.runs.find_checkpoint import BUNDLED_MODEL, find_checkpoint, find_run
from training.runs.open_run import load_newest
from training.runs.run_folder import RunFolder


def make_run(root, name="a", steps=()):
    run = RunFolder.create(name, root=root)
    run.lay_out("model: {}\n")
    for step, path in steps:
        save_checkpoint(make_checkpoint(step), getattr(run, path))
    return run


def steps_of(run):
    return {path.stem: load_checkpoint(path).step for path in run.checkpoints.glob("*.safetensors")}


def save_at(step, run, *, is_best=False):
    state = make_state()
    state.progress.step = step
    run.save(state, elapsed_s=0.0, is_best=is_best)
    return state


def test_a_session_that_begins_at_a_step_removes_later_entries(workplace):
    run = make_run(workplace)
    run.add_record({"step": 1})
    run.add_sample("step 1", "text\r\n明")
    state, before = save_at(1, run), (run.metrics.read_bytes(), run.samples.read_bytes())
    run.add_record({"step": 2})
    run.add_sample("step 2", "more")
    with run.session(state, is_new=False):
        pass
    assert (run.metrics.read_bytes(), run.samples.read_bytes()) == before


def test_the_newest_intact_checkpoint_is_loaded_with_a_warning_for_a_damaged_one(tmp_path, capsys):
    run = make_run(tmp_path, steps=[(20, "best"), (20, "previous"), (30, "latest")])
    assert (load_newest(run).step, capsys.readouterr().err) == (30, "")
    run.latest.write_bytes(run.latest.read_bytes()[:-1])
    assert load_newest(run).step == 20
    warning = capsys.readouterr().err
    assert "latest.safetensors: is damaged" in warning
    assert "it is now called latest.damaged" in warning
    assert steps_of(run) == {"best": 20, "previous": 20, "latest": 20}  # the damaged one has replaced no other
    run.latest.unlink()
    run.previous.unlink()
    assert load_newest(run).step == 20


def test_two_generations_of_the_latest_checkpoint_are_kept_beside_the_best(workplace):
    run = make_run(workplace)
    for step, is_best in [(10, True), (20, True), (30, False), (40, False)]:
        save_at(step, run, is_best=is_best)
    assert steps_of(run) == {"best": 20, "previous": 30, "latest": 40}


def test_the_peak_memory_of_a_run_is_the_highest_of_its_sessions(workplace):
    run = make_run(workplace)
    state = save_at(1, run)
    assert 10**8 < state.progress.peak_memory_bytes < 10**14  # Python with PyTorch
    state.progress.peak_memory_bytes = 10**15
    run.save(state, elapsed_s=0.0)
    assert load_checkpoint(run.latest).progress.peak_memory_bytes == 10**15


def test_a_run_that_has_begun_is_never_restarted_without_an_intact_checkpoint(tmp_path):
    run = make_run(tmp_path)
    assert load_newest(run) is None
    run.add_record({"step": 1})
    with pytest.raises(CheckpointError, match=r"no checkpoint to resume from .*its files are missing"):
        load_newest(run)
    run.metrics.write_bytes(b"")
    run.latest.write_bytes(b"")
    run.best.write_bytes(b"\0" * 100)
    with pytest.raises(CheckpointError, match=r"no checkpoint to resume from .*best.*damaged.*latest.*damaged"):
        load_newest(run)


def test_a_checkpoint_is_found_from_a_file_a_run_folder_or_the_newest_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = Path("runs")
    assert find_checkpoint(None) == BUNDLED_MODEL
    begun, empty = make_run(root, "a", [(0, "latest")]), make_run(root, "c")
    assert find_checkpoint(None) == begun.latest
    old, new = (make_run(root, name, [(1, "best"), (2, "latest")]) for name in ("b", "d"))
    for seconds, file in enumerate((old.best, new.best, old.latest, new.latest, begun.latest), start=1):
        os.utime(file, (seconds, seconds))
    assert find_checkpoint(None) == new.best
    assert find_checkpoint(old.path) == old.best
    assert find_checkpoint(old.latest) == old.latest
    with pytest.raises(CheckpointError, match=r"has no checkpoints/best.safetensors; "):
        find_checkpoint(empty.path)
    with pytest.raises(CheckpointError, match=r"a: no such run or checkpoint; did you mean runs/a\?"):
        find_checkpoint(Path("a"))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("elsewhere/a", r"a: no such run folder; did you mean runs/a\?"),
        ("runs/a/checkpoints", "is not a run folder; give its run, runs/a$"),
        ("runs", "is not a run folder; it contains runs, so give one of them, such as .*a$"),
    ],
)
def test_a_path_that_is_no_run_folder_is_an_error_with_a_hint(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    run = make_run(Path("runs"), "a", [(1, "latest")])
    assert find_run(run.path).path == run.path
    with pytest.raises(CheckpointError, match=message):
        find_run(Path(path))


def test_an_error_of_a_run_is_left_in_a_file_until_it_goes_on(tmp_path):
    run = make_run(tmp_path)
    for error, line in ((UserError("the disk is full"), "the disk is full"), (KeyError("lr"), "KeyError: 'lr'")):
        with pytest.raises(type(error)), run.lock():
            assert not run.error.exists()
            raise error
        assert run.error.read_text() == f"{line}\n"
    with run.lock():
        pass
    assert not run.error.exists()


def test_only_one_process_can_lock_a_folder_and_a_dead_process_releases_its_lock(tmp_path):
    run = make_run(tmp_path)
    hold = "import sys, pathlib; from data.files import exclusive\n"
    hold += "with exclusive(pathlib.Path(sys.argv[1]), ''): print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", hold, run.path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout.readline() == b"held\n"
    (run.path / "lock").chmod(0o444)
    assert is_locked(run.path)
    with pytest.raises(UserError, match="another process is training this run"), run.lock():
        pass
    assert not run.error.exists()  # which is a file of the process that trains it
    other.kill()
    other.communicate()
    assert not is_locked(run.path)
    with run.lock():
        pass


def test_a_file_in_place_of_the_runs_folder_is_an_error(tmp_path):
    (tmp_path / "runs").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for root in (tmp_path / "runs", tmp_path / "link"):
        with pytest.raises(FileExistsError) as error:
            RunFolder.create("a", root=root)
        assert explain(error.value) == f"{root}: File exists"


INSIDE = ["config.yaml", "metrics.jsonl", "samples.txt", "error.txt", "lock", "output.txt", "checkpoints"]
INSIDE += [f"checkpoints/{name}" for name in ("latest.safetensors", "best.safetensors", "step-7.safetensors", "a.part")]


@pytest.mark.parametrize("name", INSIDE)
def test_a_link_inside_the_folder_of_a_run_is_refused_by_every_command_and_its_target_stays(run, capsys, name):
    """A stranger's archive may contain one."""
    inside, elsewhere = run.path / name, run.path.parents[1] / "elsewhere"
    inside.exists() and inside.rename(elsewhere)
    if not elsewhere.exists():
        elsewhere.write_text("precious")
    inside.symlink_to(elsewhere)
    before = {path: path.is_file() and path.read_bytes() for path in (elsewhere, *elsewhere.rglob("*"))}
    commands = {train.main: ["--resume", "--config tiny.yaml --from"], sample.main: ["", "--checkpoint"]}
    commands |= {report: [""], heads: ["--checkpoint"]}
    for command, options in ((command, each) for command, several in commands.items() for each in several):
        arguments = [*options.split(), "runs/tiny"] if options or command is report else []
        assert_mistake(capsys, command, arguments, f"runs/tiny/{name} is a link, a pipe or a device")
    assert report([]) == 0
    assert f"runs/tiny/{name} is a link" in capsys.readouterr().out
    assert {path: path.is_file() and path.read_bytes() for path in (elsewhere, *elsewhere.rglob("*"))} == before


def test_the_folder_of_a_run_itself_may_be_a_link(run):
    run.path.rename("elsewhere")
    run.path.symlink_to(Path("elsewhere").resolve())
    resume(run, "train.max_steps=41")
    assert find_checkpoint(None).samefile(run.best)
    assert find_checkpoint(run.path) == run.best


def test_a_pipe_in_the_folder_of_a_run_is_refused(run, capsys):
    run.samples.unlink()
    os.mkfifo(run.samples)
    assert_mistake(capsys, train.main, ["--resume", "runs/tiny"], "samples.txt is a link, a pipe or a device")


def test_a_run_may_have_any_name_but_that_of_a_file_of_a_run(run):
    for name in {path.name for path in run.path.rglob("*")}:
        with pytest.raises(ValueError, match="must be a folder name"):
            TrainConfig(name=name)
    for name in ("n_head=2,seed=0", "lock-2", "console", "com10", "my.v2", "two words", "größer"):
        assert TrainConfig(name=name).name == name
