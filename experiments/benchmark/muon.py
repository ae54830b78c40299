"""Speed of Muon's step, in one process and in two."""

import functools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import torch

from experiments.benchmark.figures import Figure, time_repeats
from model.config import ModelConfig
from model.gpt import GPT
from training.optim.muon import Muon
from training.processes.launching import join_processes
from training.runtime import choose_runtime

OF_11M = ModelConfig(n_layer=6, n_embd=384, n_head=6)


def measure_muon(repeats: int) -> list[Figure]:
    """Measure a step for the matrices of a model of 11M parameters, in two processes with and without dividing them."""
    figures = []
    cases = (("1 process", 1, False), ("2 processes, each with all matrices", 2, False), ("2 processes", 2, True))
    for name, size, divided in cases:
        with ProcessPoolExecutor(size, mp_context=multiprocessing.get_context("spawn")) as pool:
            work = functools.partial(_time_muon, size=size, divided=divided, repeats=repeats)
            times_ms, *_ = pool.map(work, range(size))
        figures.append(Figure(f"Muon's step, {name}", "ms", times_ms))
    return figures


def _time_muon(rank: int, size: int, *, divided: bool, repeats: int) -> list[float]:
    """Return the milliseconds of steps in one of `size` processes, which share the cores."""
    if size > 1:
        ranks, sizes = ("RANK", "LOCAL_RANK"), ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
        os.environ |= dict.fromkeys(ranks, str(rank)) | dict.fromkeys(sizes, str(size))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577"}
    with join_processes(60) as processes:
        matrices = [p for block in GPT(OF_11M, 65).blocks for p in block.parameters() if p.ndim == 2]
        for p in matrices:
            p.grad = torch.randn_like(p)
        dtype = choose_runtime("cpu", "auto").dtype
        optimizer = Muon(matrices, dtype=dtype, processes=processes if divided else None)
        return [1e3 * s for s in time_repeats(optimizer.step, repeats, torch.device("cpu"), warm_up=3)]
