import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_mistake
from torch.utils.flop_counter import FlopCounterMode

from data.corpus import open_corpus
from experiments import benchmark
from experiments.benchmark import figure, time_blocks
from model.config import ModelConfig
from model.gpt import GPT
from training.config_file import load_config


@pytest.mark.parametrize("settings", [{}, {"n_kv_head": 1, "mlp": "swiglu"}, {"ngrams": (2,), "mlp": "gelu"}])
def test_operations_per_character_equal_the_count_of_pytorch(settings):
    config = ModelConfig(n_layer=3, n_head=2, n_embd=24, block_size=12, attention="explicit", **settings)
    model, ids = GPT(config, 17), torch.zeros(5, 12, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    assert model.flops_per_character(12) * ids.numel() == counter.get_total_flops()


def test_a_recipe_whose_split_has_a_fixed_size_is_measured_on_the_bundled_text():
    config = load_config(benchmark.CONFIGS / "enwik8.yaml", benchmark.OVERRIDES)
    assert open_corpus(config.data).split(config.data.split, config.model.block_size)


def test_a_figure_shows_its_median_spread_and_share_of_the_product():
    shown = figure("sampling", "characters/s", [3.0, 1.0, 8.0], limit=12.0)
    assert "3 characters/s" in shown
    assert "1 to 8" in shown
    assert "25.00% of the product" in shown


def test_blocks_have_equally_many_calls_after_a_warm_up_and_a_call_that_sets_their_number(monkeypatch):
    times = iter([0, 1, 1, 1.1, 2, 5, 5, 10])  # seconds: warm-up, one call of 0.1 s, two blocks of five calls
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: next(times))
    calls = []
    assert time_blocks(lambda: calls.append(1), 2, torch.device("cpu")) == [3 / 5, 1]
    assert len(calls) == 1 + 1 + 2 * 5


def test_the_benchmark_measures_a_config_beside_the_matrix_product(workplace, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "MATRIX_SIZES", {"cpu": (8,)})
    monkeypatch.setattr(benchmark, "BLOCK_S", 0.01)
    monkeypatch.setattr(benchmark, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))  # a process is slow
    options = ["--quick", "--device", "cpu", "--config", "tiny.yaml", "train.dtype=float32"]
    assert benchmark.main(options) == 0
    machine, *lines = capsys.readouterr().out.splitlines()
    assert machine.startswith("cpu, ")
    figures = dict(re.split("  +", line, maxsplit=1) for line in lines)
    assert " GFLOP/s " in figures["matrix product, float32"]
    for name in ("training", "sampling, streams: 64", "sampling, streams: 1"):
        assert re.fullmatch(r"[\d.,e+]+ characters/s .* to .*% of the product", figures[f"tiny.yaml: {name}"])
    assert figures["tiny.yaml: memory of training"].endswith(" MB")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "nowhere.yaml"], "nowhere.yaml: no such file in "),
        (["--config", "tiny.yaml", "model.n_head=7"], "tiny.yaml: model.n_head=7 does not divide"),
        (["model.n_head=7"], "settings need --config"),
        (["--device", "cuda:99"], "cuda:99"),
    ],
)
def test_mistakes_produce_a_one_line_error_before_any_measurement(workplace, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(benchmark, "time_blocks", None)
    assert_mistake(capsys, benchmark.main, arguments, message)
