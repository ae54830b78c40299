"""Where compiled sampling steps are kept, and what happens without a compiler."""

import dataclasses
import shutil

import pytest
import torch

from cli.errors import UserError
from model.config import ModelConfig
from model.gpt import GPT
from training.sampling.step_compiler import StepCompiler, private_folder, step_digest

CONFIG = ModelConfig(n_layer=1, n_head=2, n_embd=16, block_size=100)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "character-gpt"


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_the_name_of_a_package_depends_on_everything_that_its_code_depends_on_but_not_on_weights(monkeypatch):
    model = GPT(CONFIG, 11)
    digest = step_digest(model, 1, 64)
    assert step_digest(GPT(CONFIG, 11), 1, 64) == digest
    wider = dataclasses.replace(CONFIG, n_embd=32)
    others = [(GPT(wider, 11), 1, 64), (GPT(CONFIG, 12), 1, 64), (model, 2, 64), (model, 1, 128)]
    digests = {digest, *(step_digest(*other) for other in others)}
    monkeypatch.setattr(torch, "__version__", "2.99")
    digests.add(step_digest(model, 1, 64))
    assert len(digests) == 6


def test_a_package_folder_that_others_can_write_is_refused(folder):
    assert private_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    with pytest.raises(UserError, match="character-gpt holds machine code, but others could have written it"):
        private_folder()


def test_a_package_folder_that_is_a_link_is_refused(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="delete it, or sample without --compile"):
        private_folder()


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_a_package_that_others_can_write_is_refused(folder):
    model = GPT(CONFIG, 11)
    package = private_folder() / f"{step_digest(model, 1, 64)}.pt2"
    package.write_bytes(b"code")
    package.chmod(0o666)
    with pytest.raises(UserError, match=r"\.pt2 holds machine code"):
        StepCompiler(model)(1, 50)


def test_without_a_compiler_one_line_says_so_once_and_there_is_no_step(folder, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "/nonexistent")
    compiler = StepCompiler(GPT(CONFIG, 11))
    assert compiler(1, 50) is None
    assert compiler(1, 500) is None
    assert capsys.readouterr().err == "Sampling without --compile: it needs a C++ compiler; install g++\n"
