import pytest

from training.config_file import ConfigError, build_config
from training.sweep.plan import describe, make_plan
from training.sweep.values import split_values

BASE = {"model": {"n_embd": "24", "n_layer": "2"}, "train": {"max_steps": "5"}}


def plan(sweep=None, overrides=(), line=None):
    return make_plan(BASE | ({"sweep": sweep} if sweep is not None else {}), overrides, line)


def test_a_sweep_runs_every_combination_seed_by_seed():
    points = plan({"model.n_head": ["1", "2"], "train.seed": "0..2"}).points
    assert [p.name for p in points] == [f"n_head={n},seed={s}" for s in (0, 1, 2) for n in (1, 2)]
    assert points[3].config == build_config(BASE, ["model.n_head=2", "train.seed=1"])


def test_a_sweep_on_the_command_line_equals_one_in_a_config():
    assert plan(line=["model.n_head=1,2", "train.seed=0..2"]) == plan(
        {"model.n_head": ["1", "2"], "train.seed": "0..2"}
    )
    assert len(plan({"model.n_head": ["1", "2"]}, line=["model.n_head=3,4,6"]).points) == 3


def test_the_seed_is_always_part_of_a_sweep_so_that_more_can_be_added():
    assert [p.name for p in plan(line=["model.n_head=1,2"]).points] == ["n_head=1,seed=0", "n_head=2,seed=0"]
    assert plan(line=["model.n_head=1,2"], overrides=["train.seed=5"]).points[0].config.train.seed == 5
    assert make_plan({"train": {"seed": "7"}}, [], ["model.n_head=1,2"]).axes["train.seed"] == ["7"]


def test_the_last_sweep_of_a_setting_wins_but_fixing_and_varying_it_is_an_error():
    assert plan(line=["model.n_head=1,2", "model.n_head=3,4,6"]).axes["model.n_head"] == ["3", "4", "6"]
    assert plan(line=["model.n_head=1,2", "train.seed=0..3", "train.seed=5"]).axes["train.seed"] == ["5"]
    assert plan(line=["model.n_head=1,2", "train.name=x"]).points[0].config.train.name == "x"
    with pytest.raises(ConfigError, match=r"model\.n_head is set to 8 and varied by --sweep"):
        plan(overrides=["model.n_head=8"], line=["model.n_head=1,2"])
    with pytest.raises(ConfigError, match=r"train\.name cannot be varied"):
        plan(line=["train.name=a,b"])


def test_a_single_value_on_the_command_line_is_an_override():
    points = plan(line=["model.n_head=1,2", "model.n_layer=1"]).points
    assert [p.name for p in points] == ["n_head=1,seed=0", "n_head=2,seed=0"]
    assert points[0].config.model.n_layer == 1
    with pytest.raises(ConfigError, match="--sweep varies nothing"):
        plan(line=["model.n_head=2", "model.n_layer=1"])


def test_named_variants_are_an_axis_of_the_grid():
    variants = {"modern": "", "textbook": {"model.norm": "layer", "model.mlp": "gelu"}}
    points = plan({"variants": variants, "train.seed": ["0", "1"]}).points
    assert [p.name for p in points] == ["modern,seed=0", "textbook,seed=0", "modern,seed=1", "textbook,seed=1"]
    assert points[3].config == build_config(BASE, ["model.norm=layer", "model.mlp=gelu", "train.seed=1"])


def test_an_override_fixes_a_swept_setting():
    assert [p.name for p in plan({"model.n_head": ["1", "2"], "train.seed": ["0", "1"]}, ["train.seed=1"]).points] == [
        "n_head=1,seed=1",
        "n_head=2,seed=1",
    ]
    assert plan({"model.n_head": ["1", "2"]}, ["model.n_head=2"]) is None
    assert plan() is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,4", ["1", "2", "4"]),
        ("0..3", ["0", "1", "2", "3"]),
        ("[8,4],[4, 4]", ["[8,4]", "[4, 4]"]),
        ("null,32", ["null", "32"]),
        ("3e-4, 1e-3", ["3e-4", "1e-3"]),
    ],
)
def test_values_are_split_at_commas_outside_lists(text, values):
    assert split_values("model.n_head", text) == values


def test_lists_can_be_swept_values():
    points = plan({"model.n_head": [["2", "1"], "3"]}).points
    assert [p.config.model.n_head for p in points] == [(2, 1), 3]
    assert [p.name for p in points] == ["n_head=2-1,seed=0", "n_head=3,seed=0"]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (
            {"model.n_head": ["1", "5", "7"], "train.seed": ["0", "1"]},
            r"the sweep has invalid runs, 4 of 6: .*=5 .*=7 ",
        ),
        ({"model.n_haed": ["1"]}, "did you mean model.n_head"),
        ({"variant": {"a": ""}}, "unknown entry sweep.variant; write settings as in model.n_head, or variants"),
        ({"model.n_head": []}, "has no values"),
        ({"model.n_head": ["2", "02"]}, "two runs of the sweep are the same: n_head=2, seed=0 and n_head=2, seed=0"),
        ({"train.seed": "3..0"}, "must rise"),
        ({"train.seed": "1,,2"}, "has an empty value"),
        ({"train.seed": "0..9999", "model.n_head": ["1", "2"]}, "20,000 runs"),
        ({"train.name": ["a", "b"]}, "train.name cannot be varied"),
        ({"variants": {"a": {"train.seed": "1"}}, "train.seed": ["0"]}, "variants.a sets train.seed"),
        ({"variants": ["a"]}, "variants must be names"),
        ({"variants": {"a": "x"}}, "variants.a must be settings"),
        ({"variants": {"a": "", "b": ""}}, "the same: a, seed=0 and b, seed=0"),
        ("n_head", "must name settings"),
        ({"variants": {"x" * 300: ""}}, "is not a valid folder name"),
    ],
)
def test_an_invalid_sweep_produces_a_one_line_error_before_any_run_starts(sweep, message):
    with pytest.raises(ConfigError, match=message) as error:
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
    after = make_plan(describe(before))
    assert [(p.name, p.config) for p in after.points] == [(p.name, p.config) for p in before.points]
    assert describe(after) == describe(before)
    assert before.points[0].config.model.norm == "layer"
