"""The page shows a head step by step, with the numbers of its worker, and what the head does to the prediction."""

import re

import numpy as np
import pytest
import torch
from pages_in_browser import click, find, open_page, rows, set_caret, texts, type_text, wait_for, wait_for_maps
from torch.testing import assert_close

from experiments.playground.__main__ import main as playground
from training.trained_model import load_model

pytestmark = pytest.mark.slow
TEXT = "les of b"


def test_a_head_is_shown_step_by_step_with_the_numbers_of_the_model(browser, trained, monkeypatch):
    from selenium.webdriver import Keys
    from selenium.webdriver.support.ui import Select

    monkeypatch.chdir(trained)
    assert playground(["--no-browser", "--output", "steps.html"]) == 0
    open_page(browser, trained / "steps.html")
    wait_for_maps(browser)
    click(browser, ".how")
    type_text(browser, TEXT)
    wait_for(lambda: texts(browser, ".matrices tbody tr:last-child th")[:1] == ["o\n4"])  # the middle of the line
    Select(find(browser, ".which")[0]).select_by_visible_text("L1H2")
    set_caret(browser, 8)
    added, changes = steps_of("runs/tiny", TEXT, 1, 2)
    ask = """const plain = (x) => (x?.map ? Array.from(x, plain) : x), done = arguments[0], model = models[0];
        model.ask("head", model.request()).then((found) => done(Object.values(found).map(plain)))"""
    places, names, *found, _, is_off, logits = browser.execute_async_script(ask)
    q, k, v, scores, weights, output, adding = (torch.tensor(each, dtype=torch.float64) for each in found)
    assert ("".join(names), is_off) == ("".join(TEXT[i] for i in places).replace(" ", "\N{OPEN BOX}"), False)
    tril = torch.ones(6, 6).tril()
    masked = scores.masked_fill(tril == 0, float("-inf"))
    assert_close(adding, added[places], atol=3e-3, rtol=3e-3)  # the weights of the page are rounded
    raised, lowered = ([by for _, by in side] for side in logits)
    assert raised == pytest.approx(changes.topk(3).values.tolist(), abs=0.01)
    assert lowered == pytest.approx((-(-changes).topk(3).values).tolist(), abs=0.01)

    weights = torch.cat((weights, 1 - weights.sum(1, keepdim=True)), 1)  # and the rest
    tables = {"q": q, "k": k, "v": v, "scores": scores, "weights": weights, "output": output, "added": adding}
    tables |= {"tril": tril, "masked scores": masked}
    wait_for(lambda: shown(browser, "output")[-1] == pytest.approx(output[-1, :5].tolist(), abs=0.006))
    for name, numbers in tables.items():
        assert np.array(shown(browser, name)) == pytest.approx(
            numbers[:, : len(shown(browser, name)[0])].numpy(), abs=0.006
        )
    find(browser, "table[data-name=scores]")[0].send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    said = plain_minus(find(browser, ".product")[0].text)
    number, *factors = map(float, re.match(r"scores (\S+) = \((\S+) . (\S+) \+ .*\) / √", said).groups())
    assert number == pytest.approx(float(scores[2, 1]), abs=0.006)
    rounding = 0.006 * sum(map(abs, factors))  # each is shown with two decimals
    assert np.prod(factors) == pytest.approx(max((q[2] * k[1]).tolist(), key=abs), abs=rounding)
    lit = """return [...document.querySelectorAll("td.lit")].map(
        (cell) => `${cell.closest("table").dataset.name} ${cell.parentElement.rowIndex - 1}`)"""
    assert set(browser.execute_script(lit)) == {"q 2", "k 1"}
    type_text(browser, "")
    wait_for(lambda: len(shown(browser, "output")) == 1)  # of the start of a line, which the model reads without a text
    type_text(browser, TEXT)
    wait_for(lambda: len(shown(browser, "output")) > 1)
    click(browser, ".switches button:nth-child(6)")
    wait_for(lambda: "switched off" in find(browser, ".effect")[0].text)


def plain_minus(text):
    return text.replace("\u2212", "-").replace("\u221e", "inf")


def shown(browser, name):
    """Return the numbers of a table of a head's steps."""
    return [[float(plain_minus(x)) for x in row[1:]] for row in rows(browser, f"table[data-name='{name}'] tbody tr")]


def steps_of(run, text, layer, h):
    """Return what a head adds to the stream, and how that changes the last logits, in float64."""
    trained, joined, read = load_model(run, "cpu"), [], []
    model = trained.model.double()
    proj, D = model.blocks[layer].attention.proj, model.blocks[layer].attention.head_size
    proj.register_forward_pre_hook(lambda _, inputs: joined.append(inputs[0][0]))
    model.norm.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    with torch.inference_mode():
        logits = model(torch.from_numpy(trained.vocabulary.encode(text).astype(np.int64))[None])[0, -1]
        added = joined[0][:, h * D : (h + 1) * D] @ proj.weight[:, h * D : (h + 1) * D].T
        return added, logits - model.lm_head(model.norm(read[0][0, -1] - added[-1]))
