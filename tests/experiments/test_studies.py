"""The tables of the study of heads follow from the committed metrics."""

import json
import re
import shlex
import subprocess

import pytest
from conftest import ROOT
from helpers import run_python

from experiments.benchmark.measurements import read_variants
from model.gpt import GPT

STUDIES = ROOT / "experiments" / "studies"
REPORTS = re.findall(
    r"^python (-m experiments\.report experiments/studies/heads/\w+\.jsonl .*)$",
    (STUDIES / "heads.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)

PLANNED = ("rates", "rates_quarter", "tuned", "positions")  # the parts of plan.md


def test_every_part_of_the_study_has_a_command():
    packed = {path.name for path in (STUDIES / "heads").glob("*.jsonl")}
    assert {shlex.split(report)[2].rpartition("/")[2] for report in REPORTS} == packed
    assert len(packed) >= 8


def packed_losses(part):
    """Return the lowest validation loss of each run of a packed sweep, by the name of its point."""
    lines = (STUDIES / "heads" / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [json.loads(line) for line in lines[1:]]
    return {run["point"]: min(r["val_loss"] for r in run["records"] if "val_loss" in r) for run in runs}


def points(variant, seeds):
    return [f"{variant},seed={seed}" for seed in seeds]


@pytest.mark.parametrize(
    ("part", "ours", "theirs", "seeds"),
    [
        *(("fixed_width", f"n_head={n}", f"n_head={n // 2}", range(8)) for n in (2, 4, 8, 16, 32)),
        *(("fixed_size", f"head_size=16,n_head={2 * n}", f"head_size=32,n_head={n}", range(8)) for n in (1, 2, 4)),
        *(("grouped", f"n_kv_head={n}", "n_kv_head=8", range(8)) for n in (1, 2, 4)),
        *(("per_layer", f"many-{when}", "same-number", range(8)) for when in ("early", "late")),
        ("tuned", "8-heads", "4-heads", range(8, 16)),
        *(
            ("positions", f"{ours},n_head={n},{norm}", f"base-10000,n_head={n},qk_norm=true", range(8, 16))
            for ours, norm in (("base-100", "qk_norm=true"), ("alibi", "qk_norm=true"), ("base-10000", "qk_norm=false"))
            for n in (8, 32)
        ),
    ],
)
def test_the_contrasts_of_the_page_are_those_of_scipy(part, ours, theirs, seeds):
    stats = pytest.importorskip("scipy.stats")
    losses = packed_losses(part)
    a, b = ([losses[point] for point in points(variant, seeds)] for variant in (ours, theirs))
    found = stats.ttest_rel(a, b)
    interval = found.confidence_interval(0.95)
    mean = sum(a) / len(a) - sum(b) / len(b)
    page = " ".join((STUDIES / "heads.md").read_text(encoding="utf-8").split())
    page = page.replace("\N{MINUS SIGN}", "-").replace("+", "")
    for sign in (1, -1):  # the page may name the difference in either direction
        low, high = sorted((sign * interval.low, sign * interval.high))
        if f"{sign * mean:.4f} [{low:.4f}, {high:.4f}]" in page:
            return
    raise AssertionError(f"{mean:.4f} [{interval.low:.4f}, {interval.high:.4f}]")


@pytest.mark.parametrize("part", PLANNED)
def test_the_commit_that_trained_a_part_already_contained_the_plan(part):
    lines = (STUDIES / "heads" / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    for commit in {json.loads(line)["records"][-1]["commit"] for line in lines}:
        command = ["git", "-C", str(ROOT), "show", f"{commit}:experiments/studies/heads/plan.md"]
        found = subprocess.run(command, capture_output=True)
        if found.returncode:
            pytest.skip("this checkout lacks the history")
        assert found.stdout == (STUDIES / "heads/plan.md").read_bytes()


def test_the_variants_of_the_study_of_scaling_are_valid_and_have_the_sizes_that_their_names_give():
    variants = read_variants(STUDIES / "scaling.yaml", [])
    for name, config in variants.items():
        *_, size = name.split()
        if "context" in name:
            assert (config.model.block_size, config.model.block_size * config.train.batch_size) == (
                int(size.replace(",", "")),
                8192,
            )
        else:
            millions = GPT(config.model, 65).n_parameters() / 1e6
            assert millions == pytest.approx(float(name.partition("M")[0]), rel=0.1)
    assert len(variants) == 9
    assert [config.train.processes for config in read_variants(STUDIES / "processes.yaml", []).values()] == [1, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.split("/")[-1].split(".")[0])
def test_the_command_beside_a_table_reproduces_it(tmp_path, report):
    pytest.importorskip("matplotlib")
    module, name, packed, *options = shlex.split(report)
    part = packed.removesuffix(".jsonl")
    output = tmp_path / part.rpartition("/")[2]
    finished = run_python([module, name, packed, *options, "--output", output], cwd=ROOT)
    assert finished.returncode == 0, finished.stderr
    written = tmp_path / f"{part.rpartition('/')[2]}.md"
    assert written.read_text(encoding="utf-8") == (ROOT / f"{part}.md").read_text(encoding="utf-8")
