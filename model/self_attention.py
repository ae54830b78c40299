"""Self-attention as the GPT runs it: one linear map for the queries, keys and values of all heads."""

from typing import Any

from torch import Tensor, nn

from model.attention import attend, attention_weights
from model.cache import LayerCache
from model.config import LayerShape, ModelConfig
from model.dropout import dropout
from model.norm import QueryKeyNorm
from model.positions import Places
from model.scoring import make_score


class SelfAttention(nn.Module):
    """All heads of a layer together, with one output projection: (B, T, C) -> (B, T, C).

    H query heads share K heads of keys and values (`model.n_kv_head`), each of which serves H / K neighbours:

                K = H = 4       K = 2: grouped queries     K = 1: one shared key head
        k, v    ○  ○  ○  ○      ○     ○                    ○
                │  │  │  │      ├──┐  ├──┐                 ├──┬──┬──┐
        q       ○  ○  ○  ○      ○  ○  ○  ○                 ○  ○  ○  ○
    """

    def __init__(self, config: ModelConfig, layer: LayerShape):
        super().__init__()
        self.n_head, self.n_kv_head, self.head_size = H, K, D = layer.n_head, layer.n_kv_head, layer.head_size
        self.dropout, self.form = config.dropout, config.attention
        self.score = make_score(config.score, D, hidden=config.score_hidden, width=config.score_width)
        # The other scoring functions have no scale, or learn their own.
        qk_scale = config.qk_scale if config.score == "scaled_dot" else "sqrt_head_size"
        self.qk_norm = QueryKeyNorm(layer, qk_scale) if config.qk_norm else None
        self.weights = nn.Identity()  # with form="explicit", the attention weights pass through it, for hooks
        self.qkv = nn.Linear(config.n_embd, (H + 2 * K) * D, bias=config.bias)
        self.proj = nn.Linear(H * D, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor, places: Places, cache: LayerCache | None = None) -> Tensor:
        """Attend from x (B, T, C) at positions `places` to x itself and to the earlier positions in the cache."""
        B, T, _ = x.shape
        H, K, D = self.n_head, self.n_kv_head, self.head_size
        qk, v = self.qkv(x).view(B, T, H + 2 * K, D).split((H + K, K), dim=2)  # (B, T, H + K, D), (B, T, K, D)
        if self.qk_norm is not None:
            qk = self.qk_norm(qk)
        q, k = places.position_embedding.rotate(qk, places).split((H, K), dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, D), (B, K, T, D), (B, K, T, D)
        if cache is not None:
            k, v = cache.update(k, v, places.index)  # (B, K, S, D)
        visible, bias = places.visible, places.position_embedding.bias(H, places, k.size(2))
        options: dict[str, Any] = {"score": self.score, "visible": visible, "causal": visible is None, "bias": bias}
        if places.weights is not None:
            places.weights.append(attention_weights(q, k, **options))  # (B, H, T, S)
        p = self.dropout if self.training else 0.0
        y = attend(q, k, v, **options, dropout=p, form=self.form, tap=self.weights)  # (B, H, T, D)
        y = y.transpose(1, 2).flatten(2)  # (B, T, H D): the heads side by side
        return dropout(self.proj(y), self.dropout, training=self.training)
