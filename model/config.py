"""The settings of a GPT, checked once and never changed afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from cli.rules import BelowOne, NotNegative, Positive, Size, Within, check_rules


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

    n_layer: Annotated[int, Within(at_least=0, at_most=1_000)] = 4  # number of blocks; 0: a model without attention
    # heads per block: one number, or a list with one number per block, such as `[8, 4, 4, 2]`
    n_head: Size | tuple[Size, ...] = 4
    n_kv_head: Size | None = None  # number of key and value heads, each shared by several query heads; null: `n_head`
    n_embd: Size = 128  # width of the model
    block_size: Size = 256  # context length: how many characters the model can look back
    head_size: Size | None = None  # width of a head; null: `n_embd / n_head`
    dropout: BelowOne = 0.0  # dropout probability
    bias: bool = False  # use biases in linear maps and layer norms
    # `rope`: rotary; `alibi`: scores fall with the distance, and memory is quadratic in the context length
    positions: Literal["rope", "learned", "alibi", "none"] = "rope"
    # base of the rotary frequencies: a lower one rotates the slow pairs of channels faster
    rope_base: Annotated[float, Within(above=1)] = 10_000.0
    norm: Literal["rms", "layer"] = "rms"  # `rms` has no parameters
    mlp: Literal["relu2", "gelu", "swiglu"] = "relu2"  # activation function of the MLP
    # width of a causal convolution before each MLP; 1: none. With 3, the MLP also reads the two characters before, so
    # attention is no longer the only way between positions
    conv_width: Annotated[int, Within(at_least=1, at_most=1_000)] = 1
    # memory of n-grams: for each n in the list, such as `[2, 3, 4]`, the last n characters look up a learned vector in
    # a table; `[]`: none. With it, attention is no longer the only way between positions
    ngrams: tuple[Annotated[int, Within(at_least=1, at_most=1_000)], ...] = ()
    ngram_rows: Size = 262_144  # rows of the table, which n-grams share at random
    ngram_width: Size = 32  # width of the rows
    ngram_dropout: BelowOne = 0.5  # probability that a row is dropped in training
    # factor of the rows outside training: below 1 if the text was read several times, and the rows know it by heart
    ngram_scale: Annotated[float, Within(at_least=0, at_most=1_000)] = 1.0
    qk_norm: bool = True  # normalise queries and keys before their product
    # with `qk_norm` and `score: scaled_dot`, the score is this scale times the cosine of query and key: a number,
    # `learned` (one per head), or `sqrt_head_size` (√D, which harms narrow heads)
    qk_scale: Literal["learned", "sqrt_head_size"] | Positive = "learned"
    logit_softcap: NotNegative = 15.0  # soft cap on logits, `cap * tanh(logits / cap)`; 0 disables it
    # divides the logits outside training: above 1 for a model that is too sure of what it predicts, because it has read
    # its text several times
    temperature: Annotated[float, Within(at_least=0.001, at_most=1_000)] = 1.0
    # implementation of attention; `auto`: on a CPU, the one measured to be fastest
    attention: Literal["auto", "explicit", "fused"] = "auto"
    # scoring function
    score: Literal["uniform", "dot", "scaled_dot", "additive", "gaussian"] = "scaled_dot"
    score_hidden: Size = 16  # hidden width of the additive score
    score_width: Positive | None = None  # width of the Gaussian kernel; null: learned

    def __post_init__(self):
        check_rules("model", self)
        if isinstance(self.n_head, tuple) and len(self.n_head) != self.n_layer:
            raise ValueError(
                f"model.n_head={list(self.n_head)} has {len(self.n_head)} entries; give one for each of the "
                f"{self.n_layer} layers, or one number for all"
            )
        if not isinstance(self.qk_scale, str) and not (self.qk_norm and self.score == "scaled_dot"):
            raise ValueError(
                f"model.qk_scale={self.qk_scale} is the scale of normalised queries and keys and needs "
                "model.qk_norm=true and model.score=scaled_dot"
            )
        if self.attention == "fused" and self.score != "scaled_dot":
            raise ValueError(
                f"model.attention=fused computes scaled_dot scores only; set model.attention=auto for {self.score}"
            )
        if len(set(self.ngrams)) < len(self.ngrams):
            raise ValueError(f"model.ngrams={list(self.ngrams)} names a length twice")
        for layer in dict.fromkeys(self.layers):  # equal layers have the same mistake
            self._check_heads(layer)

    @cached_property
    def layers(self) -> tuple[LayerShape, ...]:
        """The shape of each layer's attention."""
        heads = self.n_head if isinstance(self.n_head, tuple) else (self.n_head,) * self.n_layer
        return tuple(LayerShape(n, self.n_kv_head or n, self.head_size or self.n_embd // n) for n in heads)

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
