"""Read YAML and `section.key=value` overrides into a checked Config, and write a Config as YAML.

Every YAML value is read as text and converted to the declared type of its setting, so that `3e-4` is a number and
`012` is twelve, both in a file and on the command line.
"""

import contextlib
import dataclasses
import difflib
import json
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cli.errors import UserError, checking_values
from cli.hints import PROJECT, shortened, to_paste
from training.config import Config

SECTIONS = typing.get_type_hints(Config)
KEYS = [f"{section}.{field.name}" for section, kind in SECTIONS.items() for field in dataclasses.fields(kind)]
LAST_READER = "c797c4b or, if it is older, 8237b76"  # what reads settings and checkpoints of earlier versions


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Return the config of a YAML file with overrides. Raises UserError if a key, a type or a value is wrong."""
    settings = read_settings(path)
    if "sweep" in settings:
        raise UserError(f"this is a sweep; start it with {to_paste('experiments.sweep', '--config', path)}")
    with checking_values("" if overrides else f"{path}: "):  # with both, either may be wrong
        return build_config(settings, overrides)


def read_settings(path: Path) -> dict[str, Any]:
    """Return a YAML file as nested mappings and lists of text, added to those of its `base`, except `sweep`.

    Raises UserError if it is not a config, or if its base is missing, in another folder or based on another config.
    """
    settings = _read_yaml(path)
    if (name := settings.pop("base", None)) is None:
        return settings
    beside = [file.name for file in path.parent.iterdir()]
    base = _read_yaml(path.with_name(name)) if name in beside else {}
    if not base or "base" in base:
        raise UserError(f"{path}: base={shown(name)} must name a config in the same folder, one without a base")
    base.pop("sweep", None)  # each sweep says itself what it varies
    for section, values in base.items():
        own = settings.get(section) or {}
        settings[section] = values | own if isinstance(values, dict) and isinstance(own, dict) else own or values
    return settings


def _read_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML file as nested mappings and lists of text. Raises UserError if it is no mapping."""
    try:
        settings = _TextLoader(path.read_bytes().decode()).get_single_data()
    except FileNotFoundError:
        others = {file.stem: file for folder in (PROJECT / "configs", path.parent) for file in folder.glob("*.yaml")}
        close = difflib.get_close_matches(path.stem, others, n=1)
        hint = f"; did you mean {shortened(others[close[0]])}?" if close else ""
        raise UserError(f"{path}: no such file in {Path.cwd()}{hint}") from None
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
            reason = f"line {error.problem_mark.line + 1}: {error.problem}"
        raise UserError(f"{path}: is not a config ({reason}); see configs/README.md") from None
    if not isinstance(settings, dict) or not settings:
        raise UserError(f"{path}: is not a config; a config has the sections {', '.join(SECTIONS)}")
    return settings


def build_config(settings: Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """Return the config of nested mappings with overrides applied. Raises UserError as `load_config` does."""
    sections: dict[str, dict[str, Any]] = {}
    for section, values in settings.items():
        _check_key(section, [*SECTIONS])
        if values not in (None, "") and not isinstance(values, Mapping):
            raise UserError(f"{section} must be a section of settings, not {shown(values)}")
        sections[section] = dict(values or {})
    for override in overrides:
        section, name, value = split_override(override)
        sections.setdefault(section, {})[name] = value
    for section, values in sections.items():
        hints = typing.get_type_hints(SECTIONS[section])
        for name, value in values.items():
            _check_key(key := f"{section}.{name}", KEYS)
            values[name] = _convert(key, value, hints[name])
    with checking_values():
        return Config(**{section: SECTIONS[section](**values) for section, values in sections.items()})


def split_override(override: str) -> tuple[str, str, str]:
    """Return section, name and value of `section.key=value`. Raises UserError if malformed or the key is unknown."""
    key, equals, value = override.partition("=")
    if not equals:
        raise UserError(
            f"{override!r} is not an override; write section.key=value without spaces, such as model.n_head=8 "
            "or data.corpus=my.txt"
        )
    _check_key(key, KEYS)
    section, _, name = key.partition(".")
    return section, name, value


def to_yaml(settings: Config | Mapping[str, Any]) -> str:
    values = dataclasses.asdict(settings) if isinstance(settings, Config) else settings
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    # PyYAML writes the line break \x85 as it is, and reads it as a space.
    return yaml.safe_dump(values, sort_keys=False) if "\x85" in text else text


class _TextLoader(yaml.BaseLoader):
    """Loads text, lists and mappings only. A duplicate key is an error."""

    def construct_mapping(self, node, deep=False):
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            keys = [key.value for key, _ in node.value]
            again = next(key for n, (key, _) in enumerate(node.value) if key.value in keys[:n])
            raise yaml.MarkedYAMLError(problem=f"{again.value!r} is given twice", problem_mark=again.start_mark)
        return mapping


def _check_key(key: str, known: Sequence[str]) -> None:
    """Raise UserError, which suggests a similar key, if a section or setting is unknown."""
    if key in known:
        return
    names = {known_key.rpartition(".")[2]: known_key for known_key in [*KEYS, *SECTIONS]}
    close = difflib.get_close_matches(key.rpartition(".")[2], names, n=1)
    hint = f"did you mean {names[close[0]]}?" if close else "configs/README.md lists all settings"
    raise UserError(f"unknown key {key}; {hint}")


def _convert(key: str, value: Any, hint: Any) -> Any:
    """Convert a value to the type of its setting; files give text, checkpoints give typed values."""
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    kinds = typing.get_args(hint) if is_union else (hint,)
    for kind in sorted(kinds, key=lambda kind: kind is not types.NoneType):  # null is no text
        with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
            return _as(kind, value)
    several = {int, float} & {*kinds} and re.match(r"\d[\d.]*,|\d+\.\.\d+$", shown(value))
    sweep = f"; {to_paste('experiments.sweep')} trains with each of several values" if several else ""
    raise UserError(f"{key}={shown(value)} must be {' or '.join(map(_spoken, kinds))}{sweep}")


BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
NULLS = dict.fromkeys((None, "null", "", "none", "None"))  # not YAML's ~, which is a character too
SPOKEN = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text", types.NoneType: "null"}


def _as(kind: Any, value: Any) -> Any:
    """Convert a value to a type that is no union. Raises an error if that loses something."""
    if kind is types.NoneType:
        return NULLS[value]
    if typing.get_origin(kind) is typing.Literal:
        names = typing.get_args(kind)
        return names[names.index(value)]
    if typing.get_origin(kind) is tuple:
        if isinstance(value, str) and (inside := re.fullmatch(r"\[([^\[\]]*)\]", value)):  # a file gives a list
            value = [item.strip() for item in inside[1].split(",") if item.strip()]
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return tuple(_as(typing.get_args(kind)[0], item) for item in value)
    if isinstance(value, str):
        value = BOOLS[value.lower()] if kind is bool else kind(value)
    elif kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or value == "" or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError
    return value + 0.0 if kind is float else value  # -0.0 is 0.0


def _spoken(kind: Any) -> str:
    """Return the name of a type for a message."""
    if typing.get_origin(kind) is typing.Literal:
        return f"one of {', '.join(typing.get_args(kind))}"
    return SPOKEN.get(kind, "a list in brackets")


def shown(value: Any) -> str:
    """Return a value as YAML has it, for a message."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
