"""What a page keeps of a model that was trained in it: this project's commands and browsers open it."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from helpers import make_checkpoint, make_model
from page_trainer import held_out_loss
from torch.testing import assert_close

import sample
import train
from data.config import DataConfig
from data.corpus import open_corpus
from data.sources import NAMED
from data.vocabulary import Vocabulary
from page.models import make_page
from training.config_file import load_config, to_yaml
from training.runs.checkpoint import load_checkpoint, save_checkpoint
from training.runtime import choose_runtime
from training.state import Progress, origin_of
from training.trained_model import load_model

PAGE = load_config(ROOT / "configs/page.yaml")
TEXT = '\n\r </script><!--& "9 bottles" ﬁ😀ﬁ\r\n' * 40  # in UTF-16, 😀 sorts before the ligature
CHARACTERS = Vocabulary(TEXT).characters
SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 12}
STRANGERS = """<style class="stranger"></style>
    <script class="stranger">document.documentElement.append(document.createElement("aside"))</script></head>
    <body class="stranger"><div class="stranger"></div>"""  # of extensions, when the page opens
ASK = """const [model, characters, text, done] = arguments;
    const answer = (work) => work.then(done, ({ stack }) => done(stack));
    const training = JSON.parse(byId("training").textContent), lookAlikes = training.look_alikes;
    const corpus = { name: "bottles <&>.txt", bytes: new TextEncoder().encode(text), characters };
    const weights = Object.fromEntries(Object.entries(model).map(([name, x]) => [name, Float32Array.from(x)]));
    const config = { ...training.settings.model, n_layer: 2, n_head: 2, n_embd: 16, block_size: 12 };
    const given = { name: "trained </script> here", text: corpus, config, weights, points: [[2, 1.5]] };
    const state = { ...stateOf({ ...given, lookAlikes }), opening: text.slice(0, 10) };"""
LEAVE = """const event = new Event("beforeunload", { cancelable: true });
    dispatchEvent(event);
    return event.defaultPrevented"""
DRAWN = """window.drawn = [];
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
      drawn.push(text);
      fillText.call(this, text, ...place);
    }"""


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
    page = make_page([load_model(each, "cpu") for each in files])
    file.write_text(re.sub("</head>\\s*<body>", lambda _: STRANGERS, page, count=1), "utf-8")
    return file


@pytest.fixture
def page(browser, others, tmp_path):
    """Open the page in a browser that saves files in the folder of the test."""
    browser.open_page(others)
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    return browser


def ask(page, model, script):
    weights = {name: x.flatten().tolist() for name, x in model.state_dict().items()}
    return page.execute_async_script(ASK + script, weights, CHARACTERS, TEXT)


@pytest.fixture
def checkpoint(page, model, tmp_path, monkeypatch):
    """Return a checkpoint that the page has made of the model, beside its text."""
    script = """const progress = { step: 1234, windows: 9872, elapsed_s: 30, best_loss: 1.5 };
        const settings = { ...training.settings, model: config };
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
    assert r"next character of bottles &lt;&amp;&gt;.txt" in make_page([trained])


def test_a_saved_page_has_the_model_bit_by_bit_the_play_and_no_stranger_and_can_be_saved_again(page, model, tmp_path):
    assert ask(page, model, 'answer(pageOf(source, state).then((html) => download("mine.html", html)))') is None
    page.wait_for((saved := tmp_path / "mine.html").exists)
    assert len(page.find("#warning")) == len(page.find("html > aside")) == len(page.find("div.stranger")) == 1
    page.open_page(saved)
    page.wait_for(lambda: page.find("#next-a button"))
    assert page.find("#warning, .stranger, html > aside") == []
    assert page.title == page.find("h1")[0].text == "trained </script> here"
    script = """const [saved] = JSON.parse(byId("models-of-this-page").textContent);
        const { header, weights: packed } = saved;
        const opened = [unpack(header.tensors, packed), unzipped(byId("corpus").textContent)];
        answer(Promise.all(opened).then(([found, content]) => [
            Object.fromEntries(Object.entries(found).map(([name, x]) => [name, [...x]])), saved.opening,
            new TextDecoder("utf-8", { ignoreBOM: true }).decode(content), byId("corpus").dataset.name]));"""
    weights, opening, text, name = ask(page, model, script)
    assert weights == {name: x.flatten().tolist() for name, x in model.state_dict().items()}
    assert (opening, text, name) == (TEXT[:10], NAMED["selmere"].read_text("utf-8"), "Selmere, a short play")
    assert ask(page, model, "answer(pageOf(source, state))") == saved.read_text("utf-8")
    script = """const reader = new Model(state, 0);
        answer(reader.read("9 bottles").then(() => reader.reading.next.map(([, share]) => share)));"""
    ids = torch.from_numpy(Vocabulary(CHARACTERS).encode("9 bottles").astype(np.int64))
    with torch.inference_mode():
        expected = model(ids[None])[0, -1].softmax(-1).topk(6)
    assert_close(torch.tensor(ask(page, model, script)), expected.values, atol=1e-5, rtol=0)


def train_until(page, condition, **fields):
    page.choose(**fields)
    page.wait_for(lambda: page.can_press("#go"))
    page.click("#go")
    page.wait_for(condition)
    page.click("#go")
    page.wait_for(lambda: page.find("#go")[0].text == "▶ Go on")


def saved(page, tmp_path, kind):
    """Press a button that saves, and return the file, and what the page says of it."""
    ending, before = {"page": "html", "checkpoint": "safetensors", "picture": "png"}[kind], set(tmp_path.iterdir())
    page.click(f"#save-{kind}")
    page.wait_for(lambda: {each for each in tmp_path.iterdir() if each.suffix == f".{ending}"} - before)
    (file,) = {each for each in tmp_path.iterdir() if each.suffix == f".{ending}"} - before
    page.wait_for(lambda: file.name in page.find("#kept")[0].text)
    return file, page.find("#kept")[0].text


def lines_of(page):
    return [float(loss) for loss in re.findall(r"[a-z] (\d\.\d\d)(?!\d)", "".join(page.texts("#curve")))]


def loss_of(page, message, i=0):
    """Return the loss of a saved model as the page says it: in the panel, unless an earlier one was better."""
    best = re.search(r"at its best, with a loss of (\d+\.\d+)", message)
    return float(best[1] if best else page.texts("#keys b")[i])


def known_loss(trained):
    """Return the loss of a saved model in PyTorch, on the characters that a page evaluates."""
    return held_out_loss(trained.model, torch.from_numpy(trained.split("validation")[:].astype(np.int64)))


@pytest.mark.slow
def test_the_loss_in_the_panel_is_that_of_the_saved_model_in_pytorch_and_closing_asks_until_it_is_saved(page, tmp_path):
    assert not page.execute_script(LEAVE)
    assert not any(page.can_press(f"#save-{kind}") for kind in ("page", "checkpoint", "picture"))
    train_until(page, lambda: len(page.find("#samples tr")) > 2, size="1 32 32", n_head=2, beside=4)
    assert page.execute_script(LEAVE)
    page.execute_script(DRAWN)
    picture, _ = saved(page, tmp_path, "picture")
    assert picture.read_bytes().startswith(b"\x89PNG")
    drawn, panel = page.execute_script("return drawn"), page.texts("#keys b")
    assert (drawn[0], drawn[1][:3]) == (page.title, "0: ")
    assert drawn[-2:] == [f"2 heads: loss {panel[0]}", f"4 heads: loss {panel[1]}"]
    assert page.execute_script(LEAVE)
    for i, heads in enumerate((2, 4)):
        page.click(f"#tabs button:nth-child({i + 1})")
        page.wait_for(lambda i=i: page.find("#tabs button")[i].get_attribute("aria-pressed") == "true")
        file, message = saved(page, tmp_path, "checkpoint")
        assert re.fullmatch(rf"gpt-{heads}-heads-\d+\.safetensors", file.name)
        assert message.startswith(f"The browser now saves {file.name}. ")
        assert message.endswith("If no file appears, open this page in a tab of its own.")
        trained = load_model(file, "cpu", text=NAMED["selmere"])
        assert loss_of(page, message, i) == pytest.approx(known_loss(trained), abs=6e-4)
        assert trained.checkpoint.progress.best_loss == pytest.approx(known_loss(trained), abs=1e-5)
        assert trained.model.config.n_head == heads
    assert not page.execute_script(LEAVE)
    page.click("#go")
    page.wait_for(lambda: page.execute_script(LEAVE))


@pytest.mark.slow
def test_of_a_model_that_learns_a_text_by_heart_the_best_weights_are_saved(page, tmp_path):
    (tmp_path / "short.txt").write_bytes(text := NAMED["selmere"].read_bytes()[:3000])
    page.paste(text.decode())
    page.wait_for(lambda: "3,000 characters" in page.find("#said")[0].text)
    train_until(page, lambda: "by heart" in "".join(page.texts("#learned")), size="2 64 64", n_head=4)
    file, message = saved(page, tmp_path, "checkpoint")
    assert "It is the model at its best, with a loss of" in message
    best, now = loss_of(page, message), loss_of(page, "")
    assert best < now - 0.01
    trained = load_model(file, "cpu", text=tmp_path / "short.txt")
    assert known_loss(trained) == pytest.approx(best, abs=6e-4)
    assert file.stem == f"gpt-4-heads-{8 * 64 * trained.checkpoint.step}"
    file, _ = saved(page, tmp_path, "page")
    page.open_page(file)
    page.wait_for(lambda: loss_of(page, "") == best)


@pytest.mark.slow
def test_a_saved_page_has_no_part_of_the_text_and_trains_a_new_model_on_the_play(page, tmp_path):
    text = "".join(f"{i * i * 7919 % 99991} {i * 31 % 97} boats 😀\r\n" for i in range(500))
    (tmp_path / "mine.txt").write_text(text, "utf-8", newline="")
    page.find("#file")[0].send_keys(str(tmp_path / "mine.txt"))
    page.wait_for(lambda: "8,384 characters" in page.said())
    train_until(page, lambda: len(page.find("#samples tr")) > 2, size="1 32 32", n_head=2)
    file, message = saved(page, tmp_path, "page")
    loss = loss_of(page, message)
    html, written = file.read_text("utf-8"), text.replace("\r\n", "\\n")
    html = re.sub(r'"opening":"(\\.|[^"])*"|[\w+/=]{1000,}', "", html)
    assert [written[i : i + 30] for i in range(len(written) - 30) if written[i : i + 30] in html] == []
    page.open_page(file)
    page.wait_for(lambda: page.can_press("#go"))
    assert page.find("#promise")[0].text.endswith("mine.txt. Nothing leaves your computer.")
    assert (loss_of(page, ""), lines_of(page)) == (loss, [])
    assert page.texts("#source option") == ["Selmere, a short play"]
    assert page.said() == "171,949 characters, 60 different."
    train_until(page, lambda: len(page.find("#samples tr")) > 2, size="1 32 32", n_head=4)
    assert page.texts("#tabs button") == ["4 heads", "2 heads, trained here"]
    file, _ = saved(page, tmp_path, "checkpoint")
    assert load_checkpoint(file).corpus["name"] == "Selmere, a short play"
