"""Measure the peak speeds of this machine, then training, sampling, memory, encoding, start-up and Muon.

With --config, measure training and sampling of that config's model instead, or of each variant of its sweep.
"""

import functools
import json
import platform
import signal
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from tqdm import tqdm

from cli.command import run_command
from cli.errors import UserError, is_for_user, is_out_of_memory
from experiments.benchmark.corpora import measure_encoding
from experiments.benchmark.figures import Figure, in_new_process
from experiments.benchmark.memory import measure_context
from experiments.benchmark.muon import measure_muon
from experiments.benchmark.peaks import measure_copy, measure_matrix_product
from experiments.benchmark.sampling import measure_cache, measure_sampling, measure_without_cache
from experiments.benchmark.startup import ROOT, measure_startup
from experiments.benchmark.training import measure_training
from experiments.benchmark.variants import read_variants
from experiments.command import command, new_file, option, whole
from training.runtime import choose_device, choose_runtime, has_fast_bfloat16, keep_freed_memory, processor_name
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
PARTS = ("training", "sampling", "memory", "encoding", "start-up", "Muon")
ALPHABETS = {"ASCII": "", "with other letters": "äöüß\n"}
Measurement = tuple[str, Callable[[], Figure | list[Figure]]]  # its name and its work


@command(
    "experiments.benchmark",
    __doc__,
    option("--quick", action="store_true", help="take under a minute: fewer shapes and repeats, less text"),
    option("--json", type=new_file, metavar="FILE", help="write all values to this file"),
    option("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: %(default)s)"),
    option("--only", default="", choices=PARTS, help="measure only the peak speeds and this part"),
    option("--config", type=Path, metavar="FILE", help="measure the variants of this config"),
    option("overrides", nargs="*", metavar="section.key=value", help="override settings of --config"),
    option("--megabytes", type=whole(1), metavar="N", help="size of the encoded text (200; 20 if quick)"),
    memory="measure one part with --only",
)
def main(options: Namespace) -> int:
    """Measure, print the figures and return the exit status: 1 if a measurement failed."""
    if options.overrides and not options.config:
        raise UserError("settings need --config")
    keep_freed_memory()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends child processes too
    if options.json:
        options.json.touch()
    device = choose_device(options.device)
    overrides = [*options.overrides, f"train.device={device}"]
    variants = read_variants(options.config, overrides) if options.config else {}
    machine = {
        "machine": f"{choose_runtime(str(device), 'auto')}, {processor_name()}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    figures: list[Figure] = []
    failures: list[str] = []
    for measured in measure(device, failures, variants, options):
        figures += measured
        print(*measured, sep="\n", flush=True)
        if options.json:  # after each measurement, so that a benchmark that is stopped keeps its figures
            options.json.write_text(json.dumps(machine | {"figures": [f.to_dict() for f in figures]}, indent=1) + "\n")
    for failure in failures:
        print(f"experiments.benchmark: {failure}", file=sys.stderr)
    return 1 if failures else 0


def measure(
    device: torch.device, failures: list[str], variants: Mapping[str, Config], options: Namespace
) -> Iterator[list[Figure]]:
    """Yield the peaks of the machine, then the figures of each measurement; append those that fail to `failures`.

    variants: if there are any, measure these configs, see `read_variants`, instead of the usual ones.
    """
    repeats = 3 if options.quick else 7
    # A CPU without bfloat16 would emulate its products, for minutes.
    dtypes = [torch.float32, *([torch.bfloat16] if has_fast_bfloat16(device) else [])]
    peaks = {dtype: measure_matrix_product(device, dtype, repeats) for dtype in dtypes}
    yield [*peaks.values(), measure_copy(device, repeats)]
    products = {str(dtype).removeprefix("torch."): peak.median for dtype, peak in peaks.items()}
    if variants:
        measurements = _of_variants(variants, device, products, repeats, quick=options.quick)
    else:
        megabytes = options.megabytes or (20 if options.quick else 200)
        measurements = _of_usual_shapes(device, products, repeats, megabytes, quick=options.quick)
    chosen = [(name, work) for name, work in measurements if name.startswith(options.only)]
    for name, work in tqdm(chosen, desc="Measuring", disable=None, leave=False):
        try:
            result = in_new_process(work)
        except Exception as error:  # the other measurements still run
            is_bug = not (is_for_user(error) or is_out_of_memory(error))
            where = f"\n{''.join(traceback.format_exception(error))}" if is_bug else ""
            failures.append(f"{name} failed: {type(error).__name__}: {error}{where}")
            continue
        yield [result] if isinstance(result, Figure) else result


def _training(name: str, config: Config, products: dict[str, float], repeats: int, *, quick: bool) -> Measurement:
    is_slow = config.model.n_embd > 128 and config.train.device == "cpu"
    n = (1 if quick else 3) if is_slow else 10 * repeats
    return f"training {name}", functools.partial(measure_training, name, config, products, n)


def _of_usual_shapes(
    device: torch.device, products: dict[str, float], repeats: int, megabytes: int, *, quick: bool
) -> Iterator[Measurement]:
    for name, (file, overrides, is_quick) in SHAPES.items():
        if is_quick or not quick:
            config = load_config(ROOT / "configs" / file, [*overrides, f"train.device={device}"])
            yield _training(name, config, products, repeats, quick=quick)
    for name, (file, overrides) in SAMPLED.items():
        model = load_config(ROOT / "configs" / file, overrides).model
        yield f"sampling {name}", functools.partial(measure_without_cache, name, model, repeats, device)
        for streams in (1,) if quick else (1, 64):
            yield f"sampling {name}", functools.partial(measure_sampling, name, model, streams, repeats, device)
    for form in ("fused", "auto"):
        for block_size in (256, 8192) if quick else (256, 1024, 4096, 8192):
            yield f"memory {block_size} {form}", functools.partial(measure_context, block_size, form, str(device))
    for name, alphabet in ALPHABETS.items():
        yield f"encoding {name}", functools.partial(measure_encoding, name, alphabet, megabytes, repeats)
    yield "start-up", functools.partial(measure_startup, 1 if quick else repeats)
    if device.type == "cpu":
        yield "Muon", functools.partial(measure_muon, repeats)


def _of_variants(
    variants: Mapping[str, Config], device: torch.device, products: dict[str, float], repeats: int, *, quick: bool
) -> Iterator[Measurement]:
    for name, config in variants.items():
        yield _training(name, config, products, repeats, quick=quick)
        for streams in (1, 64):
            yield f"sampling {name}", functools.partial(measure_sampling, name, config.model, streams, repeats, device)
        yield f"sampling {name}", functools.partial(measure_cache, name, config.model)


if __name__ == "__main__":
    run_command(main)
