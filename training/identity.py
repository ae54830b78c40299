"""The identity of a run: everything that determined its training and its measurement.

Two runs are seeds of one variant if their identities differ in the seed alone. Whatever compares runs asks this module.
The processor, the number of threads and the versions of PyTorch and of the code are no part of an identity: they change
a run like another seed, and the end of its metrics records them.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cli.rules import Mark
from training.config import Config, settings_with

SEED = "train.seed"
MEASURED_BY = ("text", "data.split", "data.encoding", "train.eval_characters", "model.block_size")
WITHOUT_EFFECT, RESOLVED = settings_with(Mark.WITHOUT_EFFECT), settings_with(Mark.RESOLVED)

# The types of the fields of an origin, in JSON.
ORIGIN = {"text": str, "vocabulary": str, "ancestor": str | None, "arithmetic": str, "earlier": dict}


def identity_of(config: Config, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a run: its settings by section.name, and its origin.

    origin: see `origin_of`; without it, before the text is open, the settings stand for it.
    """
    left_out = WITHOUT_EFFECT | (RESOLVED if origin else set())
    sections = dataclasses.asdict(config)
    settings = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    identity = {key: value for key, value in settings.items() if key not in left_out} | dict(origin)
    return json.loads(json.dumps(identity))  # with lists for tuples, as in a file


def earlier_values(now: Mapping[str, Any], before: Mapping[str, Any], step: int) -> dict[str, dict[str, Any]]:
    """Return what `earlier` is in the identity of a run that a session continues after `step` steps.

    now, before: its identities at present and when the last session ended. The result has, by step, the values that
    were valid until then. A change before the first step leaves no trace, nor does one that is undone before the next
    step.
    """
    if not step:
        return {}
    earlier = dict(before["earlier"])
    changed = {key: before[key] for key in sorted(before.keys() - {"earlier"})}
    changed |= earlier.pop(str(step), {})
    changed = {key: value for key, value in changed.items() if value != now[key]}
    return earlier | ({str(step): changed} if changed else {})


def group_seeds(identities: Sequence[Mapping[str, Any]]) -> list[dict[int, int]]:
    """Return the variants of runs: for each, the places of its runs in the given order, by seed.

    Of runs with the same seed, a variant has the first.
    """
    variants: dict[str, dict[int, int]] = {}
    for place, identity in enumerate(identities):
        seedless = json.dumps({key: value for key, value in identity.items() if key != SEED}, sort_keys=True)
        variants.setdefault(seedless, {}).setdefault(identity[SEED], place)
    return [*variants.values()]


def measurement_of(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an identity that determined what its losses were measured on: the same if they compare."""
    measurement = {key: identity[key] for key in MEASURED_BY}
    _, _, validation = identity["text"].partition(" and ")
    return measurement | ({"text": validation, "data.split": None} if validation else {})  # a text apart is not split


def what_differs(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return in what runs differ besides their seeds."""
    keys = dict.fromkeys(key for identity in identities for key in identity if key != SEED)
    return [key for key in keys if any(each.get(key) != identities[0].get(key) for each in identities)]
