"""Self-attention as the GPT runs it: one map for queries, keys and values of all heads, positions, and a cache."""

from torch import Tensor, nn

from model import by_hand
from model.attention import attend, attend_fused, check_input, choose_form, combine_masks, join_heads, masked_softmax
from model.cache import LayerCache
from model.config import ModelConfig
from model.dropout import Dropout
from model.norm import rms_norm
from model.positions import rotate
from model.scoring import make_score


class SelfAttention(nn.Module):
    """All heads of a layer together, with one output map: (B, T, C) -> (B, T, C).

    config.n_head is one number here, see `ModelConfig.layer`. With n_kv_head below n_head, several query heads share
    the keys and values of one head (grouped queries: Ainslie et al., 2023; all of them: Shazeer, 2019).
    """

    def __init__(self, config: ModelConfig, *, causal: bool = True):
        super().__init__()
        self.n_head, self.n_kv_head, self.head_size = config.n_head, config.kv_heads, config.size_per_head
        self.qk_norm, self.dropout, self.form, self.causal = config.qk_norm, config.dropout, config.attention, causal
        self.score = make_score(config)
        H, K, D = self.n_head, self.n_kv_head, self.head_size
        self.qkv = nn.Linear(config.n_embd, (H + 2 * K) * D, bias=config.bias)
        self.proj = nn.Linear(H * D, config.n_embd, bias=config.bias)
        self.proj_dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor] | None = None,
        cache: LayerCache | None = None,
        *,
        padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Attention of x (B, T, C) to itself and, with a cache, to everything the cache holds before it.

        rotation: cosines and sines (T, 1, D/2) of x's positions, or None where positions are part of x already.
        padding_mask: (B, S), 0 where a position is none. Raises ValueError where a shape is another.
        """
        q, k, v = self.queries_keys_values(x, rotation)
        if cache is not None:
            k, v = cache.append(k, v)  # (B, K, S, D), S = positions so far
        k, v = self._for_each_head(k), self._for_each_head(v)  # (B, H, S, D)
        visible = None
        if padding_mask is not None:
            visible = combine_masks(padding_mask, shape=(x.size(0), x.size(1), k.size(2)))
        dropout = self.dropout if self.training else 0.0
        simply_causal = self.causal and cache is None and visible is None
        form = choose_form(self.form, self.score, q, k, dropout=dropout, simply_causal=simply_causal)
        if form == "by hand":
            y = by_hand.CausalAttention.apply(q, k, v, dropout)
        elif form == "fused":
            y = attend_fused(q, k, v, visible=visible, causal=self.causal, dropout=dropout)
        else:
            y = attend(q, k, v, score=self.score, visible=visible, causal=self.causal, dropout=dropout)
        return self.proj_dropout(self.proj(join_heads(y)))

    def queries_keys_values(
        self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, T, D), k and v (B, K, T, D) of x (B, T, C). rotation: see `forward`."""
        check_input("x", x, self.qkv.in_features)
        B, T, _ = x.shape
        H, K, D = self.n_head, self.n_kv_head, self.head_size
        qk, v = self.qkv(x).view(B, T, H + 2 * K, D).split((H + K, K), dim=2)  # (B, T, H + K, D), (B, T, K, D)
        if self.qk_norm:
            qk = rms_norm(qk)
        if rotation is not None:
            qk = rotate(qk, *rotation)
        q, k = qk.split((H, K), dim=2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def weights(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The weights (B, H, T, T) by which `forward` sums up values, outside training; for looking at."""
        q, k, _ = self.queries_keys_values(x, rotation)
        return masked_softmax(self.score(q, self._for_each_head(k)), causal=self.causal)

    def _for_each_head(self, x: Tensor) -> Tensor:
        """Keys or values (B, K, S, D), each as often as there are heads that share it: (B, H, S, D)."""
        shared_by = self.n_head // self.n_kv_head
        return x.repeat_interleave(shared_by, dim=1) if shared_by > 1 else x
