"""The shape of a GPT, checked once and never changed afterwards."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that decides the network's shape, except the vocabulary size, which is a fact of the corpus.

    The defaults are the modern shape. `norm="layer", mlp="gelu", positions="learned", qk_norm=False, logit_softcap=0,
    bias=True` gives GPT-2's layers (Radford et al., 2019).

    Raises ValueError, with a sentence that names the setting, where a value cannot work.
    """

    n_layer: int = 4
    n_head: int = 4
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

    def __post_init__(self):
        for name in ("n_layer", "n_head", "n_embd", "block_size", "head_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"model.{name}={value} must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout={self.dropout} must be at least 0 and below 1")
        if not self.logit_softcap >= 0:
            raise ValueError(f"model.logit_softcap={self.logit_softcap} must be 0 (no cap) or above")
        if self.head_size is None and self.n_embd % self.n_head:
            possible = self._possible_head_counts()
            raise ValueError(
                f"model.n_head={self.n_head} does not divide model.n_embd={self.n_embd}; "
                + (f"try {_spoken_list(possible)}, or set model.head_size" if possible else "set model.head_size")
            )
        if self.positions == "rope" and self.size_per_head % 2:
            raise ValueError(
                f"a head of {self.size_per_head} channels cannot be rotated in pairs; choose model.n_head or "
                "model.head_size so that the size of a head is even, or set model.positions=learned"
            )

    @property
    def size_per_head(self) -> int:
        return self.head_size or self.n_embd // self.n_head

    def _possible_head_counts(self) -> list[int]:
        """The (at most four) divisors of n_embd nearest to the head count that was asked for."""
        even_heads_only = self.positions == "rope"
        small = [n for n in range(1, math.isqrt(self.n_embd) + 1) if self.n_embd % n == 0]
        divisors = {*small, *(self.n_embd // n for n in small)}
        divisors = [n for n in divisors if not (even_heads_only and self.n_embd // n % 2)]
        return sorted(sorted(divisors, key=lambda n: abs(n - self.n_head))[:4])


def _spoken_list(numbers: list[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} or {last}" if most else last
