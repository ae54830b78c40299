"""Measure how training scales with the text, and Muon with processes: python -m experiments.benchmark.scaling"""

import argparse
import functools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from cli.command import CommandParser, report_errors, run_command
from data.config import DataConfig
from data.corpus import open_corpus
from data.sources import BUNDLED
from experiments.benchmark.corpora import write_copies
from experiments.benchmark.figures import Figure, in_new_process, time_repeats
from experiments.benchmark.peaks import measure_matrix_product
from experiments.benchmark.startup import ROOT
from experiments.benchmark.training import measure_training
from experiments.options import positive
from model.config import ModelConfig
from model.gpt import GPT
from training.optim.muon import Muon
from training.processes.distributed import ALONE, join_world
from training.runtime import choose_runtime, keep_freed_memory, peak_memory_bytes, processor_name
from training.settings.config_file import load_config

RECIPE = ROOT / "configs" / "shakespeare.yaml"
OF_11M = ModelConfig(n_layer=6, n_embd=384, n_head=6)
CPU = torch.device("cpu")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="experiments.benchmark.scaling", description=__doc__)
    parser.add_argument("--only", choices=("text", "muon"), help="measure this part only")
    parser.add_argument("--gigabytes", type=positive, default=1, metavar="N", help="of the largest text (%(default)s)")
    options = parser.parse_args(arguments)
    return report_errors("experiments.benchmark.scaling", lambda: run(options), memory="measure one part with --only")


def run(options: argparse.Namespace) -> int:
    keep_freed_memory()
    print(f"{choose_runtime('cpu', 'auto')}, {processor_name()}, PyTorch {torch.__version__}")
    for part, measure in (("text", functools.partial(texts, options.gigabytes)), ("muon", muon_steps)):
        if options.only in (None, part):
            for figure in measure():
                print(figure, flush=True)
    return 0


def texts(largest_gb: float) -> Iterator[Figure]:
    """Encode and train on texts that repeat the bundled play."""
    products = [measure_matrix_product(CPU, dtype, 3) for dtype in (torch.float32, torch.bfloat16)]
    yield from products
    peaks = dict(zip(("float32", "bfloat16"), (figure.median for figure in products), strict=True))
    config = load_config(RECIPE, ["train.device=cpu"])
    for n_bytes in [size for size in (10**6, 10**8, 10**9) if size < largest_gb * 1e9] + [int(largest_gb * 1e9)]:
        with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
            name, path = f"text of {n_bytes / 1e6:,.0f} MB", Path(folder) / "text.txt"
            write_copies(path, (BUNDLED / "selmere.txt").read_bytes(), n_bytes)
            data = DataConfig(corpus=str(path))
            yield from in_new_process(functools.partial(measure_text, name, data, path.parent))
            work = functools.partial(measure_training, name, config, peaks, 20, data=data, cache=path.parent)
            yield from in_new_process(work)


def measure_text(name: str, data: DataConfig, cache: Path) -> list[Figure]:
    """Measure encoding a text, and opening it again."""
    before, began_s = peak_memory_bytes(CPU), time.perf_counter()
    open_corpus(data, cache=cache)
    encoding_s = time.perf_counter() - began_s
    grown = peak_memory_bytes(CPU) - before
    time.sleep(2.5)  # a text that has just been written is read again
    open_corpus(data, cache=cache)
    opening_s = time_repeats(lambda: open_corpus(data, cache=cache), 1, CPU, warm_up=0)
    return [
        Figure(f"encoding, {name}", "MB/s", [Path(data.corpus).stat().st_size / encoding_s / 1e6]),
        Figure(f"encoding, {name}: memory", "MB", [grown / 1e6]),
        Figure(f"opening it again, {name}", "ms", [1e3 * s for s in opening_s]),
    ]


def muon_steps() -> Iterator[Figure]:
    """Measure an optimiser step of the matrices of an 11M model, in two processes with and without dividing them."""
    alone = functools.partial(_time_muon, rank=0, size=1, divided=False)
    yield Figure("Muon's step, 1 process", "ms", in_new_process(alone))
    for divided in (False, True):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            both = [pool.submit(_time_muon, rank=rank, size=2, divided=divided) for rank in range(2)]
            times_ms, _ = (future.result() for future in both)
        yield Figure(f"Muon's step, 2 processes{'' if divided else ', each with all matrices'}", "ms", times_ms)


def _time_muon(rank: int, size: int, *, divided: bool) -> list[float]:
    """Return the milliseconds of steps in one of `size` processes, which share the cores."""
    if size > 1:
        ranks, sizes = ("RANK", "LOCAL_RANK"), ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
        os.environ |= dict.fromkeys(ranks, str(rank)) | dict.fromkeys(sizes, str(size))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577"}
    with join_world(60) as world:
        matrices = [p for block in GPT(OF_11M, 65).blocks for p in block.parameters() if p.ndim == 2]
        for p in matrices:
            p.grad = torch.randn_like(p)
        dtype = choose_runtime("cpu", "auto").dtype
        optimizer = Muon(matrices, dtype=dtype, world=world if divided else ALONE)
        return [1e3 * s for s in time_repeats(optimizer.step, 10, CPU, warm_up=3)]


if __name__ == "__main__":
    run_command(main)
