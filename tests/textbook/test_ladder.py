import re

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from textbook import chapter7_gpt
from textbook.__main__ import main as textbook
from textbook.ladder import RUNGS, T, losses, model_of

B, V = 3, 11
PARTS = {idea: parts for idea, _, parts in RUNGS}

pytestmark = pytest.mark.usefixtures("float64")


def one_head(head, x):
    return scaled_dot_product_attention(head.query(x), head.key(x), head.value(x), is_causal=True)


@pytest.mark.parametrize(
    ("idea", "expected"),
    [
        ("no attention", lambda x, _: x),
        ("x + average of the past", lambda x, _: x + x.cumsum(1) / torch.arange(1, T + 1)[:, None]),
        ("x + softmax(x x^T) x", lambda x, _: x + scaled_dot_product_attention(x, x, x, is_causal=True, scale=1.0)),
        ("one head alone", lambda x, parts: one_head(parts[0], x)),
        ("x + one head", lambda x, parts: x + one_head(parts[0].part, x)),
    ],
)
def test_a_rung_computes_its_formula_between_the_embeddings_and_the_logits(idea, expected):
    model, ids = model_of(V, parts := PARTS[idea]()), torch.randint(V, (B, T))
    x = model.token_embedding.weight[ids] + model.position_embedding.weight
    torch.testing.assert_close(model(ids), expected(x, parts) @ model.lm_head.weight.T)


@pytest.mark.parametrize("idea", PARTS)
def test_every_rung_reads_the_past_unless_it_has_no_attention_and_none_reads_the_future(idea):
    model, ids = model_of(V, PARTS[idea]()), torch.randint(V, (B, T))
    with torch.no_grad():
        model.token_embedding.weight.mul_(0.1)  # long vectors are like themselves alone
        model.position_embedding.weight.mul_(0.1)
    changed = ids.clone()
    changed[:, 5] = (ids[:, 5] + 1) % V
    is_same = (model(ids) == model(changed)).all(dim=-1).all(dim=0)  # (T,)
    assert is_same[:5].all() and not is_same[5]
    assert is_same[6:].all() == (idea == "no attention")


def test_the_table_has_the_mean_loss_of_each_rung_its_spread_and_its_change(tmp_path, monkeypatch, capsys):
    (tmp_path / "play.txt").write_text("a rose is a rose\n" * 40, encoding="utf-8")
    monkeypatch.setattr(chapter7_gpt, "PLAY", tmp_path / "play.txt")
    monkeypatch.setattr("textbook.ladder.SEEDS", range(2))
    found = []
    monkeypatch.setattr("textbook.ladder.losses", lambda *rung: found.append(losses(*rung)) or found[-1])
    assert textbook(["ladder", "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    table = float(re.search(r"table of pairs +6 +(\S+)\n", printed)[1])
    before = np.full(2, table)
    for (idea, *_), now in zip(RUNGS, map(np.array, found), strict=True):
        row = re.search(rf"{re.escape(idea)} {{2,}}\d.* (\S+) +(\S+) +(\S+)  (\d) of 2\n", printed).groups()
        expected = [now.mean(), np.ptp(now), now.mean() - before.mean(), sum(now < before)]
        assert [float(number) for number in row] == pytest.approx(expected, abs=1.01e-4)
        before = now


@pytest.mark.nightly
def test_each_rung_from_the_first_head_on_has_a_lower_loss_with_every_seed(capsys):
    assert textbook(["ladder"]) == 0
    assert [*re.findall(r"  (\d) of 6\n", capsys.readouterr().out)][3:] == ["6"] * 6
