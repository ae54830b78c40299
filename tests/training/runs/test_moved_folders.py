import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
from conftest import train_tiny
from helpers import run_differences, start_train, wait_for

import train
from training.runs.run_folder import RunFolder

pytestmark = pytest.mark.slow

SETTINGS = ["train.checkpoint_every_steps=10", "train.log_every_steps=5", "train.device=cpu"]
START = ["--config", "tiny.yaml", *SETTINGS]
MOMENTS = {  # a system call, with names or modes of files, and which of these calls
    "before the first evaluation": ("open metrics.jsonl a", 2),
    "between two saves": ("open metrics.jsonl a", 7),
    "in the middle of a save": ("os.rename latest.safetensors previous.safetensors", 3),
    "between the renames of a save": ("os.rename latest.safetensors.*.part latest.safetensors", 4),
    "right before the end": ("open metrics.jsonl a", 12),
}


class Pause:
    """Wait at a moment, after the run has decided on the path of the file, from a file NAME-here to a file NAME-go."""

    def __init__(self, name, moment):
        self.name, (self.call, self.left) = name, MOMENTS[moment]

    def __call__(self, event, arguments):
        if event in ("open", "os.rename"):
            self.left -= fnmatch(f"{event} {Path(str(arguments[0])).name} {Path(str(arguments[1])).name}", self.call)
            if self.left == 0:
                self.left = -1
                Path(f"{self.name}-here").touch()
                wait_for(Path(f"{self.name}-go").exists)


def disturbed(moment, disturb, *, successor):
    """Start runs/tiny, disturb it at a moment and return its status and output; see that a successor ends undamaged."""
    process = start_train("output.txt", *START, hook=Pause("run", moment))
    wait_for(Path("run-here").exists)
    disturb()
    if successor:  # it trains before and after the rest of the first run
        other = start_train("other.txt", *START, "train.seed=1", hook=Pause("other", "between two saves"))
        wait_for(Path("other-here").exists)
    Path("run-go").touch()
    process.join(180)
    if successor:
        Path("other-go").touch()
        other.join(180)
        assert other.exitcode == 0, Path("other.txt").read_text()
    return process.exitcode, Path("output.txt").read_text()


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """Return what a run and its successor are when nothing disturbs them."""
    folder = tmp_path_factory.mktemp("calm")
    for seed in (0, 1):
        train_tiny(folder, *SETTINGS, f"train.seed={seed}", f"train.name={seed}")
    return [RunFolder(folder / f"runs/{seed}") for seed in (0, 1)]


@pytest.mark.parametrize("successor", [False, True], ids=["", "and another takes its name"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_whose_folder_is_renamed_goes_on_there_and_ends_exactly_like_an_undisturbed_one(
    workplace, calm, moment, successor
):
    old, new = ("runs", "old") if moment == "between two saves" else ("runs/tiny", "runs/new")
    status, output = disturbed(moment, lambda: Path(old).rename(new), successor=successor)
    path = "old/tiny" if old == "runs" else new
    assert status == 0, output
    assert output.count(f"train.py: runs/tiny is now {path}; the run goes on there\n") == 1
    assert output.endswith(f" --checkpoint {path}\n")
    ended = dict(zip([path, "runs/tiny"][: 1 + successor], calm, strict=False))
    for run, expected in ended.items():
        assert run_differences(RunFolder(Path(run)), expected) == []
        assert train.main(["--resume", run, "train.max_steps=42"]) == 0
    assert Path("runs/tiny").exists() == successor


@pytest.mark.parametrize("successor", [False, True], ids=["", "and another takes its name"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_whose_folder_is_deleted_ends_with_one_line_and_writes_nothing_more(workplace, calm, moment, successor):
    status, output = disturbed(moment, lambda: shutil.rmtree("runs/tiny"), successor=successor)
    gone = "runs/tiny: this folder was deleted or moved away during training, so the run ends"
    assert (status, output.count("train.py: "), output.splitlines()[-1]) == (1, 1, f"train.py: {gone}")
    assert Path("runs/tiny").exists() == successor
    assert not successor or run_differences(RunFolder(Path("runs/tiny")), calm[1]) == []
