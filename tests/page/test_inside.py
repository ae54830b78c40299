"""What the page shows inside a model: its parts, the maps of its heads, and what each head and layer does."""

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
import torch
from conftest import ROOT, train_tiny
from helpers import block_outputs
from page_numbers import bars, check_next, check_numbers, labelled, surprise

from experiments.heads.measures import measure_heads, role_of
from experiments.heads.silence import parts_of, silenced
from model.config import ModelConfig
from model.gpt import GPT
from page.template import joined
from training.runs.metrics import read_records
from training.trained_model import load_model

LONGEST = {"n_embd": 1024, "n_layer": 1, "n_head": 16, "n_kv_head": 4, "block_size": 1024, "conv_width": 3}
MODELS = {
    "plain": {"n_embd": 12, "n_head": 3, "n_layer": 2, "head_size": 6},
    "GPT-2": {"n_embd": 10, "n_layer": 1, "norm": "layer", "positions": "learned", "mlp": "gelu", "n_head": 5},
    "heads by layer": {"n_embd": 24, "n_layer": 3, "n_head": (6, 3, 1), "mlp": "swiglu", "positions": "none"},
    "no heads": {"n_layer": 0},
    "long texts": LONGEST | {"positions": "alibi", "ngrams": (2, 3, 4, 5, 6), "ngram_rows": 50, "longest_copy": 16},
}
DRAW = """const [header] = arguments;
    const model = new Model({ header: { ...header, characters: "abcdefghijklm" }, weights: "" }, 0);
    new Inside(() => {}).show(model, null);
    const net = byId("net");
    return { words: [...net.children].map((row) => (row.matches(".layer") ? row.title : row.textContent)),
      heads: net.querySelectorAll(".head").length,
      fits: net.scrollWidth <= net.clientWidth }"""


@pytest.fixture(scope="module")
def empty(browser, tmp_path_factory):
    """Return the browser at a page with the scripts, an empty drawing and an empty chart."""
    scripts = joined(*(ROOT / "page" / name for name in ("model.js", "panels/inside.js", "panels/chart.js")))
    body = '<div id="net"></div><svg xmlns="http://www.w3.org/2000/svg"></svg><script type="text" id="reader"></script>'
    style = (ROOT / "page/page.css").read_text("utf-8")
    file = tmp_path_factory.mktemp("inside") / "page.html"
    head = f"<meta charset=utf-8><link rel=icon href=data:,><style>{style}</style>"
    file.write_text(f"{head}{body}<script>{scripts}</script>", "utf-8")
    browser.open_page(file, 390)
    return browser


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_the_drawing_has_the_shapes_of_the_model(empty, settings):
    config = ModelConfig(**settings)
    model = GPT(config, 13)
    header = {"config": asdict(config) | {"layers": [*map(asdict, config.layers)]}}
    header["tensors"] = {name: {"shape": [*x.shape]} for name, x in model.state_dict().items()}
    drawn = empty.execute_script(DRAW, json.loads(json.dumps(header)))
    V, C = model.token_embedding.weight.shape
    expected = [f"{C} numbers for each character"]
    if "ngrams" in model.memories:
        expected.append(f"memory of the last {','.join(map(str, config.ngrams))} characters".replace(",", ", "))
    if "copies" in model.memories:
        expected.append("memory of what followed the same characters before")
    for number, block in enumerate(model.blocks):
        H, K, D = block.attention.n_head, block.attention.n_kv_head, block.attention.head_size
        shared = f"; they share {K} key and value heads" * (K < H)
        expected.append(f"layer {number}: {H} head{'s' * (H > 1)} of {D} numbers{shared}")
        convolution = f"{len(block.conv.weight) + 1} neighbours, " if block.conv else ""
        expected.append(f"{convolution}MLP: {block.mlp.proj.in_features} numbers")
    assert drawn["words"] == [*expected, f"a guess among {V} characters"]
    assert drawn["heads"] == sum(block.attention.n_head for block in model.blocks)
    assert drawn["fits"]


def test_a_chart_gives_each_doubling_the_same_room_and_shows_a_single_point_as_a_dot(empty):
    draw = """const svg = document.querySelector("svg");
        drawChart(svg, arguments[0].map((points) => ({ points, title: "a", colour: "red" })));
        const count = (kind) => svg.querySelectorAll(kind).length;
        return [JSON.parse(svg.dataset.points), count("polyline"), count(".dot")]"""
    curve = [[0, 4], *([2.0**k, loss] for k, loss in ((16, 3), (17, 2), (18, 1.5), (20, 1)))]
    points, *counts = empty.execute_script(draw, [curve])
    xs, ys, words = zip(*points, strict=True)
    assert counts == [1, 0]
    assert np.diff(xs) == pytest.approx(np.array([1, 1, 2]) * (xs[1] - xs[0]))
    assert np.diff(ys) == pytest.approx(np.array([1, 0.5, 0.5]) * (ys[1] - ys[0]))
    assert words[0] == "a, 65,536 characters: 3.000"
    assert empty.execute_script(draw, [[[5, 2.5]], curve])[1:] == [2, 1]
    assert empty.execute_script(draw, [[]])[0] == empty.execute_script(draw, [])[0] == []


TEXT = "9 bottles of b"
MAPS = """return [...document.querySelectorAll(arguments[0])].map((map) => {
    const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
    return Array.from({ length: map.width * map.height }, (_, i) => data[4 * i + 3]);
})"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a run of a model with memories, and one with other heads."""
    folder = tmp_path_factory.mktemp("inside")
    settings = ["train.device=cpu", "train.dtype=float32", "train.max_steps=100"]
    train_tiny(folder, "train.name=memories", "model.ngrams=[2,3]", "model.longest_copy=4", *settings)
    train_tiny(folder, "train.name=other", "model.n_head=[1,2]", *settings)
    return folder


@pytest.fixture
def desk(folder, browser, monkeypatch):
    """Return a function that opens the page of some runs with the text, and returns the first of its models."""
    monkeypatch.chdir(folder)

    def open_desk(*runs):
        browser.open_models(*(f"runs/{run}" for run in runs), options=["--prompt", TEXT])
        trained = load_model(f"runs/{runs[0]}", "cpu")
        check_numbers(browser, trained, TEXT)
        return trained

    return open_desk


def opacity(weights):
    return pytest.approx(255 * weights.flatten().sqrt().numpy(), abs=4)


def check_maps(browser, trained, off=()):
    """Assert that the maps of all heads come to have PyTorch's weights; return these (N, T, T)."""
    with silenced(trained.model, [*off]):
        weights = torch.cat(trained.attention_weights(TEXT))
    browser.wait_to_find([*map(opacity, weights)], lambda: browser.execute_script(MAPS, ".head canvas"))
    return weights


def check_change(browser, change):
    """Assert that the page comes to say how much higher the loss on the text is without the head."""
    sentence = r"Without this head, the loss on your text is ([\d.]+) (higher|lower)\."

    def found():
        words = re.fullmatch(sentence, browser.texts("#without")[0])
        return words and float(words[1]) * (1 if words[2] == "higher" else -1)

    browser.wait_to_find(pytest.approx(change, abs=0.02), found)


@pytest.mark.slow
def test_the_page_opens_on_the_last_character_and_each_head_shows_where_it_looks(browser, desk):
    trained = desk("memories")
    weights = check_maps(browser, trained)
    measures, last = measure_heads([(weights, TEXT)]), len(TEXT) - 1
    for h, q in ((0, last), *((h, h + 7) for h in range(6))):
        if q != last:
            browser.choose_head(h)
            browser.set_caret(q + 1)
        assert (browser.query(), browser.texts("#head-name")) == (q, [f"layer {h // 3}, head {h % 3}"])
        assert [head.get_attribute("aria-pressed") for head in browser.find(".head")].index("true") == h
        assert browser.execute_script(MAPS, "#map") == [opacity(weights[h])]
        assert browser.texts("#looks-title") == [f"where “{labelled(TEXT[q])}” looks"]
        labels, shares = zip(*bars(browser, "#looks"), strict=True)
        places = [q - int(label.split()[-2]) for label in labels]
        assert [*labels] == [f"{labelled(TEXT[k])}, {q - k} back" for k in places]
        for expected in (weights[h, q, places], weights[h, q].topk(5).values):
            assert shares == pytest.approx((100 * expected).tolist(), abs=1)  # its weights are rounded
        role, figure = role_of(measures, h)
        (words,) = browser.texts("#usually")
        assert words.startswith(f"On your text: {role}")
        assert float(re.search(r"\d\.\d+", words)[0]) == pytest.approx(float(figure.split()[0]), abs=0.11)
        change = surprise(trained, TEXT, [(h // 3, h % 3)]).mean() - surprise(trained, TEXT).mean()
        check_change(browser, change)


@pytest.mark.slow
def test_heads_and_memories_are_switched_off_and_the_page_says_the_loss_on_the_text_then(browser, desk):
    trained = desk("memories")
    parts, off = [*parts_of(trained.model)], []
    names = [part if isinstance(part, str) else f"layer {part[0]}, head {part[1]}" for part in parts]
    assert browser.texts("#switches button") == names
    loss = lambda off: surprise(trained, TEXT, off).mean()  # noqa: E731
    browser.choose_head(4)
    for part in (parts[i] for i in (1, 2, 1, 6, 7, 4, 3, 0, 5, 2)):
        off = [each for each in off if each != part] + [part] * (part not in off)
        browser.click(f"#switches button:nth-child({parts.index(part) + 1})")
        check_numbers(browser, trained, TEXT, off)
        check_maps(browser, trained, off)
        if parts[4] in off:
            browser.wait_to_find(["This head is off."], lambda: browser.texts("#without"))
        else:
            check_change(browser, loss([*off, parts[4]]) - loss(off))
        is_on = [part not in off for part in parts]
        assert [each.get_attribute("aria-pressed") == "true" for each in browser.find("#switches button")] == is_on
        assert ["off" not in head.get_attribute("class").split() for head in browser.find(".head")] == is_on[:6]
    for place in map(parts.index, off):
        browser.click(f"#switches button:nth-child({place + 1})")
    check_numbers(browser, trained, TEXT)


@pytest.mark.slow
@torch.inference_mode()
def test_the_steps_of_a_head_and_the_guesses_of_layers_are_those_of_pytorch(browser, desk):
    trained = desk("memories")
    browser.open_details()
    layers, table = block_outputs(trained.model, trained.encode(TEXT)), "#lines table[data-name=weights] tbody"
    for h, q in ((0, 13), (4, 9)):
        browser.choose_head(h)
        browser.set_caret(q + 1)
        browser.wait_to_find(f"{labelled(TEXT[q])}\n{q}", lambda: browser.texts(f"{table} th")[-1])
        places = [int(label.split("\n")[1]) for label in browser.texts(f"{table} th")]
        weights = torch.cat(trained.attention_weights(TEXT))[h, q, places].tolist()
        shown = [float(number) for number in browser.texts(f"{table} tr:last-child td")]
        assert shown[: len(places)] == pytest.approx(weights, abs=0.01)
        for layer, outputs in enumerate(layers):
            shares, ids = (100 * trained.model.predict(outputs[0, q]).softmax(-1)).topk(3)
            labels = [labelled(trained.vocabulary.characters[i]) for i in ids]
            guesses = [*zip(labels, (pytest.approx(share, abs=0.7) for share in shares.tolist()), strict=True)]
            browser.wait_to_find(guesses, lambda n=layer + 1: bars(browser, f"#guesses > div:nth-child({n}) .bars"))
    assert browser.texts("#guesses h3") == ["layer 0", "layer 1"]


@pytest.mark.slow
def test_two_models_have_tabs_and_what_comes_next_shows_both(browser, desk):
    trained = desk("memories", "other"), load_model("runs/other", "cpu")
    check_next(browser, trained[1], TEXT, selector="#next-b")
    assert browser.texts("#keys span") == browser.texts("#tabs button") == ["memories", "other"]
    browser.set_caret(5)
    for i, n_heads in ((1, 3), (0, 6)):
        browser.click(f"#tabs button:nth-child({i + 1})")
        check_maps(browser, trained[i])
        assert len(browser.find(".head")) == n_heads
        pressed = [button.get_attribute("aria-pressed") for button in browser.find("#tabs button")]
        assert pressed == ["true" if i == n else "false" for n in range(2)]
        chosen = pytest.approx(100 * np.exp(-surprise(trained[i], TEXT)[3]), abs=0.9)
        browser.wait_to_find(chosen, lambda: float(re.match(r"“t” got ([\d.]+) %", browser.texts("#text-loss")[0])[1]))


@pytest.mark.slow
def test_the_curve_has_the_losses_of_the_run_over_the_characters_that_it_read(browser, desk):
    trained = desk("memories")
    records = [each for each in read_records(trained.run_folder / "metrics.jsonl") if "val_loss" in each]
    read = trained.checkpoint.config.tokens_per_step
    points = [f"memories, {each['step'] * read:,} characters: {each['val_loss']:.3f}" for each in records]
    shown = browser.execute_script("return JSON.parse(document.querySelector('#curve').dataset.points)")
    assert [words for *_, words in shown] == points
    assert browser.texts("#keys b") == [f"{records[-1]['val_loss']:.3f}"]
