"""The shape of one layer's attention."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerShape:
    """A layer's n_head query heads, which share n_kv_head key and value heads, with head_size channels per head."""

    n_head: int
    n_kv_head: int
    head_size: int
