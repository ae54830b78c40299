"""The scripts of the page in Chromium: gpt.js equals PyTorch in float64, for random settings, and roles.js Python."""

import functools
import json
import random
from typing import get_type_hints

import numpy as np
import pytest
import torch
from conftest import ROOT
from helpers import block_outputs
from page_weights import packed
from torch.testing import assert_close

from cli.rules import rules_of
from experiments.heads.measures import TARGETS, measure_heads, role_of, target_masks
from experiments.heads.silence import parts_of, silenced
from model import norm
from model.config import ModelConfig
from model.generate import Sampling, generate, window_start
from page.template import joined
from training.evaluation import evaluate
from training.runtime import choose_runtime

N_CONFIGS, LENGTH = 60, 60
SOURCES = [ROOT / "page/compute" / name for name in ("sampling.js", "weights.js", "roles.js")]
NUMBERS = {  # what is repeated is drawn more often
    "n_layer": (0, 1, 2, 2, 3),
    "n_head": (1, 2, 6, (6, 3), (3, 6, 12)),
    "n_kv_head": (None, 1, 3),
    "n_embd": (12, 22, 36),
    "block_size": (1, 7, 16, 16, 16),
    "head_size": (None, 6, 10),
    "dropout": (0.0, 0.2),
    "conv_width": (1, 2, 4, 20),
    "ngrams": ((), (1,), (3, 2), (2, 5, 9)),
    "ngram_rows": (50, 1_000),
    "ngram_dropout": (0.0, 0.5),
    "longest_copy": (0, 3, 5),
    "logit_softcap": (0.0, 2.0, 15.0),
}
KINDS = get_type_hints(ModelConfig, include_extras=True)
NAMES = {name: [each for each in rules_of(kind) if isinstance(each, str)] for name, kind in KINDS.items()}
BOTH = {name: (False, True) for name, kind in get_type_hints(ModelConfig).items() if kind is bool}
VALUES = {name: (*NUMBERS.get(name, ()), *NAMES[name], *BOTH.get(name, ())) for name in KINDS}
VALUES["score"] = ("scaled_dot",)
WORKER = """
onmessage = async ({ data: { header, weights, texts, off, prompt, length, scored } }) => {
  try {
    const model = new GPT(header.config, await unpack(header.tensors, weights)), B = header.config.block_size;
    const plain = (x) => (x.map && typeof x !== "number" ? Array.from(x, plain) : x);
    const known = (list) => plain(list.slice(0, model.ids.length));
    const read = (ids) => ({ steps: [...model.read(ids)].length, logits: known(model.logits) });
    const answer = { read: texts.map(read), outputs: model.residuals.slice(1).map(known) };
    const places = [...model.ids.keys()], heads = ({ H }, l) => [...Array(H).keys()].map((h) => [l, h]);
    answer.heads = model.layers.flatMap(heads).map(([l, h]) => places.map((t) => plain(model.head(l, h, t).weights)));
    let loss = 0;
    for (let i = 0; i + 1 < scored.length; i++) {
      if (i % B === 0) model.ids.length = 0;
      loss -= Math.log(softmax(model.step(scored[i]))[scored[i + 1]]) / (scored.length - 1);
    }
    for (let ids = [...prompt]; ids.length < prompt.length + length; answer.ids = ids) {
      read(ids);
      ids.push(probabilities(model.logits[model.ids.length - 1], 0).indexOf(1));
    }
    read(texts[1]);
    model.switchOff(off);
    postMessage({ ...answer, loss, off: read(texts[1]).logits });
  } catch (error) {
    postMessage({ error: error.stack });
  }
};
"""
ASK = "worker.onmessage = ({ data }) => arguments[1](data); worker.postMessage(arguments[0])"


@functools.cache
def drawn():
    rng, found = random.Random(3), []
    while len(found) < N_CONFIGS:
        settings = {name: rng.choice(values) for name, values in VALUES.items()}
        try:
            found.append(ModelConfig(**settings))
        except ValueError:
            continue  # the settings exclude each other
    return found


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """Return the browser at a page with the scripts, which also run in its worker."""
    sources = joined(*SOURCES)
    worker = f"const worker = new Worker(URL.createObjectURL(new Blob([{json.dumps(sources + WORKER)}])))"
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(f"<meta charset=utf-8><link rel=icon href=data:,><script>{sources}\n{worker}</script>", "utf-8")
    browser.open_page(file)
    return browser


@torch.inference_mode()
def check(page, config):
    _, header, weights, model = packed(config)
    B, V, rng = config.block_size, len(model.token_embedding.weight), random.Random(5)
    long = [rng.randrange(rng.choice((2, V))) for _ in range(2 * B + 3)]  # short strings come again
    edited = [*long[: B // 2], (long[B // 2] + 1) % V, *long[B // 2 + 1 : B]]
    texts = [long[: max(1, B - 1)], long[:B], edited, long]
    parts = [*parts_of(model)]
    off, scored = parts[::2], [rng.randrange(V) for _ in range(5 * B + 4)]
    message = {"header": header, "weights": weights, "texts": texts, "off": [*map(str, off)], "prompt": long[:3]}
    answer = page.execute_async_script(ASK, message | {"length": LENGTH, "scored": scored})
    assert "error" not in answer, answer["error"]
    run = lambda ids, weights=None: model(torch.tensor([ids]), weights=weights)[0]  # noqa: E731
    windows = [ids[window_start(len(ids), B) :] for ids in texts]
    for before, window, found in zip([[], *windows], windows, answer["read"], strict=False):
        assert_close(torch.tensor(found["logits"]).double(), run(window), atol=1e-4, rtol=0)
        same = [a == b for a, b in zip(before, window, strict=False)]
        assert found["steps"] == len(window) - [*same, False].index(False)
    run(windows[-1], weights := [])
    outputs = [torch.tensor(x).double() for x in answer["outputs"]]
    assert_close(outputs, [x[0] for x in block_outputs(model, torch.tensor([windows[-1]]))], atol=1e-4, rtol=1e-4)
    expected = [row[: t + 1] for layer in weights for head in layer[0] for t, row in enumerate(head)]
    found = [torch.tensor(row).double() for head in answer["heads"] for row in head]
    assert_close(found, expected, atol=1e-4, rtol=0)
    with silenced(model, off):
        assert_close(torch.tensor(answer["off"]).double(), run(texts[1]), atol=1e-4, rtol=0)
    runtime = choose_runtime("cpu", "float32")
    assert answer["loss"] == pytest.approx(evaluate(model, np.array(scored), runtime).loss, abs=1e-4)
    greedy = generate(model.float(), torch.tensor([long[:3]]), LENGTH, sampling=Sampling(temperature=0))
    assert answer["ids"][3:] == [ids.item() for ids in greedy]


@pytest.mark.parametrize("n", [8, pytest.param(N_CONFIGS, marks=pytest.mark.slow)])
def test_the_page_computes_what_the_model_computes(page, monkeypatch, n):
    monkeypatch.setitem(norm.EPS, torch.float64, 2**-23)  # that of float32
    for config in drawn()[:n]:
        check(page, config)


def test_the_random_settings_include_every_value_of_every_setting():
    for name, values in VALUES.items():
        assert {getattr(config, name) for config in drawn()} == {*values}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *((name, "unheard-of") for name in ("positions", "norm", "mlp", "score", "qk_norm", "a_new_setting")),
        *(("score", name) for name in NAMES["score"] if name != "scaled_dot"),
    ],
)
def test_the_page_refuses_a_model_with_a_setting_or_name_that_it_does_not_implement(page, setting, value):
    _, header, weights, _ = packed(ModelConfig(n_embd=12, n_head=2))
    script = """const [{ config, tensors }, weights, done] = arguments, build = (found) => new GPT(config, found);
        unpack(tensors, weights).then(build).then(() => done("built"), ({ message }) => done(message))"""
    assert page.execute_async_script(script, header, weights) == "built"
    header["config"][setting] = value
    assert page.execute_async_script(script, header, weights) == (
        f"gpt.js does not implement model.{setting}={value}, so this page cannot show the model"
    )


@pytest.mark.parametrize("temperature", [0, 1e-3, 0.7, 1, 3])
def test_the_page_samples_by_the_same_probabilities(page, temperature):
    logits = torch.randn(13, dtype=torch.float64)
    expected = Sampling(temperature=temperature).probabilities(logits[None])[0]
    script = """const p = probabilities(Float64Array.from(arguments[0]), arguments[1]);
        const draw = makeDraw(arguments[2], 0);
        return [[...p], Array.from({ length: 20000 }, () => draw(p))]"""
    found, ids = page.execute_script(script, logits.tolist(), temperature, 7)
    assert_close(torch.tensor(found).double(), expected)
    shares = torch.bincount(torch.tensor(ids), minlength=13) / len(ids)
    assert_close(shares.double(), expected, atol=0.02, rtol=0)
    assert (shares[expected == 0] == 0).all()
    again, other = (page.execute_script(script, logits.tolist(), temperature, seed)[1] for seed in (7, 8))
    assert again == ids and (other != ids or expected.max() == 1)


def test_the_page_finds_the_roles_that_the_measures_find(page):
    """Of 20 heads for each target, the first look at random characters, and the others more and more at the target."""
    found, strength = set(), torch.linspace(0, 20, 20)[:, None, None, None]
    script = "return rolesOn(arguments[0], arguments[1], arguments[2], Float32Array.from(arguments[3]))"
    for text in ("so\n\nANN:\nno, no!\n\nBOB:\nso so", "\n\n😀é:\n9 bottles,\n99 bottles\n\nB:\n", "abba"):
        targets = torch.stack([*target_masks(text).values()])  # (6, T, T)
        random_ = torch.rand(20, *targets.shape, generator=torch.Generator().manual_seed(1))
        weights = (random_ * (1 + strength * targets)).flatten(0, 1).tril()  # (120, T, T)
        weights /= weights.sum(-1, keepdim=True)
        measures, characters = measure_heads([(weights, text)]), sorted(set(text))
        expected = [list(role_of(measures, head)) for head in range(len(weights))]
        ids, triangle = [*map(characters.index, text)], torch.ones(targets.shape[1:], dtype=torch.bool).tril()
        assert page.execute_script(script, ids, characters, 120, weights[:, triangle].flatten().tolist()) == expected
        found |= {role for role, _ in expected}
    assert found == {"no fixed target", *TARGETS.values()}
