"""Figures as people read them on a console."""

from collections.abc import Sequence


def signed(value: float) -> str:
    """A difference in nats."""
    return f"{value:+.4f}".replace("-", "\N{MINUS SIGN}")


def in_columns(lines: Sequence[Sequence[str]]) -> str:
    """Lines of as many cells each, in step."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
