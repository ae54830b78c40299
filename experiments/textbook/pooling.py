"""Chapter 6, applied: how wide is near? Attention pooling fits a noisy sine, with fixed kernels and a learned one."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from experiments.drawing import load_pyplot, save_figure
from model.textbook.chapter6b_pooling import (
    Kernel,
    LogKernel,
    epanechnikov_kernel,
    gaussian_kernel,
    pool,
    pooling_weights,
)

N_EXAMPLES, N_TEST, NOISE, STEPS = 50, 50, 0.5, 300


def true_function(x: Tensor) -> Tensor:
    return 2 * torch.sin(x) + x**0.8


def fit_width(xs: Tensor, ys: Tensor) -> Kernel:
    """Return the Gaussian kernel with the width that best predicts each example (xs, ys) from all others."""
    kernel = Kernel(gaussian_kernel, learned=True)
    others = ~torch.eye(len(xs), dtype=torch.bool)
    optimizer = torch.optim.Adam(kernel.parameters(), lr=0.1)
    for _ in range(STEPS):
        loss = (pool(xs, xs, ys, kernel, visible=others) - ys).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return kernel.requires_grad_(False)


def examples_and_fits(seed: int) -> tuple[Tensor, Tensor, Tensor, dict[str, LogKernel]]:
    """Return noisy examples xs and ys, test points x, and the kernels to compare, by name."""
    torch.manual_seed(seed)
    xs = torch.sort(torch.rand(N_EXAMPLES, dtype=torch.float64) * 5).values
    ys = true_function(xs) + NOISE * torch.randn(N_EXAMPLES, dtype=torch.float64)
    learned = fit_width(xs, ys)
    kernels: dict[str, LogKernel] = {
        "Epanechnikov, w = 1": epanechnikov_kernel,
        "Gaussian, w = 1": gaussian_kernel,
        f"Gaussian, learned w = {abs(learned.w.item()):.2f}": learned,
    }
    return xs, ys, torch.linspace(0, 5, N_TEST, dtype=torch.float64), kernels


def show(options: Namespace) -> Iterator[tuple[str, str]]:
    xs, ys, x, kernels = examples_and_fits(options.seed)
    yield "", f"Mean squared error against the true function, {N_EXAMPLES} noisy examples, seed {options.seed}:"
    for name, kernel in kernels.items():
        yield "", f"  {name:28} {(pool(x, xs, ys, kernel) - true_function(x)).square().mean():.4f}"


def draw(path: Path, options: Namespace) -> None:
    """Draw the fits and, below them, the weights of the examples at each test point."""
    xs, ys, x, kernels = examples_and_fits(options.seed)
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(2, len(kernels), figsize=(15, 7), layout="constrained")
    for (above, below), (name, kernel) in zip(axes.T, kernels.items(), strict=True):
        above.plot(xs, ys, "o", color="tab:gray", markersize=4, label="examples")
        above.plot(x, true_function(x), "--", color="black", label="true function")
        above.plot(x, pool(x, xs, ys, kernel), color="tab:orange", linewidth=2, label="attention")
        above.set(title=name, xlabel="x")
        image = below.imshow(pooling_weights(x, xs, kernel), cmap="Blues", aspect="auto", vmin=0)
        below.set(xlabel="example, by x", ylabel="test point, by x")
        figure.colorbar(image, ax=below)
    axes[0, 0].legend()
    save_figure(figure, path)
