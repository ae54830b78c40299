"""The pages in a real browser: they open without errors and show the right numbers."""

import json
import os

import pytest
import torch
from conftest import TINY_CONFIG, TINY_TEXT
from pages_in_browser import find, luminance, open_page
from torch import nn

import train
from experiments.heads.__main__ import main as heads_command
from experiments.report.__main__ import main as report_command
from training.runs.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow
READ = " bottles of be\n2"
PAGES = {"report.html": 4, "heads.html": 5, "two.html": 10, "history.html": 1}  # and their number of charts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two runs, their report, and the heads page of one of them."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("pages")
    (folder / "tiny.yaml").write_text(TINY_CONFIG, encoding="utf-8")
    (folder / "text.txt").write_text(TINY_TEXT, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for seed in (0, 1):
            for n in (2, 3):
                settings = [
                    f"train.name={n}-{seed}",
                    f"train.seed={seed}",
                    f"model.n_head={n}",
                    "train.keep_checkpoints=6",
                ]
                assert train.main(["--config", "tiny.yaml", *settings, "train.device=cpu"]) == 0
        runs = [f"runs/{n}-{seed}" for seed in (0, 1) for n in (2, 3)]
        assert report_command([*runs, "--output", "report"]) == 0
        assert heads_command(["--checkpoint", "runs/2-0", "--text", READ, "--output", "heads.html"]) == 0
        two = ["--checkpoint", "runs/2-0", "runs/3-0", "--text", READ, "--output", "two.html"]
        assert heads_command([*two, "--characters", "40", "--windows", "2"]) == 0
        assert heads_command(["--over-time", "runs/2-0", "--output", "history.html"]) == 0
    return folder


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desktop"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_opens_without_an_error_and_is_no_wider_than_its_window(browser, folder, page, width, dark):
    open_page(browser, folder / page, width, dark=dark)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert len(find(browser, "table tbody tr")) >= 2
    assert len(find(browser, "figure svg")) == PAGES[page]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_has_enough_contrast_with_its_background(browser, folder, page, dark):
    """WCAG 2 requires a contrast of at least 4.5 to 1; charts are included."""
    open_page(browser, folder / page, dark=dark)
    ground = luminance(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert (ground < 0.1) == dark
    for selector, attribute in (("p", "color"), (".faint", "color"), ("td", "color"), ("figure svg text", "fill")):
        for element in find(browser, selector)[:20]:
            colour = luminance(element.value_of_css_property(attribute))
            lighter, darker = max(colour, ground), min(colour, ground)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (selector, element.text)


@pytest.mark.parametrize("page", PAGES)
def test_no_label_of_a_chart_is_cut_off(browser, folder, page):
    open_page(browser, folder / page)
    labels = browser.execute_script(
        """return [...document.querySelectorAll("figure svg text")].map(text => {
            const label = text.getBoundingClientRect(), chart = text.ownerSVGElement.getBoundingClientRect();
            const inside = label.left >= chart.left - 1 && label.right <= chart.right + 1 &&
                           label.top >= chart.top - 1 && label.bottom <= chart.bottom + 1;
            return [text.textContent, inside];
        })"""
    )
    assert len(labels) >= 10
    assert [label for label, inside in labels if not inside] == []


def weights_by_hand(path, text):
    """Return attention weights (layer, head, T, T) in float64, from the checkpoint and the published formulas."""
    checkpoint = load_checkpoint(path)
    ids = [checkpoint.characters.index(c) for c in text]
    w = {name: value.double() for name, value in checkpoint.model.items()}
    T, C, H = len(text), 24, 2
    D = C // H
    angles = torch.outer(torch.arange(T).double(), 10_000 ** (-2 * torch.arange(D // 2).double() / D))

    def norm(x):
        return x / (x.square().mean(-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()

    def turn(x):
        a, b = x[..., : D // 2], x[..., D // 2 :]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    x, result = w["token_embedding.weight"][ids], []
    for layer in range(2):
        name = f"blocks.{layer}"
        q, k, v = (norm(x) @ w[f"{name}.attention.qkv.weight"].T).view(T, 3, H, D).permute(1, 2, 0, 3)
        cosines = turn(norm(q)) @ turn(norm(k)).transpose(1, 2) / D
        scores = w[f"{name}.attention.qk_norm.log_scale"].exp()[:, None, None] * cosines
        weights = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf).softmax(-1)
        result.append(weights)
        x = x + (weights @ v).transpose(0, 1).reshape(T, C) @ w[f"{name}.attention.proj.weight"].T
        hidden = nn.functional.relu(norm(x) @ w[f"{name}.mlp.up.weight"].T).square()
        x = x + hidden @ w[f"{name}.mlp.proj.weight"].T
    return torch.stack(result)


def test_hovering_shows_the_weights_of_the_chosen_head(browser, folder):
    from selenium.webdriver import ActionChains

    open_page(browser, folder / "heads.html")
    by_hand = weights_by_hand(folder / "runs/2-0/checkpoints/best.pt", READ)
    spans, heads = find(browser, ".viewer .text span"), find(browser, "button.head")
    assert [s.text for s in spans] == [c.replace(" ", "␣").replace("\n", "⏎") for c in READ]
    for number, query in [(0, 15), (3, 9), (2, 0), (1, 14)]:
        heads[number].click()
        ActionChains(browser).move_to_element(spans[query]).perform()
        shown = [s.get_attribute("data-weight") for s in spans]
        expected = by_hand[number // 2, number % 2, query]
        assert shown[query + 1 :] == [""] * (len(READ) - 1 - query)
        assert [float(w) for w in shown[: query + 1]] == pytest.approx(expected[: query + 1].tolist(), abs=2e-4)
        listed = [int(item.get_attribute("data-key")) for item in find(browser, ".keys li")]
        assert listed[0] == expected.argmax()
        assert f"L{number // 2}H{number % 2}" in find(browser, ".looking")[0].text
        assert "query" in spans[query].get_attribute("class")
    assert browser.get_log("browser") == []


def test_a_click_selects_a_character_and_arrow_keys_move_the_selection(browser, folder):
    from selenium.webdriver import ActionChains

    open_page(browser, folder / "heads.html", 360)
    spans = find(browser, ".viewer .text span")
    spans[4].click()
    ActionChains(browser).move_to_element(spans[8]).perform()
    assert "query" in spans[4].get_attribute("class")
    find(browser, ".text")[0].send_keys("\ue014")  # the right arrow
    assert "query" in spans[5].get_attribute("class")
    spans[5].click()
    ActionChains(browser).move_to_element(spans[8]).perform()
    assert "query" in spans[8].get_attribute("class")


def test_a_character_chosen_in_one_of_two_models_is_chosen_in_both(browser, folder):
    open_page(browser, folder / "two.html")
    first, second = find(browser, ".viewer")
    spans = second.find_elements("css selector", ".text span")
    spans[6].click()
    assert "query" in first.find_elements("css selector", ".text span")[6].get_attribute("class")
    assert len(first.find_elements("css selector", "button.head")) == 4
    assert len(second.find_elements("css selector", "button.head")) == 6
    first.find_elements("css selector", ".text span")[6].click()  # releases it in both
    spans[9].click()
    assert "query" in first.find_elements("css selector", ".text span")[9].get_attribute("class")


def test_the_history_shows_chosen_heads_and_the_figures_of_a_chosen_step(browser, folder):
    open_page(browser, folder / "history.html")
    data = json.loads(find(browser, "#history-data")[0].get_attribute("textContent"))
    find(browser, 'button.chip[data-head="L1H0"]')[0].click()
    assert len(find(browser, "g.line.chosen")) == len(data["series"])
    assert [row.text.split()[0] for row in find(browser, "tr.chosen")] == ["L1H0"]
    browser.execute_script("slider.value = 2; slider.dispatchEvent(new Event('input'))")
    assert find(browser, "#step")[0].text == str(data["steps"][2])
    shown = [float(cell.text) for cell in find(browser, "tr.chosen td")[1:]]
    expected = [values[2][data["heads"].index("L1H0")] for values in data["series"].values()]
    assert shown == pytest.approx(expected, abs=0.051)
    find(browser, 'button.chip[data-head="L1H0"]')[0].click()
    assert not find(browser, ".choosing")


def test_screenshots_of_the_pages_are_not_empty(browser, folder):
    """Also write the screenshots to the folder SCREENSHOTS, if that is set, for people to look at."""
    target = os.environ.get("SCREENSHOTS")
    for page in PAGES:
        for width in (360, 1280):
            open_page(browser, folder / page, width)
            picture = browser.get_screenshot_as_png()
            assert len(picture) > 10_000
            if target:
                with open(f"{target}/{page.partition('.')[0]}-{width}.png", "wb") as file:  # noqa: PTH123
                    file.write(picture)
