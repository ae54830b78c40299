import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
from helpers import start_train, wait_for

pytestmark = pytest.mark.slow

SETTINGS = ["train.eval_every_steps=10", "train.log_every_steps=5", "train.device=cpu"]
MOMENTS = {  # a system call, with names or modes of files, and which of these calls
    "before the first evaluation": ("open metrics.jsonl a", 2),
    "in the middle of a save": ("os.rename latest.safetensors previous.safetensors", 3),
    "between the renames of a save": ("os.rename latest.safetensors.*.part latest.safetensors", 4),
    "right before the end": ("open metrics.jsonl a", 14),
}


class Pause:
    """Wait at a moment until the file `go` exists, and say so by a file `here`."""

    def __init__(self, moment):
        self.call, self.left = MOMENTS[moment]

    def __call__(self, event, arguments):
        if event in ("open", "os.rename"):
            self.left -= fnmatch(f"{event} {Path(str(arguments[0])).name} {Path(str(arguments[1])).name}", self.call)
            if self.left == 0:
                self.left = -1
                Path("here").touch()
                wait_for(Path("go").exists)


@pytest.mark.parametrize("disturb", [shutil.rmtree, lambda path: Path(path).rename("runs/other")])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_whose_folder_is_deleted_or_moved_ends_with_one_line_and_creates_nothing(workplace, moment, disturb):
    process = start_train("output.txt", "--config", "tiny.yaml", *SETTINGS, hook=Pause(moment))
    wait_for(Path("here").exists)
    disturb("runs/tiny")
    Path("go").touch()
    process.join(180)
    output = Path("output.txt").read_text()
    gone = "runs/tiny: this folder or its lock was deleted or moved, so the run ends"
    assert (process.exitcode, output.count("train.py: "), output.splitlines()[-1]) == (1, 1, f"train.py: {gone}")
    assert not Path("runs/tiny").exists()
