import os
import re
import subprocess
import sys

import pytest
import torch
from conftest import ROOT

from experiments import patches, pooling
from experiments.trace import EXAMPLE, example_layer, table
from model.attention import attend
from model.trace import trace_attention


def run_module(name, *arguments, cwd):
    command = [sys.executable, "-m", f"experiments.{name}", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def png_size(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])


def test_the_trace_prints_the_worked_example_and_every_shape(tmp_path):
    printed = run_module("trace", cwd=tmp_path).stdout
    for digits in ("1.1547", "9.2376", "8.9045e-04", "9.0884e-01", "1.8639      6.3194      1.7042"):
        assert digits in printed
    assert re.search(r"scores +\(32, 2, 20, 20\)", printed)
    assert table(trace_attention(example_layer(), EXAMPLE)) in printed


def test_a_learned_kernel_predicts_left_out_examples_better_than_a_fixed_one():
    torch.manual_seed(1)
    xs = torch.sort(torch.rand(50, dtype=torch.float64) * 5).values
    ys = pooling.true_function(xs) + 0.3 * torch.randn(50, dtype=torch.float64)
    others = ~torch.eye(50, dtype=torch.bool)

    def error(score):
        return (pooling.pool(score, xs, xs, ys, visible=others) - ys).square().mean().item()

    fitted = pooling.fit_width(xs, ys)
    with torch.no_grad():
        learned = error(fitted)
        widths = torch.linspace(0.2, 8, 100).tolist()
        best = min(error(pooling.Gaussian(w, learned=False).double()) for w in widths)
    assert learned < error(pooling.Gaussian(1.0).double()) < error(pooling.uniform)
    assert learned == pytest.approx(best, rel=0.01)


def test_the_picture_is_made_of_its_patches_row_by_row():
    image = patches.picture(torch.tensor(patches.PATCHES))
    assert image[:4].tolist() == image[4:].tolist()
    assert image[1].tolist() == [0, 1, 1, 0, 1, 1, 1, 1]
    assert image[3].tolist() == [0, 1, 1, 0, 0, 1, 1, 0]
    x = torch.tensor(patches.PATCHES, dtype=torch.float64)
    assert patches.picture(attend(x, x, x))[1, 0] == 0.5  # half of what is seen from a pale patch is dark


@pytest.mark.parametrize(("name", "printed"), [("pooling", "learned kernel, w ="), ("patches", "Drew out.png")])
def test_experiments_draw_a_picture(tmp_path, name, printed):
    pytest.importorskip("matplotlib")
    finished = run_module(name, "--output", "out.png", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert printed in finished.stdout
    width, height = png_size(tmp_path / "out.png")
    assert width > 1000
    assert height > 400


def test_drawing_without_matplotlib_is_a_line_that_says_what_to_install(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not installed')", encoding="utf-8")
    finished = run_module("patches", cwd=tmp_path)
    assert finished.returncode == 2
    assert finished.stderr == "experiments.patches: drawing needs matplotlib: pip install matplotlib\n"
