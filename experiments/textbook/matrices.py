"""Matrices as text and as pictures."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent, wrap

import numpy as np
from torch import Tensor

from experiments.drawing import load_pyplot, save_figure
from experiments.formatting import in_columns

N_COLUMNS, LARGEST_WITH_NUMBERS = 4, 80  # of a picture


def written(title: str, value: Tensor | str) -> str:
    """Return a title with its sentence, or with its matrix, the first of several, and the shape."""
    if isinstance(value, str):
        return f"{title}{': ' if title else ''}{value}" + "\n" * bool(title)
    cells = [[_number(x, value) for x in row] for row in _matrix(value).tolist()]
    return f"{title}  {tuple(value.shape)}\n{indent(in_columns(cells), '  ')}\n"


def _matrix(value: Tensor) -> Tensor:
    return value.flatten(0, -3)[0] if value.ndim > 2 else value


def _number(x: float, of: Tensor) -> str:
    """Return a number as whole, with four decimals, or with five digits, as its matrix needs."""
    if (of == of.round()).all():
        return f"{x:.0f}"
    smallest = of.abs()[of != 0].min()
    return f"{x:.5g}" if 1e-9 < smallest < 1e-3 else f"{x:.4f}"


def draw_matrices(path: Path, matrices: Mapping[str, Tensor]) -> None:
    """Draw each matrix as a map of colours with its numbers; what a mask hides stays white."""
    pyplot = load_pyplot()
    n_rows = -(-len(matrices) // N_COLUMNS)
    figure, axes = pyplot.subplots(n_rows, N_COLUMNS, figsize=(15, 3.8 * n_rows), layout="constrained", squeeze=False)
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
    save_figure(figure, path)
