"""The shape of a GPT, checked once and never changed afterwards."""

import math
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that decides the network's shape, except the vocabulary size, which is a fact of the corpus.

    The defaults are the modern shape. `norm="layer", mlp="gelu", positions="learned", qk_norm=False, logit_softcap=0,
    bias=True` gives GPT-2's layers (Radford et al., 2019).

    Raises ValueError, with a sentence that names the setting, where a value cannot work.
    """

    n_layer: int = 4
    n_head: int | tuple[int, ...] = 4  # of every layer, or a number for each
    n_kv_head: int | None = None  # heads of keys and values, shared by those of the queries; None: n_head
    n_embd: int = 128
    block_size: int = 256
    head_size: int | None = None  # None: n_embd / n_head
    dropout: float = 0.0
    bias: bool = False
    positions: Literal["rope", "learned"] = "rope"
    norm: Literal["rms", "layer"] = "rms"
    mlp: Literal["relu2", "gelu", "swiglu"] = "relu2"
    qk_norm: bool = True
    logit_softcap: float = 15.0  # 0: logits are not capped
    attention: Literal["auto", "explicit", "fused"] = "auto"
    score: Literal["uniform", "dot", "scaled_dot", "additive", "gaussian"] = "scaled_dot"
    score_hidden: int = 16  # hidden width of the additive score
    score_width: float | None = None  # width of the gaussian kernel; None: learned

    def __post_init__(self):
        for name in ("n_layer", "n_embd", "block_size", "head_size", "n_kv_head", "score_hidden"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"model.{name}={value} must be at least 1")
        if self.score_width is not None and not self.score_width > 0:
            raise ValueError(f"model.score_width={self.score_width} must be above 0")
        if self.attention == "fused" and self.score != "scaled_dot":
            raise ValueError(f"model.attention=fused knows scaled_dot alone; set auto for model.score={self.score}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout={self.dropout} must be at least 0 and below 1")
        if not self.logit_softcap >= 0:
            raise ValueError(f"model.logit_softcap={self.logit_softcap} must be 0 (no cap) or above")
        if isinstance(self.n_head, tuple) and len(self.n_head) != self.n_layer:
            raise ValueError(
                f"model.n_head={list(self.n_head)} names {len(self.n_head)} layers; model.n_layer={self.n_layer} needs "
                "as many, or one number for all"
            )
        for n_head in self.n_head if isinstance(self.n_head, tuple) else (self.n_head,):
            self._check_heads(n_head)

    def _check_heads(self, n_head: int) -> None:
        if n_head < 1:
            raise ValueError(f"model.n_head={n_head} must be at least 1")
        if self.head_size is None and self.n_embd % n_head:
            possible = self._possible_head_counts(n_head)
            raise ValueError(
                f"model.n_head={n_head} does not divide model.n_embd={self.n_embd}; "
                + (f"try {_spoken_list(possible)}, or set model.head_size" if possible else "set model.head_size")
            )
        size = self.head_size or self.n_embd // n_head
        if self.positions == "rope" and size % 2:
            raise ValueError(
                f"a head of {size} channels cannot be rotated in pairs; choose model.n_head or "
                "model.head_size so that the size of a head is even, or set model.positions=learned"
            )
        if self.n_kv_head is not None and n_head % self.n_kv_head:
            divisors = [n for n in range(1, n_head + 1) if n_head % n == 0]
            raise ValueError(
                f"model.n_kv_head={self.n_kv_head} does not divide model.n_head={n_head}; try {_spoken_list(divisors)}"
            )

    def layer(self, i: int) -> "ModelConfig":
        """The config of layer i alone, in which n_head is one number."""
        return replace(self, n_layer=1, n_head=self.n_head[i] if isinstance(self.n_head, tuple) else self.n_head)

    @property
    def size_per_head(self) -> int:
        """Of a config whose n_head is one number, see `layer`."""
        return self.head_size or self.n_embd // self.n_head

    @property
    def kv_heads(self) -> int:
        """Of a config whose n_head is one number, see `layer`."""
        return self.n_kv_head or self.n_head

    def _possible_head_counts(self, n_head: int) -> list[int]:
        """The (at most four) divisors of n_embd nearest to the head count that was asked for."""
        even_heads_only = self.positions == "rope"
        small = [n for n in range(1, math.isqrt(self.n_embd) + 1) if self.n_embd % n == 0]
        divisors = {*small, *(self.n_embd // n for n in small)}
        divisors = [n for n in divisors if not (even_heads_only and self.n_embd // n % 2)]
        return sorted(sorted(divisors, key=lambda n: abs(n - n_head))[:4])


def _spoken_list(numbers: list[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} or {last}" if most else last
