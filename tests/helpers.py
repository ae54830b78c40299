"""Helpers that several test modules share: reading runs, comparing checkpoints, and processes that react to signals."""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT

from data.config import DataConfig
from data.corpus import open_corpus
from experiments.sweep.sweep_folder import SweepFolder
from model.config import ModelConfig
from model.gpt import GPT
from training.config import Config
from training.config_file import to_dict
from training.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from training.runs.metrics import read_records

OURS = ("cli", "data", "experiments", "model", "sample", "tests", "textbook", "train", "training")
MEASURED = ("elapsed_s", "tokens_per_s", "peak_memory_bytes", "date", "commit")  # these differ between any two runs


def make_model(vocab_size=29, **settings):
    """Return a small GPT in evaluation mode, with random weights where training starts with zeros."""
    torch.manual_seed(4)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 20, "block_size": 16}
    model = GPT(ModelConfig(**sizes | settings), vocab_size).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    return model


def load_corpus(name, encoding="utf-8", *, cache=None, **settings):
    """Open the corpus that these settings of `data` describe."""
    return open_corpus(DataConfig(corpus=str(name), encoding=encoding, **settings), cache=cache)


def metrics(run):
    """Return the records of a run folder."""
    return read_records(run / "metrics.jsonl")


def untimed(records):
    return [{k: v for k, v in record.items() if k not in MEASURED} for record in records]


def assert_same_state(a, b):
    """Assert that two checkpoints are equal tensor by tensor, and in all other values except times and sizes."""
    a, b = load_checkpoint(a), load_checkpoint(b)
    for ours, theirs in ((a.model, b.model), (a.trained or {}, b.trained or {})):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert torch.equal(ours[name], theirs[name]), name
    for ours, theirs in zip(a.optimizers, b.optimizers, strict=True):
        assert ours.keys() == theirs.keys()
        for parameter in ours:
            for name, value in ours[parameter].items():
                assert torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[parameter][name])), name
    times = ("elapsed_s", "log_sizes", "peak_memory_bytes")
    assert {k: v for k, v in a.progress.items() if k not in times} == {
        k: v for k, v in b.progress.items() if k not in times
    }
    assert (a.settings, a.characters, a.corpus) == (b.settings, b.characters, b.corpus)


def assert_same_but_for_the_name(a, b):
    for path in (a, b):
        checkpoint = load_checkpoint(path)
        checkpoint.settings["train"]["name"] = None
        save_checkpoint(checkpoint, path)
    assert_same_state(a, b)


def make_checkpoint(step=7):
    """Return a small checkpoint with random tensors of several types."""
    torch.manual_seed(step)
    return Checkpoint(
        settings=to_dict(Config()),
        characters="\n ab🙂",
        corpus={"name": "x", "digest": "d", "n_characters": 9},
        model={"w": torch.randn(3, 4), "b": torch.randn(2).bfloat16()},
        optimizers=[{0: {"momentum_buffer": torch.randn(3, 4)}}],
        progress={"step": step},
    )


def heed_signals():
    """Restore the default signal handlers in a new process: a shell's background jobs ignore Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def finished_sweep(name, plan, folder, **where):
    """Return a sweep folder in which each point has the metrics of the run that was trained by hand."""
    sweep = SweepFolder.open(name, plan, **where)
    for point in plan.points:
        by_hand = folder / "runs" / f"{point.config.model.n_head}-{point.config.train.seed}"
        (sweep.run_of(point).metrics).write_bytes((by_hand / "metrics.jsonl").read_bytes())
    return sweep


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited for a minute"
        time.sleep(0.005)


def start_train(output, *arguments):
    """Start train.py in a process that need not import PyTorch: a fork of one that has. Its output goes to a file."""
    return _start(_train, str(output), [*map(str, arguments)])


def run_python(arguments, *, cwd=None, text_input=""):
    """Run `python ARGUMENTS` in a fork of a process that has imported PyTorch; return what `subprocess.run` would.

    On Python 3.11, `atexit` handlers do not run.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods() or arguments[0] == "-c":
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, input=text_input, capture_output=True, text=True, timeout=600)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("input", "output", "errors")]
        for file, text in zip(files, (text_input, "", ""), strict=True):
            file.write_text(text, encoding="utf-8")
        where = str(cwd or Path.cwd())
        process = _start(_run_python, [*map(str, arguments)], where, dict(os.environ), [*map(str, files)])
        try:
            process.join(600)
            assert process.exitcode is not None, f"{arguments} runs for ten minutes"
        finally:
            process.kill()
            process.join()
        output, errors = (file.read_text(encoding="utf-8") for file in files[1:])
    return subprocess.CompletedProcess(arguments, process.exitcode, output, errors)


def _start(target, *arguments):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["train", "torch._dynamo"])  # PyTorch imports it with the first optimiser
    process = context.Process(target=target, args=arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # where the process that is forked finds train
        process.start()
    return process


def _train(output, arguments):
    import train

    for stream in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.exit(train.main(arguments))


def _run_python(arguments, cwd, environment, files):
    """Become the process that `python ARGUMENTS` would start in a folder."""
    for number, (file, mode) in enumerate(zip(files, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(file, mode), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # a new process of multiprocessing has none
    os.chdir(cwd)
    multiprocessing.process.ORIGINAL_DIR = cwd  # where a process that this one spawns finds its script
    os.environ.clear()
    os.environ.update(environment)
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]  # the program imports the files of its own folder
    is_module = arguments[0] == "-m"
    name, sys.argv = arguments[is_module], arguments[is_module:]
    folders = [cwd if is_module else str(Path(name).parent.resolve())]
    folders += filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = folders + [path for path in sys.path if path not in (str(ROOT), str(ROOT / "tests"))]
    if is_module:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(name, run_name="__main__")
