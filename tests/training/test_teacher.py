"""Runs that learn from the probabilities of an earlier one."""

import copy
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_mistake, differences, make_state, resume, train_run

import train
from data.batches import TrainingBatches
from experiments.report.__main__ import main as report
from experiments.report.find_runs import find_runs
from experiments.sweep.__main__ import main as sweep
from training.runs.checkpoint import load_checkpoint
from training.runs.differences import open_teacher
from training.state import TrainingState
from training.step import TrainingStep

MEMORIES = ["model.ngrams=[2]", "model.ngram_rows=50", "model.longest_copy=4", "model.counted_characters=900"]
STUDENT = ["train.teacher=runs/old", "model.dropout=0", "train.dtype=float32"]


@pytest.fixture
def teacher(workplace):
    """Return the checkpoint of a run with all memories and counts."""
    return train_run("old", "train.dtype=float32", "train.max_steps=20", *MEMORIES).latest


def student_state(*settings):
    state = make_state(*STUDENT, "train.seed=4", *settings)
    return TrainingState(state.config, state.corpus, state.runtime, open_teacher(state.config, state.corpus))


@torch.no_grad()
def probabilities_of(teacher, inputs):
    """Return the probabilities of its network alone, in float64."""
    network = load_checkpoint(teacher).build_model().double()
    network.counts = None
    return (network(inputs) / 1.1).softmax(-1)


def test_half_of_the_gradient_is_that_of_the_divergence_from_the_teachers_network(teacher):
    state = student_state("train.accumulate=2")
    for parameter in state.model.parameters():  # initial zeros would hide the other gradients
        torch.nn.init.normal_(parameter, std=0.3)
    exact, gradients = copy.deepcopy(state.model).double(), []
    batches = TrainingBatches(state.split.train, block_size=16, batch_size=5, seed=4)
    inputs, targets = (torch.cat(ids) for ids in zip(*(batches.at(first) for first in (0, 5)), strict=True))
    logits = exact(inputs).flatten(0, 1)
    text_loss = F.cross_entropy(logits, targets.flatten())
    taught = probabilities_of(teacher, inputs).flatten(0, 1)
    divergence = F.kl_div(logits.log_softmax(-1), taught, reduction="batchmean")
    expected = torch.autograd.grad((text_loss + divergence) / 2, [*exact.parameters()])
    state.optimizers[0].register_step_pre_hook(
        lambda *_: gradients.extend(p.grad.clone() for p in state.model.parameters())
    )
    TrainingStep(state).run()
    for found, gradient in zip(gradients, expected, strict=True):
        torch.testing.assert_close(found.double(), gradient, rtol=1e-4, atol=1e-6)
    assert state.take_mean_loss() == pytest.approx(text_loss.item(), rel=1e-5)  # the loss that is reported


def test_a_step_does_not_change_the_teacher(teacher):
    state = student_state()
    before = copy.deepcopy(state.teacher.model.state_dict())
    TrainingStep(state).run()
    after = state.teacher.model.state_dict()
    assert all(torch.equal(x, after[name]) for name, x in before.items())
    assert state.teacher.digest == load_checkpoint(teacher).weights_digest()[:16]


def test_a_student_resumes_exactly_even_if_its_teacher_has_moved(teacher, capsys):
    common = ["train.dtype=float32", "optim.decay_fraction=0", "optim.average_fraction=0.2"]
    options = ["--config", "tiny.yaml", "--teacher", "runs/old", *common]
    assert train.main([*options, "train.name=whole", "train.max_steps=30"]) == 0
    assert "Half of the loss comes from the probabilities of runs/old" in capsys.readouterr().out
    parts = train_run("parts", "train.teacher=runs/old", *common, "train.max_steps=10")
    shutil.move("runs/old", "runs/moved")
    resume(parts, "train.max_steps=30", status=2)
    assert "runs/old: no such run or checkpoint" in capsys.readouterr().err
    resume(parts, "train.max_steps=30", "train.teacher=runs/moved")
    whole = load_checkpoint(Path("runs/whole/checkpoints/latest.safetensors"))
    assert differences(whole, load_checkpoint(parts.latest)) == ["settings"]  # the path of the teacher


def test_the_teacher_of_a_run_cannot_change(teacher, capsys):
    student = train_run("student", *STUDENT, "train.max_steps=10")
    train_run("other", "train.dtype=float32", "train.max_steps=2")
    for other in ("runs/other", "null"):
        resume(student, "train.max_steps=20", f"train.teacher={other}", status=2)
        assert "the SHA-256 of the teacher's weights was " in capsys.readouterr().err
    plain = train_run("plain", "train.dtype=float32", "train.max_steps=10")
    resume(plain, "train.max_steps=20", "train.teacher=runs/old", status=2)
    assert "the SHA-256 of the teacher's weights was null and is " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.teacher=runs/gone"], "train.teacher: runs/gone: no such run or checkpoint"),
        (["data.split=[0.8,0.1,0.1]"], "has another data.split than this run, so it may have learned what the run is"),
        (["data.corpus=other.txt"], "has another text than this run"),
        (["data.val_corpus=other.txt"], "has another text and training text than this run"),
        (["data.characters=ß"], "has another vocabulary than this run"),
        (["train.teacher=runs/tuned"], "has another ancestor than this run"),
        (["model.block_size=32"], "has a context length of 16; it needs 32 or more"),
    ],
)
def test_a_model_that_cannot_be_the_teacher_is_an_error_before_anything_is_written(teacher, capsys, settings, message):
    text = Path("text.txt").read_text()
    Path("other.txt").write_text(text[::-1])
    train_run("tuned", "train.ancestor=runs/old", *MEMORIES, "train.max_steps=1")
    assert_mistake(capsys, train.main, ["--config", "tiny.yaml", "train.teacher=runs/old", *settings], message)
    assert {folder.name for folder in Path("runs").iterdir()} == {"old", "tuned"}


def test_a_sweep_compares_runs_with_and_without_a_teacher_and_the_report_says_so(teacher):
    values = ["train.teacher=null,runs/old", "train.seed=0,1", "train.max_steps=2", "train.dtype=float32"]
    assert sweep(["--config", "tiny.yaml", "train.name=sweep", *values]) == 0
    page = Path("runs/sweep/report.md").read_text()
    assert "2 of 4 runs learned from the teacher runs/old." in page
    assert "| teacher=runs/old |" in page


def test_runs_from_before_there_were_teachers_are_seeds_of_the_same_variant_and_can_be_packed(workplace):
    values = ["--config", "tiny.yaml", "train.name=sweep", "train.max_steps=2", "train.dtype=float32"]
    assert sweep([*values, "train.seed=0,1"]) == 0
    metrics = Path("runs/sweep/seed=0/metrics.jsonl")
    before = metrics.read_text()
    metrics.write_text(before.replace('"teacher": null, ', ""))
    assert len(metrics.read_text()) < len(before)
    assert len(find_runs([Path("runs/sweep")]).variants) == 1
    assert report(["runs/sweep", "--pack", "sweep.jsonl"]) == 0


def test_a_smaller_student_learns_from_a_larger_teacher(teacher):
    small = train_run("small", *STUDENT, "model.n_layer=1", "model.block_size=8", "train.max_steps=5")
    assert load_checkpoint(small.latest).step == 5
