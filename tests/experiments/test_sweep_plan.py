import pytest

from cli.errors import UserError
from experiments.sweep.plan import make_plan
from experiments.sweep.sweep_folder import SweepFolder, read_plan
from experiments.sweep.values import split_values
from training.config_file import build_config, read_settings, to_yaml

BASE = {"model": {"n_embd": "24", "n_layer": "2"}, "train": {"max_steps": "5"}}


def plan(sweep=None, *arguments):
    return make_plan(BASE | ({"sweep": sweep} if sweep is not None else {}), arguments)


def names(plan):
    return [point.name for point in plan.points]


def test_a_sweep_runs_every_combination_seed_by_seed():
    points = plan({"model.n_head": ["1", "2"], "train.seed": "0..2"}).points
    assert [p.name for p in points] == [f"n_head={n},seed={s}" for s in (0, 1, 2) for n in (1, 2)]
    assert points[3].config == build_config(BASE, ["model.n_head=2", "train.seed=1"])


def test_values_on_the_command_line_equal_those_in_a_config_and_replace_them():
    assert plan(None, "model.n_head=1,2", "train.seed=0..2") == plan({"model.n_head": ["1", "2"], "train.seed": "0..2"})
    assert plan({"model.n_head": ["1", "2"]}, "model.n_head=3,4,6").axes["model.n_head"] == ["3", "4", "6"]


def test_the_seed_is_always_part_of_a_sweep_so_that_more_can_be_added():
    assert names(plan(None, "model.n_head=1,2")) == ["n_head=1,seed=0", "n_head=2,seed=0"]
    assert plan(None, "model.n_head=1,2", "train.seed=5").points[0].config.train.seed == 5
    assert make_plan({"train": {"seed": "7"}}, ["model.n_head=1,2"]).axes["train.seed"] == ["7"]


def test_a_single_value_fixes_a_setting_and_the_last_argument_wins():
    (first, _) = plan({"model.n_head": "1,2", "train.seed": ["0", "1"]}, "train.seed=1", "model.n_layer=1").points
    assert (first.name, first.config.model.n_layer) == ("n_head=1,seed=1", 1)
    assert plan(None, "model.n_head=1,2", "model.n_head=3,4,6").axes["model.n_head"] == ["3", "4", "6"]
    assert names(plan(None, "model.n_head=1,2", "model.n_head=3")) == names(plan()) == ["seed=0"]
    assert plan(None, "model.n_head=1,2", "train.name=x").points[0].config.train.name == "x"


def test_named_variants_are_an_axis_of_the_grid():
    variants = {"modern": "", "textbook": {"model.norm": "layer", "model.mlp": "gelu"}}
    points = plan({"variants": variants, "train.seed": ["0", "1"]}).points
    assert [p.name for p in points] == ["modern,seed=0", "textbook,seed=0", "modern,seed=1", "textbook,seed=1"]
    assert points[3].config == build_config(BASE, ["model.norm=layer", "model.mlp=gelu", "train.seed=1"])
    fixed = plan({"variants": variants}, "model.norm=rms").points[1]
    assert fixed.config == build_config(BASE, ["model.norm=rms", "model.mlp=gelu"])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,4", ["1", "2", "4"]),
        ("0..3", ["0", "1", "2", "3"]),
        ("-1..1, 4,8..9", ["-1", "0", "1", "4", "8", "9"]),
        ("[8,4],[4, 4]", ["[8,4]", "[4, 4]"]),
        ("null,32", ["null", "32"]),
        ("3e-4, 1e-3", ["3e-4", "1e-3"]),
    ],
)
def test_values_are_split_at_commas_outside_lists_and_ranges_are_written_out(text, values):
    assert split_values("model.n_head", text) == values


def test_lists_can_be_swept_values():
    points = plan({"model.n_head": [["2", "1"], "3"]}).points
    assert [p.config.model.n_head for p in points] == [(2, 1), 3]
    assert [p.name for p in points] == ["n_head=2-1,seed=0", "n_head=3,seed=0"]
    assert plan({"model.n_head": ["1..2", "4"]}).axes["model.n_head"] == ["1", "2", "4"]


def test_values_that_differ_in_any_digit_have_different_names():
    lrs = ["0.00123456781", "0.00123456782", "1e-3", "3e-10"]
    found = names(plan({"optim.lr": lrs}))
    assert found == [f"lr={lr},seed=0" for lr in (*lrs[:2], "0.001", "3e-10")]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"model.n_head": ["1", "5", "7"], "train.seed": ["0", "1"]}, "4 of 6: model.n_head=7, .*; model.n_head=5, "),
        ({"model.n_haed": ["1"]}, "did you mean model.n_head"),
        ({"variant": {"a": ""}}, "unknown key variant"),
        ({"model.n_head": []}, "lacks a value"),
        ({"model.n_head": ["2", "02"]}, "two runs of the sweep are the same: n_head=2,seed=0 and n_head=2,seed=0"),
        ({"train.seed": "3..0"}, "train.seed=3..0 lacks a value; write values as in train.seed=1,2,4"),
        ({"train.seed": "1,,2"}, "lacks a value"),
        ({"train.name": ["a", "b"]}, "two runs of the sweep are the same: name=a,seed=0 and name=b,seed=0"),
        ({"variants": {"a": {"train.seed": "1"}}, "train.seed": ["0", "2"]}, "two runs of the sweep are the same"),
        ({"variants": {"a": "", "b": ""}}, "the same: a,seed=0 and b,seed=0"),
        ({"variants": {"a": "", "A": {"model.norm": "layer"}}}, "are named the same: a,seed=0 and A,seed=0"),
        ({"data.corpus": ["a/b", "a:b"]}, "are named the same: corpus=a-b,seed=0 and corpus=a-b,seed=0"),
        ({"variants": {"lock": {"train.seed": "1"}, "b": {"train.seed": "2"}}}, "'lock' must be a folder name"),
    ],
)
def test_an_invalid_sweep_produces_a_one_line_error_before_any_run_starts(sweep, message):
    with pytest.raises(UserError, match=message) as error:
        plan(sweep)
    assert "\n" not in str(error.value)


def test_a_sweep_can_be_rebuilt_from_its_description():
    """A variant that does not change a setting keeps the config's value, not the default."""
    settings = {"model": {"norm": "layer", "n_layer": "2"}, "optim": {"lr": "2e-3"}}
    sweep = {
        "variants": {"as it is": "", "rms": {"model.norm": "rms"}},
        "model.n_head": [["2", "1"], "4"],
        "model.head_size": ["null", "16"],
        "optim.lr": ["1e-3", "0.002"],
    }
    before = make_plan({**settings, "sweep": sweep})
    after = make_plan(before.settings)
    assert [(p.name, p.config) for p in after.points] == [(p.name, p.config) for p in before.points]
    assert after.settings == before.settings
    assert before.points[0].config.model.norm == "layer"


@pytest.mark.parametrize(
    ("first", "second", "folders"),
    [
        (["model.n_head=1,2"], ["model.n_head=1,2,3"], ["tiny"]),
        (["model.n_head=1,2", "train.seed=0..3"], ["model.n_head=1,2", "train.seed=1,2"], ["tiny"]),
        (["model.n_head=1,2"], ["model.n_head=2,3"], ["tiny", "tiny-2"]),
        (["model.n_head=1,2"], ["model.n_head=1,2", "optim.lr=1e-3,2e-3"], ["tiny", "tiny-2"]),
        (["model.n_head=1,2"], ["model.n_head=1,2", "train.max_steps=3"], ["tiny", "tiny-2"]),
    ],
    ids=["more values", "fewer seeds", "other values", "another axis", "another setting"],
)
def test_a_command_with_more_or_fewer_values_has_the_same_folder(workplace, first, second, folders):
    settings = read_settings(workplace / "tiny.yaml")
    plans = [make_plan(settings, values) for values in (first, second)]
    opened = [SweepFolder.open("tiny", plan) for plan in plans]
    assert sorted({folder.path.name for folder in opened}) == folders
    for folder, plan in zip(opened, plans, strict=True):
        again = SweepFolder.open("tiny", plan)
        assert again.path == folder.path
        created = {run.parent.name for run in again.path.glob("*/config.yaml")}
        assert set(names(plan)) <= set(names(again.plan)) == created


def test_variants_that_share_a_list_are_written_and_read_again(workplace):
    plan = make_plan({"sweep": {"variants": {"a": {"data.split": "[0.8,0.1,0.1]"}, "b": {}, "c": {"optim.lr": "1"}}}})
    (workplace / "sweep.yaml").write_text(to_yaml(plan.settings))
    assert read_plan(workplace).points == plan.points
