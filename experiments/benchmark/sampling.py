"""Speed of sampling, with one stream and with many, and its fraction of the limit set by memory."""

import torch

from experiments.benchmark.figures import Figure, time_repeats
from model.cache import KVCache
from model.config import ModelConfig
from model.generate import generate
from model.gpt import GPT
from training.runtime import keep_freed_memory

VOCABULARY_SIZE = 65


def measure_sampling(name: str, config: ModelConfig, streams: int, repeats: int, device: torch.device) -> Figure:
    """Measure characters per second of all streams together, from an empty context window until it is full.

    The limit is the speed of reading the same bytes with a sum. Sampling one character of every stream reads all
    weights once and, for each stream, the keys and values of half a window on average.
    """
    model = make_model(config, device)
    prompt = torch.zeros(streams, 1, dtype=torch.long, device=device)
    length = config.block_size - 1

    def sample() -> None:
        for _ in generate(model, prompt, length):
            pass

    seconds = time_repeats(sample, repeats, device)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    caches = [2 * layer.n_kv_head * layer.head_size for layer in config.layers]
    cached = sum(caches) * config.block_size // 2 * model.lm_head.weight.element_size()
    read = torch.zeros((weights + streams * cached) // 4, device=device)
    limit = streams / min(time_repeats(read.sum, 20, device, warm_up=3))
    title = f"sampling, {name}, {streams} {'stream' if streams == 1 else 'streams'}"
    rates = [streams * length / s for s in seconds]
    return Figure(title, "characters/s", rates, limit=limit, limit_is="the speed of reading weights and cache")


def measure_without_cache(name: str, config: ModelConfig, repeats: int, device: torch.device) -> Figure:
    """Measure characters per second of one stream that computes the full window for each character."""
    model = make_model(config, device)
    window = torch.zeros(1, config.block_size, dtype=torch.long, device=device)

    @torch.inference_mode()
    def sample_one() -> None:
        model(window)[:, -1].softmax(-1).multinomial(1)

    seconds = time_repeats(sample_one, 10 * repeats, device, warm_up=3)
    return Figure(f"sampling, {name}, 1 stream, no cache", "characters/s", [1 / s for s in seconds])


def measure_cache(name: str, config: ModelConfig) -> Figure:
    """Measure the memory of one stream's full key-value cache in float32."""
    layers = KVCache(config, 1).layers
    n_bytes = sum(tensor.nbytes for layer in layers for tensor in (layer.keys, layer.values, layer.inputs))
    return Figure(f"cache of a stream, {name}", "kB", [n_bytes / 1e3])


def make_model(config: ModelConfig, device: torch.device) -> GPT:
    keep_freed_memory()
    torch.manual_seed(0)
    model = GPT(config, VOCABULARY_SIZE).to(device).eval()
    torch.nn.init.normal_(model.lm_head.weight)
    return model
