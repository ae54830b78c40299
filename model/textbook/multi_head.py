"""Multi-head attention with masks, for self-attention and for cross-attention."""

from torch import Tensor, nn

from model.attention import attend
from model.scoring import Score, scaled_dot


class MultiHeadAttention(nn.Module):
    """Several heads side by side and one output map (Vaswani et al., 2017, section 3.2.2).

    width is the width of the result. Each head compares queries and keys of head_size channels and sums values of
    value_head_size channels. head_size defaults to width / n_head, value_head_size to head_size; head_size=width gives
    wide heads. query_size, key_size and value_size are the widths of the inputs and default to width.

    bias adds a bias to the three input maps, output_bias to the output map. Without the output map, the result is the
    heads side by side, (N, T, n_head * value_head_size). dropout applies to the weights.

    Raises ValueError if n_head does not divide width and head_size is not given.
    """

    def __init__(
        self,
        width: int,
        n_head: int,
        *,
        head_size: int | None = None,
        value_head_size: int | None = None,
        query_size: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        bias: bool = False,
        output_bias: bool = False,
        output_map: bool = True,
        score: Score = scaled_dot,
        dropout: float = 0.0,
    ):
        super().__init__()
        if head_size is None and width % n_head:
            raise ValueError(f"width={width} cannot be split into n_head={n_head} heads; set head_size")
        head_size = head_size or width // n_head
        value_head_size = value_head_size or head_size
        self.n_head, self.score, self.dropout = n_head, score, dropout
        self.query = nn.Linear(query_size or width, n_head * head_size, bias=bias)
        self.key = nn.Linear(key_size or width, n_head * head_size, bias=bias)
        self.value = nn.Linear(value_size or width, n_head * value_head_size, bias=bias)
        joined = n_head * value_head_size
        self.proj = nn.Linear(joined, width, bias=output_bias) if output_map else nn.Identity()

    def forward(
        self,
        queries: Tensor,
        keys: Tensor | None = None,
        values: Tensor | None = None,
        *,
        causal: bool = False,
        **masks: Tensor | None,
    ) -> Tensor:
        """Attend from queries (N, T, query_size) to keys (N, S, key_size) and values (N, S, value_size).

        keys default to the queries (self-attention), values to the keys. masks: padding_mask, attention_mask and
        memory_mask, see `combine_masks`. causal also hides every key after the query's own position. Returns
        (N, T, width).

        Raises ValueError if an input or a mask has the wrong shape, or if a mask is passed as an input.
        """
        q, k, v = self.project(queries, keys, values)
        visible = combine_masks(shape=(q.size(0), q.size(2), k.size(2)), **masks)
        dropout = self.dropout if self.training else 0.0
        y = attend(q, k, v, score=self.score, visible=visible, causal=causal, dropout=dropout)  # (N, H, T, D')
        return self.proj(join_heads(y))

    def project(
        self, queries: Tensor, keys: Tensor | None = None, values: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return q (N, H, T, D), k (N, H, S, D) and v (N, H, S, D'), with D = head_size and D' = value_head_size.

        Inputs and errors: see `forward`.
        """
        keys = queries if keys is None else keys
        values = keys if values is None else values
        inputs = {"queries": (self.query, queries), "keys": (self.key, keys), "values": (self.value, values)}
        for name, (linear, x) in inputs.items():
            if not x.is_floating_point():
                raise ValueError(
                    f"{name} is a tensor of {x.dtype}; expected floating-point numbers. Pass masks by keyword"
                )
            if x.ndim != 3 or x.size(-1) != linear.in_features:
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)}; expected (N, length, {linear.in_features}). "
                    "Pass masks by keyword"
                )
        if values.shape[:2] != keys.shape[:2]:
            raise ValueError(f"values has shape {tuple(values.shape)}; expected (N, S) = {tuple(keys.shape[:2])} first")
        q, k, v = (split_heads(linear(x), self.n_head) for linear, x in inputs.values())
        return q, k, v


def combine_masks(
    *,
    shape: tuple[int, int, int],
    padding_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
) -> Tensor | None:
    """Combine masks into one that broadcasts to (N, 1, T, S), True where no mask hides the key; None without masks.

    padding_mask (N, S) hides keys of a sequence. attention_mask (T, S) hides keys from a query in self-attention,
    memory_mask (T, S) in cross-attention. In each, 0 or False means hidden. shape: (N, T, S).

    Raises ValueError if a mask has the wrong shape.
    """
    N, T, S = shape
    visible = None
    for name, mask, letters, expected in (
        ("padding_mask", padding_mask, "(N, S)", (N, S)),
        ("attention_mask", attention_mask, "(T, S)", (T, S)),
        ("memory_mask", memory_mask, "(T, S)", (T, S)),
    ):
        if mask is None:
            continue
        if mask.shape != expected:
            raise ValueError(f"{name} has shape {tuple(mask.shape)}; expected {letters} = {expected}")
        mask = mask != 0 if letters == "(T, S)" else mask[:, None, None, :] != 0  # (T, S) or (N, 1, 1, S)
        visible = mask if visible is None else visible & mask
    return visible


def split_heads(x: Tensor, n_head: int) -> Tensor:
    """Reshape (N, T, H D) to (N, H, T, D). Raises ValueError if n_head does not divide the width."""
    if x.size(-1) % n_head:
        raise ValueError(f"a width of {x.size(-1)} cannot be split into n_head={n_head} equal heads")
    return x.unflatten(-1, (n_head, -1)).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """Reshape (N, H, T, D) to (N, T, H D): the heads side by side."""
    return x.transpose(-3, -2).flatten(-2)
