"""Measures this machine, then training, writing, encoding and start-up: python -m experiments.benchmark"""

import dataclasses
import json
import multiprocessing
import platform
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from tqdm import tqdm

from experiments.benchmark.corpora import measure_encoding
from experiments.benchmark.figures import Figure
from experiments.benchmark.generation import measure_generation, measure_without_cache
from experiments.benchmark.memory import measure_context
from experiments.benchmark.peaks import measure_copy, measure_matrix_product
from experiments.benchmark.startup import ROOT, measure_startup
from experiments.benchmark.training import measure_training
from training.command import CommandParser, explain
from training.config_file import load_config
from training.runtime import choose_device, choose_runtime, keep_freed_memory, processor_name

FLOAT32 = ["train.dtype=float32", "model.attention=fused"]  # as these shapes are commonly trained on a processor
SHAPES = {  # name: (config, what else is set, whether it is also in the quick benchmark)
    "textbook GPU shape 6/6/384": ("shakespeare_gpt2.yaml", [], True),
    "textbook GPU shape, float32": ("shakespeare_gpt2.yaml", FLOAT32, False),
    "textbook CPU shape 4/4/128": ("shakespeare_gpt2_cpu.yaml", [], True),
    "textbook CPU shape, float32": ("shakespeare_gpt2_cpu.yaml", FLOAT32, True),
    "shakespeare.yaml": ("shakespeare.yaml", [], True),
}
WRITING = {  # name: config; the textbook shapes with the context of the large one
    "textbook CPU shape, context 256": ("shakespeare_gpt2_cpu.yaml", ["model.block_size=256"]),
    "textbook GPU shape": ("shakespeare_gpt2.yaml", []),
    "shakespeare.yaml": ("shakespeare.yaml", []),
}
PARTS = ("training", "writing", "encoding", "memory", "start-up")
ALPHABETS = {"ASCII": "", "with other letters": "äöüß\n"}


def main() -> int:
    parser = CommandParser(prog="experiments.benchmark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute, with fewer repeats and less text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: %(default)s)")
    parser.add_argument("--only", default="", choices=PARTS, help="the peaks and this part alone")
    options = parser.parse_args()
    keep_freed_memory()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and what was started ends with it
    try:
        if options.json:
            options.json.touch()
        device = choose_device(options.device)
    except (ValueError, OSError) as error:
        print(f"experiments.benchmark: {explain(error)}", file=sys.stderr)
        return 2
    machine = {
        "machine": f"{choose_runtime(str(device), 'auto')}, {processor_name()}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    figures = []
    try:
        for measured in run(device, quick=options.quick, only=options.only):
            figures += measured
            for figure in measured:
                print(figure, flush=True)
    finally:  # what was measured stays, whatever happens to the rest
        if options.json:
            options.json.write_text(json.dumps(machine | {"figures": [f.to_dict() for f in figures]}, indent=1) + "\n")
    return 0


def run(device: torch.device, *, quick: bool, only: str):
    """Yields lists of figures: first the peaks, then everything that is held against them."""
    repeats = 3 if quick else 7
    peaks = [
        *(measure_matrix_product(device, dtype, repeats) for dtype in (torch.float32, torch.bfloat16)),
        measure_copy(device, repeats),
    ]
    yield peaks
    products = {"float32": peaks[0].median, "bfloat16": peaks[1].median}
    jobs = list(_jobs(device, products, repeats, quick=quick))
    jobs = [job for job in jobs if job[0].startswith(only)]
    for name, measure, arguments in tqdm(jobs, desc="Measuring", disable=None, leave=False):
        try:
            result = _alone(measure, arguments)
        except Exception as error:
            raise RuntimeError(f"{name}: {error}") from error
        yield [result] if isinstance(result, Figure) else result


def _jobs(device: torch.device, products: dict[str, float], repeats: int, *, quick: bool):
    """(name, function, keyword arguments) of each measurement."""
    for name, (file, overrides, is_quick) in SHAPES.items():
        if quick and not is_quick:
            continue
        config = load_config(ROOT / "configs" / file, [*overrides, f"train.device={device}"])
        large = config.model.n_embd > 128 and device.type == "cpu"
        n = (1 if quick else 3) if large else 10 * repeats
        yield f"training {name}", measure_training, {"name": name, "config": config, "peaks": products, "repeats": n}
    for name, (file, overrides) in WRITING.items():
        config = dataclasses.replace(load_config(ROOT / "configs" / file, overrides).model, dropout=0.0)
        arguments = {"name": name, "config": config, "repeats": repeats, "device": str(device)}
        yield f"writing {name}", measure_without_cache, arguments
        for streams in (1,) if quick else (1, 64):
            yield f"writing {name}", measure_generation, arguments | {"streams": streams}
    for name, alphabet in ALPHABETS.items():
        arguments = {"name": name, "alphabet": alphabet, "megabytes": 20 if quick else 200, "repeats": repeats}
        yield f"encoding {name}", measure_encoding, arguments
    for form in ("fused", "auto"):
        for block_size in (256, 8192) if quick else (256, 1024, 4096, 8192):
            yield "memory", measure_context, {"block_size": block_size, "form": form, "device": str(device)}
    yield "start-up", measure_startup, {"repeats": 1 if quick else repeats}


def _alone(function: Callable, arguments: dict):
    """What a function returns that is called in a new process, where nothing else has taken memory yet."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, **arguments).result()


if __name__ == "__main__":
    sys.exit(main())
