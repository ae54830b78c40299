"""Commands of the project for messages: a user can paste them in the current folder."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]


def to_paste(program: str, *arguments: object) -> str:
    """Return the command line of a script or a module of the project, for the Python that runs now."""
    python = "python" if shutil.which("python") == sys.executable else Path(sys.executable)
    words: list[object] = [PROJECT / program] if program.endswith(".py") else ["-m", program]
    variable = ""
    if words[0] == "-m" and Path.cwd() != PROJECT:
        is_windows = os.name == "nt"
        variable = f'set "PYTHONPATH={PROJECT}" && ' if is_windows else f"PYTHONPATH={shlex.quote(str(PROJECT))} "
        words.insert(0, "-P")  # a model.py or data/ in the current folder does not replace the project's
    join = subprocess.list2cmdline if os.name == "nt" else shlex.join
    return variable + join([*map(shortened, (python, *words, *arguments))])


def shortened(word: object) -> str:
    """Return a word of a command line; a path inside the current folder becomes relative."""
    return str(word.relative_to(Path.cwd()) if isinstance(word, Path) and word.is_relative_to(Path.cwd()) else word)
