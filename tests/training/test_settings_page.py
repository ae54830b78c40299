"""The table of settings in configs/README.md; `python -m tests.training.test_settings_page` writes it again."""

import dataclasses
import inspect
import re
import typing
from pathlib import Path

import yaml

from cli.rules import rules_of
from training.config import Config

PAGE = Path(__file__).parents[2] / "configs" / "README.md"
TITLE = "| setting | default | meaning |\n|---|---|---|\n"
# With a star: those that a newcomer changes.
FIRST = ["data.corpus", "train.name", "train.max_steps", "model.n_layer", "model.n_head", "model.n_embd"]


def written_table():
    """Return the rows that describe every setting by its default, the names to choose from and its comment."""
    rows = []
    for section, kind in typing.get_type_hints(Config).items():
        defaults, meanings = dataclasses.asdict(kind()), comments(kind)
        types = typing.get_type_hints(kind, include_extras=True)
        for name, default in defaults.items():
            default = yaml.safe_dump(list(default) if isinstance(default, tuple) else default, default_flow_style=True)
            names = ", ".join(f"`{rule}`" for rule in rules_of(types[name]) if isinstance(rule, str))
            key = f"`{section}.{name}`" + " *" * (f"{section}.{name}" in FIRST)
            meaning = f"{meanings[name]} ({names})" if names else meanings[name]
            rows.append(f"| {key} | `{default.splitlines()[0]}` | {meaning} |\n")
    return TITLE + "".join(rows)


def comments(kind):
    """Return the comment of each field of a dataclass: after it, or in the lines before it."""
    found, before = {}, []
    for line in inspect.getsource(kind).splitlines():
        code, _, comment = line.strip().partition("# ")
        if field := re.match(r"(\w+): .* =", code):
            found[field[1]] = " ".join([*before, comment]).strip()
        before = [] if code else [*before, comment]
    return found


def table_of_the_page():
    return TITLE + PAGE.read_text(encoding="utf-8").partition(TITLE)[2]


def test_the_page_of_settings_says_what_the_dataclasses_say():
    assert table_of_the_page() == written_table()


def test_every_setting_is_described():
    for kind in typing.get_type_hints(Config).values():
        assert all(comments(kind).get(field.name) for field in dataclasses.fields(kind)), kind


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(table_of_the_page(), written_table()), encoding="utf-8")
