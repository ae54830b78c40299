"""AdamW without PyTorch's compiler, against PyTorch's own."""

import pytest
import torch
from conftest import ROOT
from helpers import run_python

from training.optim.without_compiler import AdamW

TRAIN = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import train
assert train.main(["--config", "tiny.yaml", *sys.argv[1:]]) == 0
assert train.main(["--resume", "runs/tiny", "train.max_steps=44"]) == 0
print([name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor", "sympy"))])
"""


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_training_and_resuming_do_not_import_the_compiler(workplace, optimizer):
    finished = run_python(["-c", TRAIN, f"optim.name={optimizer}", "train.device=cpu"], cwd=workplace)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("overflows", [False, True])
def test_a_step_equals_that_of_pytorch_to_the_last_bit(overflows):
    torch.manual_seed(0)
    ours, theirs = ([torch.nn.Parameter(torch.arange(40.0).view(5, 8).cos())] for _ in range(2))
    settings = {"lr": 0.03, "betas": (0.8, 0.95), "weight_decay": 0.1, "fused": True}
    optimizers = AdamW(ours, **settings), torch.optim.AdamW(theirs, **settings)
    for step in range(5):
        gradient = torch.randn(5, 8)
        for (parameter,), optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.found_inf = torch.tensor(float(overflows and step == 2))
            parameter.grad = gradient.clone()
            optimizer.step()
        assert torch.equal(*ours, *theirs)
    assert not ours[0].grad_fn
    assert str(optimizers[0].state_dict()) == str(optimizers[1].state_dict())
