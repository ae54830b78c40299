"""The paths that only a GPU takes; skipped where there is none."""

import numpy as np
import pytest
import torch
from test_train import metrics

import train
from data.batches import TrainingBatches
from data.vocabulary import Vocabulary
from experiments.heads.analysis import analyse
from model.attention import attend, attend_fused, choose_form
from model.config import ModelConfig
from model.generate import Sampling, generate
from model.gpt import GPT
from model.kernels.cuda_graph import CapturedFunction
from model.scoring import scaled_dot
from training.runtime import choose_runtime

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fused_form_equals_the_explicit_one_on_the_gpu(dtype):
    q, k, v = (torch.randn(2, 3, 40, 16, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    assert choose_form("auto", scaled_dot, q, k) == "fused"
    explicit, fused = attend(q, k, v, causal=True), attend_fused(q, k, v, causal=True)
    tolerance = {torch.float32: 1e-3, torch.bfloat16: 5e-2}[dtype]
    torch.testing.assert_close(fused, explicit, atol=tolerance, rtol=tolerance)
    for expected, actual in zip(
        torch.autograd.grad(explicit.float().square().sum(), (q, k, v)),
        torch.autograd.grad(fused.float().square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected, atol=10 * tolerance, rtol=10 * tolerance)


@pytest.mark.parametrize(
    "settings",
    [{}, {"positions": "learned", "norm": "layer"}, {"n_head": 4, "n_kv_head": 2}, {"n_head": (1, 4)}],
    ids=["ours", "textbook", "grouped queries", "heads of several sizes"],
)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_k=9, top_p=0.9, min_p=0.02)])
def test_the_gpu_writes_what_the_cpu_writes(settings, sampling):
    torch.manual_seed(0)
    model = GPT(ModelConfig(n_layer=2, n_embd=32, block_size=16, **{"n_head": 2} | settings), 20).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    prompt = torch.randint(20, (3, 5))
    on_cpu = torch.stack(list(generate(model, prompt, 40, sampling=sampling)))
    model, prompt = model.cuda(), prompt.cuda()
    on_gpu = torch.stack(list(generate(model, prompt, 40, sampling=sampling)))
    assert torch.equal(on_gpu.cpu(), on_cpu)
    assert torch.equal(torch.stack(list(generate(model, prompt, 40, sampling=sampling, use_cache=False))), on_gpu)


def test_a_run_trains_resumes_and_learns_on_the_gpu(workplace):
    assert train.main(["--config", "tiny.yaml", "train.device=cuda", "train.max_steps=40"]) == 0
    assert train.main(["--resume", "runs/tiny", "train.max_steps=80"]) == 0
    losses = [record["val_loss"] for record in metrics(workplace / "runs/tiny") if "val_loss" in record]
    assert losses[-1] < losses[0] < 3.3


@pytest.mark.parametrize(
    "settings",
    [
        ["train.grow_context_at=[0.5]", "train.accumulate=2", "optim.grad_clip=1"],
        ["model.score=additive", "optim.name=adamw"],
        ["train.batch_size=300"],  # over 4,096 characters a step
        ["train.eval_every_steps=2"],  # which writes a sample before the step is captured
        ["model.dropout=0.5"],
    ],
    ids=["growing context", "additive scores", "many characters", "early evaluation", "dropout"],
)
def test_a_captured_step_trains_as_the_same_step_without_a_graph(workplace, monkeypatch, settings):
    def losses(name):
        arguments = ["train.device=cuda", "train.dtype=float32", "model.dropout=0", "train.log_every_steps=1"]
        assert train.main(["--config", "tiny.yaml", *arguments, f"train.name={name}", *settings]) == 0
        return [record["train_loss"] for record in metrics(workplace / "runs" / name) if "train_loss" in record]

    captured = losses("captured")
    monkeypatch.setattr("training.step.CapturedFunction", lambda function: function)
    assert losses("plain") == pytest.approx(captured, rel=2e-3)


def test_dropout_differs_from_replay_to_replay_of_a_graph_and_follows_from_the_seed():
    masks = torch.zeros(100, device="cuda")
    update = CapturedFunction(lambda x: masks.copy_(torch.nn.functional.dropout(x, 0.5)))
    results = []
    for seed in (*range(10), 9):
        torch.manual_seed(seed)
        update(torch.ones(100, device="cuda"))
        results.append(masks.clone())
    assert torch.equal(results[-1], results[-2])
    assert not torch.equal(results[-2], results[-3])


def test_batches_on_the_gpu_are_those_of_the_processor():
    ids = np.random.default_rng(0).integers(0, 300, 1000).astype(np.uint16)
    options = {"block_size": 16, "batch_size": 5, "seed": 3}
    on_cpu, on_gpu = TrainingBatches(ids, **options), TrainingBatches(ids, **options, device="cuda")
    for number in (0, 7, 40):
        for here, there in zip(on_cpu[number], on_gpu[number], strict=True):
            assert torch.equal(there.cpu(), here)


def test_heads_are_looked_into_on_the_gpu_as_on_the_cpu():
    torch.manual_seed(0)
    model = GPT(ModelConfig(n_layer=2, n_head=3, n_embd=24, block_size=16), 11).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    ids = np.random.default_rng(0).integers(0, 11, 100)
    on_cpu, on_gpu = (
        analyse(
            model.to(device),
            Vocabulary("abcdefghijk"),
            ids,
            choose_runtime(device, "float32"),
            n_windows=3,
            n_characters=None,
        )
        for device in ("cpu", "cuda")
    )
    assert list(on_gpu.losses_without.values()) == pytest.approx(list(on_cpu.losses_without.values()), abs=1e-3)
    torch.testing.assert_close(on_gpu.statistics.similarity, on_cpu.statistics.similarity, atol=1e-3, rtol=0)
