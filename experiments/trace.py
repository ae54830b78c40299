"""Shows every value inside an attention layer, for an example small enough to follow with a pencil."""

import torch
from torch import Tensor

from model.attention import MultiHeadAttention
from model.trace import trace_attention

# Three positions, four channels.
EXAMPLE = torch.tensor([[[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]], dtype=torch.float64)
QUERY_MAP = [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
KEY_MAP = [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
VALUE_MAP = [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]


def example_layer() -> MultiHeadAttention:
    """One head of three channels over inputs of four, without an output map."""
    layer = MultiHeadAttention(3, 1, query_size=4, key_size=4, value_size=4, output_map=False).double()
    with torch.no_grad():
        for linear, weights in ((layer.query, QUERY_MAP), (layer.key, KEY_MAP), (layer.value, VALUE_MAP)):
            linear.weight.copy_(torch.tensor(weights).T)
    return layer.requires_grad_(False)


def table(traced: dict[str, Tensor]) -> str:
    """Names, shapes and, of one sequence and one head, values."""
    blocks = []
    for name, value in traced.items():
        rows = value.flatten(0, -3)[0]
        form = "10.4e" if name == "weights" else "10.4f"  # weights may be far below 1
        lines = ["  ".join(format(number, form) for number in row) for row in rows.tolist()]
        blocks.append("\n".join([f"{name} {tuple(value.shape)}", *lines]))
    return "\n\n".join(blocks)


def main() -> None:
    print("One head of self-attention over three positions, width 4 -> 3\n")
    print(table(trace_attention(example_layer(), EXAMPLE)))
    print("\nTwo heads over a batch of 32 sequences, 20 positions each, width 10 -> 16\n")
    layer = MultiHeadAttention(16, 2, query_size=10, key_size=10, value_size=10, output_map=False)
    for name, value in trace_attention(layer, torch.randn(32, 20, 10)).items():
        print(f"{name:10} {tuple(value.shape)}")


if __name__ == "__main__":
    main()
