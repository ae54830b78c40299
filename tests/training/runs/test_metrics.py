import json

import pytest

from training.runs.metrics import read_newest_record, read_records
from training.runs.run_folder import RunFolder, cut_records

EVALUATION = {"step": 3, "elapsed_s": 4.5, "corpus": "a", "val_loss": 1.25, "val_passage": "b"}
EVALUATION |= dict.fromkeys(("val_characters", "val_split_characters", "val_context"), 9)
RECORDS = [{"step": 1, "train_loss": 2.5}, {"step": 2, "corpus": "明月\n\u2028"}, EVALUATION]
WRONG = [b'{"step": -1}', b'{"step": true}', b'{"step": 1, "machine": 5}']
WRONG += [b'{"step": 1, "tokens_per_s": NaN}', b'{"step": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
INCOMPLETE = [b'{"train_loss": 2.5}', b'{"step": 1, "val_loss": 1.25}', b'{"step": 1, "finished": true}']


@pytest.fixture
def path(tmp_path):
    run = RunFolder(tmp_path)
    for record in RECORDS:
        run.add_record(record)
    return run.metrics


def test_every_line_is_a_json_record(path):
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]] == RECORDS
    assert read_records(path) == RECORDS
    assert read_newest_record(path) == RECORDS[-1]


def test_an_incomplete_last_line_is_ignored(path):
    whole = path.read_bytes()
    for n_cut in range(1, len(json.dumps(RECORDS[-1])) + 2):
        path.write_bytes(whole[:-n_cut])
        assert read_records(path) == RECORDS[:2]
        assert read_newest_record(path) == RECORDS[1]


@pytest.mark.parametrize("settings", ['{"a": {}}', '{"model": {"qk_scale": 9}}'])
def test_settings_that_this_version_does_not_have_are_no_damage(path, settings):
    path.write_text(f'{{"step": 1, "settings": {settings}}}\n')
    message = r"metrics\.jsonl, line 1: this version cannot read its settings \(try commit c797c4b .*\): "
    with pytest.raises(ValueError, match=message):
        read_records(path)


@pytest.mark.parametrize("content", [b"", b'{"step": 1'])
def test_a_file_without_a_complete_record_has_no_records(tmp_path, content):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    assert (read_records(path), read_newest_record(path)) == ([], {})
    assert read_newest_record(tmp_path / "missing.jsonl") == {}


@pytest.mark.parametrize("damage", [b'{"step": 2, "va', b"", b"\0\0\0", b"[1]", b"\xff\xfe", *INCOMPLETE, *WRONG])
def test_the_error_for_a_damaged_line_names_the_file_and_the_line(path, damage):
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], damage, *lines[2:]]))
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: is damaged") as error:
        read_records(path)
    assert "\n" not in str(error.value)
    path.write_bytes(b"\n".join([*lines[:2], damage, b""]))
    with pytest.raises(ValueError, match=r"metrics\.jsonl, last line: is damaged"):
        read_newest_record(path)


def test_records_after_a_step_are_cut_even_if_a_person_has_removed_a_damaged_line(path):
    n_bytes, newest = path.stat().st_size, {"step": 3, "changes": []}
    for record in (newest, {"step": 4, "train_loss": 1.5}):
        RunFolder(path.parent).add_record(record)
    path.write_bytes(path.read_bytes().partition(b"\n")[2] + b'{"step": 5')
    cut_records(path, 3, n_bytes)
    assert read_records(path) == [*RECORDS[1:], newest]
    RunFolder(path.parent).add_record({"step": 4})
    cut_records(path, 3, len("".join(json.dumps(record) + "\n" for record in RECORDS[1:])))
    assert read_records(path) == RECORDS[1:]
