"""Read YAML and `section.key=value` overrides into a checked Config, and write a Config as YAML.

Every YAML value is read as text and converted to the declared type of its setting, so that `3e-4` is a number and
`012` is twelve, both in a file and on the command line.
"""

import contextlib
import dataclasses
import difflib
import math
import reprlib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cli.errors import UserError, checking_values
from training.config import Config

# Settings of earlier versions, and what to write instead.
REPLACED = {
    "data.val_fraction": "is now data.split=[training, validation, test], such as data.split=[0.9, 0.1, 0]",
    "train.sharded_checkpoints": "was removed, because process 0 always saves the whole checkpoint; leave it out",
}


class ConfigError(UserError):
    """An invalid config; the message gives the place and the reason in one sentence."""


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Return the config of a YAML file with `section.key=value` overrides applied.

    Raises ConfigError if the file is not a config, or a key, a type or a value is wrong.
    """
    settings = read_settings(path)
    with naming(path):
        return build_config(settings, overrides)


def load_run_config(path: Path) -> Config:
    """Return the config in a run folder, perhaps of an earlier version. Raises ConfigError as `load_config` does."""
    settings = read_settings(path)
    with naming(path):
        return build_config(upgraded(settings))


def upgraded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a run of an earlier version by today's names, with the values that applied then."""
    settings = {name: dict(section) if isinstance(section, Mapping) else section for name, section in settings.items()}
    if isinstance(model := settings.get("model"), dict):
        model.setdefault("qk_scale", "sqrt_head_size")
    if isinstance(data := settings.get("data"), dict) and "val_fraction" in data:
        with checking_values():
            fraction = float(data.pop("val_fraction"))
        data["split"] = [1 - fraction, fraction, 0]
    if isinstance(train := settings.get("train"), dict):
        train.pop("sharded_checkpoints", None)
    return settings


def read_settings(path: Path) -> dict[str, Any]:
    """Return a YAML file as nested mappings and lists of text. Raises ConfigError if it is not a config."""
    advice = "" if path.suffix in (".yaml", ".yml") else "; give a YAML file such as configs/selmere.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        others = {file.stem: file for folder in (Path("configs"), path.parent) for file in folder.glob("*.yaml")}
        close = difflib.get_close_matches(path.stem, others, n=1)
        hint = f"; did you mean {others[close[0]]}?" if close else ""
        place = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise ConfigError(f"{path}: no such file{place}{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read as a config ({reason}){advice}") from None
    try:
        settings = _StrictLoader(text).get_single_data()
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not a config ({_one_line(error)}){advice}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply to be a config") from None
    if not isinstance(settings, dict) or not settings:
        found = "empty" if not settings else f"a {type(settings).__name__}"
        raise ConfigError(f"{path}: is {found}; a config has sections: {', '.join(_fields(Config))}")
    return settings


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Prefix the user's mistakes inside the context with the file's path."""
    try:
        yield
    except UserError as error:
        raise ConfigError(f"{path}: {error}") from None


def build_config(settings: Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """Return the config of nested mappings with overrides applied. Raises UserError as `load_config` does."""
    settings = {name: dict(section) if isinstance(section, Mapping) else section for name, section in settings.items()}
    for override in overrides:
        section, name, value = split_override(override)
        settings[section] = settings.get(section) or {}
        if isinstance(settings[section], dict):  # anything else is reported below
            settings[section][name] = value
    sections = {}
    for section, values in settings.items():
        _check_key(section, _fields(Config), "")
        kind = typing.get_type_hints(Config)[section]
        if values in (None, ""):
            values = {}
        if not isinstance(values, Mapping):
            raise ConfigError(f"{section} must be a section of settings, not {_shown(values)}")
        for name in values:
            _check_key(name, _fields(kind), section)
        hints = typing.get_type_hints(kind)
        coerced = {name: _coerce(v, hints[name], f"{section}.{name}") for name, v in values.items()}
        with checking_values():
            sections[section] = kind(**coerced)
    with checking_values():
        return Config(**sections)


def split_override(override: str) -> tuple[str, str, str]:
    """Return section, name and value of `section.key=value`. Raises ConfigError if malformed or the key is unknown."""
    key, equals, value = override.partition("=")
    section, dot, name = key.partition(".")
    if equals and not dot and (keys := _keys_named(key)):
        raise ConfigError(f"{override!r} lacks a section; did you mean {keys[0]}={value}?")
    if not (equals and dot and section and name):
        raise ConfigError(
            f"{override!r} is not an override; write section.key=value without spaces, such as model.n_head=8 "
            "or data.corpus=my.txt"
        )
    _check_key(section, _fields(Config), "")
    _check_key(name, _fields(typing.get_type_hints(Config)[section]), section)
    return section, name, value


def to_dict(config: Config) -> dict[str, dict[str, Any]]:
    return dataclasses.asdict(config)


def to_yaml(config: Config) -> str:
    return dump_yaml(to_dict(config))


def dump_yaml(settings: Mapping[str, Any]) -> str:
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes every text so that it is read again as it was."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if "\x85" in text else None  # PyYAML writes this line break as it is, and reads it as a space
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


class _StrictLoader(yaml.BaseLoader):
    """Loads strings, lists and mappings only; a duplicate key is an error."""

    def construct_mapping(self, node, deep=False):
        seen: dict[str, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key_node.start_mark)
            if key in seen:
                problem = f"{key!r} is given twice, in lines {seen[key]} and {key_node.start_mark.line + 1}"
                raise yaml.constructor.ConstructorError(None, None, problem, None)
            seen[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep)


def _fields(kind: type) -> list[str]:
    return [f.name for f in dataclasses.fields(kind)]


def _keys_named(name: str) -> list[str]:
    return [f"{section}.{name}" for section, kind in typing.get_type_hints(Config).items() if name in _fields(kind)]


def _check_key(key: str, known: list[str], section: str) -> None:
    if key in known:
        return
    full = f"{section}.{key}" if section else key
    elsewhere = _keys_named(key)
    if full in REPLACED:
        raise ConfigError(f"{full} {REPLACED[full]}")
    close = elsewhere or [f"{section}.{k}" if section else k for k in difflib.get_close_matches(key, known, n=1)]
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
    raise ConfigError(f"unknown key {full}; {hint}")


def _coerce(value: Any, hint: Any, key: str) -> Any:
    """Convert a value to its setting's type; files give text, checkpoints give typed values."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return _coerce_union(value, typing.get_args(hint), key)
    if typing.get_origin(hint) is tuple:
        item_type, _ = typing.get_args(hint)
        if not _is_list(value):
            raise ConfigError(f"{key}={_shown(value)} must be a list in brackets")
        if isinstance(value, str):  # from an override; a file gives a list
            value = [item.strip() for item in value.strip("[]").split(",") if item.strip()]
        return tuple(_coerce(item, item_type, key) for item in value)
    if typing.get_origin(hint) is typing.Literal:
        options = typing.get_args(hint)
        if value in options:
            return value
        close = difflib.get_close_matches(str(value), options, n=1)
        hint_text = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"{key}={_shown(value)} must be one of {', '.join(options)}{hint_text}")
    try:
        return _convert(value, hint)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise ConfigError(f"{key}={_shown(value)} must be {_SPOKEN[hint]}") from None


def _coerce_union(value: Any, kinds: tuple, key: str) -> Any:
    """Convert a value of X | None, X | tuple[X, ...] or Literal[...] | X."""
    kind, other = kinds
    if typing.get_origin(kind) is typing.Literal:
        names = typing.get_args(kind)
        if value in names:
            return value
        try:
            return _coerce(value, other, key)
        except ConfigError:
            raise ConfigError(f"{key}={_shown(value)} must be {_SPOKEN[other]}, {' or '.join(names)}") from None
    if other is type(None) and (value is None or value in ("null", "~", "", "none", "None")):
        return None
    return _coerce(value, other if other is not type(None) and _is_list(value) else kind, key)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (isinstance(value, str) and value.startswith("["))


def _convert(value: Any, kind: type) -> Any:
    """Convert a value to bool, int, float or str. Raises UserError, TypeError or KeyError if that loses something."""
    if isinstance(value, kind) and kind in (bool, str) and value != "":
        return value
    if kind is bool:
        return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}[value.lower()]
    if kind is str or isinstance(value, bool) or (kind is int and isinstance(value, float)):
        raise TypeError
    if not math.isfinite(number := kind(value)):
        raise ValueError
    return number


_SPOKEN = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else reprlib.repr(value)  # bounded: YAML aliases can describe huge values
    return text if len(text) <= 60 else f"{text[:57]}..."


def _one_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}: {problem}" if mark else problem
