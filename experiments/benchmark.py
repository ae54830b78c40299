"""Measure training, sampling and memory beside the speed of this machine: python -m experiments.benchmark"""

import functools
import multiprocessing
import statistics
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

import torch

from cli.command import run_command
from cli.errors import UserError
from cli.hints import PROJECT
from data.corpus import open_corpus
from experiments.command import command, option
from model.generate import Sampler
from model.gpt import GPT
from training.config import Config
from training.config_file import load_config
from training.runtime import (
    choose_device,
    choose_runtime,
    has_fast_bfloat16,
    keep_freed_memory,
    peak_memory_bytes,
    processor_name,
)
from training.sampling import prepare_for_sampling
from training.state import TrainingState
from training.step import TrainingStep

CONFIGS = PROJECT / "configs"
MODELS = {
    "shakespeare.yaml": CONFIGS / "shakespeare.yaml",
    "GPT-2 4/4/128": CONFIGS / "shakespeare_gpt2_cpu.yaml",  # layers, heads, width
    "GPT-2 6/6/384": CONFIGS / "shakespeare_gpt2.yaml",
}
# The text is bundled; all steps have the full context length, even if the recipe grows it.
OVERRIDES = ["data.corpus=selmere", "data.split=[0.9,0.1,0]", "train.grow_context_at=[]"]
MATRIX_SIZES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192), "mps": (1024, 2048)}
WARM_UP = {"cpu": 1, "cuda": 5, "mps": 2}  # steps before the first measured one; on a GPU, the fifth replays a graph
BLOCK_S = 0.5  # steps are timed in blocks of about this duration
FIRST_CHARACTERS = 10  # of a text: they read the prompt and capture the graph


@command(
    option("--quick", action="store_true", help="fewer repeats, and smaller batches on a CPU"),
    option("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: %(default)s)"),
    option("--config", type=Path, metavar="FILE", help="measure this config instead of three usual models"),
    option("overrides", nargs="*", metavar="section.key=value", help="override settings of --config"),
    memory="use --quick, or --config with a smaller train.batch_size",
)
def main(options: Namespace) -> None:
    if options.overrides and not options.config:
        raise UserError("settings need --config")
    device, repeats = choose_device(options.device), 3 if options.quick else 7
    files = {options.config.name: options.config} if options.config else MODELS
    overrides = [*OVERRIDES, f"train.device={device}", *options.overrides]
    configs = {name: load_config(file, overrides) for name, file in files.items()}
    if options.quick and device.type == "cpu" and not options.config:  # a step of 64 windows takes up to 15 s
        configs["GPT-2 6/6/384"] = load_config(MODELS["GPT-2 6/6/384"], [*overrides, "train.batch_size=8"])
    print(f"{choose_runtime(str(device), 'auto')}, {processor_name()}, PyTorch {torch.__version__}", flush=True)
    dtypes = ["float32", "bfloat16"] if has_fast_bfloat16(device) else ["float32"]  # others emulate it, for minutes
    products = {}
    for dtype in dtypes:
        rates = product_rates(device, dtype)
        products[dtype] = statistics.median(rates)
        print(figure(f"matrix product, {dtype}", "GFLOP/s", [rate / 1e9 for rate in rates]), flush=True)
    for name, config in configs.items():
        # Each model has its own process, so that its peak memory is that of this model alone.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            figures = pool.submit(measure_model, name, config, products, repeats).result()
        print(*figures, sep="\n", flush=True)


def figure(name: str, unit: str, values: list[float], limit: float | None = None) -> str:
    """Return a line of measured values. limit: the value if all arithmetic were as fast as a matrix product."""
    median = statistics.median(values)
    spread = f"{min(values):,.4g} to {max(values):,.4g}" if len(values) > 1 else ""
    share = f"{median / limit:7.2%} of the product" if limit else ""
    return f"{name:40} {median:>10,.4g} {unit:14} {spread:22} {share}".rstrip()


def measure_model(name: str, config: Config, products: Mapping[str, float], repeats: int) -> list[str]:
    """Measure training and then sampling. products: operations per second of matrix products, by dtype."""
    keep_freed_memory()
    before = peak_memory_bytes(torch.device("cpu"))
    runtime, block_size = choose_runtime(config.train.device, config.train.dtype), config.model.block_size
    state = TrainingState(config, open_corpus(config.data), runtime)
    model, step = state.model, TrainingStep(state)
    rates = [config.tokens_per_step / s for s in time_blocks(step.run, repeats, runtime.device)]
    product = products.get(str(runtime.dtype).removeprefix("torch."))
    limit = product and product / model.flops_per_character(block_size)
    memory = peak_memory_bytes(runtime.device) - (0 if runtime.device.type == "cuda" else before)
    figures = [
        figure(f"{name}: training", "characters/s", rates, limit),
        figure(f"{name}: memory of training", "MB", [memory / 1e6]),
    ]
    for streams in (64, 1):  # in this order, because a single stream leaves a CPU with one thread
        rates = sampling_rates(model, streams, repeats)
        # A third of a training step's arithmetic is the forward pass, and the context is half full on average.
        limit = products["float32"] / (model.flops_per_character(block_size // 2) / 3)
        figures.append(figure(f"{name}: sampling, streams: {streams}", "characters/s", rates, limit))
    return figures


def time_blocks(work: Callable[[], object], n_blocks: int, device: torch.device) -> list[float]:
    """Return the seconds per call of `work` in each block of calls. Only the end of a block waits for a GPU."""

    def time_calls(n: int) -> float:
        began_s = time.perf_counter()
        for _ in range(n):
            work()
        wait_for(device)
        return (time.perf_counter() - began_s) / n

    time_calls(WARM_UP[device.type])
    n_calls = max(1, round(BLOCK_S / time_calls(1)))
    return [time_calls(n_calls) for _ in range(n_blocks)]


def sampling_rates(model: GPT, streams: int, repeats: int) -> list[float]:
    """Return the characters per second of all streams together, from a nearly empty context window to a full one."""
    prepare_for_sampling(model.eval(), streams)
    device, length = model.lm_head.weight.device, model.config.block_size - 1
    rates = []
    for _ in range(repeats):
        prompt = torch.zeros(streams, 1, dtype=torch.long, device=device)
        characters = Sampler(model, streams, cuda_graph=True).generate(prompt, length)
        deque(islice(characters, FIRST_CHARACTERS), maxlen=0)
        wait_for(device)
        began_s = time.perf_counter()
        deque(characters, maxlen=0)
        wait_for(device)
        rates.append(streams * (length - FIRST_CHARACTERS) / (time.perf_counter() - began_s))
    return rates


def product_rates(device: torch.device, dtype: str) -> list[float]:
    """Return the operations per second of the product of square matrices, of several sizes the fastest."""
    rates = []
    for size in MATRIX_SIZES[device.type]:
        a = torch.randn(size, size, device=device).to(getattr(torch, dtype))
        multiply = functools.partial(torch.mm, a, a, out=torch.empty_like(a))
        rates.append([2 * size**3 / s for s in time_blocks(multiply, 3, device)])
    return max(rates, key=statistics.median)


def wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


if __name__ == "__main__":
    run_command(main)
