"""Count the functions of the project, and their files, that a run enters before its first step.

python -m tests.first_step prints both numbers and the functions; test_structure.py holds the limits.
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


class _EnoughError(Exception):
    """The first step begins."""


def entered() -> set[tuple[str, str]]:
    """Return the file and name of each function that the main recipe of README.md enters, with few and short steps."""
    sys.path.insert(0, str(ROOT))
    import train
    from data.config import DataConfig
    from data.corpus import open_corpus

    open_corpus(DataConfig(corpus="selmere"))  # so that a new clone has its ids, like every later run
    entered_code = set()

    def profile(frame, event, _):
        if event == "call":
            if frame.f_code.co_qualname == "GPT.forward":
                raise _EnoughError
            entered_code.add(frame.f_code)

    config = str(ROOT / "configs/shakespeare.yaml")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        sys.setprofile(profile)  # until it raises an error
        with contextlib.suppress(_EnoughError):
            train.main(["--config", config, "data.corpus=selmere", "model.ngram_rows=64"])
    found = set()
    for code in entered_code:
        file = Path(code.co_filename)
        if file.is_relative_to(ROOT) and not code.co_name.startswith("<"):
            file = file.relative_to(ROOT)
            if not {"site-packages", "tests"} & {*file.parts}:  # README.md puts .venv into ROOT
                found.add((file.as_posix(), code.co_qualname))
    return found


if __name__ == "__main__":
    functions = entered()
    for each in sorted(functions):
        print(*each)
    print(f"{len(functions)} functions in {len({file for file, _ in functions})} files before the first step")
