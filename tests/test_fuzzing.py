"""Random input to everything that reads files or text: a result that is right, or an error in one line.

FUZZ_EXAMPLES=100000 tries so many inputs per test, with another seed each time.
"""

import dataclasses
import io
import json
import os
import re
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("hypothesis")
from helpers import differences, header_of, load_corpus, make_checkpoint, write_sealed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.errors import LONGEST_LINE, UserError, explain
from experiments.export.__main__ import model_card
from experiments.report.comparison import compare
from experiments.report.find_runs import find_runs
from experiments.report.findings import conclusions
from experiments.report.runs import make_run
from experiments.report.table import table
from training.config import Config
from training.config_file import load_config, to_yaml
from training.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from training.runs.metrics import read_newest_record, read_records
from training.runs.run_folder import RunFolder
from training.runtime import choose_runtime
from training.trained_model import TrainedModel

fuzz = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "25")),
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

SETTINGS = [f"{section}.{name}" for section, values in dataclasses.asdict(Config()).items() for name in values]
NASTY = r"""nan inf -inf -1 0 1 1e400 3e-4 0x10 1_000 ~ null true [] [1,2] [1,[2]] {} {a:1} '' "\x1b[31m" &a *a << 12:30
    [*a,*a] !!python/object:os.system learned auto muon 9999999999999999999999 0..3 0..1000000000 1,2,2 [8,4]"""
DEPTHS = st.sampled_from([15, 30, 900])
VALUES = (
    st.sampled_from(NASTY.split())
    | DEPTHS.map(lambda n: "- " * n)
    | DEPTHS.map(lambda n: "[" * n + "]" * n)
    | st.integers().map(str)
    | st.floats().map(str)
    | st.text(max_size=20)
)


def as_config(settings):
    """Return the bytes of a config with values by `section.name`."""
    sections = {}
    for key, value in settings:
        section, _, name = key.partition(".")
        sections.setdefault(section, []).append(f"  {name}: {value}\n")
    text = "".join(f"{section}:\n{''.join(lines)}" for section, lines in sections.items())
    return text.encode("utf-8", "surrogatepass")


CONFIGS = st.lists(st.tuples(st.sampled_from([*SETTINGS, "sweep.x", "extra.y"]), VALUES), max_size=6).map(as_config)


def assert_one_line(error):
    line = explain(error)
    assert line
    assert line.isprintable()  # so it has no line break
    assert len(line) < 2 * LONGEST_LINE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzzing")


@fuzz
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode) | CONFIGS)
def test_any_file_is_a_config_or_an_error_in_one_line(folder, content):
    (folder / "any.yaml").write_bytes(content)
    try:
        config = load_config(folder / "any.yaml")
    except UserError as error:
        assert_one_line(error)
        return
    (folder / "again.yaml").write_text(to_yaml(config), encoding="utf-8")
    assert load_config(folder / "again.yaml") == config


@fuzz
@given(
    content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode),
    encoding=st.sampled_from(["utf-8", "utf-16", "cp1252", "shift_jis", "utf-7", "unicode_escape"]),
)
def test_any_bytes_are_read_as_python_decodes_them(folder, content, encoding):
    (folder / "corpus.txt").write_bytes(content)
    try:
        expected = io.TextIOWrapper(io.BytesIO(content), encoding, newline="").read()
        expected.encode()  # no half of a surrogate pair
    except UnicodeError:
        expected = ""
    try:
        with tempfile.TemporaryDirectory() as cache:  # a new one: two texts of a size may be written at the same time
            corpus = load_corpus(str(folder / "corpus.txt"), encoding, cache=Path(cache))
    except ValueError as error:
        assert_one_line(error)
        assert len({*expected}) < 2  # a text of one character is an error, too
        return
    assert corpus.vocabulary.decode(corpus.ids[:]) == expected


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def spoilt(draw, value):
    """Draw a text in JSON: a value with a part, or the whole, replaced by anything, also by deep lists."""
    copy = {"": json.loads(json.dumps(value))}
    place, key = copy, ""
    while isinstance(place[key], (dict, list)) and place[key] and draw(st.integers(0, 4)):
        place = place[key]
        key = draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
    place[key] = draw(ANYTHING | DEPTHS.map(lambda n: f"DEPTH{n}"))
    return re.sub(r'"DEPTH(\d+)"', lambda n: "[" * int(n[1]) + "]" * int(n[1]), json.dumps(copy[""]))


def in_lines(*texts):
    return st.tuples(*texts).map(lambda lines: "".join(f"{line}\n" for line in lines).encode())


SIZES = {"val_characters": 9, "val_split_characters": 9, "val_context": 4}
EVALUATION = {"step": 5, "elapsed_s": 1.5, "corpus": "a", "val_passage": "c", "val_loss": 2.5, **SIZES}
END = {"step": 5, "elapsed_s": 2, "corpus": "a", "finished": True, "best_val_loss": 2.5, "machine": "CPU"}
END |= {"n_parameters": 9, "peak_memory_bytes": 8, "date": "2026-11-27", "commit": None}
ORIGIN = {"text": "a", "vocabulary": "b", "ancestor": None, "arithmetic": "c", "earlier": {}}
START = {"step": 1, "settings": dataclasses.asdict(Config()), "origin": ORIGIN}
RECORDS = [START, {"step": 2, "tokens_per_s": 7}, EVALUATION, END]
METRICS = in_lines(*map(spoilt, RECORDS)) | in_lines(*map(st.just, map(json.dumps, RECORDS[:3])), spoilt(END))
PLAN = {"model": {"n_layer": 1}, "sweep": {"train.seed": [0], "variants": {"a": {"optim.lr": 0.1}}}}
PACKED = in_lines(spoilt(PLAN) | st.just(json.dumps(PLAN)), spoilt({"point": "a,seed=0", "records": RECORDS}))


@fuzz
@given(content=PACKED)
def test_any_packed_sweep_has_a_report_or_is_an_error_in_one_line(folder, content):
    (folder / "any.jsonl").write_bytes(content)
    try:
        comparison = compare(find_runs([folder / "any.jsonl"])[0])
    except UserError as error:
        assert_one_line(error)
        return
    assert conclusions(comparison)
    assert len(table(comparison)) == 2


@fuzz
@given(content=st.binary(max_size=200) | METRICS, cut=st.integers(0, 25))
def test_any_metrics_are_records_or_an_error_in_one_line(folder, content, cut):
    (folder / "metrics.jsonl").write_bytes(content[: len(content) - cut])
    try:
        records = read_records(folder / "metrics.jsonl")
    except ValueError as error:
        assert_one_line(error)
        return
    assert repr(read_newest_record(folder / "metrics.jsonl")) == repr(records[-1] if records else {})  # NaN != NaN
    try:
        make_run(RunFolder(folder), records)
    except UserError as error:
        assert_one_line(error)


HEADER = header_of(make_checkpoint())
FIELDS = st.sampled_from([*HEADER]).flatmap(lambda name: st.tuples(st.just(name), spoilt(json.loads(HEADER[name]))))


@fuzz
@given(field=FIELDS)
def test_any_value_in_a_checkpoint_with_its_checksum_is_loaded_or_an_error_in_one_line(folder, field):
    write_sealed(folder / "any", make_checkpoint().tensors, HEADER | dict([field]))
    try:
        checkpoint = load_checkpoint(folder / "any")
    except CheckpointError as error:
        assert_one_line(error)
        return
    trained = TrainedModel(folder / "any", checkpoint, checkpoint.build_model(), choose_runtime("cpu", "float32"))
    assert model_card(trained, checkpoint, form="safetensors", name="a", licence=None)
    save_checkpoint(checkpoint, folder / "again")
    assert differences(load_checkpoint(folder / "again"), checkpoint) == []
