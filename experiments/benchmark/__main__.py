"""Measure the peak speeds of this machine, then training, sampling, memory, encoding and start-up.

With --config, measure training and sampling of that config's model instead, or of each variant of its sweep.
"""

import json
import platform
import signal
import sys
import traceback
from argparse import Namespace
from pathlib import Path

import torch
from tqdm import tqdm

from cli.command import run_command
from cli.errors import UserError, is_for_user, is_out_of_memory
from experiments.benchmark.figures import Figure, measure_copy, measure_matrix_products
from experiments.benchmark.machines import append_row
from experiments.benchmark.measurements import PARTS, list_measurements, read_variants
from experiments.command import command, new_file, option, whole
from training.runtime import choose_device, choose_runtime, in_new_process, keep_freed_memory, processor_name


@command(
    option("--quick", action="store_true", help="take a minute or two: fewer shapes and repeats, less text"),
    option("--json", type=new_file, metavar="FILE", help="write all values to this file"),
    option("--append", type=Path, metavar="FILE", help="add a row with the main figures to the table in this file"),
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
    device, quick, repeats = choose_device(options.device), options.quick, 3 if options.quick else 7
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

    def add(*measured: Figure) -> None:
        figures.extend(measured)
        print(*measured, sep="\n", flush=True)
        if options.json:  # after each measurement, so that a benchmark that is stopped keeps its figures
            values = [vars(figure) | {"median": figure.median} for figure in figures]
            options.json.write_text(json.dumps(machine | {"figures": values}, indent=1) + "\n")

    products = measure_matrix_products(device, repeats)
    add(*products.values(), measure_copy(device, repeats))
    if "bfloat16" not in products:
        print("matrix product, bfloat16: left out, because this processor emulates it")
    peaks = {dtype: figure.median for dtype, figure in products.items()}
    megabytes = options.megabytes or (20 if quick else 200)
    measurements = list_measurements(variants, device, peaks, repeats, megabytes, quick=quick)
    chosen = [measurement for measurement in measurements if measurement[0].startswith(options.only)]
    failures = []
    for name, measure, *arguments in tqdm(chosen, desc="Measuring", disable=None, leave=False):
        try:
            result = in_new_process(measure, *arguments)
        except Exception as error:  # the other measurements still run
            is_bug = not (is_for_user(error) or is_out_of_memory(error))
            where = f"\n{''.join(traceback.format_exception(error))}" if is_bug else ""
            failures.append(f"{name} failed: {type(error).__name__}: {error}{where}")
        else:
            add(*([result] if isinstance(result, Figure) else result))
    if options.append:
        append_row(options.append, machine, figures)
    for failure in failures:
        print(f"experiments.benchmark: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    run_command(main)
