import math
import re
import statistics
from collections import Counter
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT

from model.gpt import GPT
from textbook import chapter7_gpt
from textbook.chapter7_gpt import TextbookGPT, decode, encode, random_windows, sample, train, weights_of_heads
from training.config_file import load_config

V, B, T = 11, 3, 7
SIZES = {"n_layer": 2, "n_head": 3, "n_embd": 12, "block_size": 8}
OVERRIDES = [f"model.{name}={value}" for name, value in SIZES.items()]
TEXTBOOK_CONFIG = ROOT / "configs" / "shakespeare_gpt2_cpu.yaml"


def under_textbook_names(tensors):
    """Return the weights or gradients of a GPT, named and split as in the one-file model."""
    renamed = {}
    for name, x in tensors.items():
        if "qkv" in name:
            maps = x.unflatten(0, (3, SIZES["n_head"], -1))  # (3, H, D, C)
            for part, heads in zip(("query", "key", "value"), maps, strict=True):
                renamed |= {name.replace("qkv", f"heads.{h}.{part}"): weight for h, weight in enumerate(heads)}
        else:
            for ours, theirs in {"mlp.up": "up", "mlp.proj": "down", "mlp_norm": "feed_forward_norm"}.items():
                name = name.replace(ours, theirs)
            renamed[name] = x
    return renamed


def test_the_one_file_gpt_equals_the_gpt_in_logits_and_gradients():
    torch.manual_seed(4)
    gpt = GPT(load_config(TEXTBOOK_CONFIG, OVERRIDES).model, V).double().train()
    with torch.no_grad():
        for p in gpt.parameters():
            p.copy_(torch.randn_like(p) * 0.3)
    one_file = TextbookGPT(V, **SIZES).double()
    one_file.load_state_dict(under_textbook_names(gpt.state_dict()))
    ids, targets = torch.randint(V, (2, B, T))
    logits = [model(ids) for model in (gpt, one_file)]
    torch.testing.assert_close(*logits, atol=1e-12, rtol=0)
    for y in logits:
        F.cross_entropy(y.flatten(0, 1), targets.flatten()).backward()
    expected = under_textbook_names({name: p.grad for name, p in gpt.named_parameters()})
    actual = {name: p.grad for name, p in one_file.named_parameters()}
    assert actual.keys() == expected.keys()
    for name, gradient in actual.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-12, rtol=0, msg=lambda m, n=name: f"{n}: {m}")
        assert gradient.abs().max() > 0, name


def test_the_weights_of_the_first_blocks_heads_are_causal_softmaxes_of_scaled_products():
    model, ids = TextbookGPT(V, **SIZES), torch.randint(V, (T,))
    block, x = model.blocks[0], model.token_embedding.weight[ids] + model.position_embedding.weight[:T]
    x = F.layer_norm(x, (12,), block.attention_norm.weight)
    for h, head in enumerate(block.attention.heads):
        scores = (x @ head.query.weight.T) @ (x @ head.key.weight.T).T / 4**0.5
        expected = (scores + torch.full((T, T), -math.inf).triu(1)).softmax(-1)
        torch.testing.assert_close(weights_of_heads(model, ids)[:, h], expected)


def test_the_one_file_gpt_imports_torch_and_nothing_from_the_project():
    lines = (ROOT / "textbook/chapter7_gpt.py").read_text(encoding="utf-8").splitlines()
    imports = {line.split()[1].partition(".")[0] for line in lines if line.startswith(("import ", "from "))}
    assert imports == {"collections", "pathlib", "torch"}


def test_targets_are_the_next_characters_and_every_window_is_drawn():
    ids, starts = torch.arange(20), set()
    for _ in range(50):
        inputs, targets = random_windows(ids, B, T)
        assert inputs.shape == (B, T)
        assert torch.equal(targets, inputs + 1)
        starts.update(inputs[:, 0].tolist())
    assert starts == set(range(20 - T))


def test_the_loss_starts_at_a_uniform_guess_and_the_model_learns_to_continue_a_pattern():
    torch.manual_seed(0)
    ids = encode("abcab" * 60, "abc")
    model = TextbookGPT(3, **SIZES)
    losses = [loss for loss, _ in zip(train(model, ids, batch_size=8, lr=1e-2), range(200), strict=False)]
    assert losses[0] == pytest.approx(math.log(3), abs=0.02)
    assert losses[-1] < 0.15  # only the first characters of a window are uncertain
    written = sample(model, encode("abcababc", "abc"), 30)
    assert decode(written, "abc").startswith("abcababc")
    assert decode(written, "abc") in "abcab" * 60


def test_the_gpt_is_trained_on_the_first_nine_tenths_and_measured_on_the_last(tmp_path, monkeypatch):
    """The last tenth has a character that stands nowhere else, so only a model that has seen it foresees it."""
    seen, unseen = "a\n" * 2_880, "b\n" * 320
    (tmp_path / "play.txt").write_text(seen + unseen, encoding="utf-8")
    monkeypatch.setattr(chapter7_gpt, "PLAY", tmp_path / "play.txt")
    monkeypatch.setattr(chapter7_gpt, "sample", lambda model, ids, length: ids)
    printed = "\n".join(item for item in chapter7_gpt.show(steps=16) if isinstance(item, str))
    found = re.search(r"validation loss (\S+), over (\S+) characters .*\n.* has (\S+) over the same", printed)
    of_model, n, of_table = (float(number) for number in found.groups())
    assert n == 9 * 64  # windows of 64 characters in the 639 that follow the first of the last tenth
    pairs = Counter(pairwise(seen))
    after = Counter(seen[:-1])
    table = [-math.log((pairs[pair] + 1) / (after[pair[0]] + 3)) for pair in pairwise(unseen[: 9 * 64 + 1])]
    assert of_table == pytest.approx(statistics.mean(table), abs=1e-4)
    assert float(re.search(r"step 16/16  training loss (\S+)", printed)[1]) < 0.1  # it foresees what it has seen
    assert of_model > 1.5


def test_samples_follow_the_models_probabilities_past_its_context_length():
    torch.manual_seed(1)
    model = TextbookGPT(2, **SIZES)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    written = sample(model, torch.tensor([0]), 300)
    assert len(written) == 301
    assert abs(written[1:].double().mean() - 0.5) < 5 * 0.5 / 300**0.5
