"""Prepare a run: open its corpus and choose its device. Open the corpus of a finished run again."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from cli.errors import UserError
from data.corpus import Corpus, open_corpus
from training.log.tensorboard import check_tensorboard
from training.processes.distributed import ALONE, World
from training.processes.launching import become_torchrun
from training.runs.checkpoint import Checkpoint
from training.runtime import Runtime, check_can_compile, choose_runtime, has_fast_bfloat16, make_deterministic
from training.settings.config import Config
from training.settings.config_file import to_yaml


def prepare_text(
    config: Config, name: str, *, verify: bool = False, world: World = ALONE
) -> tuple[Config, Corpus, str]:
    """Return the config, its corpus and the run's name.

    If the corpus is the fallback, print a warning and use the fallback's name in the config and the run's name.
    verify: see `data.encoded_cache.cached_text`. Raises UserError if the text is missing or too short.
    """
    corpus = open_corpus(config.data, verify=verify)
    if corpus.fallback_reason:
        line = "!" * 100
        warning = (
            f"{line}\nWARNING: {corpus.fallback_reason}.\n"
            f"WARNING: this run trains on the corpus {corpus.name} INSTEAD OF {config.data.corpus}; "
            f"its results are not comparable with those on {config.data.corpus}.\n{line}"
        )
        if world.is_main:
            print(warning, file=sys.stderr)
        name = f"{name}-on-{Path(corpus.name).stem}"
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, corpus=corpus.name, fallback=None))
    corpus.split(config.data.split, config.model.block_size)
    return config, corpus, name


def reopen_corpus(checkpoint: Checkpoint, path: Path) -> Corpus:
    """Return the text of the checkpoint at `path`. Raises UserError if it is missing or has changed."""
    corpus = open_corpus(dataclasses.replace(checkpoint.config().data, fallback=None))
    if corpus.digest != checkpoint.corpus["digest"]:
        raise UserError(f"the text {corpus.name} is not the one that {path} was trained on; restore the original text")
    return corpus


def prepare_machine(config: Config, world: World = ALONE) -> Runtime:
    """Return the device, precision and processes of the config. Raises UserError if the machine lacks them."""
    check_batch_size(config.train.batch_size, world.size)
    runtime = choose_runtime(config.train.device, config.train.dtype, world)
    if world.is_main and runtime.dtype == torch.bfloat16 and not has_fast_bfloat16(runtime.device):
        warning = "this processor has no bfloat16 instructions, so training is slow; train.dtype=auto is faster"
        print(f"train.py: warning: train.dtype=bfloat16: {warning}", file=sys.stderr)
    if config.train.compile:
        check_can_compile(runtime.device)
    if config.train.deterministic or (config.train.compile and runtime.device.type == "cpu"):
        make_deterministic()
    if config.train.tensorboard:
        check_tensorboard()
    return runtime


def check_batch_size(batch_size: int, n_processes: int) -> None:
    """Raise UserError if the windows of a batch cannot be divided among the processes."""
    if left := batch_size % n_processes:
        sizes = [size for size in (batch_size - left, batch_size - left + n_processes) if size]
        raise UserError(
            f"train.batch_size={batch_size} cannot be divided among {n_processes} processes; "
            f"use {' or '.join(map(str, sizes))}"
        )


def start_processes(config: Config, world: World, arguments: Sequence[str] | None) -> None:
    """Start the processes of a run that has several, unless torchrun has started some. Then this does not return.

    arguments: of the command. Raises UserError if a batch cannot be divided.
    """
    if config.train.processes > 1 and world is ALONE:
        check_batch_size(config.train.batch_size, config.train.processes)
        become_torchrun(config.train.processes, arguments)


def check_agreement(config: Config, corpus: Corpus, world: World) -> None:
    """Raise UserError if the processes have different settings or texts."""
    reason = "the hosts have different settings or texts; give each the same command, config and text"
    world.check_same(to_yaml(config) + corpus.digest, reason)
