"""The section in which a visitor trains models, in a real browser: what one chooses, presses and sees."""

import json
import re
import statistics

import pytest
from conftest import ROOT
from pages_in_browser import (
    can_press,
    check_looks,
    choose,
    click,
    faults_found_by_axe,
    find,
    open_page,
    query,
    rows,
    texts,
    type_text,
    value,
    wait_for,
)

from data.sources import NAMED
from experiments.playground.__main__ import main as playground
from training.runs.find_checkpoint import BUNDLED_MODEL

SHORT = NAMED["selmere"].read_text(encoding="utf-8")[:3000]
MAPS = "return [...document.querySelectorAll('.head canvas')].map((each) => each.toDataURL())"
OPEN = "document.querySelector('#train').open = true"
PLACE = "return document.querySelector('#text').getBoundingClientRect().top + scrollY"
WATCH = """window.faded = [];
    const watch = (found) => faded.push(...found.filter(({ target }) => target.matches(".stale")));
    const options = { subtree: true, attributeFilter: ["class"] };
    new MutationObserver(watch).observe(document.querySelector("#models"), options)"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the page of the bundled model."""
    file = tmp_path_factory.mktemp("train") / "page.html"
    assert playground(["--checkpoint", str(BUNDLED_MODEL), "--no-browser", "--output", str(file)]) == 0
    return file


@pytest.fixture
def visit(browser, page):
    """Return a function that opens the page and its section, with other values of the form."""

    def visit(width=1280, dark=False, **fields):
        open_page(browser, page, width, dark=dark)
        browser.execute_script(OPEN)
        choose(browser, **fields)
        wait_for(lambda: can_press(browser, "#go"))

    return visit


def paste(browser, text):
    choose(browser, source="own")
    script = (
        "const own = document.querySelector('#own'); own.value = arguments[0]; own.dispatchEvent(new Event('input'))"
    )
    browser.execute_script(script, text)


def say(browser, selector="#train-message"):
    return find(browser, selector)[0].text


def step(browser):
    """Return the step of the first model that is shown, 0 if none trains here."""
    found = re.search(r"trained here, step ([\d,]+)", find(browser, "h2.name")[0].text)
    return int(found[1].replace(",", "")) if found else 0


def held_out(browser):
    """Return the held-out loss of each model, once there is one."""
    return [float(loss) for loss in re.findall(r"([\d.]+) held out", say(browser, "#progress"))]


def pause(browser):
    click(browser, "#go")
    wait_for(lambda: say(browser, "#go") == "Go on")


@pytest.mark.slow
def test_a_model_learns_the_bundled_play_while_its_sample_its_maps_and_what_it_expects_change(browser, visit):
    visit()
    assert say(browser, "#facts").startswith("171,949 characters, 60 different ones; the last tenth is held out")
    assert "105,992 parameters" in say(browser, "#facts")
    pairs = float(re.search(r"counts of pairs: ([\d.]+)", find(browser, "#learning")[0].text)[1])
    click(browser, "#go")
    wait_for(lambda: texts(browser, "#samples pre") not in ([], [""]) and len(browser.execute_script(MAPS)) == 8)
    noise, maps, place = texts(browser, "#samples pre"), browser.execute_script(MAPS), browser.execute_script(PLACE)
    wait_for(lambda: step(browser) >= 200 and held_out(browser)[0] < pairs)
    wait_for(lambda: texts(browser, "#samples pre") != noise)
    learned = texts(browser, "#learned p")
    assert any("it must look further back" in each for each in learned)
    assert not any("After 0 characters" in each for each in learned)  # the first weights are random
    assert browser.execute_script(PLACE) == pytest.approx(place, abs=2)
    assert any("has a head for “previous character”" in each for each in learned)
    assert all(new != old for new, old in zip(browser.execute_script(MAPS), maps, strict=True))
    pause(browser)
    shown = []
    for _ in range(2):
        browser.execute_async_script("setTimeout(arguments[0], 1500)")  # the first time, until the last sample is there
        shown.append([say(browser, each) for each in ("#progress", "h2.name", "#samples")])
    assert shown[0] == shown[1]
    paused_at = step(browser)
    click(browser, "#go")
    wait_for(lambda: step(browser) > paused_at + 20)
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_one_types_chooses_and_continues_while_a_model_trains_and_nothing_flickers(browser, visit):
    visit(seconds=600)
    click(browser, "#go")
    wait_for(lambda: len(find(browser, "button.head[aria-pressed=true]")) == 1)
    box = type_text(browser, "No robe, no clerk")
    wait_for(lambda: not find(browser, ".stale"))
    click(browser, "button.head:nth-child(6)")
    box.click()
    box.send_keys("\ue012\ue012")  # left
    chosen = query(browser)
    began = step(browser)
    browser.execute_script(WATCH)
    wait_for(lambda: step(browser) > began + 30)
    assert browser.execute_script("return faded.length") == 0
    assert (query(browser), texts(browser, "button.head[aria-pressed=true] b")) == (chosen, ["L1H1"])
    assert browser.switch_to.active_element == box
    box.send_keys("\ue010, the")  # End
    assert value(browser) == "No robe, no clerk, the"
    click(browser, "#write")
    wait_for(lambda: say(browser, "#message").startswith("Wrote 200"))
    wait_for(lambda: step(browser) > began + 60)
    assert say(browser, "#message").startswith("Wrote 200")


@pytest.mark.slow
def test_two_models_train_side_by_side_and_seeds_are_compared(browser, visit):
    visit(n_head=4, beside=1, n_embd=32)
    browser.execute_script("const field = document.querySelector('[name=seconds]'); field.options[0].value = 3")
    choose(browser, seconds=3)
    click(browser, "#go")
    wait_for(lambda: rows(browser, "#comparison tbody tr"))
    assert [name.text[:10] for name in find(browser, "h2.name")] == ["A: 4 heads", "B: 1 head,"]
    assert len(find(browser, "#learning polyline")) == len(find(browser, "#learning .dots")) == 2
    assert say(browser, "#comparison p").startswith("One seed proves little")
    assert "Over 17,195 characters of the held-out text: 4 heads" in say(browser, "#progress")
    click(browser, "#seeds")
    wait_for(lambda: len(rows(browser, "#comparison tbody tr")) == 2)
    table = rows(browser, "#comparison tbody tr")
    assert [seed for seed, *_ in table] == ["0", "1"]
    for _, a, b, difference in table:
        assert float(difference.replace("\N{MINUS SIGN}", "-")) == pytest.approx(float(b) - float(a), abs=2e-4)
    for _ in range(2):
        click(browser, "#longer")
    wait_for(lambda: " of 9 s" in say(browser, "#progress"))
    choose(browser, n_head=2)
    click(browser, "#restart")
    wait_for(lambda: find(browser, "h2.name")[0].text.startswith("A: 2 heads"))
    assert rows(browser, "#comparison tr") == []


@pytest.mark.slow
def test_what_cannot_be_trained_on_is_refused_in_words_and_a_mended_text_trains(browser, visit, tmp_path):
    visit()
    choose(browser, source="own")
    wait_for(lambda: not can_press(browser, "#go"))
    for text, sentence in (("abc", "3 characters"), ("a" * 2000, "repeats one character")):
        paste(browser, text)
        wait_for(lambda sentence=sentence: sentence in say(browser))
        assert not can_press(browser, "#go")
    (tmp_path / "latin.txt").write_bytes(b"\xe9t\xe9 " * 1000)
    find(browser, "#file")[0].send_keys(str(tmp_path / "latin.txt"))
    wait_for(lambda: "UTF-8" in say(browser))
    (tmp_path / "text.txt").write_text("\N{GRINNING FACE} ja\n" * 500, encoding="utf-8")
    find(browser, "#file")[0].send_keys(str(tmp_path / "text.txt"))
    wait_for(lambda: can_press(browser, "#go"))
    assert say(browser) == ""
    assert say(browser, "#facts").startswith("2,500 characters, 5 different ones")
    click(browser, "#go")
    wait_for(lambda: any(texts(browser, "#samples pre")))
    assert {*texts(browser, "#samples pre")[0]} <= {*"\N{GRINNING FACE} ja\n"}  # the first one is noise
    wait_for(lambda: held_out(browser) and held_out(browser)[0] < 0.1)
    wait_for(lambda: "\N{GRINNING FACE} ja\n" * 3 in texts(browser, "#samples pre")[0])


@pytest.mark.slow
def test_a_short_text_is_learned_by_heart_and_the_best_weights_come_back(browser, visit):
    visit()
    paste(browser, SHORT)
    wait_for(lambda: say(browser, "#facts").startswith("3,000 characters"))
    click(browser, "#go")
    wait_for(lambda: "is learned by heart" in say(browser, "#risen"))
    pause(browser)
    step_, best = re.search(r"step ([\d,]+) of 4 heads, loss ([\d.]+)\.", say(browser, "#risen")).groups()
    assert held_out(browser)[0] > float(best) + 0.02
    click(browser, "#best")
    wait_for(lambda: (step(browser), held_out(browser)) == (int(step_.replace(",", "")), [float(best)]))
    assert say(browser, "#go") == "Go on"
    assert say(browser, "#risen") == ""


NOTES = """const run = Object.create(Run.prototype);
    const [lines, notes] = arguments;
    Object.assign(run, { titles: ["4 heads"], history: [], told: new Set(), text: { lines } });
    run.onChange = run.draw = () => {};
    byId("learned").replaceChildren();
    for (const [steps, ...figures] of notes) {
      const [train, heldOut, best, bestStep] = figures;
      run.note({ steps, characters: 512 * steps, losses: [{ train, heldOut, best, bestStep }] });
    }
    return [byId("risen").textContent, byId("learned").textContent]"""
ORDERED, RANDOM = {"even": 4.1, "single": 3.3, "pairs": 2.5}, {"even": 4.1, "single": 4.11, "pairs": 4.5}


def test_what_is_said_of_the_losses_is_true(browser, page):
    open_page(browser, page)

    def said(lines, *notes):
        return browser.execute_script(NOTES, lines, notes)

    by_heart = said(ORDERED, (0, None, 4.0, 4.0, 0), (100, 1.8, 1.9, 1.9, 100), (200, 1.2, 2.0, 1.9, 100))
    assert "brings back step 100 of 4 heads, loss 1.900" in by_heart[0]
    assert by_heart[1].startswith("After 51,200 characters, the model with 4 heads beats the counts of pairs")
    with_a_higher_rate = said(ORDERED, (100, 1.8, 1.9, 1.9, 100), (200, 1.9, 2.0, 1.9, 100))
    assert with_a_higher_rate[0] == ""
    going_on = said(ORDERED, (100, None, 1.9, 1.9, 100), (110, 1.8, 2.0, 1.9, 100))
    assert going_on[0] == ""
    without_order = said(RANDOM, (0, None, 4.1, 4.1, 0), (100, 4.1, 4.099, 4.099, 100))
    assert without_order == ["", ""]


@pytest.mark.slow
def test_the_models_of_the_page_come_back_and_a_text_that_the_new_ones_cannot_read_is_undone(browser, visit):
    visit()
    own, text = find(browser, "h2.name")[0].text, value(browser)
    paste(browser, "abracadabra simsalabim\n" * 100)
    wait_for(lambda: "abra" not in say(browser, "#facts") and say(browser, "#facts").startswith("2,300 characters"))
    click(browser, "#go")
    wait_for(lambda: step(browser) > 20)
    assert value(browser).startswith("abracadabra simsalabim\n")
    click(browser, "#undo")
    assert value(browser) == text
    wait_for(lambda: "has never seen" in find(browser, ".model .message")[0].text)
    click(browser, "#others")
    wait_for(lambda: find(browser, "h2.name")[0].text == own)
    wait_for(lambda: find(browser, ".model:not(.stale) .next button"))
    click(browser, "#others")
    wait_for(lambda: step(browser) > 20)
    before = step(browser)
    choose(browser, n_head=8, n_layer=1, seed=5)
    click(browser, "#restart")
    wait_for(lambda: 0 < step(browser) < before)
    wait_for(lambda: len(find(browser, "button.head")) == 8)
    assert browser.get_log("browser") == []


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["dark phone", "light desktop"])
def test_all_of_the_section_can_be_read_and_axe_finds_no_fault_in_it(browser, visit, width, dark):
    visit(width, dark=dark, beside=8)
    paste(browser, SHORT)
    wait_for(lambda: say(browser, "#facts").startswith("3,000 characters"))
    click(browser, "#go")
    wait_for(lambda: len(texts(browser, "#learned p")) >= 2 and all(texts(browser, "#samples pre")))
    pause(browser)
    check_looks(browser, width, dark=dark)
    size = """return [...document.querySelectorAll("#learning text")].map(
        (text) => text.ownerSVGElement.getScreenCTM().a * parseFloat(getComputedStyle(text).fontSize))"""
    assert all(10 < pixels < 20 for pixels in browser.execute_script(size))
    assert faults_found_by_axe(browser) == []


@pytest.mark.slow
def test_the_keyboard_alone_trains_and_keeps_its_place(browser, page):
    open_page(browser, page)
    find(browser, "#train summary")[0].send_keys("\ue007")
    wait_for(lambda: can_press(browser, "#go"))
    find(browser, "#go")[0].send_keys("\ue007")
    wait_for(lambda: say(browser, "#go") == "Pause")
    assert browser.switch_to.active_element.get_attribute("id") == "go"
    find(browser, "[name=seed]")[0].send_keys("\ue007")  # changes nothing
    find(browser, "#go")[0].send_keys("")
    wait_for(lambda: step(browser) > 20)
    assert say(browser, "#go") == "Pause"
    browser.switch_to.active_element.send_keys(" ")
    wait_for(lambda: say(browser, "#go") == "Go on")
    assert browser.switch_to.active_element.get_attribute("id") == "go"


def test_a_browser_without_simd_says_so_and_plays_the_model_all_the_same(browser, page, tmp_path):
    other = re.sub(r'"kernels": \[[^]]*\]', '"kernels": ["AAAA"]', page.read_text(encoding="utf-8"))
    (tmp_path / "page.html").write_text(other, encoding="utf-8")
    open_page(browser, tmp_path / "page.html")
    browser.execute_script(OPEN)
    wait_for(lambda: "lacks WebAssembly SIMD" in say(browser))
    assert not can_press(browser, "#go")
    wait_for(lambda: find(browser, ".next button"))


def test_a_file_that_cannot_be_read_is_named_and_a_choice_that_is_cancelled_changes_nothing(browser, visit):
    visit()
    script = "document.querySelector('#file').onchange({ target: { files: arguments[0] ? [UNREAD] : [] } })"
    unread = "{ slice: () => ({ arrayBuffer: async () => { throw new Error('It cannot be read.') } }) }"
    for is_chosen, message in ((False, ""), (True, "It cannot be read.")):
        browser.execute_script(script.replace("UNREAD", unread), is_chosen)
        wait_for(lambda message=message: say(browser) == message)
        assert find(browser, "#source")[0].get_property("value") == ""
    assert browser.get_log("browser") == []


def test_work_that_failed_once_is_done_again_and_a_worker_that_has_ended_answers_with_an_error(browser, page):
    open_page(browser, page)
    script = """const [done] = arguments, engine = new Engine("engine");
        const work = oneAtATime(() => engine.ask("stop"));
        const ask = () => work().then(() => "answered", ({ message }) => message);
        const asked = ask();
        engine.end();
        Promise.all([asked, asked.then(ask)]).then(done)"""
    assert browser.execute_async_script(script) == ["Another model has taken the place of this one."] * 2


@pytest.mark.parametrize("losses", [[0.02], [0.004, 0.01], [0.03, 0.028, 0.033], [-0.05, -0.049, -0.06, -0.04], [1e-9]])
def test_more_seeds_are_needed_the_more_they_differ(browser, tmp_path, losses):
    code = (ROOT / "experiments/playground/comparison.js").read_text("utf-8")
    (tmp_path / "page.html").write_text(
        f"<meta charset=utf-8><link rel=icon href=data:,><script>{code}</script>", "utf-8"
    )
    open_page(browser, tmp_path / "page.html")
    spread = statistics.stdev(losses) if len(losses) > 1 else 0.009
    needed = max(3, -(-((2 * spread / statistics.mean(losses)) ** 2) // 1))
    assert browser.execute_script(f"return seedsNeeded({json.dumps(losses)})") == pytest.approx(needed)
    conclusion = browser.execute_script(f"return conclusionOf({json.dumps(losses)})")
    assert conclusion.startswith("One seed proves little" if len(losses) == 1 else f"{len(losses)} seeds ")
    assert ("hardly chance" in conclusion) == (len(losses) >= needed)
    assert ("More than 100 seeds" in conclusion) == (needed > 100)
