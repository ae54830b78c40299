"""Code that runs on a GPU only; on a machine without one, `tests/test_fake_gpu.py` runs these tests."""

import collections
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT, run_script
from helpers import losses, make_model, metrics, resume, train_run

from data.batches import TrainingBatches
from data.corpus import open_corpus
from data.vocabulary import Vocabulary
from experiments.heads.analysis import analyse
from experiments.heads.silence import silenced
from model.attention import attend
from model.generate import Sampling, generate
from training.config_file import load_config
from training.cuda_graph import CapturedFunction
from training.evaluation import evaluate
from training.runtime import choose_runtime
from training.state import TrainingState
from training.step import TrainingStep

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

MODELS = {
    "default": {},
    "GPT-2": {"positions": "learned", "norm": "layer", "mlp": "gelu", "qk_norm": False, "bias": True},
    "grouped queries": {"n_head": 4, "n_kv_head": 2},
    "one key-value head": {"n_head": 4, "n_kv_head": 1},
    "mixed head counts": {"n_head": (1, 4)},
    "convolution": {"conv_width": 3},
    "n-grams": {"ngrams": (2, 4), "ngram_rows": 50, "ngram_dropout": 0.0},
    "copies": {"longest_copy": 3},
    "swiglu": {"mlp": "swiglu", "logit_softcap": 0.0},
    "ALiBi": {"positions": "alibi"},
    "no positions": {"positions": "none"},
    "explicit": {"attention": "explicit"},
    "explicit with ALiBi": {"attention": "explicit", "positions": "alibi"},
    **{f"{name} scores": {"score": name} for name in ("additive", "dot", "gaussian", "uniform")},
}
SAMPLINGS = [Sampling(), Sampling(temperature=0), Sampling(temperature=0.8, top_k=9, top_p=0.9, min_p=0.02)]
STEPS = {  # what they are compared with, and their settings
    "plain": ("cpu", []),
    "clipped": ("cpu", ["optim.grad_clip=1", "train.accumulate=2", "train.grow_context_at=[0.5]"]),
    "dropout": ("cuda", ["model.dropout=0.2", "optim.weight_decay=0.1", "optim.lm_head_weight_decay=0.3"]),
}
MISTAKES = {
    "reads a number": lambda x: x * x.sum().item(),
    "copies from main memory": lambda x: x + torch.ones(3).to("cuda"),
    "copies to main memory": lambda x: x.cpu().sum().to("cuda"),
    "selects by a condition": lambda x: x[x > 0],
}


def write(model, prompt, length, **options):
    prompt = prompt.to(model.lm_head.weight.device)
    ids = generate(model, prompt, length, streams=range(len(prompt)), **options)
    return torch.stack(list(ids), dim=1).cpu()  # (B, length)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 4e-3), (torch.bfloat16, 0.2)], ids=str)
@pytest.mark.parametrize("length", [1, 40, 64, 192, 256])
@pytest.mark.parametrize("biased", [False, True], ids=["causal", "causal and biased"])
def test_fused_attention_equals_the_explicit_form_in_values_and_gradients(dtype, tolerance, length, biased):
    """With a mask, cuDNN gave NaN gradients at lengths of 64 modulo 128 (github.com/pytorch/pytorch/issues/196678)."""
    q, k, v = (torch.randn(2, 3, length, 16, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    bias = torch.randn(length, length, device="cuda", dtype=dtype) if biased else None
    results = []
    for form in ("explicit", "fused", "auto"):
        y = attend(q, k, v, causal=True, bias=bias, form=form)
        results.append((y, *torch.autograd.grad(y.float().square().sum(), (q, k, v))))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["plain", "greedy", "filtered"])
def test_text_sampled_on_the_gpu_equals_that_of_the_cpu_far_past_the_context_length(settings, sampling):
    model, prompt = make_model(20, n_embd=32, **settings), torch.randint(20, (3, 5))
    expected = write(model, prompt, 40, sampling=sampling, seed=1)
    assert torch.equal(write(model.cuda(), prompt, 40, sampling=sampling, seed=1), expected)


@pytest.mark.parametrize("prompt_length", [1, 2, 15, 16, 17, 40])
def test_a_stream_does_not_depend_on_the_other_streams(prompt_length):
    model, prompt = make_model(20, n_embd=32).cuda(), torch.randint(20, (1, prompt_length)).expand(64, -1)
    together = write(model, prompt, 40)
    for n_streams in (1, 7):
        assert torch.equal(write(model, prompt[:n_streams], 40), together[:n_streams])
    assert len({tuple(text) for text in together.tolist()}) > 60


@pytest.mark.parametrize("settings", [{"n_head": 4}, {"n_head": (1, 4)}, {"n_head": 4, "n_kv_head": 2}])
def test_silenced_heads_stay_silent_when_sampling_on_the_gpu(settings):
    model, prompt = make_model(20, n_embd=32, **settings), torch.randint(20, (2, 5))
    whole, texts = write(model, prompt, 40), []
    for device in ("cpu", "cuda"):
        with silenced(model.to(device), [(1, 0), (1, 3)]):
            texts.append(write(model, prompt, 40))
    assert torch.equal(texts[0], texts[1])
    assert torch.equal(write(model, prompt, 40), whole)
    assert not torch.equal(whole, texts[0])


def make_step(workplace, *overrides, device="cuda", graph=True, file=None):
    config = load_config(file or workplace / "tiny.yaml", [f"train.device={device}", *overrides])
    runtime = choose_runtime(config.train.device, config.train.dtype)
    state = TrainingState(config, open_corpus(config.data), runtime)
    if not graph:
        state.model.register_forward_hook(lambda *_: None)  # a model that has hooks runs without a graph
    return state, TrainingStep(state)


@pytest.mark.parametrize(("reference", "more"), STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("name", ["muon", "adamw"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-3), ("bfloat16", 3e-2)])
@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_steps_of_every_kind_are_captured_never_wait_and_have_the_losses_of_a_cpu_or_of_no_graph(
    workplace, settings, dtype, tolerance, name, reference, more
):
    model = {"n_embd": 32, "n_head": 2, "dropout": 0} | settings
    overrides = [f"model.{key}={list(v) if isinstance(v, tuple) else v}" for key, v in model.items()]
    overrides += [f"optim.name={name}", f"train.dtype={dtype}", "train.max_steps=12", *more]
    sums = []
    for device, graph in (("cuda", True), (reference, False)):
        state, step = make_step(workplace, *overrides, device=device, graph=graph)
        for _ in range(10):
            step.run()
        torch.cuda.set_sync_debug_mode("error")
        try:
            step.run()
            step.run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert device == "cpu" or (step.update.graph is not None) == graph
        assert not any(parameter.grad is not None and parameter.grad.any() for parameter in state.model.parameters())
        state.check_finite()
        sums.append(state.loss_sum.item())
    assert sums[0] == pytest.approx(sums[1], rel=tolerance)


@pytest.mark.skipif("FAKE_GPU_GUARD" not in os.environ, reason="needs the fake GPU")
@pytest.mark.parametrize(("name", "budget"), [("shakespeare", 760), ("shakespeare_gpt2", 480)])
def test_a_step_needs_few_kernels(workplace, name, budget):
    small = ["data.corpus=selmere", "train.batch_size=2", "model.block_size=32", "train.grow_context_at=[]"]
    _, step = make_step(workplace, *small, file=ROOT / "configs" / f"{name}.yaml")
    for _ in range(4):
        step.run()
    kernels = collections.Counter(step.update.graph.kernels)
    assert kernels.total() <= budget, kernels.most_common()
    # They add in any order, or wait; only the gradient of the n-grams' rows may.
    assert not {"index_put_", "embedding_dense_backward"} & {*kernels}
    assert kernels["index_add"] == ("fused_sgd_" in str(kernels))


def test_a_run_that_also_samples_text_captures_its_step_once(workplace, monkeypatch):
    captures, capture = [], CapturedFunction._capture
    monkeypatch.setattr(CapturedFunction, "_capture", lambda self, ids: captures.append(self) or capture(self, ids))
    # PyTorch's own backward pass of an embedding would wait for the GPU at over 3,072 characters.
    train_run("tiny", "train.device=cuda", "train.max_steps=12", "train.eval_every_steps=3", "train.batch_size=300")
    assert len(captures) == 1


def test_a_step_that_cannot_be_captured_runs_without_a_graph_after_one_warning(workplace):
    settings = ["train.dtype=float32", "model.dropout=0"]
    state, step = make_step(workplace, *settings)
    plain_state, plain = make_step(workplace, *settings, graph=False)
    update = step.update.function
    step.update.function = lambda *inputs: (update(*inputs), torch.cuda.synchronize())
    with pytest.warns(RuntimeWarning, match="running without a CUDA graph"):
        for _ in range(8):
            step.run()
            plain.run()
    assert step.update.failed
    assert state.take_mean_loss() == pytest.approx(plain_state.take_mean_loss(), rel=1e-3)


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_a_resumed_run_on_the_gpu_equals_an_uninterrupted_one(workplace, name):
    settings = ["train.device=cuda", "train.dtype=float32", "optim.decay_fraction=0", "optim.average_fraction=0.2"]
    whole, parts = (train_run(f"{n}", *settings, f"optim.name={name}", f"train.max_steps={n}") for n in (80, 40))
    resume(parts, "train.max_steps=80")
    for measure in ("train_loss", "val_loss"):
        assert losses(parts.path, measure) == pytest.approx(losses(whole.path, measure), rel=5e-3)
    assert losses(parts.path)[-1] < losses(parts.path)[0] < 3.3
    assert metrics(parts.path)[-1]["peak_memory_bytes"] > 0


@pytest.mark.parametrize(("trained_on", "resumed_on"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_run_can_move_between_the_gpu_and_the_cpu(workplace, trained_on, resumed_on):
    settings = [f"train.device={trained_on}", "train.dtype=float32", "model.dropout=0"]
    resume(train_run("tiny", *settings, "train.max_steps=40"), f"train.device={resumed_on}", "train.max_steps=60")
    command = ["sample.py", "--checkpoint", "runs/tiny", "--length", "60", "--temperature", "0", "--device"]
    on_cpu, on_gpu = (run_script(*command, device) for device in ("cpu", "cuda"))
    assert (on_gpu.stdout, on_gpu.returncode) == (on_cpu.stdout, 0), on_gpu.stderr


def test_the_validation_loss_on_the_gpu_equals_that_on_the_cpu():
    ids = np.random.default_rng(0).integers(0, 20, 1000).astype(np.uint8)
    model = make_model(20, n_embd=32)
    expected = evaluate(model, ids, choose_runtime("cpu", "float32"))
    actual = evaluate(model.cuda(), ids, choose_runtime("cuda", "float32"))
    assert (actual.loss, actual.n_characters) == (pytest.approx(expected.loss, rel=1e-5), expected.n_characters)
    assert evaluate(model, ids, choose_runtime("cuda", "bfloat16")).loss == pytest.approx(expected.loss, rel=0.02)


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_function_that_waits_for_the_gpu_cannot_be_captured(mistake):
    total = torch.zeros((), device="cuda")
    add = CapturedFunction(lambda x: total.add_(mistake(x).sum()), torch.nn.Linear(1, 1, device="cuda"))
    with pytest.warns(RuntimeWarning, match="running without a CUDA graph"):
        for _ in range(6):
            add(torch.ones(3, device="cuda"))
    assert add.failed
    assert total.item() == 6 * mistake(torch.ones(3, device="cuda")).sum().item()


def test_the_dropout_of_a_graph_depends_on_the_seed():
    drawn, results = torch.zeros(100, device="cuda"), []
    draw = CapturedFunction(lambda x: drawn.copy_(F.dropout(x, 0.5)), torch.nn.Linear(1, 1, device="cuda"))
    for seed in (*range(10), 9):
        torch.manual_seed(seed)
        draw(torch.ones(100, device="cuda"))
        results.append(drawn.tolist())
    assert results[-1] == results[-2] != results[-3]
    assert set(results[-1]) == {0.0, 2.0}


@pytest.mark.parametrize("bytes_on_device", [0, 1 << 30], ids=["text in main memory", "text on the GPU"])
def test_batches_on_the_gpu_equal_those_on_the_cpu_even_if_the_gpu_is_behind(monkeypatch, bytes_on_device):
    monkeypatch.setattr("data.batches.BYTES_ON_DEVICE", bytes_on_device)
    ids = np.random.default_rng(0).integers(0, 300, 100_000).astype(np.uint16)
    options = {"block_size": 64, "batch_size": 32, "seed": 3}
    on_cpu, on_gpu = TrainingBatches(ids, **options), TrainingBatches(ids, **options, device="cuda")
    busy = torch.randn(8192, 8192, device="cuda")
    for _ in range(20):
        busy = busy @ busy  # the copies below wait in the stream while their host memory is free to be used again
    batches = [on_gpu.at(32 * number) for number in range(100)]
    for number, batch in enumerate(batches):
        for expected, actual in zip(on_cpu.at(32 * number), batch, strict=True):
            assert torch.equal(actual.cpu(), expected)


def test_head_statistics_on_the_gpu_equal_those_on_the_cpu():
    model = make_model(11, n_embd=24, n_head=3)
    ids = np.random.default_rng(0).integers(0, 11, 100)
    vocabulary = Vocabulary("abcdefghijk")
    on_cpu, on_gpu = (
        analyse(model.to(device), vocabulary, ids, choose_runtime(device, "float32"), None, n_windows=3)
        for device in ("cpu", "cuda")
    )
    for gpu, cpu in ((on_gpu.increases, on_cpu.increases), (on_gpu.measures.figures, on_cpu.measures.figures)):
        torch.testing.assert_close(gpu, cpu, atol=1e-3, rtol=0, equal_nan=True)
