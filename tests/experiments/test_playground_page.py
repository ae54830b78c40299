"""The playground in a real browser."""

import json
import shutil
import threading
import urllib.parse
from pathlib import Path

import pytest
from conftest import train_tiny
from helpers import wait_for
from pages_in_browser import find, luminance, open_page

from experiments.playground.__main__ import main as playground
from experiments.playground.models import Model
from experiments.playground.page import make_page
from experiments.playground.server import PlaygroundServer
from training.trained_model import load_model

pytestmark = pytest.mark.slow
TEXT = "9 bottles of b"
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\n中😀אב\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("playground")
    train_tiny(folder, "train.keep_checkpoints=3", "train.dtype=float32", "train.name=beer")
    train_tiny(folder, "model.n_head=2", "train.name=two", "train.max_steps=20")
    (folder / "script.txt").write_text(SCRIPT * 40, encoding="utf-8")
    train_tiny(
        folder,
        "data.corpus=script.txt",
        "model.n_embd=48",
        "model.block_size=64",
        "train.max_steps=300",
        "train.name=script",
    )
    return folder


@pytest.fixture
def play(folder, browser, monkeypatch):
    """Return a function that opens the playground of some runs; it returns the page's address."""
    monkeypatch.chdir(folder)
    servers = []

    def open_playground(*runs, width=1280, dark=False, link=""):
        models = [Model(load_model(f"runs/{run}", "cpu")) for run in runs]
        server = PlaygroundServer(("127.0.0.1", 0), models, lambda nonce: make_page(nonce=nonce))
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        servers.append(server)
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        open_page(browser, address + link, width, dark=dark)
        wait_for(lambda: find(browser, ".next button"))
        return address

    yield open_playground
    browser.get("about:blank")
    for server in servers:
        server.shutdown()
        server.server_close()


def bars(browser):
    """Return the label and probability of each next character of the first model."""
    script = """return [...document.querySelector(".next").querySelectorAll("button")].map(
        (button) => [...button.children].map((child) => child.textContent))"""
    return [(label, float(probability)) for label, probability in browser.execute_script(script)]


def surprise(browser):
    """Return the labels of the shaded text."""
    return browser.execute_script("return [...document.querySelectorAll('.surprise span')].map((s) => s.textContent)")


def type_text(browser, text):
    box = find(browser, "#text")[0]
    box.clear()
    box.send_keys(text)
    return box


def click(browser, selector):
    browser.execute_script("arguments[0].click()", find(browser, selector)[0])


def expected_bars(run, text):
    reading = Model(load_model(f"runs/{run}", "cpu")).reader.read(text)
    return [(label, pytest.approx(probability, abs=1e-3)) for label, _, probability in reading["next"]]


@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desktop"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_opens_without_an_error_fits_its_window_and_has_enough_contrast(browser, play, width, dark):
    play("beer", "two", width=width, dark=dark)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    ground = luminance(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert (ground < 0.1) == dark
    for element in find(browser, "p, label, h2, h3, summary, a, button:enabled, .faint"):
        colour = luminance(element.value_of_css_property("color"))
        lighter, darker = max(colour, ground), min(colour, ground)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, element.text
    unlabelled = [
        field.get_attribute("id")
        for field in find(browser, "input, textarea, select, button")
        if not field.accessible_name and field.is_displayed()
    ]
    assert unlabelled == []


def test_probabilities_follow_the_text_and_a_click_takes_a_character(browser, play):
    play("beer")
    type_text(browser, TEXT)
    wait_for(lambda: bars(browser) == expected_bars("beer", TEXT))
    label, _ = bars(browser)[0]
    click(browser, ".next button")
    taken = TEXT + {"␣": " ", "⏎": "\n"}.get(label, label)
    assert find(browser, "#text")[0].get_attribute("value") == taken
    wait_for(lambda: bars(browser) == expected_bars("beer", taken))
    nats = -load_model("runs/beer", "cpu").log_probabilities(taken).sum()
    wait_for(lambda: f"14 characters cost {nats:.2f}"[:-1] in find(browser, ".totals")[0].text)
    assert len(find(browser, ".surprise span")) == len(taken)
    click(browser, "#undo")
    assert find(browser, "#text")[0].get_attribute("value") == TEXT


def test_a_text_is_continued_stopped_undone_and_written_again_with_the_keyboard(browser, play):
    play("beer")
    expected = load_model("runs/beer", "cpu")
    box = type_text(browser, TEXT)
    browser.execute_script("document.getElementById('length').value = 40")
    box.send_keys("\ue009\ue007")  # Ctrl+Enter
    wait_for(lambda: box.get_attribute("value") == expected.generate(TEXT, 40, seed=0))
    click(browser, "#again")
    wait_for(lambda: box.get_attribute("value") == expected.generate(TEXT, 40, seed=1))
    click(browser, "#undo")
    assert box.get_attribute("value") == TEXT
    browser.execute_script("document.getElementById('length').value = 2000")
    click(browser, "#write")
    wait_for(lambda: len(box.get_attribute("value")) > len(TEXT))
    click(browser, "#stop")
    wait_for(lambda: not find(browser, "#write")[0].get_attribute("disabled"))
    assert len(TEXT) < len(box.get_attribute("value")) < len(TEXT) + 2000


def test_a_link_carries_the_text_and_the_settings_and_copy_the_text(browser, play):
    address = play("beer")
    type_text(browser, TEXT)
    browser.execute_script("document.getElementById('temperature').value = 0.5")
    find(browser, "#text")[0].send_keys("e")
    find(browser, "#copy")[0].click()
    browser.execute_script("document.getElementById('changes').open = true")
    find(browser, "#passage")[0].send_keys("\ue009v")  # Ctrl+V
    wait_for(lambda: find(browser, "#passage")[0].get_attribute("value") == TEXT + "e")
    wait_for(lambda: "of be" in urllib.parse.unquote(find(browser, "#link")[0].get_attribute("href")))
    link = find(browser, "#link")[0].get_attribute("href")
    browser.get("about:blank")
    browser.get(link)
    wait_for(lambda: find(browser, ".next button"))
    assert link.startswith(address)
    assert find(browser, "#text")[0].get_attribute("value") == TEXT + "e"
    assert find(browser, "#temperature")[0].get_attribute("value") == "0.5"


def test_heads_are_switched_off_and_a_table_keeps_what_each_change_costs(browser, play):
    play("beer")
    type_text(browser, TEXT)
    browser.execute_script("document.getElementById('changes').open = true")
    find(browser, "#passage")[0].send_keys(TEXT)
    click(browser, "#measure")
    wait_for(lambda: len(find(browser, "#measured tbody tr")) == 1)
    click(browser, ".switches button:nth-child(2)")
    wait_for(lambda: len(find(browser, "#measured tbody tr")) == 2)
    reader = Model(load_model("runs/beer", "cpu")).reader
    before, after = (reader.score(TEXT, off)["loss"] for off in ([], [1]))
    cells = [cell.text for cell in find(browser, "#measured tbody tr:nth-child(2) td")]
    assert cells[1] == "L0H1"
    assert (float(cells[2]), float(cells[3])) == pytest.approx((after, after - before), abs=2e-4)
    silent = [(label, pytest.approx(p, abs=1e-3)) for label, _, p in reader.read(TEXT, [1])["next"]]
    wait_for(lambda: bars(browser) == silent)


def test_maps_and_the_lens_of_the_chosen_character_are_shown(browser, play):
    play("beer")
    type_text(browser, TEXT)
    click(browser, ".inside summary")
    wait_for(lambda: find(browser, ".maps .viewer") and find(browser, ".lens tbody tr"))
    lens = Model(load_model("runs/beer", "cpu")).reader.look_inside(TEXT)["lens"]
    point = "document.querySelectorAll('.surprise span')[4].click();"
    read = """return [...document.querySelectorAll(".lens tbody tr")].map(
        (row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent))"""
    expected = [[f"{label} {p:.3f}" for label, _, p in layer[4]] for layer in lens]
    wait_for(lambda: browser.execute_script(point + read) == expected)
    assert len(find(browser, ".maps button.head")) == 6
    assert find(browser, ".maps .looking")[0].text.startswith("L0H0: ")


def test_two_models_stand_side_by_side_and_another_checkpoint_can_be_chosen(browser, play):
    play("beer", "two")
    type_text(browser, TEXT)
    assert len(find(browser, "section.model")) == 2
    wait_for(lambda: bars(browser) == expected_bars("beer", TEXT))
    select = find(browser, ".checkpoint")[0]
    browser.execute_script("arguments[0].value = 'step 0'; arguments[0].dispatchEvent(new Event('change'))", select)
    wait_for(lambda: find(browser, "h2.name")[0].text == "beer, step 0")
    wait_for(lambda: max(p for _, p in bars(browser)) < 0.05)  # a new model predicts all characters equally
    browser.execute_script("document.getElementById('changes').open = true")
    find(browser, "#passage")[0].send_keys(TEXT)
    click(browser, "#measure")
    wait_for(lambda: len(find(browser, "#measured tbody tr")) == 2)
    click(browser, ".switches button")  # of the first model
    wait_for(lambda: len(find(browser, "#measured tbody tr")) == 3)
    assert [cell.text for cell in find(browser, "#measured tbody tr:last-child td")][:2] == ["beer, step 0", "L0H0"]


def test_the_page_follows_a_run(browser, play, folder):
    shutil.copytree("runs/beer", "runs/growing", dirs_exist_ok=True)
    checkpoints = Path("runs/growing/checkpoints")
    shutil.copy(checkpoints / "step-0.pt", checkpoints / "best.pt")
    play("growing")
    assert find(browser, "h2.name")[0].text == "growing, step 0"
    shutil.copy(folder / "runs/beer/checkpoints/best.pt", checkpoints / "best.pt")
    wait_for(lambda: find(browser, "h2.name")[0].text == "growing, step 40")
    wait_for(lambda: bars(browser) == expected_bars("beer", ""))


def test_text_is_never_interpreted_as_html_and_other_scripts_are_shown(browser, play):
    play("script")
    n_scripts = len(find(browser, "script"))
    box = type_text_by_script(browser, SCRIPT)
    browser.execute_script("document.getElementById('length').value = 200")
    browser.execute_script("document.getElementById('temperature').value = 0")
    click(browser, ".inside summary")
    click(browser, "#write")
    wait_for(lambda: len(box.get_attribute("value")) >= len(SCRIPT) + 200)
    wait_for(lambda: find(browser, ".maps .viewer"))
    assert "<script>" in box.get_attribute("value")[len(SCRIPT) :]
    assert browser.title == "Playground"
    assert find(browser, "img") == []
    assert len(find(browser, "script:not([type])")) == n_scripts
    browser.execute_script("document.getElementById('text').value = ''")
    type_text_by_script(browser, "中😀אב")
    wait_for(lambda: surprise(browser) == ["中", "😀", "U+05D0", "U+05D1"])


def type_text_by_script(browser, text):
    """Type what the driver cannot: characters beyond the basic plane."""
    script = (
        "const box = document.getElementById('text'); box.value = arguments[0]; box.dispatchEvent(new Event('input'))"
    )
    browser.execute_script(script, text)
    return find(browser, "#text")[0]


def test_an_exported_page_works_without_a_server(browser, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert playground(["--checkpoint", "runs/beer", "--export", "page.html", "--text", TEXT]) == 0
    open_page(browser, folder / "page.html", 360)
    assert bars(browser) == expected_bars("beer", TEXT)
    assert len(find(browser, ".maps button.head")) == 6
    assert len(find(browser, ".lens tbody tr")) == 2
    assert not find(browser, "#text")[0].is_displayed()
    assert find(browser, ".next button")[0].value_of_css_property("opacity") == "1"
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    assert json.dumps(str(folder))[1:-1] not in (folder / "page.html").read_text()
