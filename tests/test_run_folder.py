import json
import os

import pytest
from test_checkpoint import make_checkpoint

from training.checkpoint import CheckpointError, save_checkpoint
from training.run_folder import RunFolder, find_checkpoint


def make_run(root, name="a", steps=()):
    run = RunFolder.create(name, "model: {}\n", root=root)
    for step, path in steps:
        save_checkpoint(make_checkpoint(step), getattr(run, path))
    return run


def test_a_run_never_takes_the_folder_of_another(tmp_path):
    names = [make_run(tmp_path / "runs", "mine").path.name for _ in range(3)]
    assert names == ["mine", "mine-2", "mine-3"]


def test_every_line_of_metrics_is_a_json_record(tmp_path):
    run = make_run(tmp_path)
    run.log({"step": 1, "loss": 2.5})
    run.log({"step": 2, "corpus": "明月"})
    lines = run.metrics.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"step": 1, "loss": 2.5}, {"step": 2, "corpus": "明月"}]


def test_rewinding_takes_back_what_came_after(tmp_path):
    run = make_run(tmp_path)
    run.log({"step": 1})
    run.add_sample("step 1", "text\r\n明")
    sizes, before = run.sizes(), (run.metrics.read_bytes(), run.samples.read_bytes())
    run.log({"step": 2})
    run.add_sample("step 2", "more")
    run.rewind(sizes)
    assert (run.metrics.read_bytes(), run.samples.read_bytes()) == before


def test_the_newest_whole_checkpoint_is_loaded_with_a_warning_for_a_damaged_one(tmp_path):
    run = make_run(tmp_path, steps=[(20, "best"), (30, "latest")])
    checkpoint, warnings = run.load_newest()
    assert (checkpoint.step, warnings) == (30, [])
    run.latest.write_bytes(run.latest.read_bytes()[:-1])
    checkpoint, warnings = run.load_newest()
    assert checkpoint.step == 20
    assert "latest.pt: is damaged" in warnings[0]


def test_a_run_without_a_whole_checkpoint_is_never_begun_anew(tmp_path):
    with pytest.raises(CheckpointError, match="no such run folder"):
        RunFolder(tmp_path / "gone").load_newest()
    run = make_run(tmp_path)
    with pytest.raises(CheckpointError, match="has not saved one yet"):
        run.load_newest()
    run.latest.write_bytes(b"")
    run.best.write_bytes(b"\0" * 100)
    with pytest.raises(CheckpointError, match=r"no checkpoint to go on from .*latest.pt.*damaged.*best.pt.*damaged"):
        run.load_newest()


def test_sampling_finds_the_best_checkpoint_of_the_newest_run_of_a_folder_or_a_file(tmp_path):
    root = tmp_path / "runs"
    with pytest.raises(CheckpointError, match="holds no checkpoint yet; train first"):
        find_checkpoint(None, root=root)
    old, new = make_run(root, "b", [(1, "best"), (2, "latest")]), make_run(root, "a", [(1, "latest")])
    empty = make_run(root, "c")
    os.utime(old.best, (1, 1))
    assert find_checkpoint(None, root=root) == new.latest
    assert find_checkpoint(old.path) == old.best
    assert find_checkpoint(old.latest) == old.latest
    with pytest.raises(CheckpointError, match="holds no"):
        find_checkpoint(empty.path)
