"""The page about other tools is correct: its lines run with the real packages."""

import os
import re
import subprocess

import pytest
from conftest import ROOT, train_tiny
from helpers import new_environment


@pytest.mark.nightly
def test_the_lines_for_other_tools_run_with_the_real_packages(tmp_path):
    python = new_environment(tmp_path / "environment", "bertviz", "captum", "nnsight", "optuna")
    train_tiny(tmp_path, "train.name=shakespeare", "model.block_size=32", "data.characters=Tobe, rnt", "model.n_head=4")
    page = (ROOT / "experiments/other_tools.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        if "exported/gpt2" not in block:
            block = block.replace("configs/selmere.yaml", "tiny.yaml").replace("n_trials=20", "n_trials=1")
            (tmp_path / "block.py").write_text(block, encoding="utf-8")
            subprocess.run([python, "block.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    assert (tmp_path / "attention.html").is_file()
