"""Apply self-attention to the four patches of a picture, without learned weights: python -m experiments.patches"""

from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cli.command import run_command
from experiments.command import command, new_file, option
from experiments.drawing import load_pyplot, save_figure
from experiments.formatting import in_columns
from model.attention import attend, masked_softmax
from model.scoring import scaled_dot

# An 8 x 8 picture as its 4 x 4 patches, row by row: upper left, upper right, lower left, lower right.
PALE = [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]
DARK = [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0]
PATCHES = [PALE, DARK, PALE, DARK]
NAMES = ["X1", "X2", "X3", "X4"]


def picture(patches: Tensor) -> Tensor:
    """Return the picture (8, 8) of four patches (4, 16)."""
    return patches.view(2, 2, 4, 4).transpose(1, 2).reshape(8, 8)


def numbers(x: Tensor, weights: Tensor, result: Tensor) -> str:
    """Return the picture of patches x (4, 16), their weights (4, 4) and the output (4, 16), as text."""
    weight_rows = [[name, *(f"{w:.4f}" for w in row)] for name, row in zip(NAMES, weights.tolist(), strict=True)]
    table = in_columns([["", *NAMES], *weight_rows])
    parts = (
        ("The picture: patches X1 and X2 above X3 and X4, 16 numbers each", _image(x, ".0f")),
        ("Weights = softmax(X X^T / sqrt(16)): one row per query, one column per key", table),
        ("Output = weights X", _image(result, ".4f")),
    )
    return "\n\n".join(f"{title}\n{body}" for title, body in parts)


def _image(patches: Tensor, form: str) -> str:
    rows = [[format(pixel, form) for pixel in row] for row in picture(patches).tolist()]
    lines = in_columns([[*row[:4], "|", *row[4:]] for row in rows]).splitlines()
    return "\n".join([*lines[:4], "-" * max(map(len, lines)), *lines[4:]])


def draw(path: Path, x: Tensor, weights: Tensor, result: Tensor) -> None:
    """Draw the picture, the weights of its patches and the output, side by side."""
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(1, 3, figsize=(11, 4.6), layout="constrained")
    for axis, title, patches in ((axes[0], "the picture", x), (axes[2], "the output", result)):
        axis.imshow(picture(patches), cmap="Greys", vmin=0, vmax=1)
        axis.set(title=title, xticks=[], yticks=[])
        axis.axhline(3.5, color="tab:orange", linewidth=1)
        axis.axvline(3.5, color="tab:orange", linewidth=1)
        for name, (row, column) in zip(NAMES, ((0, 0), (0, 4), (4, 0), (4, 4)), strict=True):
            axis.text(column - 0.3, row + 0.15, name, color="tab:orange", fontsize=9)
    axes[1].imshow(weights, cmap="Blues", vmin=0, vmax=0.5)
    axes[1].set(title="weights", xlabel="key", ylabel="query")
    axes[1].set_xticks(range(4), NAMES)
    axes[1].set_yticks(range(4), NAMES)
    for (i, j), weight in np.ndenumerate(weights):
        axes[1].text(j, i, f"{weight:.4f}", ha="center", va="center", fontsize=9)
    save_figure(figure, path)


@command(
    "experiments.patches",
    __doc__,
    option("--output", type=new_file, metavar="FILE", help="also draw a PNG (needs matplotlib)"),
)
def main(options: Namespace) -> None:
    x = torch.tensor(PATCHES, dtype=torch.float64)
    weights, result = masked_softmax(scaled_dot(x, x)), attend(x, x, x)  # (4, 4), (4, 16)
    print(numbers(x, weights, result))
    if options.output:
        draw(options.output, x, weights, result)
        print(f"\nDrew {options.output}")


if __name__ == "__main__":
    run_command(main)
