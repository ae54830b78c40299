"""Training by a visitor, in a real browser: what one chooses, presses, sees and is told."""

import re

import numpy as np
import pytest
from pages_in_browser import (
    can_press,
    choose,
    click,
    faults_found_by_axe,
    find,
    open_page,
    paste,
    query,
    rows,
    texts,
    type_text,
    value,
    wait_for,
    wait_for_maps,
    wait_to_find,
)

from data.sources import NAMED
from page.__main__ import main as page_command
from training.runs.find_checkpoint import BUNDLED_MODEL

SHORT = NAMED["selmere"].read_text(encoding="utf-8")[:3000]
SMALL, ADVICE = "1 32 32", "But rates fell at other times: “Against” trains both side by side."
MAPS = "return [...document.querySelectorAll('.head canvas')].map((each) => each.toDataURL())"
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
COMPARE = """const loss = new Loss(), lines = { even: 4, single: 3, pairs: 2.5 };
    return arguments[0].map(([titles, kind, key, ...points]) => {
      loss.begin(titles, titles.map(() => kind), { key, lines });
      for (const [characters, ...losses] of points) {
        loss.note({ characters, losses: losses.map((heldOut) => ({ heldOut })) });
      }
      return byId("compared").textContent;
    })"""
LEARN = """const [lines, notes] = arguments, learned = new Learned(["4 heads"], lines), history = [];
    for (const [seconds, train, heldOut, best, bestStep] of notes) {
      const now = { steps: seconds, characters: seconds, seconds, losses: [{ train, heldOut, best, bestStep }] };
      learned.note(now, history);
      history.push(now);
    }
    return [...byId("learned").children].map((each) => each.textContent)"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the page of the bundled model."""
    file = tmp_path_factory.mktemp("train") / "page.html"
    assert page_command(["--checkpoint", str(BUNDLED_MODEL), "--no-browser", "--output", str(file)]) == 0
    return file


@pytest.fixture
def visit(browser, page):
    """Return a function that opens the page, with other values of the bar."""

    def visit(width=1280, height=900, dark=False, **fields):
        open_page(browser, page, width, height, dark=dark)
        choose(browser, **fields)
        wait_for_maps(browser)
        wait_for(lambda: can_press(browser, "#go"))

    yield visit
    assert browser.get_log("browser") == []


def said(browser, selector="#said"):
    return "".join(texts(browser, selector))


def label(browser):
    """Return the label of the main button, without its sign."""
    return said(browser, "#go").partition(" ")[2]


def press(browser, then):
    """Press the main button, and wait until it has this label."""
    click(browser, "#go")
    wait_for(lambda: label(browser) == then)


def reads_more(browser, share=0.05):
    """Wait until the first model has read this share more."""

    def characters():
        number, _, millions = rows(browser, "#runs tr")[0][1].replace(",", "").partition(" ")
        return float(number) * (1e6 if millions else 1)

    wait_for(lambda: rows(browser, "#runs tr"))
    before = characters()
    wait_for(lambda: characters() > (1 + share) * before)


@pytest.mark.slow
def test_a_model_learns_the_bundled_play_while_its_sample_its_maps_and_what_it_expects_change(browser, visit):
    visit()
    assert said(browser) == "171,949 characters, 60 different."
    wait_for(lambda: "pairs of letters 2.32" in said(browser, "#curve"))  # on all of the held-out text, as its loss is
    assert browser.execute_script("byId('go').click(); return byId('go').textContent") == "❚❚ Pause"  # at once
    click(browser, "#go")  # the second click of two
    wait_for(lambda: len(maps := browser.execute_script(MAPS)) == 8 and len({*maps}) == 8)
    maps = browser.execute_script(MAPS)
    wait_for(lambda: said(browser, "#clock") > "0:05")
    browser.execute_script(COUNT)
    wait_for(lambda: said(browser, "#clock") > "0:15")
    changes = browser.execute_script("return changes")
    assert min(changes.values()) >= 5, changes  # in ten seconds
    wait_for(lambda: "better than counts of pairs" in said(browser, "#learned"))
    assert float(rows(browser, "#runs tr")[0][-1]) < 2.33
    assert "pairs of letters 2.33" in said(browser, "#curve")  # on the characters that a page evaluates
    wait_for(lambda: " often looks at: previous character." in said(browser, "#learned"))
    assert all(new != old for new, old in zip(browser.execute_script(MAPS), maps, strict=True))
    press(browser, "Go on")
    shown = []
    for _ in range(2):
        browser.execute_async_script("setTimeout(arguments[0], 1500)")  # the first time, until the last sample is there
        shown.append([said(browser, each) for each in ("#runs", "#samples", "#clock")] + browser.execute_script(MAPS))
    assert shown[0] == shown[1]
    press(browser, "Pause")
    reads_more(browser)


@pytest.mark.slow
def test_one_types_chooses_and_continues_while_a_model_trains_and_the_keyboard_keeps_its_place(browser, visit):
    visit(seconds=600)
    press(browser, "Pause")
    box = type_text(browser, "No robe, no clerk")
    reads_more(browser)
    click(browser, "button.head:nth-child(3)")
    box.click()
    box.send_keys("\ue012\ue012")  # left
    chosen = query(browser)
    reads_more(browser)
    assert (query(browser), texts(browser, "button.head[aria-pressed=true] b")) == (chosen, ["2"])
    assert browser.switch_to.active_element == box
    box.send_keys("\ue010, the")  # End
    assert value(browser) == "No robe, no clerk, the"
    click(browser, "#write")
    wait_for(lambda: len(value(browser)) == len("No robe, no clerk, the") + 200)
    for selector in ("#tabs button", "#next-a button", "button.head", "#go"):
        (focused, *_) = find(browser, selector)
        focused.send_keys("")
        reads_more(browser)
        assert browser.switch_to.active_element == focused == find(browser, selector)[0]


@pytest.mark.slow
def test_two_models_stand_side_by_side_and_nothing_is_concluded_from_one_seed(browser, visit):
    visit(n_head=4, beside=1, size=SMALL, seconds=3)
    press(browser, "Pause")
    for button in ("#go", "#go"):
        wait_for(lambda: label(browser) == "Train longer")
        assert texts(browser, "#tabs button")[:2] == texts(browser, "#keys span") == ["4 heads", "1 head"]
        assert len(texts(browser, "#samples tr:last-child td")) == 2
        sentence = r"At (.*) characters, (4 heads are|1 head is) ahead by (.*)\. One seed proves little\."
        n, ahead, by = re.fullmatch(sentence, said(browser, "#compared")).groups()
        (*first, a), (*second, b), *_ = rows(browser, "#runs tr")
        assert (first, second) == (["4 heads", n], ["1 head", n])
        difference = float(b) - float(a) if ahead == "4 heads are" else float(a) - float(b)
        assert difference == pytest.approx(float(by), abs=1.1e-3)
        click(browser, button)
        wait_for(lambda: label(browser) == "Pause")


@pytest.mark.slow
def test_a_run_stays_as_a_grey_curve_and_a_row_until_another_text_is_learned(browser, visit):
    visit(n_head=1, size=SMALL, seconds=2)
    press(browser, "Train longer")
    ((_, *figures),) = rows(browser, "#runs tr")
    choose(browser, n_head=8)
    press(browser, "Train longer")
    assert [name for name, *_ in rows(browser, "#runs tr")] == ["8 heads", "1 head, before"]
    assert rows(browser, "#runs tr")[1][1:] == figures
    strokes = [each.get_attribute("stroke") for each in find(browser, "#curve polyline")]
    assert strokes == ["var(--faint)", "var(--series-0)"]
    assert said(browser, "#compared").endswith(ADVICE)
    paste(browser, SHORT)
    wait_for(lambda: said(browser).startswith("3,000 characters"))
    assert label(browser) == "Train"
    press(browser, "Train longer")
    assert [name for name, *_ in rows(browser, "#runs tr")] == ["8 heads"]


def test_runs_are_compared_at_equal_characters_and_only_with_one_of_their_kind_on_their_text(browser, page):
    open_page(browser, page)
    runs = [
        [["1 head"], "small", "a", [0, 4], [4096, 3], [65536, 2], [131072, 1.9]],
        [["4 heads"], "large", "a", [0, 4], [4096, 1]],
        [["8 heads"], "small", "a", [0, 4], [4096, 2.9], [16384, 2.4]],
        [["2 heads", "1 head"], "small", "a", [0, 4, 4], [4096, 2.5, 2.25]],
        [["1 head"], "small", "b", [0, 4], [4096, 3]],
    ]
    between = np.interp(np.log(16385), np.log([4097, 65537]), [3, 2])
    assert browser.execute_script(COMPARE, runs) == [
        "",
        "",
        f"At 16,384 characters, 8 heads had 2.400, and 1 head, before, {between:.3f}. {ADVICE}",
        "At 4,096 characters, 1 head is ahead by 0.250. One seed proves little.",
        "",
    ]


def test_a_line_is_kept_for_no_character_and_for_each_doubling(browser, page):
    open_page(browser, page)
    script = "const writes = new Writes(['']); for (let n = 0; n <= 100; n++) writes.show(10_000 * n, [`after ${n}`])"
    browser.execute_script(script)
    assert texts(browser, "#samples td") == [f"after {n}" for n in (0, 1, 2, 4, 8, 16, 32, 64, 100)]


@pytest.mark.slow
def test_the_main_button_does_the_next_sensible_thing(browser, visit):
    visit(size=SMALL, seconds=2)
    assert label(browser) == "Train"
    press(browser, "Train longer")
    choose(browser, n_head=2)
    assert label(browser) == "Train"
    choose(browser, n_head=4, seconds=600)
    press(browser, "Pause")
    reads_more(browser)
    choose(browser, n_head=2)
    assert (label(browser), can_press(browser, "#go")) == ("Pause", True)
    choose(browser, n_head=4)
    press(browser, "Go on")
    choose(browser, size="2 32 32")
    press(browser, "Pause")
    wait_for(lambda: len(rows(browser, "#runs tr")) == 2)
    reads_more(browser)
    press(browser, "Go on")


@pytest.mark.slow
def test_what_cannot_be_learned_is_refused_in_a_sentence_and_a_mended_text_trains(browser, visit, tmp_path):
    def give(name, content):
        (tmp_path / name).write_bytes(content)
        find(browser, "#file")[0].send_keys(str(tmp_path / name))

    visit(size=SMALL)
    for content, sentence in (
        (b"", "The text has 0 characters; a model needs 1000 or more."),
        ("été ".encode("latin-1") * 500, "This is no text in UTF-8; an editor can save a text as UTF-8."),
        (b"ab" * 10_000_001, "The text has more than 20 MB."),
    ):
        give("mine.txt", content)
        wait_to_find(sentence, lambda: said(browser))
        choose(browser, seconds=600)
        assert (said(browser), can_press(browser, "#go")) == (sentence, False)
        assert texts(browser, "#source option:checked") == ["mine.txt"]
        assert "pairs of letters" not in said(browser, "#curve")
    assert browser.execute_script(DROP, "mended.txt", "😀 好\r\n" * 500)
    wait_to_find("2,000 characters, 4 different. Its line ends of Windows were converted.", lambda: said(browser))
    assert texts(browser, "#source option") == ["Selmere, a short play", "mended.txt"]
    press(browser, "Pause")
    wait_for(lambda: texts(browser, "#samples td")[-1].count("😀 好") > 9)
    give("mine.txt", b"x" * 50)
    wait_for(lambda: "50 characters" in said(browser))
    reads_more(browser)
    assert "50 characters" in said(browser)  # also while the model before trains
    press(browser, "Train")
    assert not can_press(browser, "#go")
    paste(browser, "".join(chr(0x4E00 + i % 3000) for i in range(30_000)))
    wait_to_find("30,000 characters, 3,000 different. So many make it slow.", lambda: said(browser))


@pytest.mark.slow
def test_the_models_of_the_page_come_back_and_a_text_that_the_new_ones_cannot_read_is_undone(browser, visit):
    visit()
    text, n_heads = value(browser), len(find(browser, ".head"))
    paste(browser, "abracadabra simsalabim\n" * 100)
    wait_for(lambda: said(browser).startswith("2,300 characters"))
    press(browser, "Pause")
    reads_more(browser)
    assert "abracadabra simsalabim\n" in value(browser)
    click(browser, "#undo")
    assert value(browser) == text
    wait_for(lambda: "has never seen" in said(browser, "#message"))
    click(browser, "#tabs button:last-child")
    wait_for(lambda: len(find(browser, ".head")) == n_heads and "has never seen" not in said(browser, "#message"))
    click(browser, "#tabs button")
    wait_for(lambda: len(find(browser, ".head")) == 8 and "has never seen" in said(browser, "#message"))


def test_what_is_said_of_the_losses_is_true(browser, page):
    open_page(browser, page)
    ordered, random = {"even": 4.1, "single": 3.3, "pairs": 2.5}, {"even": 4.1, "single": 4.11, "pairs": 4.5}
    heart = "10:00 On held-out text its loss rises: it learns the text by heart. Its best weights are kept."
    pairs = "1:40 It knows which letter follows which: better than counts of pairs."
    best = (100, 1.8, 1.9, 1.9, 100)

    def risen(n, train):
        return [(200 + 100 * i, train, 2.0, 1.9, 100) for i in range(n)]

    for lines, notes, sentences in (
        (ordered, [(0, None, 4.0, 4.0, 0), best, *risen(5, 1.2)], [heart, pairs]),
        (ordered, [best, *risen(4, 1.2)], [pairs]),  # which may be noise
        (ordered, [best, *risen(4, 1.2), (600, 1.2, 1.91, 1.9, 100)], [pairs]),
        (ordered, [best, *risen(5, 1.9)], [pairs]),  # with a higher rate
        (ordered, [(100, None, 1.9, 1.9, 100), *risen(5, 1.8)], [pairs]),  # after a pause
        (random, [(0, None, 4.1, 4.1, 0), (100, 4.1, 4.099, 4.099, 100)], []),
    ):
        assert browser.execute_script(LEARN, lines, notes) == sentences


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["", 1], ids=["one model", "two models"])
def test_nothing_jumps_while_models_train(browser, visit, beside):
    visit(beside=beside)
    browser.set_script_timeout(60)
    click(browser, "#go")
    assert browser.execute_async_script(SHIFTS) <= 0.02
    reads_more(browser)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["dark phone", "light desktop"])
def test_all_of_a_run_can_be_read_axe_finds_no_fault_and_the_chart_follows_the_window(browser, visit, width, dark):
    visit(width, 844, dark, beside=8, seconds=2)
    press(browser, "Train longer")
    wait_for(lambda: len(texts(browser, "#learned p")) >= 2)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert faults_found_by_axe(browser) == []
    size = {"width": width - 150, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    drawn = "const svg = document.querySelector('#curve'); return svg.viewBox.baseVal.width / svg.clientWidth"
    wait_to_find(1, lambda: browser.execute_script(drawn))


@pytest.mark.slow
def test_the_keyboard_alone_chooses_trains_and_pauses(browser, visit):
    visit()
    found = {}
    for name, key in (("n_head", "\ue015"), ("beside", "\ue014"), ("seconds", "\ue015")):  # down, right, down
        find(browser, f"[name={name}]:is(:checked, select)")[0].send_keys(key)
        assert find(browser, "#bar :focus-visible")
        found[name] = find(browser, f"[name={name}]:is(:checked, select)")[0].get_property("value")
    assert found == {"n_head": "8", "beside": "1", "seconds": "180"}
    find(browser, "#own-text")[0].send_keys("\ue007")  # Enter
    browser.switch_to.active_element.send_keys(SHORT[:1200] + "\ue004\ue004\ue007")  # Tab past the file, Enter
    wait_for(lambda: said(browser).startswith("1,200 characters"))
    find(browser, "#go")[0].send_keys("\ue007")
    reads_more(browser)
    assert browser.switch_to.active_element.get_attribute("id") == "go"
    assert browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.switch_to.active_element.send_keys(" ")
    wait_for(lambda: label(browser) == "Go on")


def test_a_browser_without_simd_says_so_and_plays_the_model_all_the_same(browser, page, tmp_path):
    other = re.sub(r'"kernels": \[[^]]*\]', '"kernels": ["AAAA"]', page.read_text(encoding="utf-8"))
    (tmp_path / "page.html").write_text(other, encoding="utf-8")
    open_page(browser, tmp_path / "page.html")
    wait_for(lambda: "lacks WebAssembly SIMD" in said(browser) and find(browser, "#next-a button"))
    assert not can_press(browser, "#go")


def test_a_file_that_cannot_be_read_is_named_and_a_choice_that_is_cancelled_changes_nothing(browser, visit):
    visit()
    facts = said(browser)
    script = "document.querySelector('#file').onchange({ target: { files: arguments[0] ? [UNREAD] : [] } })"
    unread = "{ arrayBuffer: async () => { throw new Error('It cannot be read.') } }"
    for is_chosen, message in ((False, facts), (True, "It cannot be read.")):
        browser.execute_script(script.replace("UNREAD", unread), is_chosen)
        wait_to_find(message, lambda: said(browser))
        assert len(find(browser, "#source option")) == 1
    paste(browser, SHORT)
    wait_for(lambda: said(browser).startswith("3,000 characters"))
    click(browser, "#own-text")
    find(browser, "#pasted")[0].send_keys("more")
    browser.execute_async_script(
        "byId('take').close(); setTimeout(arguments[0], 300)"
    )  # what Escape does in some browsers
    assert said(browser).startswith("3,000 characters")


def test_work_that_failed_once_is_done_again_and_a_worker_that_has_ended_answers_with_an_error(browser, page):
    open_page(browser, page)
    script = """const [done] = arguments, engine = new Engine("reader");
        const work = oneAtATime(() => engine.ask("stop"));
        const ask = () => work().then(() => "answered", ({ message }) => message);
        const asked = ask();
        engine.end();
        Promise.all([asked, asked.then(ask)]).then(done)"""
    assert browser.execute_async_script(script) == ["Another model has taken the place of this one."] * 2
