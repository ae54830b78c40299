"""The worker that trains inside the page: what it reads of a text, evaluates, pauses and keeps."""

import dataclasses
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from page_trainer import BATCH, KERNELS, OPTIM, SET_WEIGHTS, held_out_loss, in_json, new_run
from torch.testing import assert_close

from training.optim.schedule import lr_factor

TEXT = "".join(f"{i} men 🙂 went to mow, {i} times {i * i}.\n" for i in range(99))
FILES = ["workers/trainer.js"]
CONFIG = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 16, "logit_softcap": 15.0}
ENCODED = "const encoded = (text) => new TextEncoder().encode(text);"
BEGIN = (
    ENCODED
    + SET_WEIGHTS
    + """
await TRAINER.open({ bytes: encoded(text), kernels });
const begin = (models) => TRAINER.begin({ models, optim, batch, seed: 1 });
const plain = (weights) => Object.fromEntries(Object.entries(weights).map(([name, values]) => [name, [...values]]));
"""
)


def ask(browser, code, **given):
    given = {"kernels": KERNELS, "text": TEXT, "config": CONFIG, "optim": dataclasses.asdict(OPTIM)} | given
    return browser.run_in_worker(FILES, BEGIN + code, batch=BATCH, **given)


def test_a_text_is_split_and_counted_as_in_python(browser, tmp_path):
    text = "\ufeff" + TEXT + "€🙂."  # with a byte-order mark
    code = ENCODED + "return TRAINER.open({ bytes: encoded(text), kernels })"
    found = browser.run_in_worker(FILES, code, text=text, kernels=KERNELS)
    split = new_run(tmp_path, text=text).split
    assert found["characters"] == "".join(sorted(set(text)))
    assert found["n"] == len(text)
    assert found["opening"] in text[len(split.train) :]
    lines = [found["lines"][name] for name in ("even", "single", "pairs")]
    assert_close(lines, counted_losses(split.train.tolist(), split.validation.tolist()))


def counted_losses(train, validation):
    """Return the losses of guessing evenly, of counts of characters plus 1, and of counts of pairs."""
    V, counts, pairs = len({*train, *validation}), Counter(train), Counter(pairwise(train))
    single = {x: (counts[x] + 1) / (len(train) + V) for x in range(V)}
    both = [(single[x], (pairs[before, x] + single[x]) / (counts[before] + 1)) for before, x in pairwise(validation)]
    return [math.log(V), *(-np.log(both).mean(0))]


REFUSED = {
    "encoded('short')": "The text has 5 characters; a model needs 1000 or more.",
    "new Uint8Array(2000).map((_, i) => 137 * (i % 256))": "This is no text in UTF-8",
    "new Uint8Array(2000).fill(200)": "This is no text in UTF-8; an editor can save a text as UTF-8.",
    "new Uint8Array(20_000_001)": "The text has more than 20 MB.",
}


def test_what_cannot_be_learned_is_refused_in_words(browser):
    code = f"""{ENCODED} const said = [];
        for (const bytes of [{", ".join(REFUSED)}]) {{
          said.push(await TRAINER.open({{ bytes, kernels }}).then(() => "opened", ({{ message }}) => message));
        }}
        return said;"""
    for said, words in zip(browser.run_in_worker(FILES, code, kernels=KERNELS), REFUSED.values(), strict=True):
        assert said.startswith(words)


def test_a_context_that_is_longer_than_the_held_out_part_is_refused(browser):
    code = "return begin([{ ...config, block_size: 512 }]).then(() => 'begun', ({ message }) => message)"
    assert ask(browser, code) == "The text is too short: a context of 512 needs 5130 characters."


@torch.inference_mode()
@pytest.mark.parametrize(("length", "block_size"), [(1, 24), (1, 64), (20, 16), (20, 100), (60, 128)])
def test_the_held_out_loss_is_that_of_pytorch_on_the_same_characters_whatever_the_context(
    browser, tmp_path, length, block_size
):
    state = new_run(tmp_path, text=length * TEXT, block_size=block_size)
    code = "await begin([config]); setWeights(models[0].gpt, weights); return [heldOutLoss(models[0].gpt)]"
    (found,) = ask(browser, code, text=length * TEXT, **in_json(state.model))
    ids = torch.from_numpy(state.split.validation[:].astype("int64"))
    assert_close(found, held_out_loss(state.model, ids), rtol=0, atol=1e-5)


def test_windows_begin_everywhere_in_the_learned_part_and_count_as_passes_over_it(browser):
    code = """await begin([config]);
        const starts = [];
        models[0].gpt.learn = (_, places) => starts.push(...places);
        for (let i = 0; i < 1000; i++) learn();
        for (const number of [1, 2 ** -32]) { // the largest and the smallest that can be drawn
          run.uniform = () => number;
          learn();
        }
        return starts;"""
    found, n, T = ask(browser, code), int(0.9 * len(TEXT)), CONFIG["block_size"]
    first, last = found[-2 * BATCH :: BATCH]
    assert (first, last) == (0, n - T - 1)  # the last one predicts the last character
    counts, _ = np.histogram(found, bins=10, range=(0, n - T))
    assert counts == pytest.approx(300, rel=0.2)


def test_the_learning_rate_falls_over_the_time_and_begins_anew_if_one_trains_longer(browser):
    code = """await begin([config]);
        let now_ms = 0;
        performance.now = () => now_ms;
        const factors = [];
        models[0].gpt.learn = (ids, places, settings, factor) => {
          now_ms += 1000; // a step takes a second
          factors.push(factor);
        };
        for (const seconds of [10, 30]) await TRAINER.train({ seconds }, () => {});
        return factors;"""
    expected = [lr_factor(OPTIM, step, n_steps) for n_steps in (10, 30) for step in range(n_steps)]
    assert ask(browser, code) == pytest.approx(expected)


def test_a_second_model_learns_from_the_same_windows_and_changes_nothing_for_the_first(browser):
    code = """const other = { ...config, n_head: 4 };
        const trained = [];
        for (const models of [[config], [config, other], [other]]) {
          await begin(models);
          Object.assign(run, { until: 1 });
          for (let i = 0; i < 5; i++) learn();
          trained.push(...(await TRAINER.look({})).map(({ weights }) => plain(weights)));
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
        const [before, seconds] = [await TRAINER.look({}), run.seconds];
        await wait(500);
        const after = await TRAINER.look({});
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


def test_the_best_weights_are_kept(browser):
    code = """await begin([config]);
        Object.assign(run, { until: 1 });
        for (let i = 0; i < 30; i++) learn();
        const best = progress();
        const [then] = await TRAINER.look({});
        for (let i = 0; i < 3; i++) models[0].gpt.update(optim, -30); // uphill
        learn();
        const worse = progress();
        const [kept] = await TRAINER.look({ isBest: true });
        const same = JSON.stringify(plain(then.weights)) === JSON.stringify(plain(kept.weights));
        return { found: [best, worse], step: kept.step, same };"""
    answer = ask(browser, code)
    best, worse = (progress["losses"][0] for progress in answer["found"])
    assert worse["heldOut"] > best["heldOut"] + 0.1
    assert worse["best"] == best["heldOut"]
    assert worse["bestStep"] == answer["step"] == 30
    assert answer["same"]


def test_evaluations_follow_each_doubling_and_each_second_at_first(browser):
    code = """await begin([config]);
        let now_ms = 0;
        performance.now = () => now_ms;
        models[0].gpt.learn = () => {
          now_ms += run.steps < 400 ? 1 : 100;
        };
        const found = [];
        await TRAINER.train({ seconds: 10 }, ({ characters, seconds }) => found.push([characters, seconds]));
        return found;"""
    characters, seconds = zip(*ask(browser, code), strict=True)
    early = [n for n, s in zip(characters, seconds, strict=True) if s < 0.4]
    assert early[0] == 0
    assert all(n <= 2 * max(before, 2048) + 48 for before, n in pairwise(early))
    assert all(after - before <= 1.1 for before, after in pairwise(seconds) if after > 0.4)


def test_a_machine_that_sleeps_does_not_train(browser):
    code = """await begin([config]);
        let now_ms = 0;
        performance.now = () => now_ms;
        models[0].gpt.learn = () => {
          now_ms += run.steps === 5 ? 3_600_000 : 100;
        };
        const end = await TRAINER.train({ seconds: 10 }, () => {});
        return [end.steps];"""
    assert ask(browser, code) == pytest.approx([51], abs=2)  # the hour counts as five seconds
