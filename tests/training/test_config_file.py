import dataclasses
import itertools
import tracemalloc
from pathlib import Path

import pytest
from conftest import ROOT

from experiments.sweep.plan import make_plan
from training.config import Config
from training.config_file import ConfigError, build_config, load_config, read_settings, to_dict, to_yaml


def load(tmp_path, text, *overrides):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, overrides)


def test_values_are_converted_to_the_types_of_their_settings(tmp_path):
    config = load(tmp_path, "optim: {lr: 3e-4}\ntrain: {max_steps: 012, compile: yes}\nmodel: {head_size: null}")
    assert config.optim.lr == 0.0003
    assert config.train.max_steps == 12
    assert config.train.compile is True
    assert config.model.head_size is None


def test_missing_settings_have_their_defaults(tmp_path):
    assert load(tmp_path, "model:\n") == Config()


def test_overrides_replace_values_of_the_file_and_follow_the_same_rules(tmp_path):
    config = load(tmp_path, "model: {n_head: 2}", "model.n_head=8", "optim.lr=1e-2", "data.corpus=a=b.txt")
    assert (config.model.n_head, config.optim.lr, config.data.corpus) == (8, 0.01, "a=b.txt")


@pytest.mark.parametrize("written", ["[8, 4,2]", "[8,4,2]"])
def test_a_head_count_may_be_a_list_in_a_file_and_on_the_command_line(tmp_path, written):
    in_file = load(tmp_path, f"model: {{n_layer: 3, n_head: {written}}}")
    on_line = load(tmp_path, "model: {n_layer: 3}", f"model.n_head={written}")
    assert in_file.model.n_head == on_line.model.n_head == (8, 4, 2)
    assert load(tmp_path, to_yaml(in_file)) == in_file
    assert build_config(to_dict(in_file)) == in_file
    with pytest.raises(ConfigError, match=r"model.n_head=x must be a whole number"):
        load(tmp_path, "model: {n_layer: 3}", "model.n_head=[8,x]")


def test_an_override_can_replace_an_invalid_value_of_the_file(tmp_path):
    assert load(tmp_path, "model: {n_head: 5, n_embd: 64}", "model.n_head=4").model.n_head == 4


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_of_the_project_is_valid_and_says_what_it_is_for(path):
    settings = read_settings(path)
    assert (len(make_plan(settings).points) > 1) == ("sweep" in settings)
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_a_config_is_unchanged_after_a_round_trip_through_yaml_or_a_checkpoint(tmp_path):
    config = load(tmp_path, "data: {corpus: 床前.txt}\nmodel: {head_size: 6, dropout: 0.1}\ntrain: {name: null}")
    assert load(tmp_path, to_yaml(config)) == config
    assert build_config(to_dict(config)) == config


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().model.n_head = 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {n_heads: 4}", r"unknown key model.n_heads; did you mean model.n_head\?"),
        ("model: {lr: 1e-3}", r"unknown key model.lr; did you mean optim.lr\?"),
        ("modle: {n_head: 4}", r"unknown key modle; did you mean model\?"),
        ("n_head: 4", r"unknown key n_head; did you mean model.n_head\?"),
        ("model: {zzz: 4}", "unknown key model.zzz; known: n_layer, n_head"),
        ("model:\n  n_head: 4\n  n_head: 8", "'n_head' is given twice, in lines 2 and 3"),
        ("model: {n_head: 4}\nmodel: {n_head: 8}", "'model' is given twice, in lines 1 and 2"),
        ("model: {n_head: four}", "model.n_head=four must be a whole number"),
        ("model: {n_head: 4.0}", "model.n_head=4.0 must be a whole number"),
        ("model: {n_embd: [4]}", r"model.n_embd=\['4'\] must be a whole number"),
        ("model: {n_head: }", "model.n_head= must be a whole number"),
        ("model: {qk_scale: lerned}", "model.qk_scale=lerned must be a finite number, learned or sqrt_head_size"),
        ("model: {qk_scale: 0}", "model.qk_scale=0.0 must be above 0"),
        ("model: {qk_scale: 9, qk_norm: false}", "model.qk_scale=9.0 .* needs model.qk_norm=true"),
        ("model: {qk_scale: 9, score: dot}", "model.qk_scale=9.0 .* needs .* model.score=scaled_dot"),
        ("data: {val_fraction: 0.1}", r"data.val_fraction is now data.split=.*such as data.split=\[0.9, 0.1, 0\]"),
        ("optim: {lr: .nan}", "optim.lr=.nan must be a finite number"),
        ("optim: {lr: nan}", "optim.lr=nan must be a finite number"),
        ("optim: {lr: -1}", "optim.lr=-1.0 must be above 0"),
        ("train: {compile: maybe}", "train.compile=maybe must be true or false"),
        ("train: {dtype: float64}", r"train.dtype=float64 must be one of .*; did you mean .*float"),
        ("train: {max_steps: 0}", "train.max_steps=0 must be at least 1"),
        ("train: {seed: 4294967296}", "train.seed=4294967296 must be at least 0 and below"),
        ("train: {name: ../elsewhere}", "train.name='../elsewhere' must be a folder name"),
        ("data: {corpus: }", "data.corpus= must be text"),
        ("model: 3", "model must be a section of settings, not 3"),
        ("model: {n_head: 5, n_embd: 64}", "model.n_head=5 does not divide model.n_embd=64; try 1, 2, 4 or 8"),
        ("", "is empty"),
        ("# nothing but a comment", "is empty"),
        ("- model", "is a list"),
        ("just text", "is a str"),
        ("model: {n_head: 4", "line 1"),
        ("? [a]\n: b", "a key must be plain text"),
        ("model: !!python/object/apply:os.system [true]", "model must be a section of settings"),
        ("[" * 3000, "nested too deeply|line 1"),
        ("a: " * 3000, "line 1"),
        ("model: {n_embd: " + "9" * 5000 + "}", "model.n_embd=9999.*must be a whole number"),
        ("train: {max_steps: " + "9" * 400 + "}", "train.max_steps=9999.*must be a whole number"),
        ("train: {batch_size: 1" + "0" * 30 + "}", "train.batch_size=10*.*must be .* at most 1,000,000"),
        ("train: {accumulate: 1000000000}", "train.accumulate=1000000000 must be .* at most 1,000,000"),
        ("train: {sample_length: 1000000000000}", "train.sample_length=1000000000000 must be .* at most 100,000"),
        ("model: {n_embd: 1000000000000000001}", "model.n_embd=1000000000000000001 must be .* at most 1,000,000"),
        ("model: {n_layer: 1000000000}", "model.n_layer=1000000000 must be .* at most 1,000"),
        ("model: {n_head: 1000000000, n_kv_head: 3}", "model.n_head=1000000000 must be .* at most 1,000,000"),
    ],
)
def test_mistakes_in_a_config_produce_a_one_line_error_that_names_them(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as error:
        load(tmp_path, text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("place", ["model: *i", "model: {n_head: *i}", "data: {split: *i}", "*i : 1"])
def test_aliases_that_describe_a_huge_value_produce_an_error_in_little_memory(tmp_path, place):
    """Each of nine lists has nine aliases of the one before: 9^9 items, which take gigabytes as text."""
    lists = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lists += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in itertools.pairwise("abcdefghi")]
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError) as error:
            load(tmp_path, "\n".join([*lists, place]))
        with pytest.raises(ConfigError):
            load(tmp_path, "sweep:\n  " + "\n  ".join([*lists, place]))
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("n_head=8", r"'n_head=8' lacks a section; did you mean model.n_head=8\?"),
        ("heads=8", r"'heads=8' is not an override; write section.key=value"),
        ("model.n_head", "is not an override"),
        ("my.txt", r"'my.txt' is not an override; .* or data.corpus=my.txt"),
        ("--model.n_head=8", r"unknown key --model; did you mean model\?"),
        ("modal.n_head=8", r"unknown key modal; did you mean model\?"),
        ("model.n_had=8", r"unknown key model.n_had; did you mean model.n_head\?"),
        ("model.n_head=", "model.n_head= must be a whole number"),
    ],
)
def test_overrides_are_as_strict_as_files(tmp_path, override, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, "model: {n_layer: 1}", override)


def test_the_error_for_an_unreadable_config_names_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"gone.yaml: no such file$"):
        load_config(tmp_path / "gone.yaml")
    (tmp_path / "shakespeare.yaml").touch()
    with pytest.raises(ConfigError, match=r"no such file; did you mean .*/shakespeare.yaml\?"):
        load_config(tmp_path / "shakespere.yml")
    monkeypatch.chdir(ROOT)
    with pytest.raises(ConfigError, match=r"selmere.yaml: no such file in .*; did you mean configs/selmere.yaml\?"):
        load_config(Path("selmere.yaml"))
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match=r"binary.yaml: cannot be read as a config \(not UTF-8"):
        load_config(tmp_path / "binary.yaml")
    (tmp_path / "page.md").write_text("- a: b: c")
    for path in (tmp_path, tmp_path / "page.md"):
        with pytest.raises(ConfigError, match=r"; give a YAML file such as configs/selmere\.yaml"):
            load_config(path)
    (tmp_path / "control.yaml").write_bytes(b"model: \x00")
    with pytest.raises(ConfigError, match=r"control.yaml: "):
        load_config(tmp_path / "control.yaml")
