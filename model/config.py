"""The settings of a GPT, checked once and never changed afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from cli.rules import BelowOne, Mark, NotNegative, Size, Within, check_rules

SHORTEST_COPY = 3  # shorter stretches recur by chance, and what follows them says little


@dataclass(frozen=True)
class LayerShape:
    """A layer's n_head query heads, which share n_kv_head key and value heads, with head_size channels per head."""

    n_head: int
    n_kv_head: int
    head_size: int


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """All settings of a GPT, except the vocabulary size, which is a property of the corpus.

    The defaults are this project's layers. `norm="layer", mlp="gelu", positions="learned", qk_norm=False,
    logit_softcap=0, bias=True` gives GPT-2's layers (Radford et al., 2019).

    Raises ValueError, naming the setting, if a value is invalid.
    """

    n_layer: Annotated[int, Within(at_least=0, at_most=1_000)] = 4  # blocks; 0: no attention
    n_head: Size | tuple[Size, ...] = 4  # heads per block, or a list such as `[8, 4, 4, 2]`
    n_kv_head: Size | None = None  # key and value heads, shared by the query heads; null: `n_head`
    n_embd: Size = 128  # width of the model
    block_size: Size = 256  # context length: characters that the model can look back
    head_size: Size | None = None  # width of a head; null: `n_embd / n_head`
    dropout: Annotated[BelowOne, Mark.RETUNABLE] = 0.0  # dropout probability
    bias: bool = False  # biases in linear maps and LayerNorms
    # how positions are encoded; `alibi`: memory grows with the square of the context length
    positions: Literal["rope", "learned", "alibi", "none"] = "rope"
    norm: Literal["rms", "layer"] = "rms"  # norm of the channels
    mlp: Literal["relu2", "gelu", "swiglu"] = "relu2"  # activation of the MLP
    # width of a convolution before each MLP, which then reads the characters before, too; 1: none
    conv_width: Annotated[int, Within(at_least=1, at_most=1_000)] = 1
    # memory of n-grams: the last n characters look up a learned vector; `[]`: none
    ngrams: tuple[Annotated[int, Within(at_least=1, at_most=1_000)], ...] = ()
    ngram_rows: Size = 262_144  # rows of the table; n-grams with the same hash share one
    ngram_dropout: Annotated[BelowOne, Mark.RETUNABLE] = 0.5  # probability of dropping a row in training
    # memory of copies: what followed an earlier copy of the last 3 to this many characters; 0: none
    longest_copy: Annotated[int, Within(at_least=0, at_most=64)] = 0
    qk_norm: bool = True  # normalise queries and keys
    logit_softcap: NotNegative = 15.0  # soft cap on logits, `cap * tanh(logits / cap)`; 0: none
    # implementation of attention
    attention: Annotated[Literal["auto", "explicit", "fused"], Mark.RETUNABLE] = "auto"
    # [scoring function](../model/README.md#scoring-functions)
    score: Literal["uniform", "dot", "scaled_dot", "additive", "gaussian"] = "scaled_dot"

    def __post_init__(self):
        check_rules("model", self)
        if isinstance(self.n_head, tuple) and len(self.n_head) != self.n_layer:
            raise ValueError(
                f"model.n_head={list(self.n_head)} has {len(self.n_head)} entries; give one for each of the "
                f"{self.n_layer} layers, or one number for all"
            )
        if self.attention == "fused" and self.score != "scaled_dot":
            raise ValueError(
                f"model.attention=fused computes scaled_dot scores only; set model.attention=auto for {self.score}"
            )
        if len(set(self.ngrams)) < len(self.ngrams):
            raise ValueError(f"model.ngrams={list(self.ngrams)} names a length twice")
        if 0 < self.longest_copy < SHORTEST_COPY:
            raise ValueError(f"model.longest_copy={self.longest_copy} must be 0, for none, or at least {SHORTEST_COPY}")
        for layer in dict.fromkeys(self.layers):  # equal layers have the same mistake
            self._check_heads(layer)

    @cached_property
    def layers(self) -> tuple[LayerShape, ...]:
        """The shape of each layer's attention."""
        heads = self.n_head if isinstance(self.n_head, tuple) else (self.n_head,) * self.n_layer
        return tuple(LayerShape(n, self.n_kv_head or n, self.head_size or self.n_embd // n) for n in heads)

    @property
    def n_before(self) -> int:
        """How many characters before a position its n-grams and its copies read."""
        return max(1, *self.ngrams, self.longest_copy) - 1

    def _check_heads(self, layer: LayerShape) -> None:
        n_head, unit = layer.n_head, 2 if self.positions == "rope" else 1  # unit: rope rotates pairs of channels
        if self.head_size is None and self.n_embd % n_head:
            divisors = [n for n in range(1, self.n_embd + 1) if self.n_embd % (n * unit) == 0]
            nearest = sorted(sorted(divisors, key=lambda n: abs(n - n_head))[:4])
            raise ValueError(
                f"model.n_head={n_head} does not divide model.n_embd={self.n_embd}; "
                + (f"try {_in_words(nearest)}, or set model.head_size" if nearest else "set model.head_size")
            )
        if layer.head_size % unit:
            raise ValueError(
                f"model.positions=rope rotates pairs of channels, but a head has {layer.head_size} "
                "channels; choose model.n_head or model.head_size so that heads have an even size, or set "
                "model.positions=learned"
            )
        if self.n_kv_head is not None and n_head % self.n_kv_head:
            divisors = [n for n in range(1, n_head + 1) if n_head % n == 0]
            raise ValueError(
                f"model.n_kv_head={self.n_kv_head} does not divide model.n_head={n_head}; try {_in_words(divisors)}"
            )


def _in_words(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} or {last}" if most else last
