"""What a page must show of a text that a model reads, computed by PyTorch."""

import re
import unicodedata

import numpy as np
import pytest
import torch

from experiments.heads.silence import silenced
from model.generate import window_start

SIGNS = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}
SHADES = """return [...document.querySelectorAll(".text span")].map(
    (span) => parseFloat(span.style.getPropertyValue("--w")))"""


@torch.inference_mode()
def log_probabilities(trained, text, off=()):
    """Return the log-probabilities (T, V) after each character that the model sees, and the ids (T,) of these.

    off: heads and memories that are switched off.
    """
    model, ids = trained.model, torch.from_numpy(trained.vocabulary.encode(text).astype(np.int64))
    ids = ids[window_start(len(ids), model.config.block_size) :]
    with silenced(model, [*off]):
        return model(ids[None])[0].double().log_softmax(-1), ids


def surprise(trained, text, off=()):
    """Return the surprise (T - 1,), in nats, of each character that the model sees but the first."""
    logs, ids = log_probabilities(trained, text, off)
    return -logs[:-1].gather(1, ids[1:, None])[:, 0].numpy()


def labelled(character):
    """Return the label of a character, which one can see, and which leaves the order of the others."""
    is_plain = character.isprintable() and unicodedata.bidirectional(character) not in ("R", "AL")
    return SIGNS.get(character) or (character if is_plain else f"U+{ord(character):04X}")


def bars(browser, selector):
    return [(label, float(share.removesuffix(" %"))) for label, share in browser.rows(f"{selector} > *")]


def check_next(browser, trained, text, off=(), *, selector="#next-a"):
    """Assert that the page comes to show the likeliest next characters; its weights are rounded."""
    shares = 100 * log_probabilities(trained, text, off)[0][-1].exp()
    of = {
        labelled(character): share
        for character, share in zip(trained.vocabulary.characters, shares.tolist(), strict=True)
    }

    def found():
        shown = bars(browser, selector)
        return [share for _, share in shown], [share - of.get(label, -1) for label, share in shown]

    likeliest = shares.topk(min(6, len(shares))).values.tolist()
    browser.wait_to_find((pytest.approx(likeliest, abs=0.7), pytest.approx([0] * len(likeliest), abs=0.7)), found)


def check_numbers(browser, trained, text, off=()):
    """Assert that the page comes to show PyTorch's numbers of the text that its model reads, and shades by surprise."""
    check_next(browser, trained, text or trained.vocabulary.default_prompt, off)
    surprises = surprise(trained, text, off) if text else []
    sentence = "The first character is not predicted; type a second one."
    losses = [pytest.approx(np.mean(surprises), abs=0.015)] if len(surprises) else []
    shades = [pytest.approx(min(90, 90 * each / 5.5), abs=0.9) for each in surprises]

    def found():
        (words,) = browser.texts("#text-loss")
        numbers = [*map(float, re.findall(r"Loss on .*?: ([\d.]+); of guessing: ", words))]
        return numbers, sentence in words, browser.execute_script(SHADES)[-len(surprises) :] if len(surprises) else []

    browser.wait_to_find((losses, not len(surprises), shades), found)
