import dataclasses
import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from prepared import run_prepared
from scipy import stats

from cli.options import replaceable
from experiments.report.significance import holm
from experiments.sweep.plan import make_plan
from training.config_file import read_settings

STUDIES = ROOT / "experiments" / "studies"
NAMES = ("README.md", "attention.md", "heads.md", "texts.md")
PAGES = "".join((STUDIES / name).read_text(encoding="utf-8") for name in NAMES)
REPORTS = re.findall(r"^python (-m experiments\.report experiments/studies/\w+/\w+\.jsonl .*)$", PAGES, re.MULTILINE)

# The 14 contrasts of the plan of heads.md by their numbers: part, variant, other variant, seeds.
FAMILY = {
    1: ("tuned", "8-heads", "4-heads", range(8, 16)),
    2: ("tuned", "16-heads", "8-heads", range(8, 16)),
    3: ("positions", "base-100,n_head=8,qk_norm=true", "base-10000,n_head=8,qk_norm=true", range(8, 16)),
    4: ("positions", "base-100,n_head=32,qk_norm=true", "base-10000,n_head=32,qk_norm=true", range(8, 16)),
    5: ("positions", "alibi,n_head=8,qk_norm=true", "base-10000,n_head=8,qk_norm=true", range(8, 16)),
    6: ("positions", "alibi,n_head=32,qk_norm=true", "base-10000,n_head=32,qk_norm=true", range(8, 16)),
    7: ("positions", "base-10000,n_head=8,qk_norm=false", "base-10000,n_head=8,qk_norm=true", range(8, 16)),
    8: ("positions", "base-10000,n_head=32,qk_norm=false", "base-10000,n_head=32,qk_norm=true", range(8, 16)),
    9: ("positions_800", "8-heads,-base-100", "8-heads", range(8, 12)),
    10: ("positions_800", "32-heads,-alibi,-no-norm", "32-heads", range(8, 12)),
    11: ("code_heads", "n_head=4", "n_head=2", range(8, 12)),
    12: ("code_heads", "n_head=8", "n_head=4", range(8, 12)),
    13: ("code_heads", "n_head=16", "n_head=8", range(8, 12)),
    14: ("code_recipe", "recipe", "plain", range(8, 12)),
}


def table_of(report):
    return (ROOT / shlex.split(report)[2]).with_suffix(".md")


def test_the_commands_of_the_studies_may_replace_their_files():
    for file in [*STUDIES.glob("*/*.svg"), *map(table_of, REPORTS)]:
        assert replaceable(file) == file


def packed_lines(part):
    (file,) = STUDIES.glob(f"*/{part}.jsonl")
    return file.read_text(encoding="utf-8").splitlines()


def packed_losses(part):
    """Return the lowest validation loss of each run of a packed sweep, by the name of its point."""
    runs = [json.loads(line) for line in packed_lines(part)[1:]]
    return {run["point"]: min(r["val_loss"] for r in run["records"] if "val_loss" in r) for run in runs}


def pairs(part, ours, theirs, seeds):
    losses = packed_losses(part)
    return [[losses[f"{variant},seed={seed}"] for seed in seeds] for variant in (ours, theirs)]


def test_the_table_of_the_plans_contrasts_is_that_of_scipy_with_one_adjustment():
    section = PAGES.partition("## The 14 contrasts of the plan")[2].partition("\n## ")[0].replace("\N{MINUS SIGN}", "-")
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if re.match(r"\| \d", line)]
    assert [int(row[0]) for row in cells] == [*FAMILY] == [*range(1, 15)]

    samples = {number: pairs(*contrast) for number, contrast in FAMILY.items()}
    found = {number: stats.ttest_rel(a, b) for number, (a, b) in samples.items()}
    beyond = {}
    for number, (a, b) in samples.items():
        differences = [x - y for x, y in zip(a, b, strict=True)]
        one_sided = (("less", 0.01), ("greater", -0.01))  # the margin of the plan, in nats per character
        beyond[number] = max(stats.ttest_1samp(differences, x, alternative=side).pvalue for side, x in one_sided)
    differ = dict(zip(found, holm([test.pvalue for test in found.values()]), strict=True))
    equal = dict(zip(beyond, holm([*beyond.values()]), strict=True))
    for number, (a, b) in samples.items():
        interval = found[number].confidence_interval(0.95)
        difference = f"{sum(a) / len(a) - sum(b) / len(b):+.4f} [{interval.low:.4f}, {interval.high:.4f}]"
        p_values = [f"{p:.4f}" if p >= 0.0001 else "<0.0001" for p in (differ[number], equal[number])]
        verdict = "equal within 0.01" if equal[number] < 0.05 else "undecided"
        assert cells[number - 1][2:] == [difference, *p_values, "significant" if differ[number] < 0.05 else verdict]


@pytest.mark.parametrize(
    ("part", "ours", "theirs", "seeds"),
    [
        *(("fixed_width", f"n_head={n}", f"n_head={n // 2}", range(8)) for n in (2, 4, 8, 16, 32)),
        *(("fixed_size", f"head_size=16,n_head={2 * n}", f"head_size=32,n_head={n}", range(8)) for n in (1, 2, 4)),
        *(("grouped", f"n_kv_head={n}", "n_kv_head=8", range(8)) for n in (1, 2, 4)),
        *(("per_layer", f"many-{when}", "same-number", range(8)) for when in ("early", "late")),
        *(("adamw_rate", f"n_head={n}", f"n_head={n // 2}", range(8)) for n in (2, 4, 8, 16, 32)),
        ("adamw_rate_2000", "8-heads", "4-heads", range(8, 12)),
        *(
            ("memory", f"both,max_steps={steps}", f"{other}-alone,max_steps={steps}", range(20, 23))
            for steps in (61, 122, 245, 490, 980, 2450)
            for other in ("attention", "n-grams")
        ),
        ("code", "both", "attention", range(20, 22)),
        ("copies", "longest_copy=16", "longest_copy=0", range(4)),
        *(("heads", f"ngrams=2-3-4-5-6,n_head={n}", f"ngrams=[],n_head={n}", range(8, 16)) for n in (1, 2, 4, 8, 16)),
    ],
)
def test_the_contrasts_of_the_page_are_those_of_scipy(part, ours, theirs, seeds):
    a, b = pairs(part, ours, theirs, seeds)
    found = stats.ttest_rel(a, b)
    interval = found.confidence_interval(0.95)
    mean = sum(a) / len(a) - sum(b) / len(b)
    page = " ".join(PAGES.split()).replace("\N{MINUS SIGN}", "-").replace("+", "")
    for sign in (1, -1):  # the page may name the difference in either direction
        low, high = sorted((sign * interval.low, sign * interval.high))
        if f"{sign * mean:.4f} [{low:.4f}, {high:.4f}]" in page:
            return
    raise AssertionError(f"{mean:.4f} [{interval.low:.4f}, {interval.high:.4f}]")


def test_the_table_of_what_each_part_is_worth_is_that_of_scipy():
    recipe = [packed_losses("parts")[f"recipe,seed={seed}"] for seed in range(4)]
    rows = []
    for part in ("parts", "adamw", "random_start", "one_matrix", "others"):
        losses = packed_losses(part)
        for variant in dict.fromkeys(point.rpartition("seed=")[0] for point in losses if "recipe" not in point):
            without = [losses[f"{variant}seed={seed}"] for seed in range(4)]
            interval = stats.ttest_rel(without, recipe).confidence_interval(0.95)
            difference = np.mean(without) - np.mean(recipe)
            rows.append(f"{difference:+.4f} [{interval.low:.4f}, {interval.high:.4f}]")
    section = PAGES.partition("## What each part is worth")[2].partition("\n## ")[0].replace("\N{MINUS SIGN}", "-")
    found = re.findall(r"\| ([+-][^|]*\[[^|]*\]) \|$", section, re.MULTILINE)
    assert sorted(found) == sorted(rows)
    assert f"{np.mean(recipe):.4f}" in section


@pytest.mark.parametrize("recipe", ["names", "selmere", "shakespeare_fast", "shakespeare"])
def test_the_loss_of_a_recipe_on_the_pages_is_that_of_its_four_runs(recipe):
    losses = packed_losses(recipe)
    assert [*losses] == [f"seed={seed}" for seed in range(4)]
    mean, deviation = np.mean([*losses.values()]), np.std([*losses.values()], ddof=1)
    assert f"| [`{recipe}.yaml`](../../configs/{recipe}.yaml) | {mean:.4f} ({deviation:.4f}) |" in PAGES
    if recipe.startswith("shakespeare"):
        assert f"million | {mean:.4f} |" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("sweep", ["texts_selmere", "texts_fast"])
def test_what_a_part_is_worth_on_other_texts_is_that_of_the_runs(sweep):
    losses = packed_losses(sweep)
    of_seeds = {point.partition("seed=")[0]: [] for point in losses}
    for point, loss in losses.items():
        of_seeds[point.partition("seed=")[0]].append(loss)
    for text in dict.fromkeys(point.partition(",corpus=")[2] for point in of_seeds):
        recipe, *others = (np.mean(of) for point, of in of_seeds.items() if point.endswith(f",corpus={text}"))
        row = " | ".join([f"{recipe:.4f}", *(f"{other - recipe:+.4f}" for other in others)])
        assert f" | {row} |".replace("-", "\N{MINUS SIGN}") in PAGES


def test_the_interactions_of_heads_and_ngrams_on_the_page_are_those_of_scipy():
    steps, found = {}, {}
    for n in (2, 4, 8, 16):
        of_both = [
            pairs("heads", f"ngrams={table},n_head={n}", f"ngrams={table},n_head={n // 2}", range(8, 16))
            for table in ("[]", "2-3-4-5-6")
        ]
        steps[n] = [[a - b for a, b in zip(more, fewer, strict=True)] for more, fewer in of_both]
        found[n] = stats.ttest_rel(*reversed(steps[n]))
    adjusted = holm([test.pvalue for test in found.values()])
    for (n, test), p in zip(found.items(), adjusted, strict=True):
        without, with_table = (sum(differences) / 8 for differences in steps[n])
        interval = test.confidence_interval(0.95)
        difference = f"{with_table - without:+.4f} [{interval.low:.4f}, {interval.high:.4f}]"
        row = f"| {n // 2} to {n} | {without:+.4f} | {with_table:+.4f} | {difference} | {p:.4f} |"
        assert row.replace("-", "\N{MINUS SIGN}") in PAGES


# The sweeps over positions vary a setting that is gone.
@pytest.mark.parametrize("sweep", [file for file in STUDIES.glob("*/*.yaml") if "positions" not in file.stem], ids=str)
def test_a_packed_part_has_the_settings_of_its_sweep(sweep):
    plans = make_plan(json.loads(packed_lines(sweep.stem)[0])), make_plan(read_settings(sweep))
    packed, ours = ([(point.name, dataclasses.asdict(point.config)) for point in plan.points] for plan in plans)
    for _, settings in packed + ours:
        del settings["train"]["name"]
    assert packed == ours


@pytest.mark.parametrize("patch", sorted(STUDIES.glob("*/*.patch")), ids=lambda patch: patch.stem)
def test_a_patch_of_a_study_still_applies(patch):
    assert subprocess.run(["git", "-C", str(ROOT), "apply", "--check", str(patch)]).returncode == 0


def without_charts(page):
    """Return the text of a report without its charts, of which the studies keep those that a page shows."""
    return re.sub(r"^!\[.*\n\n", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("table", [*filter(Path.exists, map(table_of, REPORTS))], ids=lambda table: table.stem)
def test_the_command_beside_a_table_reproduces_it(tmp_path, table):
    (report,) = [report for report in REPORTS if table_of(report) == table]
    finished = run_prepared([*shlex.split(report), "--output", str(tmp_path / table.name)], cwd=ROOT)
    assert finished.returncode == 0, finished.stderr
    assert without_charts(tmp_path / table.name) == without_charts(table)
