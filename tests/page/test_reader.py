"""The answers of the page's worker equal PyTorch: what each layer would predict, and a head step by step."""

import json

import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT
from page_weights import packed
from torch import nn
from torch.testing import assert_close

from model import norm
from model.config import ModelConfig
from model.positions import alibi_slopes
from page.template import joined

TEXT = "abcabdeafg\nhhi"
CHOSEN = 12  # of 14 characters
SHOWN = 6
CHARACTERS = "abcdefghijkl\n"
ASK = """const [path, question, done] = arguments, { port1, port2 } = new MessageChannel();
    const plain = (x) => (x?.map ? Array.from(x, plain) : x);
    port1.onmessage = ({ data: { answer, error, soFar } }) => {
      if (soFar !== undefined) return;
      if (error) return done(error);
      for (const name in answer) answer[name] = plain(answer[name]);
      done(answer);
    };
    worker.postMessage({ path, ...question }, [port2]);"""
CODE = """return linesOf(...arguments).map(([code, tables]) => [code, Object.fromEntries(
    Object.entries(tables).map(([name, rows]) => [name, rows.map((row) => Array.from(row, String))]))])"""
MODELS = {  # with other code in each
    "rotary": {},
    "GPT-2": {"norm": "layer", "positions": "learned", "qk_norm": False, "bias": True, "mlp": "gelu"},
    "ALiBi, shared keys": {"positions": "alibi", "n_embd": 18, "n_head": 3, "n_kv_head": 1},
    "no positions": {"positions": "none"},
}


@pytest.fixture(autouse=True)
def eps_of_the_page(monkeypatch):
    monkeypatch.setitem(norm.EPS, torch.float64, 2**-23)  # that of float32


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """Return the browser at a page with the code of heads, and the engine of the playground in a worker."""
    steps, reader = (joined(ROOT / "page" / name) for name in ("panels/steps.js", "workers/reader.js"))
    worker = f"const worker = new Worker(URL.createObjectURL(new Blob([{json.dumps(reader)}])))"
    file = tmp_path_factory.mktemp("worker") / "page.html"
    file.write_text(f"<meta charset=utf-8><link rel=icon href=data:,><script>{steps}\n{worker}</script>", "utf-8")
    browser.open_page(file)
    return browser


def loaded(page, settings):
    """Return a model of random weights, in float64, which the worker has loaded."""
    config = ModelConfig(**{"n_embd": 12, "n_head": 2, "n_layer": 2, "block_size": 16} | settings)
    _, header, weights, model = packed(config)
    header |= {"characters": CHARACTERS, "labels": [*CHARACTERS], "alike": {}, "start": "\n", "measured": None}
    page.execute_async_script(ASK, "load", {"header": header, "weights": weights})
    return model, header["config"], [CHARACTERS.index(c) for c in TEXT]


def test_a_continuation_of_a_continuation_is_what_one_of_both_lengths_would_be(page):
    loaded(page, {})

    def write(text, length, seed):
        question = {"text": text, "off": [], "length": length, "seed": seed, "stop": None, "temperature": 1}
        return page.execute_async_script(ASK, "write", question)

    first = write(TEXT, 9, 3)
    assert first + write(TEXT + first, 9, 3) == write(TEXT, 18, 3)
    assert first != write(TEXT, 9, 4)


def test_a_continuation_ends_before_the_stop_text(page):
    loaded(page, {})
    question = {"text": TEXT, "off": [], "length": 300, "seed": 1, "temperature": 2}
    endless = page.execute_async_script(ASK, "write", question | {"stop": None})
    assert page.execute_async_script(ASK, "write", question | {"stop": "\n"}) == endless.partition("\n")[0] != endless


@torch.inference_mode()
@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_the_numbers_of_a_head_are_what_the_code_beside_them_computes(page, float64, settings):
    """The code runs on the whole text. The page shows some characters, and the sum of the other weights as the rest."""
    model, config, ids = loaded(page, settings)
    answer = page.execute_async_script(ASK, "head", {"text": TEXT, "off": [], "name": "L1H1", "t": CHOSEN})
    places, variables = answer["places"], variables_of(model.blocks[1], inputs_of(model, ids))
    for code, tables in page.execute_script(CODE, config, answer)[:-1]:  # the last line adds all heads together
        exec(code.replace("return ", "output = "), variables)
        variables |= {"tril": variables["self"].tril[None], "masked scores": variables.get("scores")}
        for name, numbers in tables.items():
            computed = variables[name][0, places]  # (n, D), or (n, T) of a weight or a score for each character
            expected = computed if name in ("q", "k", "v", "output") else computed[:, places]
            if name == "weights":
                expected = torch.cat((expected, 1 - expected.sum(1, keepdim=True)), 1)
            shown = torch.tensor([[float(x) for x in row] for row in numbers], dtype=torch.float64)
            assert_close(shown, expected, atol=1e-4, rtol=1e-4)
    weights = variables["weights"][0, CHOSEN, : CHOSEN + 1]
    attention, outputs = model.blocks[1].attention, variables["output"][0, places]
    added = outputs @ attention.proj.weight[:, attention.head_size : 2 * attention.head_size].T
    assert_close(torch.tensor(answer["added"]).double(), added, atol=1e-4, rtol=1e-4)
    assert places == sorted(places)
    assert places[-1] == CHOSEN
    assert len(places) == SHOWN
    assert {*weights.topk(3).indices.tolist()} <= {*places}


def inputs_of(model, ids):
    """Return what the attention of layer 1 reads: (1, T, C)."""
    read = []
    model.blocks[1].attention.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    model(torch.tensor([ids]))
    return read[0]


def variables_of(block, x):
    """Return the variables that the code of a head uses, for head 1 of a block that reads x (1, T, C)."""
    attention, (_, T, _) = block.attention, x.shape
    H, K, D = attention.n_head, attention.n_kv_head, attention.head_size
    bias = attention.qkv.bias if attention.qkv.bias is not None else torch.zeros((H + 2 * K) * D)
    group = K // H  # of head 1: 1 if each head has its own keys, 0 if all share them

    def part(i):
        channels = slice(i * D, (i + 1) * D)
        return lambda y: F.linear(y, attention.qkv.weight[channels], bias[channels].to(y.dtype))

    head = nn.Module()
    head.query, head.key, head.value = part(1), part(H + group), part(H + K + group)
    steps = torch.arange(T)

    def rotate(y):
        a, b = y.chunk(2, dim=-1)
        angles = torch.outer(steps.double(), 10_000 ** (-2 * torch.arange(D // 2).double() / D))
        turned = torch.complex(a, b) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((turned.real, turned.imag), dim=-1)

    functions = {"self": head, "torch": torch, "F": F, "rotate": rotate}
    functions["rms_norm"] = lambda y: F.rms_norm(y, (D,), eps=2**-23)
    sizes = {
        "x": x,
        "T": T,
        "block_size": T,
        "scale": attention.qk_norm and attention.qk_norm.log_scale[1].exp(),
    }
    return functions | sizes | {"slope": alibi_slopes(H)[1], "distance": steps[:, None] - steps}
