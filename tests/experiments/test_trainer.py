"""The worker that trains inside the page: what it reads of a text, evaluates, pauses and keeps."""

import dataclasses
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from page_trainer import BATCH, KERNELS, OPTIM, in_json, new_run
from pages_in_browser import run_in_worker
from torch.testing import assert_close

from training.evaluation import evaluate
from training.optim.schedule import lr_factor

TEXT = "".join(f"{i} men 🙂 went to mow, {i} times {i * i}.\n" for i in range(99))
FILES = ["train.js", "random.js", "questions.js", "trainer.js"]
CONFIG = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 16, "logit_softcap": 15.0}
ENCODED = "const encoded = (text) => new TextEncoder().encode(text);"
BEGIN = (
    ENCODED
    + """
await TRAINER.start({ kernels });
await TRAINER.open({ bytes: encoded(text) });
const begin = (models, weights) => TRAINER.begin({ models, optim, batch, seed: 1, weights });
const plain = (weights) => Object.fromEntries(Object.entries(weights).map(([name, values]) => [name, [...values]]));
"""
)


def ask(browser, code, **given):
    given = {"kernels": KERNELS, "text": TEXT, "config": CONFIG, "optim": dataclasses.asdict(OPTIM)} | given
    return run_in_worker(browser, FILES, BEGIN + code, batch=BATCH, **given)


def test_a_text_is_split_and_counted_as_in_python(browser, tmp_path):
    text = "\ufeff" + TEXT + "€🙂\r\n"  # with a byte-order mark
    found = run_in_worker(browser, FILES, ENCODED + "return TRAINER.open({ bytes: encoded(text) })", text=text)
    split = new_run(tmp_path, text=text).split
    assert found["characters"] == "".join(sorted(set(text)))
    assert (found["n"], found["heldOut"]) == (len(text), len(split.validation) - 1)
    assert found["opening"] in text[len(split.train) :]
    lines = [found["lines"][name] for name in ("even", "single", "pairs")]
    assert_close(lines, counted_losses(split.train.tolist(), split.validation.tolist()))


def counted_losses(train, validation):
    """Return the losses of guessing evenly, of counts of characters plus 1, and of counts of pairs."""
    V, counts, pairs = len({*train, *validation}), Counter(train), Counter(pairwise(train))
    single = {x: (counts[x] + 1) / (len(train) + V) for x in range(V)}
    both = [(single[x], (pairs[before, x] + single[x]) / (counts[before] + 1)) for before, x in pairwise(validation)]
    return [math.log(V), *(-np.log(both).mean(0))]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("encoded('short')", "The text has 5 characters; a model needs 1000 or more."),
        ("encoded('a'.repeat(2000))", "The text repeats one character; there is nothing to learn."),
        ("encoded('ab\\0'.repeat(999))", "This is not text, but other data."),
        ("new Uint8Array(2000).fill(200)", "The text is not in UTF-8; save it as UTF-8 in an editor."),
        ("new Uint8Array(20_000_001)", "The text has more than 20 MB."),
        ("encoded(String.fromCodePoint(...Array(11_000).keys()).slice(1))", "The text has 10999 different characters"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_words(browser, given, words):
    code = f"{ENCODED} return TRAINER.open({{ bytes: {given} }}).then(() => 'opened', ({{ message }}) => message)"
    assert run_in_worker(browser, FILES, code, nothing=0).startswith(words)


def test_a_context_that_is_longer_than_the_held_out_part_is_refused(browser):
    code = "return begin([{ ...config, block_size: 512 }]).then(() => 'begun', ({ message }) => message)"
    assert ask(browser, code) == "The text is too short: a context of 512 needs 5130 characters."


@pytest.mark.parametrize("most", [100, 10**6])
def test_the_held_out_loss_is_that_of_an_evaluation_of_so_many_characters(browser, tmp_path, most):
    state = new_run(tmp_path, text=TEXT)
    code = """await begin([config], [weights]);
        return heldOutLoss(models[0].gpt, most);"""
    found = ask(browser, code, most=most, **in_json(state.model))
    expected = evaluate(state.model, state.split.validation, state.runtime, n_characters=most)
    assert found["n"] == expected.n_characters
    assert_close(found["loss"], expected.loss, rtol=0, atol=1e-5)


def test_the_last_evaluation_is_over_all_of_a_long_held_out_part(browser, tmp_path):
    state, code = new_run(tmp_path, text=20 * TEXT), "await begin([config], [weights]); return TRAINER.evaluate()"
    (found,) = ask(browser, code, text=20 * TEXT, **in_json(state.model))
    expected = evaluate(state.model, state.split.validation, state.runtime)
    assert found["n"] == expected.n_characters
    assert expected.n_characters > 5000
    assert expected.n_characters % state.model.config.block_size > 0  # so that the last window is shorter
    assert_close(found["loss"], expected.loss, rtol=0, atol=1e-5)


def test_windows_begin_everywhere_in_the_learned_part_and_count_as_passes_over_it(browser):
    code = """await begin([config]);
        const starts = [];
        models[0].gpt.learn = (_, places) => starts.push(...places);
        for (let i = 0; i < 1000; i++) learn();
        const { passes } = progress();
        for (const number of [1, 2 ** -32]) { // the largest and the smallest that can be drawn
          run.uniform = () => number;
          learn();
        }
        return { starts, passes };"""
    found, n, T = ask(browser, code), int(0.9 * len(TEXT)), CONFIG["block_size"]
    first, last = found["starts"][-2 * BATCH :: BATCH]
    assert (first, last) == (0, n - T - 1)  # the last one predicts the last character
    assert found["passes"] == pytest.approx(1000 * BATCH * T / n)
    counts, _ = np.histogram(found["starts"], bins=10, range=(0, n - T))
    assert counts == pytest.approx(300, rel=0.2)


def test_the_learning_rate_falls_over_the_time_also_if_it_grows_and_begins_anew_if_one_trains_longer(browser):
    code = """await begin([config]);
        let now_ms = 0;
        performance.now = () => now_ms;
        const factors = [];
        models[0].gpt.learn = (ids, places, settings, factor) => {
          now_ms += 1000; // a step takes a second
          if (factors.push(factor) === 4) TRAINER.longer({ seconds: 10 });
        };
        for (const seconds of [10, 30]) await TRAINER.train({ seconds }, () => {});
        return factors;"""
    lengths = [*[(step, 10 if step < 4 else 20) for step in range(20)], *[(step, 30) for step in range(30)]]
    assert ask(browser, code) == pytest.approx([lr_factor(OPTIM, step, n) for step, n in lengths])


def test_a_second_model_learns_from_the_same_windows_and_changes_nothing_for_the_first(browser):
    code = """const other = { ...config, n_head: 4 };
        const trained = [];
        for (const models of [[config], [config, other], [other]]) {
          await begin(models);
          Object.assign(run, { until: 1 });
          for (let i = 0; i < 5; i++) learn();
          trained.push(...(await TRAINER.look()).map(({ weights }) => plain(weights)));
        }
        return trained;"""
    alone, first, second, other = ask(browser, code)
    assert alone == first
    assert other == second
    assert alone != other


def test_a_pause_changes_nothing_but_the_clock(browser):
    code = """await begin([config]);
        const wait = (ms) => new Promise((go) => setTimeout(go, ms));
        let n = 0;
        const training = TRAINER.train({ seconds: 60 }, () => n++);
        while (run.steps < 20) await wait(5);
        await TRAINER.pause();
        const paused = await training;
        const [before, seconds] = [await TRAINER.look(), run.seconds];
        await wait(500);
        const after = await TRAINER.look();
        const again = TRAINER.train({}, () => n++);
        while (run.steps < 40) await wait(5);
        run.until = run.seconds;
        const same = JSON.stringify(plain(before[0].weights)) === JSON.stringify(plain(after[0].weights));
        return { paused, over: await again, same, seconds, from: run.from, n };"""
    found = ask(browser, code)
    assert found["same"]
    assert (found["paused"]["isOver"], found["over"]["isOver"]) == (False, True)
    assert found["paused"]["seconds"] == found["seconds"] < found["over"]["seconds"] < found["seconds"] + 60
    assert found["from"] == 0  # the learning rate goes on falling from where it was
    assert found["over"]["steps"] >= 40
    assert found["n"] >= 2


def test_going_back_gives_each_model_the_weights_of_its_best_evaluation(browser):
    code = """await begin([config]);
        Object.assign(run, { until: 1 });
        for (let i = 0; i < 30; i++) learn();
        const best = progress();
        for (let i = 0; i < 3; i++) models[0].gpt.update(optim, -30); // uphill
        learn();
        const worse = progress();
        return [best, worse, await TRAINER.goBack(), (await TRAINER.look())[0].step];"""
    *found, step = ask(browser, code)
    best, worse, back = (progress["losses"][0] for progress in found)
    assert worse["heldOut"] > best["heldOut"] + 0.1
    assert worse["best"] == back["heldOut"] == best["heldOut"]
    assert worse["bestStep"] == step == 30
