"""Numbers and tables as text."""

from collections.abc import Sequence

from cli.errors import one_line


def signed(value: float) -> str:
    """Return a difference in nats with its sign."""
    return f"{value:+.4f}".replace("-", "\N{MINUS SIGN}")


def in_columns(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as aligned columns, each on one line; every line must have the same number of cells."""
    lines = [[*map(one_line, line)] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
