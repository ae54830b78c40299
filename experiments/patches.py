"""Self-attention on a picture: four patches look at each other, and each becomes a mixture of those like it."""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from experiments.drawing import load_pyplot
from model.attention import attend, masked_softmax
from model.scoring import scaled_dot

# An 8 x 8 picture as its 4 x 4 patches, row by row: upper left, upper right, lower left, lower right.
PALE = [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]
DARK = [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0]
PATCHES = [PALE, DARK, PALE, DARK]


def picture(patches: Tensor) -> Tensor:
    """Four patches (4, 16) as the picture (8, 8) that they make."""
    return patches.view(2, 2, 4, 4).transpose(1, 2).reshape(8, 8)


def draw(path: Path) -> None:
    """The picture, the weights of its patches and what they become, side by side in a PNG."""
    pyplot = load_pyplot()
    x = torch.tensor(PATCHES, dtype=torch.float64)
    weights = masked_softmax(scaled_dot(x, x))
    figure, axes = pyplot.subplots(1, 3, figsize=(11, 4.6), layout="constrained")
    panels = (("the picture", picture(x)), ("what each patch becomes", picture(attend(x, x, x))))
    for axis, (title, image) in zip(axes[::2], panels, strict=True):
        axis.imshow(image, cmap="Greys", vmin=0, vmax=1)
        axis.set(title=title, xticks=[], yticks=[])
        axis.axhline(3.5, color="tab:orange", linewidth=1)
        axis.axvline(3.5, color="tab:orange", linewidth=1)
        for n, (row, column) in enumerate(((0, 0), (0, 4), (4, 0), (4, 4)), start=1):
            axis.text(column - 0.3, row + 0.15, f"X{n}", color="tab:orange", fontsize=9)
    axes[1].imshow(weights, cmap="Blues", vmin=0, vmax=0.5)
    names = [f"X{n}" for n in range(1, 5)]
    axes[1].set(title="weights", xlabel="looked at", ylabel="looking", xticks=range(4), yticks=range(4))
    axes[1].set_xticklabels(names)
    axes[1].set_yticklabels(names)
    for i in range(4):
        for j in range(4):
            axes[1].text(j, i, f"{weights[i, j]:.4f}", ha="center", va="center", fontsize=9)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(prog="experiments.patches", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("patches.png"), help="the PNG to write (%(default)s)")
    options = parser.parse_args()
    try:
        draw(options.output)
    except (ValueError, OSError) as error:
        print(f"experiments.patches: {error}", file=sys.stderr)
        return 2
    print(f"Drew {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
