"""Compiled sampling steps in the user's cache folder, shared by all models of one shape."""

import dataclasses
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import model as model_package
from cli.errors import UserError, explain
from model.compiled_step import CompiledStep, compile_step
from model.gpt import GPT
from training.runtime import find_compiler, processor_features

SIZE_STEP = 64  # the step reads its whole cache, so a short text has a short one


class StepCompiler:
    """Compiles the sampling step of one model, or finds it compiled.

    A package is machine code, so it is kept in a folder that only the user can write. Its name is a digest of
    everything that the code depends on.
    """

    def __init__(self, model: GPT):
        self.model = model
        self.steps: dict[tuple[int, int], CompiledStep] = {}
        self.failed = False

    def __call__(self, batch_size: int, n_characters: int) -> CompiledStep | None:
        """Return the step for batch_size texts of n_characters, prompt included; None, after a line, if it fails.

        Raises UserError if others can write to the packages.
        """
        size = min(-(-n_characters // SIZE_STEP) * SIZE_STEP, self.model.config.block_size)
        if (batch_size, size) not in self.steps and not self.failed:
            try:
                self.steps[batch_size, size] = self._load(batch_size, size)
            except UserError:
                raise
            except Exception as error:  # the compiler and PyTorch have many; sampling works without them
                self.failed = True
                print(f"Sampling without --compile: {explain(error)}", file=sys.stderr)
        return self.steps.get((batch_size, size))

    def _load(self, batch_size: int, size: int) -> CompiledStep:
        config, vocab_size = self.model.config, self.model.lm_head.out_features
        folder = private_folder()
        package = folder / f"{step_digest(self.model, batch_size, size)}.pt2"
        if package.exists():
            check_private(package)
            try:
                return CompiledStep(package, self.model, batch_size, size)
            except RuntimeError:  # it is damaged
                package.unlink()
        print("Compiling for this shape of model, in about half a minute; later starts find it", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            # PyTorch's default is a folder with a known name in /tmp, where others could have put code.
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = work
            compile_step(config, vocab_size, batch_size, size, Path(work) / "step.pt2")
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
            (Path(work) / "step.pt2").replace(package)
        package.chmod(0o600)
        return CompiledStep(package, self.model, batch_size, size)


def step_digest(model: GPT, batch_size: int, size: int) -> str:
    """Return a digest of the model's shape, this project's code, PyTorch, the compiler and the processor."""
    compiler = find_compiler("cpu")
    if compiler is None:
        raise RuntimeError("it needs a C++ compiler; install g++")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    depends_on = [
        dataclasses.asdict(model.config),
        *(model.lm_head.out_features, batch_size, size, torch.get_num_threads()),
        *(torch.__version__, version, processor_features()),
    ]
    digest = hashlib.sha256(json.dumps(depends_on).encode())
    for source in sorted(Path(next(iter(model_package.__path__))).rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def private_folder() -> Path:
    """Create and return the folder of packages. Raises UserError if others can write to it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "character-gpt"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(folder)
    return folder


def check_private(path: Path) -> None:
    """Raise UserError if the path is a link, belongs to somebody else, or others can write to it."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise UserError(
            f"{path} holds machine code, but others could have written it; delete it, or sample without --compile"
        )
