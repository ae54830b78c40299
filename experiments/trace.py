"""Print every value inside a small attention layer: python -m experiments.trace"""

from argparse import Namespace
from collections.abc import Mapping
from textwrap import indent

import torch
from torch import Tensor

from cli.command import run_command
from experiments.command import command
from experiments.formatting import in_columns
from model.textbook.multi_head import MultiHeadAttention
from model.textbook.trace import trace_attention

# Three positions, four channels.
EXAMPLE = torch.tensor([[[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]], dtype=torch.float64)
QUERY_MAP = [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
KEY_MAP = [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
VALUE_MAP = [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]
FORMULAS = {
    "Q": "Q = X Wq",
    "K": "K = X Wk",
    "V": "V = X Wv",
    "raw scores": "raw scores = Q K^T",
    "scores": "scores = raw scores / sqrt(d_k)",
    "weights": "weights = softmax(scores), row by row",
    "heads": "heads = weights V",
    "output": "output, the heads side by side",
}


def example_layer() -> MultiHeadAttention:
    """Return one head of three channels over inputs of four, without an output map."""
    layer = MultiHeadAttention(3, 1, query_size=4, key_size=4, value_size=4, output_map=False).double()
    with torch.no_grad():
        for linear, weights in ((layer.query, QUERY_MAP), (layer.key, KEY_MAP), (layer.value, VALUE_MAP)):
            linear.weight.copy_(torch.tensor(weights).T)
    return layer.requires_grad_(False)


def table(traced: Mapping[str, Tensor | int]) -> str:
    """Return the formulas with the values of the first sequence and the first head."""
    blocks = []
    for name, value in traced.items():
        shown = f"\n{_matrix(value, small=name == 'weights')}" if isinstance(value, Tensor) else f" = {value}"
        blocks.append(FORMULAS.get(name, name) + shown)
    return "\n\n".join(blocks)


def _matrix(value: Tensor, *, small: bool) -> str:
    """Return the numbers of the first matrix. small: they may be far below 1."""
    rows = value.flatten(0, -3)[0]
    form = ".0f" if torch.equal(rows, rows.round()) else ".4e" if small else ".4f"
    return indent(in_columns([[format(number, form) for number in row] for row in rows.tolist()]), "  ")


@command("experiments.trace", __doc__)
def main(_options: Namespace) -> None:
    print("One head of self-attention over three positions, width 4 -> 3\n")
    print(table(trace_attention(example_layer(), EXAMPLE)))
    print("\nTwo heads over a batch of 32 sequences, 20 positions each, width 10 -> 16\n")
    layer = MultiHeadAttention(16, 2, query_size=10, key_size=10, value_size=10, output_map=False)
    for name, value in trace_attention(layer, torch.randn(32, 20, 10)).items():
        print(f"{name:10} {tuple(value.shape) if isinstance(value, Tensor) else value}")


if __name__ == "__main__":
    run_command(main)
