"""Configs that are read as they were written; tests/test_mistakes.py has those that are wrong."""

import pytest
from conftest import ROOT

from experiments.sweep.plan import make_plan
from training.config_file import build_config, load_config, read_settings


def load(tmp_path, text, *overrides):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, overrides)


def test_values_are_converted_to_the_types_of_their_settings(tmp_path):
    config = load(tmp_path, "optim: {lr: 3e-4}\ntrain: {max_steps: 012}\ndata: {lines: yes}\nmodel: {head_size: null}")
    assert config.optim.lr == 0.0003
    assert config.train.max_steps == 12
    assert config.data.lines is True
    assert config.model.head_size is None


def test_overrides_replace_values_of_the_file_even_invalid_ones(tmp_path):
    config = load(tmp_path, "model: {n_head: x}", "model.n_head=8", "optim.lr=1e-2", "data.corpus=a=b.txt")
    assert (config.model.n_head, config.optim.lr, config.data.corpus) == (8, 0.01, "a=b.txt")


def test_a_config_holds_what_differs_from_its_base_whose_sweep_it_leaves_out(tmp_path):
    base = "sweep: {train.seed: 0..7}\nmodel: {n_head: 8, n_embd: 64}\ndata: {encoding: cp1252}"
    (tmp_path / "base.yaml").write_text(base)
    config = load(tmp_path, "base: base.yaml\nmodel: {n_head: 2}\ntrain: {max_steps: 9}", "model.n_layer=3")
    whole = "model: {n_head: 2, n_embd: 64, n_layer: 3}\ndata: {encoding: cp1252}\ntrain: {max_steps: 9}"
    assert config == load(tmp_path, whole)
    (tmp_path / "sweep.yaml").write_text("base: base.yaml\nsweep: {model.n_head: [1, 2]}\nmodel:\n")
    points = make_plan(read_settings(tmp_path / "sweep.yaml")).points
    assert [(point.config.model.n_head, point.config.model.n_embd) for point in points] == [(1, 64), (2, 64)]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_of_the_project_is_valid(path):
    settings = read_settings(path)
    if "sweep" in settings:
        assert len(make_plan(settings).points) > 1
    else:
        build_config(settings)
