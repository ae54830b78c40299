import inspect
import json
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT
from torch.utils.flop_counter import FlopCounterMode

from data.corpus import open_corpus
from experiments.benchmark import __main__ as benchmark
from experiments.benchmark import figures
from experiments.benchmark.commands import measure_encoding
from experiments.benchmark.figures import Figure, measure_copy, measure_matrix_products, time_repeats
from experiments.benchmark.machines import COLUMNS, append_row
from experiments.benchmark.measurements import PARTS, list_measurements, read_variants
from experiments.benchmark.models import (
    flops_per_character,
    measure_against_plain,
    measure_cache,
    measure_context,
    measure_sampling,
    measure_training,
)
from experiments.benchmark.plain_gpt2 import plain_gpt2
from model.config import ModelConfig
from model.gpt import GPT
from model.textbook.chapter7b_gpt import TextbookGPT
from training.config_file import load_config

CPU = torch.device("cpu")


@pytest.mark.parametrize("settings", [{}, {"n_kv_head": 1, "mlp": "swiglu"}, {"positions": "learned", "mlp": "gelu"}])
def test_operations_per_character_equal_the_count_of_pytorch(settings):
    config = ModelConfig(n_layer=3, n_head=2, n_embd=24, block_size=12, attention="explicit", **settings)
    model, ids = GPT(config, 17), torch.zeros(5, 12, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    assert flops_per_character(model, 12) * ids.numel() == counter.get_total_flops()


def test_a_figure_shows_its_median_spread_and_share_of_its_limit():
    figure = Figure("sampling", "characters/s", [3.0, 1.0, 8.0], limit=12.0, limit_is="the limit")
    assert figure.median == 3
    assert "3 characters/s" in str(figure)
    assert "1 to 8" in str(figure)
    assert "25.0% of the limit" in str(figure)


def test_warm_up_repeats_run_but_are_not_timed():
    calls = []
    assert len(time_repeats(lambda: calls.append(1), 3, CPU, warm_up=2)) == 3
    assert len(calls) == 5


def test_the_peaks_of_the_machine_are_above_zero():
    assert measure_matrix_products(CPU, 1)["float32"].median > 0.1
    assert measure_copy(CPU, 1).median > 0.1


def test_the_training_benchmark_measures_speed_arithmetic_and_memory(workplace):
    config = load_config(workplace / "tiny.yaml", ["train.dtype=float32"])
    speed, arithmetic, memory = measure_training("tiny", config, {"float32": 100.0}, repeats=4)
    assert len(speed.values) == len(arithmetic.values) == 4
    assert 0 < arithmetic.median < arithmetic.limit
    assert memory.unit == "MB"


def test_a_processor_without_bfloat16_does_not_emulate_its_products(monkeypatch):
    monkeypatch.setattr(figures, "SIZES", {"cpu": (8,)})
    for is_fast, dtypes in ((True, ["float32", "bfloat16"]), (False, ["float32"])):
        monkeypatch.setattr(figures, "has_fast_bfloat16", lambda _, is_fast=is_fast: is_fast)
        assert list(measure_matrix_products(CPU, 1)) == dtypes


def test_the_sampling_benchmark_counts_the_characters_of_all_streams():
    config = ModelConfig(n_layer=1, n_head=2, n_embd=8, block_size=8)
    figure = measure_sampling("tiny", config, streams=3, repeats=2, device=CPU)
    assert len(figure.values) == 2
    assert figure.limit > figure.median > 0


def test_the_encoded_text_has_the_requested_size(monkeypatch):
    sizes = []

    def opened(config, cache):
        corpus = open_corpus(config, cache=cache)
        sizes.append(len(corpus.ids))
        return corpus

    monkeypatch.setattr("experiments.benchmark.commands.open_corpus", opened)
    speed, _, opening = measure_encoding("tiny", "ä", 1, repeats=2)
    assert len(speed.values) == len(opening.values) == 2
    assert all(0.8e6 < size < 1.3e6 for size in sizes)


def test_the_memory_benchmark_gives_megabytes_for_each_context_length():
    figure = measure_context(32, "fused", "cpu")
    assert figure.unit == "MB"


@pytest.mark.slow
def test_the_memory_of_fused_attention_does_not_grow_with_the_square_of_the_context_length():
    """For the same 8,192 characters, the scores in windows 32 times as long would take 32 times the memory."""
    script = (
        "from experiments.benchmark.models import measure_context as m; import sys;"
        "print(m(int(sys.argv[1]), sys.argv[2], 'cpu').median)"
    )

    def megabytes(block_size, form):
        command = [sys.executable, "-c", script, str(block_size), form]
        return float(subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout)

    for form in ("fused", "auto"):
        assert megabytes(8192, form) < 1.5 * megabytes(256, form)
    assert megabytes(4096, "explicit") > 3 * megabytes(256, "explicit")


@pytest.mark.parametrize("quick", [True, False])
def test_every_measurement_of_the_benchmark_can_be_called_with_its_arguments(quick):
    variants = {"tiny": load_config(ROOT / "configs" / "selmere.yaml")}
    measurements = [m for v in ({}, variants) for m in list_measurements(v, CPU, {}, 3, 1, quick=quick)]
    for name, measure, *arguments in measurements:
        assert name.startswith(PARTS)
        inspect.signature(measure).bind(*arguments)
    assert {measure.__name__ for _, measure, *_ in measurements} >= {"measure_against_plain", "measure_cache"}


def test_the_plain_gpt2_predicts_what_the_textbook_predicts():
    config = ModelConfig(n_layer=2, n_head=2, n_embd=8, block_size=6)
    plain = plain_gpt2(config, 5)
    textbook = TextbookGPT(5, n_layer=2, n_head=2, n_embd=8, block_size=6)
    weights = {name: w for name, w in plain.state_dict().items() if "qkv" not in name}
    for layer, block in enumerate(plain.blocks):
        for head, w in enumerate(block.attention.qkv.weight.view(3, 2, 4, 8).unbind(1)):
            for part, w_part in zip(("query", "key", "value"), w, strict=True):
                weights[f"blocks.{layer}.attention.heads.{head}.{part}.weight"] = w_part
    textbook.load_state_dict(weights)
    ids = torch.tensor([[0, 4, 2, 2, 1, 3]])
    torch.testing.assert_close(plain(ids), textbook(ids))


def test_sampling_is_measured_against_a_plain_gpt2_in_the_same_run():
    config = ModelConfig(n_layer=1, n_head=2, n_embd=8, block_size=8)
    plain, cached, ratio = measure_against_plain("tiny", config, 2, True)
    assert len({plain.name, cached.name, ratio.name}) == 3
    assert ratio.values == [a / b for a, b in zip(cached.values, plain.values, strict=True)]


@pytest.mark.slow
def test_the_benchmark_writes_all_figures_as_json(tmp_path):
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "experiments.benchmark", "--quick", "--only", "start-up"]
    finished = subprocess.run([*command, "--json", file], cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    kept = json.loads(file.read_text())
    assert {"machine", "torch", "python", "figures"} <= set(kept)
    names = [figure["name"] for figure in kept["figures"]]
    assert "matrix product, float32" in names
    assert "start-up: sample.py, first character" in names
    assert all(figure["values"] for figure in kept["figures"])


def test_a_sweep_is_measured_once_for_each_variant_whatever_its_seeds(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text("sweep: {model.n_kv_head: [4, 1], train.seed: 0..2}\nmodel: {n_head: 4, n_embd: 32}\n")
    variants = read_variants(file, ["train.batch_size=3"])
    assert {name: config.model.n_kv_head for name, config in variants.items()} == {"n_kv_head=4": 4, "n_kv_head=1": 1}
    assert all(config.train.batch_size == 3 for config in variants.values())
    file.write_text("model: {n_layer: 1}\n")
    assert list(read_variants(file, [])) == ["sweep.yaml"]


def test_the_cache_of_a_stream_has_keys_and_values_of_every_head_and_position():
    config = ModelConfig(n_layer=3, n_head=4, n_kv_head=2, n_embd=32, block_size=10)
    assert measure_cache("a", config).values == [3 * 2 * 2 * 8 * 10 * 4 / 1e3]  # layers, k and v, heads, D, T, bytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "nowhere.yaml"], "nowhere.yaml: no such file in "),
        (["--config", "tiny.yaml", "model.n_head=7"], "tiny.yaml: model.n_head=7 does not divide"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--json", "nowhere/a.json"], "nowhere/a.json: No such file or directory"),
    ],
)
def test_mistakes_produce_a_one_line_error_before_any_measurement(workplace, capsys, arguments, message):
    assert benchmark.main(arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("experiments.benchmark: ")
    assert message in said.err


def test_an_error_of_pytorch_in_the_benchmark_is_a_bug_with_a_traceback(capsys, monkeypatch):
    monkeypatch.setattr(torch, "mm", lambda *_, **__: F.cross_entropy(torch.zeros(2, 3), torch.zeros(4).long()))
    assert benchmark.main(["--device", "cpu", "--quick"]) == 1
    *lines, error, last = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert re.match(r"ValueError: Expected input batch_size \(2\) to match target", error)
    assert last == "experiments.benchmark: this is a bug in the program; please report it with the lines above"


@pytest.mark.slow
def test_a_failed_measurement_is_listed_and_the_others_still_run(monkeypatch, capsys):
    too_many_heads = ("second", load_config, ROOT / "configs" / "selmere.yaml", ["model.n_head=999"])
    measurements = [("first", divmod, 1), too_many_heads, ("memory", Figure, "memory", "MB", [1.0])]
    monkeypatch.setattr("experiments.benchmark.__main__.list_measurements", lambda *_, **__: measurements)
    assert benchmark.main(["--device", "cpu", "--quick"]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == str(Figure("memory", "MB", [1.0]))
    bug, mistake = said.err.split("experiments.benchmark: ")[1:]
    assert bug.startswith("first failed: TypeError: ")
    assert "Traceback (most recent call last)" in bug
    assert mistake.startswith("second failed: ConfigError: ")
    assert "Traceback" not in mistake


def test_a_machine_becomes_a_row_of_a_table_that_grows(tmp_path):
    machine = {"machine": "cpu, 2 threads, float32, A processor", "torch": "2.13.0"}
    figures = [
        Figure("matrix product, float32", "GFLOP/s", [99.0, 120.2, 140.0]),
        Figure("training, shakespeare.yaml", "characters/s", [5432.1]),
        Figure("training, shakespeare.yaml: arithmetic", "GFLOP/s", [60.0], limit=120.0),
        Figure("something else", "MB", [1.0]),
    ]
    append_row(tmp_path / "machines.md", machine, figures)
    append_row(tmp_path / "machines.md", machine, figures[:1])
    header, line, *rows = (
        [cell.strip() for cell in row.split("|")[1:-1]] for row in (tmp_path / "machines.md").read_text().splitlines()
    )
    assert len(line) == len(header) == len(COLUMNS) + 3
    first, second = (dict(zip(header, row, strict=True)) for row in rows)
    assert first["machine"] == machine["machine"]
    assert first["product float32, GFLOP/s"] == second["product float32, GFLOP/s"] == "120"
    assert first["training `shakespeare.yaml`, characters/s"] == "5,432"
    assert first["its share of the product"] == "50%"
    assert first["product bfloat16, GFLOP/s"] == second["its share of the product"] == "-"


def test_every_column_of_the_table_is_a_figure_of_the_whole_benchmark():
    peaks = {"matrix product, float32", "matrix product, bfloat16"}
    device = torch.device("cpu")
    measurements = list(list_measurements({}, device, {}, repeats=1, megabytes=1, quick=False))
    described = " ".join(str(part) for measurement in measurements for part in measurement)
    for name in COLUMNS.keys() - peaks:
        part, shape, *_ = name.split(":")[0].split(", ")
        assert f"{part} {shape}" in described, name
