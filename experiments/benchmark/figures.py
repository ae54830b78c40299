"""A measured figure: its median, its spread and its fraction of the machine's limit, such as a peak speed."""

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from training.runtime import has_fast_bfloat16

SIZES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192), "mps": (1024, 2048)}  # of square matrices
COPIED_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31, "mps": 1 << 28}


@dataclass(frozen=True)
class Figure:
    """A name and one value per repeat, in `unit`.

    limit: the highest value that this machine can reach, in the same unit. limit_is: what sets the limit.
    """

    name: str
    unit: str
    values: list[float]
    limit: float | None = None
    limit_is: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        spread = f"{min(self.values):,.4g} to {max(self.values):,.4g}" if len(self.values) > 1 else ""
        share = f"{self.median / self.limit:6.1%} of {self.limit_is}" if self.limit else ""
        return f"{self.name:52} {self.median:>10,.4g} {self.unit:14} {spread:24} {share}".rstrip()


def time_repeats(work: Callable[[], object], repeats: int, device: torch.device, *, warm_up: int = 1) -> list[float]:
    """Return the seconds of each repeat of `work`, after warm_up repeats that do not count."""
    finish = (lambda: None) if device.type == "cpu" else (lambda: torch.accelerator.synchronize(device))
    seconds = []
    for _ in range(warm_up + repeats):
        finish()
        began_s = time.perf_counter()
        work()
        finish()
        seconds.append(time.perf_counter() - began_s)
    return seconds[warm_up:]


def measure_matrix_products(device: torch.device, repeats: int) -> dict[str, Figure]:
    """Measure GFLOP/s of products of square matrices; return the figure of the fastest size by dtype.

    A processor without fast bfloat16 would emulate it, for minutes, and is measured in float32 alone.
    """
    dtypes = ["float32", "bfloat16"] if has_fast_bfloat16(device) else ["float32"]
    return {dtype: _measure_matrix_product(device, dtype, repeats) for dtype in dtypes}


def _measure_matrix_product(device: torch.device, dtype: str, repeats: int) -> Figure:
    name, figures = f"matrix product, {dtype}", []
    for size in SIZES[device.type]:
        a = torch.randn(size, size, device=device).to(getattr(torch, dtype))
        multiply = functools.partial(torch.mm, a, a, out=torch.empty_like(a))
        seconds = time_repeats(multiply, max(10, repeats), device, warm_up=3)
        figures.append(Figure(name, "GFLOP/s", [2 * size**3 / s / 1e9 for s in seconds]))
    return max(figures, key=lambda figure: figure.median)


def measure_copy(device: torch.device, repeats: int) -> Figure:
    """Measure GB/s of a copy too large for any cache, counting the bytes read and the bytes written."""
    source = torch.ones(COPIED_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = time_repeats(lambda: target.copy_(source), max(5, repeats), device)
    return Figure("memory copy, read and written", "GB/s", [2 * len(source) / s / 1e9 for s in seconds])
