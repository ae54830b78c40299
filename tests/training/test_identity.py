import shutil
from pathlib import Path

import pytest
from conftest import TINY_TEXT
from helpers import differences, losses, metrics, resume, train_run

from experiments.report.find_runs import find_runs
from page.models import warning
from training.config import Config
from training.config_file import KEYS, build_config
from training.identity import RESOLVED, WITHOUT_EFFECT, identity_of, measurement_of, what_differs
from training.runs.checkpoint import load_checkpoint
from training.runs.open_run import open_run
from training.runs.run_folder import RunFolder
from training.runtime import choose_runtime
from training.trained_model import load_model

# For each setting that is no part of the identity, another value with which a run has the same weights and losses.
SAME_RUN = {
    "train.name": "other",
    "train.log_every_steps": "3",
    "train.keep_checkpoints": "3",
    "train.sample_length": "0",
    "train.logger": "tensorboard",
    "data.corpus": "copy.txt",
    "data.characters": "beer",
    "data.lines": "true",
    "train.device": "cpu",
    "train.dtype": str(choose_runtime("cpu", "auto").dtype).removeprefix("torch."),
}


def run(name, *settings):
    return train_run(name, "train.max_steps=4", "train.eval_every_steps=2", *settings)


def identities(*runs):
    return [load_checkpoint(run.latest).identity for run in runs]


def variants(*runs):
    found = find_runs([run.path for run in runs])[0]
    return [[each.folder.path.name for each in variant.runs.values()] for variant in found]


def test_every_setting_is_a_part_of_the_identity_or_listed_as_one_that_is_not():
    identity = identity_of(Config(), {"text": "of some origin"})
    assert identity.keys() - {"text"} | WITHOUT_EFFECT | RESOLVED == {*KEYS}
    assert not identity.keys() & (WITHOUT_EFFECT | RESOLVED)
    assert SAME_RUN.keys() | {"data.val_corpus", "train.ancestor"} == WITHOUT_EFFECT | RESOLVED  # tested below


@pytest.mark.slow
@pytest.mark.parametrize("key", SAME_RUN)
def test_a_setting_that_is_no_part_of_the_identity_changes_no_weight_and_no_loss(workplace, key):
    if SAME_RUN[key] == "tensorboard":
        pytest.importorskip("tensorboard")
    shutil.copy("text.txt", "copy.txt")
    one, other = run("plain"), run("other", f"{key}={SAME_RUN[key]}")
    assert {"model" in name for name in differences(*map(load_checkpoint, (one.latest, other.latest)))} <= {False}
    assert losses(one.path) == losses(other.path)
    assert what_differs(identities(one, other)) == []


def test_a_validation_text_and_an_ancestor_are_known_by_their_content(workplace):
    Path("val.txt").write_text(TINY_TEXT[:300])
    shutil.copy("val.txt", "copy.txt")
    one, copy = run("one", "data.val_corpus=val.txt"), run("copy", "data.val_corpus=copy.txt")
    assert what_differs(identities(one, copy)) == []
    Path("copy.txt").write_text(TINY_TEXT[1:301])
    assert what_differs(identities(one, run("other", "data.val_corpus=copy.txt"))) == ["text"]

    first = run("first", "train.ancestor=runs/one")
    shutil.move("runs/one", "runs/moved")
    moved = run("moved-ancestor", "train.ancestor=runs/moved", "train.seed=1")
    assert variants(first, moved) == [["first", "moved-ancestor"]]
    shutil.move("runs/copy", "runs/one")  # the same path, other weights
    Path("copy.txt").write_text(TINY_TEXT[:300])
    resume(RunFolder(Path("runs/one")), "train.max_steps=5")
    changed = run("changed", "train.ancestor=runs/one", "train.seed=1")
    assert variants(first, changed) == [["first"], ["changed"]]
    assert what_differs(identities(first, changed)) == ["ancestor"]


@pytest.mark.parametrize(
    ("setting", "differing"),
    [
        ("data.characters=äöü", ["vocabulary"]),
        ("data.encoding=latin-1", ["data.encoding"]),
        ("optim.lr=0.002", ["optim.lr"]),
        ("train.eval_every_steps=1", ["train.eval_every_steps"]),
    ],
)
def test_runs_that_differ_in_more_than_the_seed_are_no_seeds_of_one_variant(workplace, setting, differing):
    one, seed, other = run("one"), run("seed", "train.seed=1"), run("other", setting, "train.seed=2")
    assert variants(one, seed) == [["one", "seed"]]
    assert variants(one, seed, other) == [["one", "seed"], ["other"]]
    assert what_differs(identities(one, other)) == differing


@pytest.mark.parametrize(
    ("first", "second", "differing"),
    [
        ([], ["data.corpus=folder/copy.txt", "model.n_head=2"], []),
        ([], ["data.corpus=folder/text.txt"], ["text"]),
        ([], ["data.encoding=latin-1"], ["data.encoding"]),
        ([], ["data.split=[0.8, 0.1, 0.1]"], ["data.split"]),
        ([], ["model.block_size=8"], ["model.block_size"]),
        ([], ["train.eval_characters=32"], ["train.eval_characters"]),
        ([], ["data.val_corpus=folder/text.txt"], ["text", "data.split"]),
        (["data.val_corpus=folder/text.txt"], ["data.corpus=folder/other.txt", "data.val_corpus=folder/text.txt"], []),
    ],
)
def test_losses_are_compared_by_reports_and_pages_if_they_were_measured_on_the_same(
    workplace, first, second, differing
):
    Path("folder").mkdir()
    shutil.copy("text.txt", "folder/copy.txt")
    for name, lines in (("text.txt", 30), ("other.txt", 20)):
        Path("folder", name).write_text("".join(TINY_TEXT.splitlines(keepends=True)[:lines]))
    one, other = run("one", *first), run("other", *second)
    assert what_differs([*map(measurement_of, identities(one, other))]) == differing
    measured = {variant.first.measured_on for variant in find_runs([one.path, other.path])[0]}
    assert len(measured) == (2 if differing else 1)
    sentence = "Do not compare these models' losses or surprise: they were measured with another"
    assert warning([load_model(each.path, "cpu") for each in (one, other)]) == (
        f"{sentence} {', '.join(differing)}." if differing else ""
    )


def test_a_run_whose_settings_were_changed_differs_from_one_that_had_them_from_the_start(workplace):
    whole, parts, again = run("whole"), run("parts", "train.max_steps=2"), run("again", "train.max_steps=2")
    for each in (parts, again):
        resume(each, "train.max_steps=4")
    of_whole, of_parts, of_again = identities(whole, parts, again)
    assert what_differs([of_whole, of_parts]) == ["earlier"]
    assert of_parts["earlier"] == {"2": {"train.max_steps": 2}}
    assert what_differs([of_parts, of_again]) == []
    (record,) = [record for record in metrics(parts.path) if "changes" in record]
    assert identity_of(build_config(record["settings"]), record["origin"]) == of_parts
    labels = [variant.label for variant in find_runs([whole.path, parts.path])[0]]
    assert labels == ["earlier=none", "earlier=max_steps 2 until step 2"]


def test_a_change_that_is_undone_before_the_next_step_leaves_no_trace(workplace):
    parts = run("parts", "train.max_steps=2")
    (whole,) = identities(parts)
    for max_steps, earlier in ((9, {"2": {"train.max_steps": 2}}), (2, {})):
        with open_run(None, parts.path, [f"train.max_steps={max_steps}"]):
            pass  # it ends before its next step
        assert identities(parts)[0]["earlier"] == earlier
    assert identities(parts) == [whole]
