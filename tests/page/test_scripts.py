"""Single scripts of the page, on a page of a small model: labels of characters, sentences on runs, and what is kept."""

import unicodedata

import pytest
from helpers import make_checkpoint
from page_numbers import labelled

from data.vocabulary import LOOK_ALIKES, Vocabulary
from page.models import make_page
from training.runs.checkpoint import save_checkpoint
from training.trained_model import load_model

NEUTRAL = "\u0660\u06f9"  # digits of Arabic  # digits of Arabic
BLOCKS = ((0x590, 0x8FF), (0xFB1D, 0xFDFF), (0xFE70, 0xFEFF), (0x10800, 0x10FFF), (0x1E800, 0x1EFFF))
COMPARE = """const loss = new Loss(), lines = { even: 4, single: 3, pairs: 2.5 };
    return arguments[0].map(([titles, ...points]) => {
      loss.begin(titles, { key: "a", lines });
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
def page(browser, tmp_path_factory):
    """Return the browser at a page with a small model."""
    folder = tmp_path_factory.mktemp("page")
    save_checkpoint(make_checkpoint(), folder / "any.safetensors")
    (folder / "page.html").write_text(make_page([load_model(folder / "any.safetensors", "cpu")]), "utf-8")
    browser.open_page(folder / "page.html")
    return browser


def test_a_character_has_a_label_that_one_can_see_and_that_leaves_the_order_of_the_others(page):
    """Signs and numbers in blocks of letters from right to left have no direction, so they may have either label."""
    assigned = [chr(i) for i in range(0x20000) if unicodedata.category(chr(i)) not in ("Cn", "Cs")]
    found = page.execute_script("return arguments[0].map(visible)", assigned)
    for character, shown in zip(assigned, found, strict=True):
        is_in_block = any(first <= ord(character) <= last for first, last in BLOCKS)
        if is_in_block and unicodedata.category(character)[0] in "NPS" and labelled(character) == character:
            continue
        assert shown == labelled(character), f"U+{ord(character):04X}"
    assert [*map(labelled, "b \t\n\x01א")] == ["b", "␣", "⇥", "⏎", "U+0001", "U+05D0"]
    assert page.execute_script("return arguments[0].map(visible)", [*NEUTRAL]) == [*NEUTRAL]


@pytest.mark.parametrize("known", ["\n ab", "\t\nab", "'ab\r", "\n\rab\u2009\u2013", "“”a", "\nﬁ😀"])
def test_the_page_reads_the_characters_that_the_vocabulary_has_and_those_that_look_like_them(page, known):
    vocabulary = Vocabulary(known)
    found = page.execute_script("return vocabularyOf(...arguments)", vocabulary.characters, LOOK_ALIKES)
    assert found["alike"] == vocabulary.look_alikes
    assert found["labels"] == [*map(labelled, vocabulary.characters)]
    return_ = "␍" if "\n" in known else "\n"
    assert found["characters"] == vocabulary.characters.replace("\r", return_)
    assert found["start"] == vocabulary.default_prompt.replace("\r", return_)


def test_only_models_that_trained_side_by_side_are_compared(page):
    runs = [
        [["4 heads"], [0, 4], [4096, 3], [65536, 2]],
        [["2 heads", "1 head"]],
        [["2 heads", "1 head"], [0, 4, 4], [4096, 2.5, 2.25]],
        [["2 heads", "1 head"], [0, 4, 4], [4096, 2.5, 2.625]],
    ]
    assert page.execute_script(COMPARE, runs) == [
        "",
        "",
        "At 4,096 characters, 1 head is ahead by 0.250. One seed proves little.",
        "At 4,096 characters, 2 heads are ahead by 0.125. One seed proves little.",
    ]


def test_a_line_is_kept_for_no_character_and_for_each_doubling(page):
    script = "const writes = new Writes(['']); for (let n = 0; n <= 100; n++) writes.show(10_000 * n, [`after ${n}`])"
    page.execute_script(script)
    assert page.texts("#samples td") == [f"after {n}" for n in (0, 1, 2, 4, 8, 16, 32, 64, 100)]


def test_what_is_said_of_the_losses_is_true(page):
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
        assert page.execute_script(LEARN, lines, notes) == sentences


def test_work_that_failed_once_is_done_again_and_a_worker_that_has_ended_answers_with_an_error(page):
    script = """const [done] = arguments, engine = new Engine("reader");
        const work = oneAtATime(() => engine.ask("stop"));
        const ask = () => work().then(() => "answered", ({ message }) => message);
        const asked = ask();
        engine.end();
        Promise.all([asked, asked.then(ask)]).then(done)"""
    assert page.execute_async_script(script) == ["Another model has taken the place of this one."] * 2
