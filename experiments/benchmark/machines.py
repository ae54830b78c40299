"""A row for experiments/studies/machines.md: what one machine reaches, and what share of its limits."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.benchmark.figures import Figure

COLUMNS = {  # a figure of the benchmark: the title of its column
    "matrix product, float32": "product float32, GFLOP/s",
    "matrix product, bfloat16": "product bfloat16, GFLOP/s",
    "training, shakespeare.yaml": "training `shakespeare.yaml`, characters/s",
    "training, shakespeare.yaml: arithmetic": "its share of the product",
    "training, GPT-2 layers 6/6/384: arithmetic": "share, 6/6/384",
    "sampling, shakespeare.yaml, one thread: plain GPT-2": "sampling on one thread, characters/s: plain GPT-2",
    "sampling, shakespeare.yaml, one thread: 1 stream": "`shakespeare.yaml`",
    "sampling, shakespeare.yaml, one thread: compiled": "compiled",
    "sampling, shakespeare.yaml, one thread: 64 streams": "64 streams",
}


def append_row(path: Path, machine: Mapping[str, str], figures: Sequence[Figure]) -> None:
    """Add a row with these figures to the table at the end of a file, or begin the table if there is no file."""
    found = {figure.name: figure for figure in figures}
    values = [_cell(found.get(name), title) for name, title in COLUMNS.items()]
    cells = [machine["machine"], datetime.date.today().isoformat(), machine["torch"], *values]
    titles = ["machine", "date", "PyTorch", *COLUMNS.values()]
    header = f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|"
    text = path.read_text(encoding="utf-8") if path.exists() else header
    path.write_text(f"{text.rstrip()}\n| {' | '.join(cells)} |\n", encoding="utf-8")


def _cell(figure: Figure | None, title: str) -> str:
    if figure is None:
        return "-"
    if "share" in title:
        return f"{figure.median / figure.limit:.0%}" if figure.limit else "-"
    return f"{figure.median:,.0f}"
