"""The numbers of one layer's attention."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerShape:
    """n_head query heads share n_kv_head heads of keys and values; each head has head_size channels."""

    n_head: int
    n_kv_head: int
    head_size: int
