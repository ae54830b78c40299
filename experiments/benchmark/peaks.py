"""The machine's peak speeds of matrix products and memory copies."""

import functools

import torch

from experiments.benchmark.figures import Figure, time_repeats

SIZES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192), "mps": (1024, 2048)}  # of square matrices
COPIED_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31, "mps": 1 << 28}


def measure_matrix_product(device: torch.device, dtype: torch.dtype, repeats: int) -> Figure:
    """Measure GFLOP/s of products of square matrices; return the figure of the fastest size."""
    name, figures = f"matrix product, {str(dtype).removeprefix('torch.')}", []
    for size in SIZES[device.type]:
        a = torch.randn(size, size, device=device).to(dtype)
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
