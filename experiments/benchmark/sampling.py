"""Speed of sampling, with one stream and with many, and its fraction of the limit set by memory."""

import torch

from experiments.benchmark.figures import Figure, time_repeats
from model.config import ModelConfig
from model.generate import generate
from model.gpt import GPT
from training.runtime import choose_device, keep_freed_memory

VOCABULARY_SIZE = 65


def measure_sampling(name: str, config: ModelConfig, *, streams: int, repeats: int, device: str) -> Figure:
    """Measure characters per second of all streams together, from an empty context window until it is full.

    The limit is the speed of reading the same bytes with a sum. Sampling one character of every stream reads all
    weights once and, for each stream, the keys and values of half a window on average.
    """
    chosen = choose_device(device)
    model = make_model(config, chosen)
    prompt = torch.zeros(streams, 1, dtype=torch.long, device=chosen)
    length = config.block_size - 1

    def sample() -> None:
        for _ in generate(model, prompt, length):
            pass

    seconds = time_repeats(sample, repeats, chosen)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    caches = [2 * layer.n_kv_head * layer.head_size for layer in config.layers]
    cached = sum(caches) * config.block_size // 2 * model.lm_head.weight.element_size()
    read = torch.zeros((weights + streams * cached) // 4, device=chosen)
    limit = streams / min(time_repeats(read.sum, 20, chosen, warm_up=3))
    title = f"sampling, {name}, {streams} {'stream' if streams == 1 else 'streams'}"
    rates = [streams * length / s for s in seconds]
    return Figure(title, "characters/s", rates, limit=limit, limit_is="the speed of reading weights and cache")


def measure_without_cache(name: str, config: ModelConfig, *, repeats: int, device: str) -> Figure:
    """Measure characters per second of one stream that computes the full window for each character."""
    chosen = choose_device(device)
    model = make_model(config, chosen)
    window = torch.zeros(1, config.block_size, dtype=torch.long, device=chosen)

    @torch.inference_mode()
    def sample_one() -> None:
        model(window)[:, -1].softmax(-1).multinomial(1)

    seconds = time_repeats(sample_one, 10 * repeats, chosen, warm_up=3)
    return Figure(f"sampling, {name}, 1 stream, no cache", "characters/s", [1 / s for s in seconds])


def make_model(config: ModelConfig, device: torch.device) -> GPT:
    keep_freed_memory()
    torch.manual_seed(0)
    model = GPT(config, VOCABULARY_SIZE).to(device).eval()
    torch.nn.init.normal_(model.lm_head.weight)
    return model
