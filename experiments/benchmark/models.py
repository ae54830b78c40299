"""Speed and memory of a model: of its training steps, and of sampling from it with one stream and with many."""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import torch
import torch.nn.functional as F

from data.config import DataConfig
from data.corpus import open_corpus
from experiments.benchmark.figures import Figure, time_repeats
from experiments.benchmark.plain_gpt2 import plain_gpt2
from model.cache import KVCache
from model.config import ModelConfig
from model.generate import generate
from model.gpt import GPT
from model.textbook.chapter7b_gpt import sample as textbook_sample
from training.config import Config
from training.runtime import Runtime, choose_runtime, keep_freed_memory, peak_memory_bytes
from training.sampling.step_compiler import StepCompiler
from training.sampling.texts import prepare_for_sampling
from training.state import TrainingState
from training.step import TrainingStep

VOCABULARY_SIZE = 65
CHARACTERS = 8192  # whose memory is measured at each context length
TEXT_LENGTH = 500
CPU = torch.device("cpu")


def flops_per_character(model: GPT, block_size: int) -> int:
    """Return the operations per character of a forward and backward pass (PaLM: Chowdhery et al., 2022, appendix B).

    These are 6 for each weight of a matrix product and, including masked scores, 12 T for each channel of all heads.
    """
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.ndim == 2 and "embedding" not in name)
    heads = sum(layer.n_head * layer.head_size for layer in model.config.layers)
    return 6 * matrices + 12 * block_size * heads


def measure_training(name: str, config: Config, peaks: Mapping[str, float], repeats: int) -> list[Figure]:
    """Measure characters per second, GFLOP/s and memory of complete training steps on the bundled play.

    All steps use the full context length, even if the config grows it. peaks: GFLOP/s of matrix products by dtype. Call
    this in a new process.
    """
    keep_freed_memory()
    before = peak_memory_bytes(torch.device("cpu"))
    train = dataclasses.replace(config.train, grow_context_at=())
    config = dataclasses.replace(config, data=DataConfig(corpus="selmere"), train=train)
    corpus, runtime = open_corpus(config.data), choose_runtime(config.train.device, config.train.dtype)
    state = TrainingState(config, corpus, runtime)
    block_size, n_tokens = config.model.block_size, config.tokens_per_step
    step = TrainingStep(state, corpus.split(config.data.split, block_size).train)
    seconds = time_repeats(step.run, repeats, runtime.device, warm_up=max(1, repeats // 4))
    dtype = str(runtime.dtype).removeprefix("torch.")
    gflop = flops_per_character(state.model, block_size) * n_tokens / 1e9
    rates, limit_is = [gflop / s for s in seconds], f"the matrix product in {dtype}"
    used = peak_memory_bytes(runtime.device) - (0 if runtime.device.type == "cuda" else before)
    return [
        Figure(f"training, {name}", "characters/s", [n_tokens / s for s in seconds]),
        Figure(f"training, {name}: arithmetic", "GFLOP/s", rates, limit=peaks.get(dtype), limit_is=limit_is),
        Figure(f"training, {name}: memory", "MB", [used / 1e6]),
    ]


def measure_context(block_size: int, form: Literal["auto", "explicit", "fused"], device: str) -> Figure:
    """Measure the memory of a forward and backward pass over 8,192 characters in windows of block_size.

    form: see `model.attention.attend`. Call this in a new process.
    """
    runtime = choose_runtime(device, "auto")
    config = ModelConfig(n_layer=2, n_head=2, n_embd=128, block_size=block_size, attention=form)
    model = GPT(config, VOCABULARY_SIZE).to(runtime.device)
    ids = torch.zeros(CHARACTERS // block_size, block_size, dtype=torch.long, device=runtime.device)
    _step(model, ids[:1, :32], runtime)  # one-time allocations, which do not depend on the size
    before = peak_memory_bytes(runtime.device)
    _step(model, ids, runtime)
    used = peak_memory_bytes(runtime.device) - before
    return Figure(f"memory, context length {block_size:,}, {form}", "MB", [used / 1e6])


def _step(model: GPT, ids: torch.Tensor, runtime: Runtime) -> None:
    with runtime.autocast():
        logits = model(ids)
    F.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()


def measure_sampling(name: str, config: ModelConfig, streams: int, repeats: int, device: torch.device) -> Figure:
    """Measure characters per second of all streams together, from an empty context window until it is full.

    The limit is the speed of reading the same bytes with a sum. Sampling one character of every stream reads all
    weights once and, for each stream, the keys and values of half a window on average.
    """
    model = _make_model(config, device)
    prepare_for_sampling(model, streams)
    prompt = torch.zeros(streams, 1, dtype=torch.long, device=device)
    length = config.block_size - 1
    seconds = time_repeats(lambda: exhaust(generate(model, prompt, length)), repeats, device)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    caches = [2 * layer.n_kv_head * layer.head_size for layer in config.layers]
    cached = sum(caches) * config.block_size // 2 * model.lm_head.weight.element_size()
    read = torch.zeros((weights + streams * cached) // 4, device=device)
    limit = streams / min(time_repeats(read.sum, 20, device, warm_up=3))
    title = f"sampling, {name}, {streams} {'stream' if streams == 1 else 'streams'}"
    rates = [streams * length / s for s in seconds]
    return Figure(title, "characters/s", rates, limit=limit, limit_is="the speed of reading weights and cache")


def measure_against_plain(name: str, config: ModelConfig, repeats: int, quick: bool) -> list[Figure]:
    """Measure sampling of texts of 500 characters, on one thread of the CPU, against `plain_gpt2` of the same size.

    All forms take turns, because the speed of a machine may vary from minute to minute.
    """
    model = _make_model(config, CPU)
    prepare_for_sampling(model, 1)
    start, plain = torch.zeros(64, 1, dtype=torch.long), plain_gpt2(config, VOCABULARY_SIZE).eval()
    forms: dict[str, tuple[int, Callable[[], object]]] = {
        "plain GPT-2": (1, lambda: textbook_sample(plain, start[0], TEXT_LENGTH)),
        "1 stream": (1, lambda: exhaust(generate(model, start[:1], TEXT_LENGTH))),
    }
    if not quick:
        forms["64 streams"] = 64, lambda: exhaust(generate(model, start, TEXT_LENGTH))
        if step := StepCompiler(model)(1, TEXT_LENGTH + 1):
            forms["compiled"] = 1, lambda: exhaust(generate(model, start[:1], TEXT_LENGTH, compiled=step))
    rates: dict[str, list[float]] = {form: [] for form in forms}
    for _ in range(repeats):
        for form, (streams, run) in forms.items():
            (seconds,) = time_repeats(run, 1, CPU, warm_up=0)
            rates[form].append(streams * TEXT_LENGTH / seconds)
    figures = [Figure(f"sampling, {name}, one thread: {form}", "characters/s", rates[form]) for form in forms]
    for form in list(forms)[1:]:
        ratios = [rate / base for rate, base in zip(rates[form], rates["plain GPT-2"], strict=True)]
        figures.append(Figure(f"sampling, {name}, one thread: {form} / plain", "times", ratios))
    return figures


def measure_cache(name: str, config: ModelConfig) -> Figure:
    """Measure the memory of one stream's full key-value cache in float32."""
    layers = KVCache(config, 1).layers
    n_bytes = sum(tensor.nbytes for layer in layers for tensor in (layer.keys, layer.values, layer.inputs))
    return Figure(f"cache of a stream, {name}", "kB", [n_bytes / 1e3])


def exhaust(items: Iterator[object]) -> None:
    deque(items, maxlen=0)


def _make_model(config: ModelConfig, device: torch.device) -> GPT:
    keep_freed_memory()
    torch.manual_seed(0)
    model = GPT(config, VOCABULARY_SIZE).to(device).eval()
    torch.nn.init.normal_(model.lm_head.weight)
    return model
