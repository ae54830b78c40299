"""The tables of the study of heads follow from the committed metrics."""

import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

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
