"""Training by a visitor, in a real browser: what one chooses, presses, sees and is told."""

import re

import pytest

from data.sources import NAMED
from page.__main__ import main as page_command
from training.runs.find_checkpoint import BUNDLED_MODEL

SHORT = NAMED["selmere"].read_text(encoding="utf-8")[:3000]
SMALL = "1 32 32"
MAPS = "return [...document.querySelectorAll('.head canvas')].map((each) => each.toDataURL())"
ROOM = "const rows = document.querySelector('#loss .rows'); return rows.clientHeight - rows.scrollHeight"
COUNT = """window.changes = { samples: 0, net: 0 };
    for (const id in changes) {
      const options = { childList: true, subtree: true, attributeFilter: ["width"] };
      new MutationObserver(() => (changes[id] += 1)).observe(byId(id), options);
    }"""
SHIFTS = """let sum = 0;
    const add = (list) => list.getEntries().forEach((each) => (sum += each.hadRecentInput ? 0 : each.value));
    setTimeout(() => new PerformanceObserver(add).observe({ type: "layout-shift" }), 1000);
    setTimeout(() => arguments[0](sum), 31_000)"""
DROP = """const [name, content] = arguments, dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([content], name));
    const event = new DragEvent("drop", { dataTransfer, cancelable: true });
    document.dispatchEvent(event);
    return event.defaultPrevented"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    file = tmp_path_factory.mktemp("train") / "page.html"
    assert page_command(["--checkpoint", str(BUNDLED_MODEL), "--no-browser", "--output", str(file)]) == 0
    return file


@pytest.fixture
def visit(browser, page):
    """Return a function that opens the page, with other values of the bar."""

    def visit(width=1280, height=900, dark=False, **fields):
        browser.open_page(page, width, height, dark=dark)
        browser.choose(**fields)
        browser.wait_for_maps()
        browser.wait_for(lambda: browser.can_press("#go"))

    yield visit
    assert browser.get_log("browser") == []


def label(browser):
    return browser.said("#go").partition(" ")[2]


def press(browser, then):
    browser.click("#go")
    browser.wait_for(lambda: label(browser) == then)


def reads_more(browser, share=0.05):
    """Wait until the first model has read this share more."""

    def characters():
        number, _, millions = browser.rows("#runs tr")[0][1].replace(",", "").partition(" ")
        return float(number) * (1e6 if millions else 1)

    browser.wait_for(lambda: browser.rows("#runs tr"))
    before = characters()
    browser.wait_for(lambda: characters() > (1 + share) * before)


@pytest.mark.slow
def test_a_model_learns_the_bundled_play_while_its_sample_its_maps_and_what_it_expects_change(browser, visit):
    visit()
    assert browser.said() == "171,949 characters, 60 different."
    browser.wait_for(lambda: "pairs of letters 2.33" in browser.said("#curve"))
    assert browser.execute_script("byId('go').click(); return byId('go').textContent") == "❚❚ Pause"  # at once
    browser.click("#go")  # the second click of two
    browser.wait_for(lambda: len(maps := browser.execute_script(MAPS)) == 8 and len({*maps}) == 8)
    maps = browser.execute_script(MAPS)
    browser.wait_for(lambda: browser.said("#clock") > "0:05")
    browser.execute_script(COUNT)
    browser.wait_for(lambda: browser.said("#clock") > "0:15")
    changes = browser.execute_script("return changes")
    assert min(changes.values()) >= 5, changes  # in ten seconds
    browser.wait_for(lambda: "better than counts of pairs" in browser.said("#learned"))
    assert float(browser.rows("#runs tr")[0][-1]) < 2.33
    assert "pairs of letters 2.33" in browser.said("#curve")  # on the characters that a page evaluates
    browser.wait_for(lambda: " often looks at: previous character." in browser.said("#learned"))
    assert all(new != old for new, old in zip(browser.execute_script(MAPS), maps, strict=True))
    press(browser, "Go on")
    shown = []
    for _ in range(2):
        browser.execute_async_script("setTimeout(arguments[0], 1500)")  # the first time, until the last sample is there
        shown.append([browser.said(each) for each in ("#runs", "#samples", "#clock")] + browser.execute_script(MAPS))
    assert shown[0] == shown[1]
    press(browser, "Pause")
    reads_more(browser)


@pytest.mark.slow
def test_one_types_chooses_and_continues_while_a_model_trains_and_the_keyboard_keeps_its_place(browser, visit):
    visit(seconds=600)
    press(browser, "Pause")
    box = browser.type_text("No robe, no clerk")
    reads_more(browser)
    browser.click("button.head:nth-child(3)")
    box.click()
    box.send_keys("\ue012\ue012")  # left
    chosen = browser.query()
    reads_more(browser)
    assert (browser.query(), browser.texts("button.head[aria-pressed=true] b")) == (chosen, ["2"])
    assert browser.switch_to.active_element == box
    box.send_keys("\ue010, the")  # End
    assert browser.value() == "No robe, no clerk, the"
    browser.click("#write")
    browser.wait_for(lambda: len(browser.value()) == len("No robe, no clerk, the") + 200)
    for selector in ("#tabs button", "#next-a button", "button.head", "#go"):
        (focused, *_) = browser.find(selector)
        focused.send_keys("")
        reads_more(browser)
        assert browser.switch_to.active_element == focused == browser.find(selector)[0]


@pytest.mark.slow
def test_two_models_stand_side_by_side_and_nothing_is_concluded_from_one_seed(browser, visit):
    visit(n_head=4, beside=1, size=SMALL, seconds=3)
    press(browser, "Pause")
    for button in ("#go", "#go"):
        browser.wait_for(lambda: label(browser) == "Train longer")
        assert browser.texts("#tabs button")[:2] == browser.texts("#keys span") == ["4 heads", "1 head"]
        assert len(browser.texts("#samples tr:last-child td")) == 2
        sentence = r"At (.*) characters, (4 heads are|1 head is) ahead by (.*)\. One seed proves little\."
        n, ahead, by = re.fullmatch(sentence, browser.said("#compared")).groups()
        (*first, a), (*second, b), *_ = browser.rows("#runs tr")
        assert (first, second) == (["4 heads", n], ["1 head", n])
        difference = float(b) - float(a) if ahead == "4 heads are" else float(a) - float(b)
        assert difference == pytest.approx(float(by), abs=1.1e-3)
        browser.click(button)
        browser.wait_for(lambda: label(browser) == "Pause")


@pytest.mark.slow
def test_a_run_stays_as_a_grey_curve_and_a_row_until_another_text_is_learned(browser, visit):
    visit(n_head=1, size=SMALL, seconds=2)
    press(browser, "Train longer")
    ((_, *figures),) = browser.rows("#runs tr")
    browser.choose(n_head=8, beside=4)
    press(browser, "Train longer")
    assert [name for name, *_ in browser.rows("#runs tr")] == ["8 heads", "4 heads", "1 head, before"]
    assert browser.rows("#runs tr")[2][1:] == figures
    assert browser.execute_script(ROOM) >= 0
    strokes = [each.get_attribute("stroke") for each in browser.find("#curve polyline")]
    assert strokes[:3] == ["var(--faint)", "var(--series-0)", "var(--series-1)"]
    browser.paste(SHORT)
    browser.wait_for(lambda: browser.said().startswith("3,000 characters"))
    assert label(browser) == "Train"
    press(browser, "Train longer")
    assert [name for name, *_ in browser.rows("#runs tr")] == ["8 heads", "4 heads"]


@pytest.mark.slow
def test_the_main_button_does_the_next_sensible_thing(browser, visit):
    visit(size=SMALL, seconds=2)
    assert label(browser) == "Train"
    press(browser, "Train longer")
    browser.choose(n_head=2)
    assert label(browser) == "Train"
    browser.choose(n_head=4, seconds=600)
    press(browser, "Pause")
    reads_more(browser)
    browser.choose(n_head=2)
    assert (label(browser), browser.can_press("#go")) == ("Pause", True)
    browser.choose(n_head=4)
    press(browser, "Go on")
    browser.choose(size="2 32 32")
    press(browser, "Pause")
    browser.wait_for(lambda: len(browser.rows("#runs tr")) == 2)
    reads_more(browser)
    press(browser, "Go on")


@pytest.mark.slow
def test_what_cannot_be_learned_is_refused_in_a_sentence_and_a_mended_text_trains(browser, visit, tmp_path):
    def give(name, content):
        (tmp_path / name).write_bytes(content)
        browser.find("#file")[0].send_keys(str(tmp_path / name))

    visit(size=SMALL)
    give("mine.txt", "été ".encode("latin-1") * 500)
    sentence = "This is no text in UTF-8; an editor can save a text as UTF-8."
    browser.wait_to_find(sentence, browser.said)
    browser.choose(seconds=600)
    assert (browser.said(), browser.can_press("#go")) == (sentence, False)
    assert browser.texts("#source option:checked") == ["mine.txt"]
    assert "pairs of letters" not in browser.said("#curve")
    assert browser.execute_script(DROP, "mended.txt", "😀 好\r\n" * 500)
    sentence = "2,000 characters, 4 different."
    browser.wait_to_find(sentence, browser.said)
    assert browser.texts("#source option") == ["Selmere, a short play", "mended.txt"]
    press(browser, "Pause")
    browser.wait_for(lambda: browser.texts("#samples td")[-1].count("😀 好") > 9)
    give("mine.txt", b"x" * 50)
    browser.wait_for(lambda: "50 characters" in browser.said())
    reads_more(browser)
    assert "50 characters" in browser.said()  # also while the model before trains
    press(browser, "Train")
    assert not browser.can_press("#go")


@pytest.mark.slow
def test_the_models_of_the_page_come_back_and_a_text_that_the_new_ones_cannot_read_is_undone(browser, visit):
    visit()
    text, n_heads = browser.value(), len(browser.find(".head"))
    browser.paste("abracadabra simsalabim\n" * 100)
    browser.wait_for(lambda: browser.said().startswith("2,300 characters"))
    press(browser, "Pause")
    reads_more(browser)
    assert "abracadabra simsalabim\n" in browser.value()
    browser.click("#undo")
    assert browser.value() == text
    browser.wait_for(lambda: "has never seen" in browser.said("#message"))
    browser.click("#tabs button:last-child")
    browser.wait_for(lambda: len(browser.find(".head")) == n_heads and "has never seen" not in browser.said("#message"))
    browser.click("#tabs button")
    browser.wait_for(lambda: len(browser.find(".head")) == 8 and "has never seen" in browser.said("#message"))


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["", 1], ids=["one model", "two models"])
def test_nothing_jumps_while_models_train(browser, visit, beside):
    visit(beside=beside)
    browser.set_script_timeout(60)
    browser.click("#go")
    assert browser.execute_async_script(SHIFTS) <= 0.02
    reads_more(browser)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["dark phone", "light desktop"])
def test_all_of_a_run_can_be_read_axe_finds_no_fault_and_the_chart_follows_the_window(browser, visit, width, dark):
    visit(width, 844, dark, beside=8, seconds=2)
    press(browser, "Train longer")
    browser.wait_for(lambda: len(browser.texts("#learned p")) >= 2)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.faults_found_by_axe() == []
    size = {"width": width - 150, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    drawn = "const svg = document.querySelector('#curve'); return svg.viewBox.baseVal.width / svg.clientWidth"
    browser.wait_to_find(1, lambda: browser.execute_script(drawn))


@pytest.mark.slow
def test_the_keyboard_alone_chooses_trains_and_pauses(browser, visit):
    visit()
    found = {}
    for name, key in (("n_head", "\ue015"), ("beside", "\ue014"), ("seconds", "\ue015")):  # down, right, down
        browser.find(f"[name={name}]:is(:checked, select)")[0].send_keys(key)
        assert browser.find("#bar :focus-visible")
        found[name] = browser.find(f"[name={name}]:is(:checked, select)")[0].get_property("value")
    assert found == {"n_head": "8", "beside": "1", "seconds": "180"}
    browser.find("#own-text")[0].send_keys("\ue007")  # Enter
    browser.switch_to.active_element.send_keys(SHORT[:1200] + "\ue004\ue004\ue007")  # Tab past the file, Enter
    browser.wait_for(lambda: browser.said().startswith("1,200 characters"))
    browser.find("#go")[0].send_keys("\ue007")
    reads_more(browser)
    assert browser.switch_to.active_element.get_attribute("id") == "go"
    assert browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.switch_to.active_element.send_keys(" ")
    browser.wait_for(lambda: label(browser) == "Go on")


def test_a_browser_without_simd_says_so_and_plays_the_model_all_the_same(browser, page, tmp_path):
    other = re.sub(r'"kernels": \[[^]]*\]', '"kernels": ["AAAA"]', page.read_text(encoding="utf-8"))
    (tmp_path / "page.html").write_text(other, encoding="utf-8")
    browser.open_page(tmp_path / "page.html")
    browser.wait_for(lambda: "lacks WebAssembly SIMD" in browser.said() and browser.find("#next-a button"))
    assert not browser.can_press("#go")


def test_a_choice_that_is_cancelled_changes_nothing(browser, visit):
    visit()
    browser.execute_script("document.querySelector('#file').onchange({ target: { files: [] } })")
    browser.paste(SHORT)
    browser.wait_for(lambda: browser.said().startswith("3,000 characters"))
    browser.click("#own-text")
    browser.find("#pasted")[0].send_keys("more")
    browser.execute_async_script("byId('take').close(); setTimeout(arguments[0], 300)")  # as Escape in some browsers
    assert browser.said().startswith("3,000 characters")
