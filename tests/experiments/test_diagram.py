"""The drawings on the page: of the whole model, which follows the chosen head, and of the losses of its run."""

from dataclasses import asdict

import pytest
from conftest import ROOT
from pages_in_browser import click, find, open_page, texts, wait_for, wait_for_maps

from experiments.playground.__main__ import main as playground
from model.config import ModelConfig
from model.gpt import GPT
from model.positions import Alibi, Learned, Rotary

SOURCES = ("chart.js", "diagram.js")
LONGEST = {"n_embd": 1024, "n_layer": 1, "n_head": 16, "n_kv_head": 4, "block_size": 1024, "conv_width": 3}
MODELS = {
    "plain": {"n_embd": 12, "n_head": 3, "n_layer": 2, "head_size": 6},
    "GPT-2": {"n_embd": 10, "n_layer": 1, "norm": "layer", "positions": "learned", "mlp": "gelu", "n_head": 5},
    "heads by layer": {
        "n_embd": 24,
        "n_layer": 3,
        "n_head": (6, 3, 1),
        "mlp": "swiglu",
        "positions": "none",
    },
    "long texts": LONGEST | {"positions": "alibi", "ngrams": (2, 3, 4, 5, 6), "ngram_rows": 50, "longest_copy": 16},
}
DRAW = """const svg = document.querySelector("svg"), [header] = arguments;
    svg.replaceChildren();
    new Diagram(svg, header, () => {});
    const { x, y, width, height } = svg.getBBox();
    return { words: svg.ariaLabel, box: [x, y, x + width, y + height], view: svg.getAttribute("viewBox"),
      heads: [...svg.querySelectorAll(".head text")].map((each) => each.textContent) }"""


@pytest.fixture(scope="module")
def empty(browser, tmp_path_factory):
    """Return the browser at a page with an empty drawing."""
    scripts = "\n".join((ROOT / "experiments/playground" / name).read_text("utf-8") for name in SOURCES)
    style = (ROOT / "experiments/page.css").read_text("utf-8")
    drawing = '<figure><svg class="diagram" xmlns="http://www.w3.org/2000/svg"></svg></figure>'
    file = tmp_path_factory.mktemp("diagram") / "page.html"
    head = f"<meta charset=utf-8><link rel=icon href=data:,><style>{style}</style>"
    file.write_text(f"{head}{drawing}<script>{scripts}</script>", "utf-8")
    open_page(browser, file)
    return browser


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_the_drawing_has_the_shapes_of_the_model_and_all_of_it_fits(empty, settings):
    config = ModelConfig(**settings)
    model = GPT(config, 13)
    header = {"config": asdict(config) | {"layers": [*map(asdict, config.layers)]}}
    header["tensors"] = {name: {"shape": [*x.shape]} for name, x in model.state_dict().items()}
    drawn = empty.execute_script(DRAW, header)
    (V, C), T = model.token_embedding.weight.shape, model.config.block_size
    expected = [f"text: at most T = {T} characters", f"embedding: V x C = {V} x {C}"]
    words = drawn["words"].removeprefix("The model: ").partition(". The chosen head: none.")[0]
    places = {Learned: f"T x C = {T} x {C}", Rotary: "heads rotate q and k", Alibi: "scores fall with distance"}
    expected += [f"positions: {how}" for kind, how in places.items() if isinstance(model.position_embedding, kind)]
    if "ngrams" in model.memories:
        expected.append(f"n-grams of {', '.join(map(str, model.config.ngrams))}")
    if "copies" in model.memories:
        expected.append(f"copies of 3 to {model.config.longest_copy} characters")
    for number, block in enumerate(model.blocks):
        H, K, D = block.attention.n_head, block.attention.n_kv_head, block.attention.head_size
        expected.append(f"layer {number}: H = {H} head{'s' * (H > 1)} of D = {D}")
        expected += [f"K = {K} shared heads of k and v"] * (K < H)
        convolution = f"convolution of {len(block.conv.weight) + 1}, " if block.conv else ""
        expected.append(f"{convolution}MLP of {block.mlp.proj.in_features}")
    expected += [type(model.norm).__name__, f"output: C x V = {C} x {V}", "the next character"]
    assert words.replace("\N{MULTIPLICATION SIGN}", "x").split("; ") == expected
    n_heads = sum(block.attention.n_head for block in model.blocks)
    assert len(drawn["heads"]) == n_heads
    left, top, right, bottom = drawn["box"]
    *_, width, height = map(float, drawn["view"].split())
    assert min(left, top) >= 0
    assert (right <= width, bottom <= height) == (True, True)


@pytest.mark.slow
def test_the_drawing_follows_the_chosen_head_and_a_click_in_it_chooses_one(browser, trained, monkeypatch):
    monkeypatch.chdir(trained)
    assert playground(["--no-browser", "--output", "page.html"]) == 0
    open_page(browser, trained / "page.html")
    wait_for_maps(browser)
    drawing = find(browser, ".diagram")[0]
    for place, name in ((5, "L1H2"), (0, "L0H0"), (4, "L1H1")):
        browser.execute_script("document.querySelectorAll('.diagram .head')[arguments[0]].onclick()", place)
        wait_for(lambda name=name: texts(browser, "button.head[aria-pressed=true] b") == [name])
        wait_for(lambda name=name: drawing.accessible_name.endswith(f"The chosen head: {name}."))
        assert texts(browser, ".diagram .chosen text") == [name[2:]]
    click(browser, "button.head:nth-child(3)")
    wait_for(lambda: drawing.accessible_name.endswith("The chosen head: L0H2."))
    assert texts(browser, ".diagram .chosen text") == ["H2"]


def test_a_chart_of_losses_has_a_curve_and_shows_a_single_point_as_a_dot(empty):
    draw = """return arguments[0].map((curves) => {
        const figure = document.createElement("figure");
        figure.append(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
        figure.firstChild.setAttribute("viewBox", "0 0 200 88");
        drawRun(figure.firstChild, ...curves);
        const lines = [...figure.querySelectorAll("polyline")];
        return figure.hidden || lines.map((each) => each.getAttribute("stroke-width"));
    })"""
    one, two = [[5, 2.5]], [[5, 2.5], [10, 2.0]]
    assert empty.execute_script(draw, [[[], one], [one, one], [two, one]]) == [True, True, ["2", "6"]]
