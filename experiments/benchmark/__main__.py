"""Measure the peak speeds of this machine, then training, sampling, memory, encoding and start-up.

With --config, measure training and sampling of that config's model instead, or of each variant of its sweep.
"""

import json
import platform
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from tqdm import tqdm

from cli.command import CommandParser
from cli.errors import explain
from experiments.benchmark.corpora import measure_encoding
from experiments.benchmark.figures import Figure, in_new_process
from experiments.benchmark.memory import measure_context
from experiments.benchmark.peaks import measure_copy, measure_matrix_product
from experiments.benchmark.sampling import measure_sampling, measure_without_cache
from experiments.benchmark.startup import ROOT, measure_startup
from experiments.benchmark.training import measure_training
from experiments.benchmark.variants import measure_cache, read_variants, without_dropout
from training.runtime import choose_device, choose_runtime, keep_freed_memory, processor_name
from training.settings.config import Config
from training.settings.config_file import load_config

FLOAT32 = ["train.dtype=float32", "model.attention=fused"]  # the usual arithmetic of these shapes on a CPU
SHAPES = {  # name: (config file, overrides, part of --quick)
    "GPT-2 layers 6/6/384": ("shakespeare_gpt2.yaml", [], True),
    "GPT-2 layers 6/6/384, float32": ("shakespeare_gpt2.yaml", FLOAT32, False),
    "GPT-2 layers 4/4/128": ("shakespeare_gpt2_cpu.yaml", [], True),
    "GPT-2 layers 4/4/128, float32": ("shakespeare_gpt2_cpu.yaml", FLOAT32, True),
    "shakespeare.yaml": ("shakespeare.yaml", [], True),
}
SAMPLED = {  # name: (config file, overrides); both GPT-2 shapes have the same context length
    "GPT-2 layers 4/4/128": ("shakespeare_gpt2_cpu.yaml", ["model.block_size=256"]),
    "GPT-2 layers 6/6/384": ("shakespeare_gpt2.yaml", []),
    "shakespeare.yaml": ("shakespeare.yaml", []),
}
PARTS = ("training", "sampling", "memory", "encoding", "start-up")
ALPHABETS = {"ASCII": "", "with other letters": "äöüß\n"}


def main() -> int:
    parser = CommandParser(prog="experiments.benchmark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="take under a minute: fewer shapes and repeats, less text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to this file")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: %(default)s)")
    parser.add_argument("--only", default="", choices=PARTS, help="measure only the peak speeds and this part")
    parser.add_argument("--config", type=Path, metavar="FILE", help="measure the variants of this config")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="override settings of --config")
    options = parser.parse_intermixed_args()
    if options.overrides and not options.config:
        parser.error("settings need --config")
    keep_freed_memory()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends child processes too
    try:
        if options.json:
            options.json.touch()
        device = choose_device(options.device)
        overrides = [*options.overrides, f"train.device={device}"]
        variants = read_variants(options.config, overrides) if options.config else {}
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
    figures: list[Figure] = []
    failures: list[str] = []
    for measured in run(device, failures, quick=options.quick, only=options.only, variants=variants):
        figures += measured
        print(*measured, sep="\n", flush=True)
        if options.json:  # after each measurement, so that a benchmark that is stopped keeps its figures
            options.json.write_text(json.dumps(machine | {"figures": [f.to_dict() for f in figures]}, indent=1) + "\n")
    for failure in failures:
        print(f"experiments.benchmark: {failure}", file=sys.stderr)
    return 1 if failures else 0


def run(
    device: torch.device, failures: list[str], *, quick: bool, only: str, variants: Mapping[str, Config] | None = None
) -> Iterator[list[Figure]]:
    """Yield the peaks of the machine, then the figures of each measurement; append those that fail to `failures`.

    variants: measure these configs, see `read_variants`, instead of the usual ones.
    """
    repeats = 3 if quick else 7
    peaks = [
        *(measure_matrix_product(device, dtype, repeats) for dtype in (torch.float32, torch.bfloat16)),
        measure_copy(device, repeats),
    ]
    yield peaks
    products = {"float32": peaks[0].median, "bfloat16": peaks[1].median}
    if variants:
        jobs = list(_variant_jobs(variants, device, products, repeats))
    else:
        jobs = list(_jobs(device, products, repeats, quick=quick))
    jobs = [job for job in jobs if job[0].startswith(only)]
    for name, measure, arguments in tqdm(jobs, desc="Measuring", disable=None, leave=False):
        try:
            result = in_new_process(measure, arguments)
        except Exception as error:  # the other measurements still run
            failures.append(f"{name} failed: {type(error).__name__}: {error}")
            continue
        yield [result] if isinstance(result, Figure) else result


def _jobs(device: torch.device, products: dict[str, float], repeats: int, *, quick: bool) -> Iterator[tuple]:
    """Yield (name, function, keyword arguments) of each measurement."""
    for name, (file, overrides, is_quick) in SHAPES.items():
        if quick and not is_quick:
            continue
        config = load_config(ROOT / "configs" / file, [*overrides, f"train.device={device}"])
        large = config.model.n_embd > 128 and device.type == "cpu"
        n = (1 if quick else 3) if large else 10 * repeats
        yield f"training {name}", measure_training, {"name": name, "config": config, "peaks": products, "repeats": n}
    for name, (file, overrides) in SAMPLED.items():
        model = without_dropout(load_config(ROOT / "configs" / file, overrides))
        arguments = {"name": name, "config": model, "repeats": repeats, "device": str(device)}
        yield f"sampling {name}", measure_without_cache, arguments
        for streams in (1,) if quick else (1, 64):
            yield f"sampling {name}", measure_sampling, arguments | {"streams": streams}
    for form in ("fused", "auto"):
        for block_size in (256, 8192) if quick else (256, 1024, 4096, 8192):
            arguments = {"block_size": block_size, "form": form, "device": str(device)}
            yield f"memory {block_size} {form}", measure_context, arguments
    for name, alphabet in ALPHABETS.items():
        arguments = {"name": name, "alphabet": alphabet, "megabytes": 20 if quick else 200, "repeats": repeats}
        yield f"encoding {name}", measure_encoding, arguments
    yield "start-up", measure_startup, {"repeats": 1 if quick else repeats}


def _variant_jobs(
    variants: Mapping[str, Config], device: torch.device, products: dict[str, float], repeats: int
) -> Iterator[tuple]:
    """Yield (name, function, keyword arguments) of each measurement of each variant."""
    for name, config in variants.items():
        arguments = {"name": name, "config": config, "peaks": products, "repeats": 10 * repeats}
        yield f"training {name}", measure_training, arguments
        model = without_dropout(config)
        for streams in (1, 64):
            arguments = {"name": name, "config": model, "repeats": repeats, "device": str(device), "streams": streams}
            yield f"sampling {name}", measure_sampling, arguments
        yield f"sampling {name}", measure_cache, {"name": name, "config": model}


if __name__ == "__main__":
    sys.exit(main())
