"""What a page keeps of a model that was trained in it: this project's commands and browsers open it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from helpers import make_checkpoint, make_model
from pages_in_browser import choose, click, find, open_page, wait_for, wait_for_maps
from torch.testing import assert_close

import sample
import train
from data.config import DataConfig
from data.corpus import open_corpus
from data.vocabulary import Vocabulary
from experiments.playground.models import can_train, make_page
from training.config_file import load_config, to_yaml
from training.evaluation import evaluate
from training.runs.checkpoint import load_checkpoint, save_checkpoint
from training.runtime import choose_runtime
from training.state import Progress, origin_of
from training.trained_model import load_model

PAGE = load_config(ROOT / "configs/page.yaml")
TEXT = '\n\r </script><!--& "9 bottles" ﬁ😀ﬁ\r\n' * 40  # in UTF-16, 😀 sorts before the ligature
CHARACTERS = Vocabulary(TEXT).characters
SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 12}
ASK = """const [model, characters, text, done] = arguments;
    const answer = (work) => work.then(done, ({ stack }) => done(stack));
    const bytes = new TextEncoder().encode(text), opening = text.slice(0, 10);
    const corpus = { name: "bottles <&>.txt", bytes, characters, opening };
    const weights = Object.fromEntries(Object.entries(model).map(([name, x]) => [name, Float32Array.from(x)]));
    const config = { ...training.settings.model, n_layer: 2, n_head: 2, n_embd: 16, block_size: 12 };
    const state = () => stateOf({ name: "trained </script> here", text: corpus, config, weights, step: 1234,
      train_loss: [[1, 2.5]], val_loss: [[2, 1.5]] });"""


@pytest.fixture(scope="module")
def model():
    return make_model(len(CHARACTERS), **SHAPE)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Return a page of two other models that were measured on different texts, with a character that no box holds."""
    folder, files = tmp_path_factory.mktemp("page"), []
    for i, digest in enumerate("ab"):
        checkpoint = make_checkpoint(model=make_model(4, **SHAPE), characters="\n\rab")
        files.append(folder / f"{i}.safetensors")
        save_checkpoint(replace(checkpoint, origin=checkpoint.origin | {"text": digest}), files[-1])
    file = folder / "page.html"
    file.write_text(make_page([load_model(each, "cpu") for each in files]), "utf-8")
    return file


@pytest.fixture
def page(browser, others):
    open_page(browser, others)
    return browser


def ask(page, model, script):
    weights = {name: x.flatten().tolist() for name, x in model.state_dict().items()}
    return page.execute_async_script(ASK + script, weights, CHARACTERS, TEXT)


@pytest.fixture
def checkpoint(page, model, tmp_path, monkeypatch):
    """Return a checkpoint that the page has made of the model, beside its text."""
    script = """const progress = { step: 1234, windows: 9872, elapsed_s: 30, best_loss: 1.5 };
        const settings = { ...training.settings, model: state().checkpoints[0].header.config };
        answer(checkpointOf({ settings, corpus, progress, weights }).then((file) => Array.from(file)));"""
    monkeypatch.chdir(tmp_path)
    content = ask(page, model, script)
    assert isinstance(content, list), content
    Path("mine.safetensors").write_bytes(bytes(content))
    Path("mine.txt").write_text(TEXT, "utf-8", newline="")
    return Path("mine.safetensors")


def test_a_checkpoint_from_the_page_is_the_model_with_its_settings_text_and_progress(checkpoint, model):
    found = load_checkpoint(checkpoint)
    assert found.weights.keys() == model.state_dict().keys()
    assert all(torch.equal(found.weights[name], x) for name, x in model.state_dict().items())
    data, run = replace(PAGE.data, corpus="bottles <&>.txt"), replace(PAGE.train, max_steps=1234)
    assert found.config == replace(PAGE, model=replace(PAGE.model, **SHAPE), data=data, train=run)
    assert found.vocabulary.characters == CHARACTERS
    assert found.progress == Progress(step=1234, windows=9872, elapsed_s=30, best_loss=1.5)
    corpus = open_corpus(DataConfig(corpus="mine.txt"), cache=Path("cache"))
    assert found.corpus == {"name": data.corpus, "digest": corpus.digest, "n_train": None}
    expected = origin_of(corpus, choose_runtime("cpu", "float32"))
    assert found.origin == expected | {"arithmetic": "float32 in a browser"}


def test_a_checkpoint_from_the_page_is_sampled_scored_on_its_text_trained_further_and_made_a_page(checkpoint, capsys):
    assert sample.main(["--checkpoint", str(checkpoint), "--length", "9", "--prompt", "😀"]) == 0
    trained = load_model(checkpoint, "cpu", text=Path("mine.txt"))
    assert len(trained.split("validation")) == len(TEXT) - int(0.9 * len(TEXT)) + 1
    Path("mine.yaml").write_text(to_yaml(trained.checkpoint.config), "utf-8")
    further = ["data.corpus=mine.txt", "train.max_steps=1", "train.sample_length=0"]
    assert train.main(["--config", "mine.yaml", "--from", str(checkpoint), *further]) == 0
    assert "Started from the weights of mine.safetensors" in capsys.readouterr().out
    assert r"next character of the text bottles \u003c\u0026\u003e.txt" in make_page([trained])


def test_a_page_on_plain_http_says_why_it_cannot_save_a_checkpoint(page, model):
    """Browsers have no checksums there."""
    script = """Object.defineProperty(crypto, "subtle", {});
        const settings = training.settings, progress = { step: 0 };
        answer(checkpointOf({ settings, corpus, progress, weights }).catch(({ message }) => message));"""
    message = "At this address, the browser makes no checkpoint; save a page and open that."
    assert ask(page, model, script) == message


def test_a_saved_page_opens_with_the_model_bit_by_bit_and_its_text_and_can_be_saved_again(page, model, tmp_path):
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    save = 'pageOf(source, state(), corpus).then((html) => download("mine.html", html))'
    assert ask(page, model, f"answer({save})") is None
    wait_for((saved := tmp_path / "mine.html").exists)
    assert len(find(page, ".warning")) == 1
    open_page(page, saved)
    wait_for_maps(page)
    assert find(page, ".warning") == []
    assert find(page, "h2.name")[0].text == "trained </script> here, step 1,234"
    assert page.execute_script("return statesOfThisPage[0].opening") == TEXT[:10]
    script = """const { header, weights: packed } = statesOfThisPage[0].checkpoints[0];
        const opened = [unpack(header.tensors, packed), unzipped(byId("corpus").textContent)];
        answer(Promise.all(opened).then(([found, content]) => [
            Object.fromEntries(Object.entries(found).map(([name, x]) => [name, [...x]])),
            new TextDecoder("utf-8", { ignoreBOM: true }).decode(content), byId("corpus").dataset.name]));"""
    weights, text, name = ask(page, model, script)
    assert weights == {name: x.flatten().tolist() for name, x in model.state_dict().items()}
    assert (text, name) == (TEXT, "bottles <&>.txt")
    again = ask(page, model, "answer(pageOf(source, state(), corpus))")
    assert again == saved.read_text("utf-8")
    predicted = page.execute_async_script("models[0].ask('read', { text: '9 bottles', off: [] }).then(arguments[0])")
    ids = torch.from_numpy(Vocabulary(CHARACTERS).encode("9 bottles").astype(np.int64))
    with torch.inference_mode():
        expected = model(ids[None])[0, -1].softmax(-1).topk(10)
    assert_close(torch.tensor([share for _, _, share in predicted["next"]]), expected.values, atol=1e-5, rtol=0)


def held_out(page):
    """Return the held-out losses in the chart so far, from that of the first weights."""
    points = page.execute_script("return JSON.parse(byId('learning').dataset.points ?? '[]')")
    return [float(text.rpartition(" ")[2]) for *_, text in points if "held out" in text]


def train_a_moment(page):
    wait_for(lambda: find(page, "#facts")[0].text.startswith(f"{len(TEXT) + 1:,} characters"))
    click(page, "#go")
    wait_for(lambda: len(held_out(page)) > 2)
    click(page, "#go")
    wait_for(lambda: find(page, "#go")[0].text == "Go on")


@pytest.mark.slow
def test_what_a_visitor_trains_and_saves_has_the_same_loss_in_python_and_trains_on_in_the_saved_page(page, tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("\ufeff" + TEXT, "utf-8", newline="")
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    click(page, "#train summary")
    choose(page, source="own", n_layer=1, n_embd=32, n_head=2)
    find(page, "#file")[0].send_keys(str(text))
    train_a_moment(page)
    for kind, name in (("page", "gpt.html"), ("checkpoint", "gpt.safetensors")):
        click(page, f"#save-{kind}")
        wait_for((tmp_path / name).exists)
    trained = load_model(tmp_path / "gpt.safetensors", "cpu", text=text)
    found = evaluate(trained.model, trained.split("validation"), choose_runtime("cpu", "float32"))
    assert held_out(page)[-1] == pytest.approx(found.loss, abs=1e-4)
    open_page(page, tmp_path / "gpt.html")
    click(page, "#train summary")
    (own,) = [each.get_attribute("value") for each in find(page, "#from option")][1:]
    choose(page, **{"from": own})
    train_a_moment(page)
    assert held_out(page)[0] == pytest.approx(found.loss, abs=1e-4)
    (tmp_path / "gpt.safetensors").unlink()
    click(page, "#save-checkpoint")
    wait_for((tmp_path / "gpt.safetensors").exists)
    again = load_checkpoint(tmp_path / "gpt.safetensors")
    assert again.step > trained.checkpoint.step
    assert again.origin["ancestor"] == "2 heads, trained here"
    assert again.corpus == trained.checkpoint.corpus


@pytest.mark.parametrize(
    ("settings", "can"),
    [
        ({}, True),
        ({"n_head": 4, "n_kv_head": 4, "head_size": 16, "logit_softcap": 2.0, "dropout": 0.1}, True),
        ({"n_embd": 60, "n_head": 2}, False),  # 30 channels in a head
        ({"n_kv_head": 1}, False),
        ({"head_size": 8}, False),
        ({"n_head": (4, 2)}, False),
        ({"n_layer": 0}, False),
        ({"block_size": 30}, False),
        ({"logit_softcap": 0.0}, False),
        ({"ngrams": (2,)}, False),
        ({"positions": "alibi"}, False),
        ({"qk_norm": False}, False),
    ],
    ids=str,
)
def test_the_page_trains_further_what_it_could_have_trained(settings, can):
    assert can_train(replace(PAGE.model, **settings)) is can
