"""The memory of copies, compared with a search through the window character by character."""

import torch
from helpers import make_model

from model.config import SHORTEST_COPY
from model.gpt import GPT

V, BLOCK_SIZE, LONGEST = 4, 24, 5
SETTINGS = {"longest_copy": LONGEST, "block_size": BLOCK_SIZE}


def copied(ids):
    """Return the longest match at the end of a list of ids and the id after it, or (0, None)."""
    best = 0, None
    for end in range(1, len(ids)):
        n = 0
        while n < min(end, LONGEST) and ids[end - 1 - n] == ids[-1 - n]:
            n += 1
        if n and n >= best[0]:
            best = n, ids[end]
    return best if best[0] >= SHORTEST_COPY else (0, None)


def expected_embedding(model, ids):
    """Return the embeddings (T, C) of a list of ids, with what followed the longest match."""
    found = []
    for t, i in enumerate(ids):
        y = model.token_embedding.weight[i]
        length, following = copied(ids[: t + 1])
        if length:
            memory = model.memories["copies"]
            y = y + memory.followers.weight[following] * memory.strengths[length - SHORTEST_COPY]
        found.append(y)
    return torch.stack(found)


@torch.no_grad()
def test_logits_equal_those_of_a_search_through_the_window():
    model = make_model(V, **SETTINGS).double()
    plain = GPT(make_model(V, block_size=BLOCK_SIZE).config, V).double().eval()
    plain.load_state_dict({name: x for name, x in model.state_dict().items() if "copies" not in name})
    ids = torch.randint(V, (6, BLOCK_SIZE))
    ids[0, 5:15] = 1  # a run, as the spaces of source code are: its first part is a copy from one place before
    assert {copied(window.tolist()[:t])[0] for window in ids for t in range(BLOCK_SIZE + 1)} == {
        0,
        *range(SHORTEST_COPY, LONGEST + 1),
    }
    given = torch.stack([expected_embedding(model, window.tolist()) for window in ids])
    plain.token_embedding.register_forward_hook(lambda *_: given)
    torch.testing.assert_close(model(ids), plain(ids), rtol=0, atol=1e-12)
