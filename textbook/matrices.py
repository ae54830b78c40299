"""Matrices as text and as pictures."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from cli.errors import UserError

FORMATS = (".png", ".svg", ".pdf")
N_COLUMNS, LARGEST_WITH_NUMBERS = 4, 80  # of a picture


def written(title: str, value: Tensor) -> str:
    """Return a title with the shape and numbers of a matrix: (rows, columns), or (rows, heads, columns) with gaps."""
    cells = [[_number(x, value) for x in row] for row in value.flatten(1).tolist()]
    gaps = ["    " if j and j % value.size(-1) == 0 else "" for j in range(len(cells[0]))]
    widths = [len(gap + max(column, key=len)) for gap, *column in zip(gaps, *cells, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n  ".join([f"{title}  {tuple(value.shape)}", *lines]) + "\n"


def _number(x: float, of: Tensor) -> str:
    """Return a number as whole, with four decimals, or with five digits, as its matrix needs."""
    if (of == of.round()).all():
        return f"{x:z.0f}"
    smallest = of.abs()[of != 0].min()
    return f"{x:z.5g}" if 1e-9 < smallest < 1e-3 else f"{x:z.4f}"


def check_drawing(path: Path) -> None:
    """Raise UserError if no picture can be written there."""
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: end the name of the picture with {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: no such folder")


def draw_matrices(path: Path, matrices: Mapping[str, Tensor]) -> None:
    """Draw each matrix as a map of colours with its numbers; what a mask hides stays white."""
    n_rows = -(-len(matrices) // N_COLUMNS)
    figure = Figure(figsize=(15, 3.8 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, N_COLUMNS, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, (title, value) in zip(axes.flat, matrices.items(), strict=False):
        numbers = value.flatten(1).double().numpy()
        limit = 1.5 * abs(numbers[np.isfinite(numbers)]).max() or 1.0  # so that the numbers stay readable
        axis.imshow(numbers, cmap="RdBu_r", vmin=-limit, vmax=limit)
        for j in range(value.size(-1), numbers.shape[1], value.size(-1)):
            axis.axvline(j - 0.5, color="black")  # between two heads
        axis.set_title("\n".join(wrap(title, 44)), fontsize=9)
        if numbers.size <= LARGEST_WITH_NUMBERS:
            for (i, j), number in np.ndenumerate(numbers):
                axis.text(j, i, f"{number:z.3g}", ha="center", va="center", fontsize=8)
    figure.savefig(path, dpi=120)
