"""Attention as regression: a noisy sine fitted by the average, by a Gaussian kernel, and by one of a learned width."""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from experiments.drawing import load_pyplot
from model.attention import attend, masked_softmax
from model.scoring import Gaussian, Score, uniform

N_TRAINING, N_TEST, NOISE, STEPS = 50, 50, 0.5, 300


def true_function(x: Tensor) -> Tensor:
    return 2 * torch.sin(x) + x**0.8


def pool(score: Score, x: Tensor, xs: Tensor, ys: Tensor, *, visible: Tensor | None = None) -> Tensor:
    """What attention with these scores says at x (T,), from the examples xs and ys (S,)."""
    return attend(x[:, None], xs[:, None], ys[:, None], score=score, visible=visible).squeeze(1)


def fit_width(xs: Tensor, ys: Tensor) -> Gaussian:
    """The kernel whose width predicts each example best from all the others."""
    score = Gaussian(1.0).double()
    others = ~torch.eye(len(xs), dtype=torch.bool)
    optimizer = torch.optim.Adam(score.parameters(), lr=0.1)
    for _ in range(STEPS):
        loss = (pool(score, xs, xs, ys, visible=others) - ys).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return score


def main() -> int:
    parser = argparse.ArgumentParser(prog="experiments.pooling", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("pooling.png"), help="the PNG to write (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the examples (%(default)s)")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    xs = torch.sort(torch.rand(N_TRAINING, dtype=torch.float64) * 5).values
    ys = true_function(xs) + NOISE * torch.randn(N_TRAINING, dtype=torch.float64)
    x = torch.linspace(0, 5, N_TEST, dtype=torch.float64)
    learned = fit_width(xs, ys)
    scores = {
        "average": uniform,
        "fixed kernel, w = 1": Gaussian(1.0, learned=False).double(),
        f"learned kernel, w = {abs(learned.w.item()):.2f}": learned,
    }
    with torch.no_grad():
        fits = {name: pool(score, x, xs, ys) for name, score in scores.items()}
        weights = {name: masked_softmax(score(x[:, None], xs[:, None])) for name, score in scores.items()}
    print(f"Mean squared error against the true function, {N_TRAINING} noisy examples, seed {options.seed}:")
    for name, fit in fits.items():
        print(f"  {name:28} {(fit - true_function(x)).square().mean():.4f}")
    try:
        draw(options.output, xs, ys, x, fits, weights)
    except (ValueError, OSError) as error:
        print(f"experiments.pooling: {error}", file=sys.stderr)
        return 2
    print(f"Drew {options.output}")
    return 0


def draw(path: Path, xs: Tensor, ys: Tensor, x: Tensor, fits: dict[str, Tensor], weights: dict[str, Tensor]) -> None:
    """Above, the fits; below, the weights that each test point gives to the examples."""
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(2, len(fits), figsize=(12, 7), layout="constrained")
    for (above, below), (name, fit) in zip(axes.T, fits.items(), strict=True):
        above.plot(xs, ys, "o", color="tab:gray", markersize=4, label="examples")
        above.plot(x, true_function(x), "--", color="black", label="true function")
        above.plot(x, fit, color="tab:orange", linewidth=2, label="attention")
        above.set(title=name, xlabel="x")
        image = below.imshow(weights[name], cmap="Blues", aspect="auto", vmin=0)
        below.set(xlabel="example, by x", ylabel="test point, by x")
        figure.colorbar(image, ax=below)
    axes[0, 0].legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
