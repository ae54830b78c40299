import sys

import pytest
import torch
from conftest import ROOT, run_command

from model.config import ModelConfig
from model.gpt import GPT
from training.config import OptimConfig
from training.optim.muon import Muon, orthogonalise
from training.optim.optimizers import make_optimizers, set_lr
from training.optim.quick_start import SGD, AdamW


@pytest.mark.parametrize("shape", [(3, 16, 40), (2, 24, 24), (1, 48, 100), (2, 64, 256)], ids=str)
@pytest.mark.parametrize("rank", [3, 8])
def test_the_iteration_in_float32_is_as_precise_as_the_published_one(shape, rank):
    def published(x):
        x = x / x.norm(dim=(1, 2), keepdim=True)
        for _ in range(5):
            gram = x @ x.mT
            x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
        return x

    torch.manual_seed(0)
    n, rows, columns = shape
    matrices = torch.randn(n, rows, rank) @ torch.randn(n, rank, columns) + 0.01 * torch.randn(shape)
    exact = published(matrices.double())
    ours = orthogonalise(matrices, dtype=torch.float32)
    assert (ours - exact).norm() < 1.3 * (published(matrices) - exact).norm()


def test_muon_equals_pytorchs_muon():
    def weights_after(kind, **options):
        torch.manual_seed(1)
        params = [torch.nn.Parameter(torch.randn(shape)) for shape in ((8, 8), (24, 8), (8, 24), (24, 8), (5, 7))]
        optimizer = kind(params, lr=0.02, weight_decay=0.0, **options)  # and a momentum of 0.95
        for _ in range(5):
            for p in params:
                p.grad = torch.randn_like(p)
            optimizer.step()
        return params

    for ours, theirs in zip(weights_after(Muon), weights_after(torch.optim.Muon), strict=True):
        # Both orthogonalise in bfloat16, which rounds a batched product and a single one differently.
        torch.testing.assert_close(ours, theirs, atol=3e-3, rtol=0)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (24, 8)], ids=str)
def test_weight_decay_of_muon_shrinks_only_the_weights_that_the_update_moves_towards_0(shape):
    def weight_after(decay):
        torch.manual_seed(3)
        p = torch.nn.Parameter(torch.randn(shape))
        optimizer = Muon([p], lr=0.1, weight_decay=decay, dtype=torch.float32)
        before = p.detach().clone()
        p.grad = torch.randn_like(p)
        optimizer.step()
        return before, p.detach()

    before, plain = weight_after(0.0)
    _, decayed = weight_after(0.5)
    towards_0 = before * (plain - before) < 0
    assert 0.2 < towards_0.float().mean() < 0.8
    torch.testing.assert_close(decayed, plain - torch.where(towards_0, 0.1 * 0.5 * before, 0))


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_every_parameter_belongs_to_one_group_and_only_matrices_of_blocks_and_the_head_decay(name):
    model = GPT(ModelConfig(n_layer=2, n_embd=16, n_head=2, norm="layer", bias=True, positions="learned"), 11)
    settings = {"lr": 1e-3, "muon_lr": 0.05, "weight_decay": 0.3, "lm_head_weight_decay": 0.7}
    optimizers = make_optimizers(model, OptimConfig(name=name, **settings))
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    names = {id(p): n for n, p in model.named_parameters()}
    assert "blocks.0.attention.qk_norm.log_scale" in names.values()
    (head,) = [group for group in groups if any(p is model.lm_head.weight for p in group["params"])]
    assert head["weight_decay"] == 0.7
    head["weight_decay"] = 0.0
    decayed = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    assert decayed == {n for n in names.values() if n.startswith("blocks") and n.endswith("weight") and "norm" not in n}
    set_lr(optimizers, 0.5)
    rates = {names[id(p)]: group["lr"] for group in groups for p in group["params"]}
    assert rates["lm_head.weight"] == 0.0005
    assert rates["blocks.0.mlp.up.weight"] == (0.025 if name == "muon" else 0.0005)


def test_two_steps_of_adamw_equal_the_published_formula():
    model = GPT(ModelConfig(n_layer=1, n_embd=8, n_head=2), 5)
    (adamw,) = make_optimizers(model, OptimConfig(name="adamw", lr=0.01, weight_decay=0.5, beta2=0.8))
    matrix, table = model.blocks[0].mlp.up.weight, model.token_embedding.weight
    before = {p: p.detach().clone() for p in (matrix, table)}
    for gradient in (-3.0, 1.0):
        for p in model.parameters():
            p.grad = torch.full_like(p, gradient)
        adamw.step()
    mean, square = (0.9 * 0.1 * -3 + 0.1 * 1) / (1 - 0.9**2), (0.8 * 0.2 * 9 + 0.2 * 1) / (1 - 0.8**2)
    second = -0.01 * mean / square**0.5
    torch.testing.assert_close(matrix.detach(), (before[matrix] * 0.995 + 0.01) * 0.995 + second)
    torch.testing.assert_close(table.detach(), before[table] + 0.01 + second)


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [(AdamW, torch.optim.AdamW, {"fused": True, "weight_decay": 0.3}), (SGD, torch.optim.SGD, {})],
    ids=["AdamW", "SGD"],
)
def test_an_optimiser_without_the_compiler_takes_the_same_steps_as_pytorchs(ours, theirs, options):
    p, q = (torch.nn.Parameter(torch.arange(6.0).view(2, 3)) for _ in range(2))
    optimizers = [kind([x], lr=0.1, **options) for kind, x in ((ours, p), (theirs, q))]
    for _ in range(3):
        for optimizer, x in zip(optimizers, (p, q), strict=True):
            optimizer.zero_grad()
            x.pow(3).sum().backward()
            optimizer.step()
    assert not torch.equal(p, torch.arange(6.0).view(2, 3)) and torch.equal(p, q)


@pytest.mark.slow
def test_a_step_does_not_import_pytorchs_compiler():
    code = """
import sys, torch
from model.config import ModelConfig
from model.gpt import GPT
from training.config import OptimConfig
from training.optim.optimizers import make_optimizers

model = GPT(ModelConfig(n_layer=1, ngrams=(2,), ngram_rows=9), 5)
optimizers = make_optimizers(model, OptimConfig())
model(torch.zeros(1, 3, dtype=torch.long)).sum().backward()
for optimizer in optimizers:
    optimizer.step()
    optimizer.zero_grad()
print([type(optimizer).__name__ for optimizer in optimizers], "torch._dynamo" in sys.modules)
"""
    finished = run_command([sys.executable, "-c", code], cwd=ROOT)
    assert finished.stdout == "['Muon', 'AdamW', 'SGD'] False\n", finished.stderr
