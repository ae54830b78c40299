"""Self-attention as the GPT runs it: one linear map for the queries, keys and values of all heads."""

from torch import Tensor, nn

from model.attention import attend, attention_weights
from model.cache import LayerCache
from model.config import LayerShape, ModelConfig
from model.dropout import dropout
from model.positions import Places, PositionScheme
from model.query_key_norm import QueryKeyNorm
from model.scoring import make_score


class SelfAttention(nn.Module):
    """All heads of a layer together, with one output projection: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: ModelConfig, layer: LayerShape):
        super().__init__()
        self.n_head, self.n_kv_head, self.head_size = H, K, D = layer.n_head, layer.n_kv_head, layer.head_size
        self.dropout, self.form = config.dropout, config.attention
        self.score = make_score(config.score, D, hidden=config.score_hidden, width=config.score_width)
        # The other scoring functions have no scale, or learn their own.
        qk_scale = config.qk_scale if config.score == "scaled_dot" else "sqrt_head_size"
        self.qk_norm = QueryKeyNorm(layer, qk_scale) if config.qk_norm else None
        self.qkv = nn.Linear(config.n_embd, (H + 2 * K) * D, bias=config.bias)
        self.proj = nn.Linear(H * D, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor, scheme: PositionScheme, places: Places, cache: LayerCache | None = None) -> Tensor:
        """Attend from x (B, T, C) at positions `places` to x itself and to the earlier positions in the cache."""
        q, k, v = self.project(x, scheme, places, cache)
        if cache is not None:
            k, v = cache.update(k, v, places.index)  # (B, K, S, D)
        y = attend(
            q,
            k,
            v,
            score=self.score,
            visible=places.visible,
            causal=places.visible is None,
            bias=scheme.bias(self.n_head, places, k.size(2)),
            dropout=self.dropout if self.training else 0.0,
            form=self.form,
        )  # (B, H, T, D)
        y = y.transpose(1, 2).flatten(2)  # (B, T, H D): the heads side by side
        return dropout(self.proj(y), self.dropout, training=self.training)

    def project(
        self, x: Tensor, scheme: PositionScheme, places: Places, cache: LayerCache | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B, H, T, D), keys and values (B, K, T, D) of x (B, T, C)."""
        B, T, _ = x.shape
        H, K, D = self.n_head, self.n_kv_head, self.head_size
        qk, v = self.qkv(x).view(B, T, H + 2 * K, D).split((H + K, K), dim=2)  # (B, T, H + K, D), (B, T, K, D)
        if self.qk_norm is not None:
            qk = self.qk_norm(qk, cache)
        q, k = scheme.rotate(qk, places).split((H, K), dim=2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def weights(self, x: Tensor, scheme: PositionScheme, places: Places) -> Tensor:
        """Return the attention weights (B, H, T, T) of x (B, T, C), without dropout, for inspection."""
        q, k, _ = self.project(x, scheme, places)
        bias = scheme.bias(self.n_head, places, k.size(2))
        return attention_weights(q, k, score=self.score, causal=True, bias=bias)
