import math

import pytest
import torch
import torch.nn.functional as F
from helpers import make_model

from model.config import LayerShape
from model.norm import QueryKeyNorm
from model.scoring import scaled_dot

B, T, H, K, D = 2, 5, 6, 2, 8
LAYER = LayerShape(H, K, D)
LEARNED = torch.linspace(3, 20, H, dtype=torch.float64)

pytestmark = pytest.mark.usefixtures("float64")


def make_norm(learned):
    norm = QueryKeyNorm(LAYER, learned=learned)
    if learned:
        with torch.no_grad():
            norm.log_scale.copy_(LEARNED.log())
    return norm


def split(qk):
    """Return queries (B, H, T, D) and keys (B, K, T, D)."""
    return (x.transpose(1, 2) for x in qk.split((H, K), dim=2))


@pytest.mark.parametrize(("learned", "expected"), [(True, LEARNED), (False, torch.full((H,), math.sqrt(D)))])
@pytest.mark.parametrize("training", [True, False])
def test_the_score_is_the_scale_times_the_cosine_of_query_and_key(learned, expected, training):
    norm, qk = make_norm(learned), torch.randn(B, T, H + K, D, requires_grad=training)
    q, k = split(norm(qk))
    raw_q, raw_k = split(qk)
    keys = raw_k.repeat_interleave(H // K, dim=1)
    cosines = F.cosine_similarity(raw_q.unsqueeze(-2), keys.unsqueeze(-3), dim=-1)  # (B, H, T, T)
    scores = scaled_dot(q, k.repeat_interleave(H // K, dim=1))
    torch.testing.assert_close(scores, expected.double()[:, None, None] * cosines)


def test_only_scaled_dot_scores_of_normalised_queries_learn_a_scale():
    def learns(**settings):
        return "blocks.0.attention.qk_norm.log_scale" in make_model(**settings).state_dict()

    assert learns()
    assert not learns(qk_norm=False)
    assert not any(learns(score=score) for score in ("uniform", "dot", "additive", "gaussian"))
