"""Helpers that several test modules share: reading runs, comparing checkpoints, and processes that react to signals."""

import dataclasses
import hashlib
import json
import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
import safetensors.torch
import torch
from conftest import ROOT

import train
from data.config import DataConfig
from data.corpus import open_corpus
from data.vocabulary import Vocabulary
from experiments.sweep.sweep_folder import SweepFolder
from model.config import ModelConfig
from model.generate import Sampling, draw, uniform_draws, window_start
from model.gpt import GPT
from training.config import Config
from training.config_file import load_config
from training.runs.checkpoint import FORMAT, Checkpoint, load_checkpoint
from training.runs.metrics import read_records
from training.runs.run_folder import RunFolder
from training.runtime import choose_runtime
from training.state import Progress, TrainingState

OURS = ("cli", "data", "experiments", "model", "page", "sample", "tests", "textbook", "train", "training")
# These differ between any two runs.
MEASURED = ("elapsed_s", "tokens_per_s", "peak_memory_bytes", "log_sizes", "date", "commit", "settings")


def make_model(vocab_size=29, **settings):
    """Return a small GPT in evaluation mode, with random weights where training starts with zeros."""
    torch.manual_seed(4)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 20, "block_size": 16}
    model = GPT(ModelConfig(**sizes | settings), vocab_size).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    return model


@torch.inference_mode()
def recomputed(model, prompt, length, *, seed=0, sampling=None):
    """Return the text (B, length) of a sampler that has no cache: it reads the context anew for each character."""
    ids, draws = prompt, uniform_draws(seed, range(len(prompt)), prompt.device)
    for _ in range(length):
        context = ids[:, window_start(ids.size(1), model.config.block_size) :]
        drawn = draw((sampling or Sampling()).probabilities(model(context)[:, -1]), next(draws))
        ids = torch.cat((ids, drawn[:, None]), dim=1)
    return ids[:, prompt.size(1) :]


def block_outputs(model, ids):
    """Return the output (B, T, C) of each block for ids (B, T)."""
    outputs = []
    hooks = [block.register_forward_hook(lambda _, inputs, output: outputs.append(output)) for block in model.blocks]
    model(ids)
    for hook in hooks:
        hook.remove()
    return outputs


def load_corpus(name, encoding="utf-8", *, cache=None, **settings):
    return open_corpus(DataConfig(corpus=str(name), encoding=encoding, **settings), cache=cache)


def metrics(run):
    return read_records(run / "metrics.jsonl")


def losses(run, name="val_loss"):
    """Return the validation losses in the records of a run folder, or another measure."""
    return [record[name] for record in metrics(run) if name in record]


def train_run(name, *settings, status=0):
    """Train runs/NAME with the tiny config of the working directory; return its folder."""
    assert train.main(["--config", "tiny.yaml", f"train.name={name}", *settings]) == status
    return RunFolder(Path("runs") / name)


def resume(run, *settings, status=0):
    assert train.main(["--resume", str(run.path), *settings]) == status


def make_state(*settings):
    """Return the state of a run in float32 on the CPU with the tiny config of the working directory."""
    config = load_config(Path("tiny.yaml"), settings)
    return TrainingState(config, open_corpus(config.data), choose_runtime("cpu", "float32"))


def assert_mistake(capsys, command, arguments, message):
    """Return the one line that a command prints; assert that it is an error with a message, and the status 2."""
    capsys.readouterr()
    try:
        status = command(arguments)
    except SystemExit as end:  # from argparse
        status = end.code
    output, errors = capsys.readouterr()
    *before, line = errors.splitlines()
    assert all(each.startswith("Sampling on ") for each in before), errors  # sample.py names its model
    assert (status, output, line.isprintable()) == (2, "", True)
    assert message in line
    assert len(line) < 1_200
    return line


def models_in(page):
    """Return what a page holds of each model."""
    content = Path(page).read_text(encoding="utf-8")
    return json.loads(re.search(r'id="models-of-this-page" data-own>(.*?)</script>', content, re.DOTALL)[1])


def untimed(records):
    return [{k: v for k, v in record.items() if k not in MEASURED} for record in records]


def assert_same_state(a, b):
    """Assert that two checkpoints are equal but for times, sizes and the name of the run."""
    assert differences(load_checkpoint(a), load_checkpoint(b)) == []


def differences(a, b):
    """Return the names of tensors and other values in which two checkpoints differ, but for their earlier settings."""
    found = [*(a.tensors.keys() ^ b.tensors.keys())]
    found += [name for name in a.tensors.keys() & b.tensors.keys() if not torch.equal(a.tensors[name], b.tensors[name])]
    progress = [vars(each.progress) | dict.fromkeys(MEASURED) for each in (a, b)]
    settings = [dataclasses.asdict(each.config) for each in (a, b)]
    for each in settings:
        each["train"]["name"] = None
    rest = {"progress": progress, "settings": settings, "corpus": [a.corpus, b.corpus]}
    rest["origin"] = [{**each.origin, "earlier": None} for each in (a, b)]
    rest["vocabulary"] = [a.vocabulary.characters, b.vocabulary.characters]
    return sorted(found) + [name for name, (ours, theirs) in rest.items() if ours != theirs]


def run_differences(run, expected):
    """Return how a finished run differs from another one: in checkpoints, kept weights, metrics or samples."""
    files, wanted = ({path.name: path for path in each.checkpoints.glob("*.safetensors")} for each in (run, expected))
    files.pop("previous.safetensors", None)
    wanted.pop("previous.safetensors", None)
    found = [f"{name} exists once" for name in files.keys() ^ wanted.keys()]
    for name in files.keys() & wanted.keys():
        found += [f"{name}: {each}" for each in differences(*map(load_checkpoint, (files[name], wanted[name])))]
    if untimed(metrics(run.path)) != untimed(metrics(expected.path)):
        found.append("metrics.jsonl")
    if run.samples.read_bytes() != expected.samples.read_bytes():
        found.append("samples.txt")
    return found + [path.name for path in run.path.rglob("*.part")]


def make_checkpoint(step=7, *, model=None, characters="\n ab🙂"):
    """Return a checkpoint with a copy of a model, by default a small one with random weights."""
    torch.manual_seed(step)
    if model is None:
        model = GPT(ModelConfig(n_layer=1, n_head=1, n_embd=4, block_size=3), len(characters))
    tensors = {f"model.{name}": value.clone() for name, value in model.state_dict().items()}
    tensors["optimizer.exp_avg.lm_head.weight"] = torch.randn(5, 4).bfloat16()
    text = {"name": "x", "digest": "d", "n_train": None}
    origin = {"text": "d", "vocabulary": "v", "ancestor": None, "arithmetic": "a", "earlier": {}}
    return Checkpoint(Config(model=model.config), Vocabulary(characters), text, origin, Progress(step=step), tensors)


def header_of(checkpoint):
    """Return the texts in the header of a checkpoint, without its checksum."""
    fields = {"format": FORMAT} | {name: getattr(checkpoint, name) for name in ("corpus", "origin")}
    fields |= {"settings": dataclasses.asdict(checkpoint.config), "vocabulary": checkpoint.vocabulary.characters}
    return {name: json.dumps(value) for name, value in (fields | {"progress": vars(checkpoint.progress)}).items()}


def write_sealed(path, tensors, header):
    """Write a file by hand with the checksum that belongs to it: the SHA-256 of the file with zeros in its place."""
    content = safetensors.torch.save(tensors, {**header, "sha256": "0" * 64})
    path.write_bytes(content.replace(b"0" * 64, hashlib.sha256(content).hexdigest().encode()))


class Malicious:
    """Creates a folder, the canary, where a pickle of it is loaded."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.mkdir, (str(self.canary),)


def heed_signals():
    """Restore the default signal handlers in a new process: a shell's background jobs ignore Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def finished_sweep(name, plan, folder, **where):
    """Return a sweep folder in which each point has the metrics of the run that was trained by hand."""
    sweep = SweepFolder.open(name, plan, **where)
    for point in plan.points:
        by_hand = folder / "runs" / f"{point.config.model.n_head}-{point.config.train.seed}"
        records = (by_hand / "metrics.jsonl").read_text(encoding="utf-8")
        sweep.run_of(point).metrics.write_text(records.replace(f'"name": "{by_hand.name}"', '"name": null'))
    return sweep


def wait_for(condition, process=None):
    end = time.monotonic() + 180
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited for three minutes"
        time.sleep(0.005)


def workers(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def start_train(output, *arguments, hook=None):
    """Start train.py in a process that need not import PyTorch: a fork of one that has. Its output goes to a file.

    hook: a function that can be pickled, and gets the events of `sys.addaudithook`.
    """
    return start_fork(_train, str(output), [*map(str, arguments)], hook)


def read_available(descriptor):
    content = b""
    while select.select([descriptor], [], [], 0.2)[0]:
        content += os.read(descriptor, 65536)
    return content.decode()


def new_environment(folder, *packages):
    """Return the Python of a new virtual environment that has these packages and, besides, all of this one's."""
    venv.create(folder, with_pip=True)
    (own,) = folder.glob("lib/*/site-packages")
    (own / "shared.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *packages], check=True)
    return folder / "bin/python"


def start_fork(target, *arguments):
    """Start a function in a fork of a process that has imported PyTorch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["train", "torch._dynamo"])  # PyTorch imports it with the first optimiser
    process = context.Process(target=target, args=arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # where the process that is forked finds train
        process.start()
    return process


def _train(output, arguments, hook):
    heed_signals()
    if hook:
        sys.addaudithook(hook)
    for stream in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.exit(train.main(arguments))
