"""Measure how training scales: python -m experiments.benchmark.scaling

It measures the cost per character as the text, the context, the model and the number of processes grow, and how Muon
gains from processes.
"""

import argparse
import dataclasses
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from cli.command import CommandParser, report_errors, run_command
from cli.errors import UserError
from data.config import DataConfig
from data.corpus import open_corpus
from data.sources import BUNDLED
from experiments.benchmark.figures import Figure, in_new_process, time_repeats
from experiments.benchmark.peaks import measure_matrix_product
from experiments.benchmark.training import measure_training
from model.config import ModelConfig
from model.gpt import GPT
from training.optim.muon import Muon
from training.processes.launching import join_processes
from training.runs.metrics import read_records
from training.runtime import choose_runtime, keep_freed_memory, peak_memory_bytes, processor_name
from training.settings.config import Config
from training.settings.config_file import load_config

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "configs" / "shakespeare.yaml"
WHOLE_CONTEXT = ["train.grow_context_at=[]"]  # all steps cost the same
PARTS = ("text", "context", "model", "processes", "muon")
MODELS = {"0.8M": (4, 128), "3M": (4, 256), "11M": (6, 384), "32M": (8, 576), "100M": (12, 832)}  # layers, width
CHARACTERS = 8192  # per step, as the context grows
PROCESS_RUNS = {
    "1.2M": ["train.max_steps=60", "train.log_every_steps=10"],
    "11M": ["model.n_layer=6", "model.n_head=6", "model.n_embd=384", "train.max_steps=12", "train.log_every_steps=3"],
    "32M": ["model.n_layer=8", "model.n_head=9", "model.n_embd=576", "train.max_steps=5", "train.log_every_steps=1"],
}
PROCESSES: tuple[list[str], ...] = (
    ["train.processes=1"],
    ["train.processes=2"],
    ["train.processes=2", "train.parallel=fsdp"],
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="experiments.benchmark.scaling", description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="measure this part only")
    parser.add_argument("--gigabytes", type=float, default=1, metavar="N", help="of the largest text (%(default)s)")
    options = parser.parse_args(arguments)
    return report_errors("experiments.benchmark.scaling", lambda: run(options), memory="measure one part with --only")


def run(options: argparse.Namespace) -> int:
    keep_freed_memory()
    cpu = torch.device("cpu")
    print(f"{choose_runtime('cpu', 'auto')}, {processor_name()}, PyTorch {torch.__version__}")
    products = [measure_matrix_product(cpu, dtype, 3) for dtype in (torch.float32, torch.bfloat16)]
    print(*products, sep="\n", flush=True)
    peaks = dict(zip(("float32", "bfloat16"), (figure.median for figure in products), strict=True))
    measures = {
        "text": lambda: texts(peaks, options.gigabytes),
        "context": lambda: contexts(peaks),
        "model": lambda: models(peaks),
        "processes": processes,
        "muon": muon_steps,
    }
    for part, measure in measures.items():
        if options.only in (None, part):
            for figure in measure():
                print(figure, flush=True)
    return 0


def texts(peaks: dict[str, float], largest_gb: float) -> Iterator[Figure]:
    """Encode and train on texts that repeat the bundled play."""
    sizes = [n_bytes for n_bytes in (10**6, 10**8, 10**9) if n_bytes < largest_gb * 1e9] + [int(largest_gb * 1e9)]
    piece = (BUNDLED / "selmere.txt").read_bytes()
    for n_bytes in sizes:
        with tempfile.TemporaryDirectory(prefix="scaling-") as name:
            folder = Path(name)
            path = folder / "text.txt"
            with path.open("wb") as file:
                for _ in range(-(-n_bytes // len(piece))):
                    file.write(piece)
            size = f"text of {n_bytes / 1e6:,.0f} MB"
            yield from in_new_process(measure_text, {"name": size, "path": path, "cache": folder})
            data, config = DataConfig(corpus=str(path)), load_config(RECIPE, ["train.device=cpu"])
            arguments = {"name": size, "config": config, "peaks": peaks, "repeats": 20, "data": data, "cache": folder}
            yield from in_new_process(measure_training, arguments)


def measure_text(name: str, path: Path, cache: Path) -> list[Figure]:
    """Measure encoding a text of the given path, and opening it again."""
    before, began_s = peak_memory_bytes(torch.device("cpu")), time.perf_counter()
    open_corpus(DataConfig(corpus=str(path)), cache=cache)
    encoding_s = time.perf_counter() - began_s
    grown = peak_memory_bytes(torch.device("cpu")) - before
    time.sleep(2.5)  # a text that has just been written is read again
    open_corpus(DataConfig(corpus=str(path)), cache=cache)
    began_s = time.perf_counter()
    open_corpus(DataConfig(corpus=str(path)), cache=cache)
    return [
        Figure(f"encoding, {name}", "MB/s", [path.stat().st_size / encoding_s / 1e6]),
        Figure(f"encoding, {name}: memory", "MB", [grown / 1e6]),
        Figure(f"opening it again, {name}", "ms", [1e3 * (time.perf_counter() - began_s)]),
    ]


def contexts(peaks: dict[str, float]) -> Iterator[Figure]:
    for block_size in (256, 1024, 4096, 8192):
        sizes = [f"model.block_size={block_size}", f"train.batch_size={CHARACTERS // block_size}"]
        yield from _training(f"context length {block_size:,}", load_config(RECIPE, [*WHOLE_CONTEXT, *sizes]), peaks, 3)


def models(peaks: dict[str, float]) -> Iterator[Figure]:
    for name, (n_layer, n_embd) in MODELS.items():
        sizes = [f"model.n_layer={n_layer}", f"model.n_embd={n_embd}", f"model.n_head={n_embd // 64}"]
        yield from _training(f"{name} parameters", load_config(RECIPE, [*WHOLE_CONTEXT, *sizes]), peaks, 3)


def _training(name: str, config: Config, peaks: dict[str, float], repeats: int) -> list[Figure]:
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, device="cpu"))
    arguments = {"name": name, "config": config, "peaks": peaks, "repeats": repeats}
    return in_new_process(measure_training, arguments)


def processes() -> Iterator[Figure]:
    """Train with 1 and 2 processes, which share the same cores. The memory is that of process 0, with a checkpoint."""
    for model, sizes in PROCESS_RUNS.items():
        for settings in PROCESSES:
            with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
                command = [sys.executable, str(ROOT / "train.py"), "--config", str(RECIPE), "train.device=cpu"]
                quick = ["data.corpus=selmere", "train.sample_length=0", "train.eval_characters=1000"]
                quick += ["train.checkpoint_every_steps=3"]
                finished = subprocess.run(
                    [*command, *quick, *WHOLE_CONTEXT, *sizes, *settings, "train.name=x"],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},
                )
                if finished.returncode:
                    raise UserError(finished.stderr.strip())
                records = read_records(Path(folder) / "runs/x/metrics.jsonl")
            rates = [record["tokens_per_s"] for record in records if "tokens_per_s" in record][1:]
            shown = " ".join(setting.partition(".")[2] for setting in settings)
            yield Figure(f"training, {model} parameters, {shown}", "characters/s", [*map(float, rates)])
            peak = records[-1]["peak_memory_bytes"]
            yield Figure(f"training, {model} parameters, {shown}: memory", "MB", [peak / 1e6])


def muon_steps() -> Iterator[Figure]:
    """Measure an optimiser step of the matrices of an 11M model, in two processes with and without dividing them."""
    yield Figure("Muon's step, 1 process", "ms", in_new_process(_time_muon, {"rank": 0, "size": 1, "divided": False}))
    for divided in (False, True):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            both = [pool.submit(_time_muon, rank=rank, size=2, divided=divided) for rank in range(2)]
            times_ms, _ = (future.result() for future in both)
        yield Figure(f"Muon's step, 2 processes{'' if divided else ', each with all matrices'}", "ms", times_ms)


def _time_muon(rank: int, size: int, *, divided: bool) -> list[float]:
    """Return the milliseconds of steps in one of `size` processes, which share the cores."""
    if size > 1:
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
        }
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577"}
    with join_processes(60) as processes:
        n_layer, n_embd = MODELS["11M"]
        model = GPT(ModelConfig(n_layer=n_layer, n_embd=n_embd, n_head=6), 65)
        matrices = [p for block in model.blocks for p in block.parameters() if p.ndim == 2]
        for p in matrices:
            p.grad = torch.randn_like(p)
        dtype = choose_runtime("cpu", "auto").dtype
        optimizer = Muon(matrices, dtype=dtype, processes=processes if divided else None)
        return [1e3 * s for s in time_repeats(optimizer.step, 10, torch.device("cpu"), warm_up=3)]


if __name__ == "__main__":
    run_command(main)
