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
    found = set()

    def profile(frame, event, _):
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and code.co_qualname in ("GPT.forward", "TrainingStep.run"):
            raise _EnoughError
        ours = path.is_relative_to(ROOT) and "site-packages" not in path.parts  # README.md puts .venv into ROOT
        if event == "call" and ours and not code.co_name.startswith("<"):
            found.add((path.relative_to(ROOT).as_posix(), code.co_qualname))

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        sys.setprofile(profile)
        try:
            config = str(ROOT / "configs/shakespeare.yaml")
            train.main(["--config", config, "data.corpus=selmere", "model.ngram_rows=64"])
        except _EnoughError:
            pass
        finally:
            sys.setprofile(None)
    return {each for each in found if not each[0].startswith("tests/")}


if __name__ == "__main__":
    functions = entered()
    for each in sorted(functions):
        print(*each)
    print(f"{len(functions)} functions in {len({file for file, _ in functions})} files before the first step")
