"""The tables of the study of heads follow from the committed metrics."""

import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

from experiments.benchmark.measurements import read_variants
from model.gpt import GPT

STUDIES = ROOT / "experiments" / "studies"
REPORTS = re.findall(
    r"^python (-m experiments\.report experiments/studies/heads/\w+\.jsonl .*)$",
    (STUDIES / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_every_part_of_the_study_has_a_command():
    packed = {path.name for path in (STUDIES / "heads").glob("*.jsonl")}
    assert {shlex.split(report)[2].rpartition("/")[2] for report in REPORTS} == packed
    assert len(packed) == 4


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
    command = [sys.executable, module, name, packed, *options, "--output", str(tmp_path / part.rpartition("/")[2])]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=300)
    assert finished.returncode == 0, finished.stderr
    written = tmp_path / f"{part.rpartition('/')[2]}.md"
    assert written.read_text(encoding="utf-8") == (ROOT / f"{part}.md").read_text(encoding="utf-8")
