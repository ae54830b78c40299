"""Matrices as text and as pictures."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap

import numpy as np
from torch import Tensor

from cli.errors import UserError
from cli.optional import optional_library

FORMATS = (".png", ".svg", ".pdf")
N_COLUMNS, LARGEST_WITH_NUMBERS = 4, 80  # of a picture


def written(title: str, value: Tensor) -> str:
    """Return a title with the shape and the numbers of a matrix, or of the first of several."""
    cells = [[_number(x, value) for x in row] for row in _matrix(value).tolist()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n  ".join([f"{title}  {tuple(value.shape)}", *lines]) + "\n"


def _matrix(value: Tensor) -> Tensor:
    return value.flatten(0, -3)[0] if value.ndim > 2 else value


def _number(x: float, of: Tensor) -> str:
    """Return a number as whole, with four decimals, or with five digits, as its matrix needs."""
    if (of == of.round()).all():
        return f"{x:.0f}"
    smallest = of.abs()[of != 0].min()
    return f"{x:.5g}" if 1e-9 < smallest < 1e-3 else f"{x:.4f}"


def check_drawing(path: Path) -> None:
    """Raise UserError if no picture can be written there, or matplotlib is not installed."""
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: end the name of the picture with {', '.join(FORMATS)}")
    load_pyplot()


def load_pyplot():
    """Return matplotlib.pyplot, set to draw into files. Raises UserError if matplotlib is not installed."""
    optional_library("matplotlib", "drawing").use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_matrices(path: Path, matrices: Mapping[str, Tensor]) -> None:
    """Draw each matrix as a map of colours with its numbers; what a mask hides stays white."""
    n_rows = -(-len(matrices) // N_COLUMNS)
    if not n_rows:
        raise UserError("this chapter has nothing to draw")
    size = {"figsize": (15, 3.8 * n_rows), "layout": "constrained"}
    figure, axes = load_pyplot().subplots(n_rows, N_COLUMNS, squeeze=False, **size)
    for axis in axes.flat:
        axis.axis("off")
    for axis, (title, value) in zip(axes.flat, matrices.items(), strict=False):
        numbers = _matrix(value).double().numpy()
        limit = 1.5 * abs(numbers[np.isfinite(numbers)]).max()  # so that the numbers stay readable
        axis.imshow(numbers, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axis.set_title("\n".join(wrap(title, 44)), fontsize=9)
        if numbers.size <= LARGEST_WITH_NUMBERS:
            for (i, j), number in np.ndenumerate(numbers):
                axis.text(j, i, f"{number:.3g}", ha="center", va="center", fontsize=8)
    figure.savefig(path, dpi=120)
