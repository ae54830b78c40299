"""The shape of a GPT, checked once and never changed afterwards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, get_args

# The largest values accepted, far above any that trains: larger ones are typing errors that would run for hours.
LARGEST = {
    "n_layer": 1_000,
    "n_head": 10_000,
    "n_kv_head": 10_000,
    "n_embd": 1_000_000,
    "block_size": 10_000_000,
    "head_size": 100_000,
    "conv_width": 1_000,
    "score_hidden": 100_000,
}


@dataclass(frozen=True)
class LayerShape:
    """A layer's n_head query heads, which share n_kv_head key and value heads, with head_size channels per head."""

    n_head: int
    n_kv_head: int
    head_size: int


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that decides a GPT's shape, except the vocabulary size, which is a property of the corpus.

    The defaults are the modern shape. `norm="layer", mlp="gelu", positions="learned", qk_norm=False, logit_softcap=0,
    bias=True` gives GPT-2's layers (Radford et al., 2019).

    Raises ValueError, naming the setting, if a value is invalid.
    """

    n_layer: int = 4
    n_head: int | tuple[int, ...] = 4  # one number for all layers, or one for each
    n_kv_head: int | None = None  # heads of keys and values, shared by the query heads; None: n_head
    n_embd: int = 128
    block_size: int = 256
    head_size: int | None = None  # None: n_embd / n_head
    dropout: float = 0.0
    bias: bool = False
    positions: Literal["rope", "learned", "alibi", "none"] = "rope"
    rope_base: float = 10_000.0  # of the rotary frequencies
    norm: Literal["rms", "layer"] = "rms"
    mlp: Literal["relu2", "gelu", "swiglu"] = "relu2"
    conv_width: int = 1  # of the causal convolution before each MLP, which also mixes positions; 1: none
    qk_norm: bool = True
    qk_scale: Literal["learned", "sqrt_head_size"] | float = "learned"  # of qk_norm's scaled_dot scores
    logit_softcap: float = 15.0  # 0: no cap
    attention: Literal["auto", "explicit", "fused"] = "auto"
    score: Literal["uniform", "dot", "scaled_dot", "additive", "gaussian"] = "scaled_dot"
    score_hidden: int = 16  # hidden width of the additive score
    score_width: float | None = None  # width of the gaussian kernel; None: learned

    def __post_init__(self):
        for field in fields(self):
            value, names = getattr(self, field.name), get_args(field.type)
            if str in map(type, names) and value not in names:
                raise ValueError(f"model.{field.name}={value} must be one of {', '.join(names)}")
        for name, largest in LARGEST.items():
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if number is not None and not 1 <= number <= largest:
                    raise ValueError(f"model.{name}={number} must be at least 1 and at most {largest:,}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout={self.dropout} must be at least 0 and below 1")
        if not self.logit_softcap >= 0:
            raise ValueError(f"model.logit_softcap={self.logit_softcap} must be 0 (no cap) or above")
        if not 1 < self.rope_base < math.inf:
            raise ValueError(f"model.rope_base={self.rope_base} must be above 1 and finite")
        if isinstance(self.n_head, tuple) and len(self.n_head) != self.n_layer:
            raise ValueError(
                f"model.n_head={list(self.n_head)} has {len(self.n_head)} entries; give one for each of the "
                f"{self.n_layer} layers, or one number for all"
            )
        self._check_qk_scale()
        if self.score_width is not None and not self.score_width > 0:
            raise ValueError(f"model.score_width={self.score_width} must be above 0")
        if self.attention == "fused" and self.score != "scaled_dot":
            raise ValueError(
                f"model.attention=fused computes scaled_dot scores only; set model.attention=auto for {self.score}"
            )
        for layer in dict.fromkeys(self.layers):  # equal layers have the same mistake
            self._check_heads(layer)

    @cached_property
    def layers(self) -> tuple[LayerShape, ...]:
        """The shape of each layer's attention."""
        heads = self.n_head if isinstance(self.n_head, tuple) else (self.n_head,) * self.n_layer
        return tuple(LayerShape(n, self.n_kv_head or n, self.head_size or self.n_embd // n) for n in heads)

    def _check_qk_scale(self) -> None:
        scale = self.qk_scale
        if scale in ("learned", "sqrt_head_size"):
            return
        if isinstance(scale, str) or not scale > 0:
            raise ValueError(f"model.qk_scale={scale} must be above 0, learned or sqrt_head_size")
        if not self.qk_norm or self.score != "scaled_dot":
            raise ValueError(
                f"model.qk_scale={scale} is the scale of normalised queries and keys and needs model.qk_norm=true and "
                "model.score=scaled_dot"
            )

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
