import pytest
import torch
from conftest import ROOT
from helpers import make_checkpoint

import train
from tests.torture import disturbed_run
from tests.torture.__main__ import main, undisturbed_run
from tests.torture.compare import checkpoint_differences, differences
from training.runs.checkpoint import save_checkpoint
from training.runs.run_folder import RunFolder


@pytest.mark.slow
def test_a_round_of_faults_loses_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["--rounds", "2", "--minutes", "30", "--seed", "1"]) == 0, capsys.readouterr().err
    assert "2 runs recovered, 0 lost" in capsys.readouterr().out


@pytest.mark.slow
def test_two_commands_at_once_do_not_damage_the_text_of_each_other():
    with undisturbed_run(1) as first, undisturbed_run(1) as second:
        assert first.encoded != second.encoded


def test_equal_checkpoints_have_no_differences_and_a_changed_tensor_is_named(tmp_path):
    a, b = tmp_path / "a.pt", tmp_path / "b.pt"
    save_checkpoint(make_checkpoint(), a)
    save_checkpoint(make_checkpoint(), b)
    assert checkpoint_differences(a, b) == []
    changed = make_checkpoint()
    changed.optimizers[0][0]["momentum_buffer"][1, 2] += 1e-6
    changed.model["extra"] = torch.zeros(1)
    save_checkpoint(changed, b)
    extra, momentum = checkpoint_differences(a, b)
    assert extra == "model.extra is None instead of tensor([0.])"
    assert momentum == "optimizers[0].0.momentum_buffer differs"
    b.write_bytes(b"")
    assert "is damaged" in checkpoint_differences(a, b)[0]


def test_two_runs_with_the_same_seed_are_equal_and_any_lost_line_is_noticed(workplace):
    for name in ("a", "b"):
        assert train.main(["--config", "tiny.yaml", f"train.name={name}", "train.keep_checkpoints=3"]) == 0
    a, b = (RunFolder(workplace / "runs" / name) for name in ("a", "b"))
    assert differences(a, b) == []
    lines = a.metrics.read_bytes().splitlines(keepends=True)
    a.metrics.write_bytes(b"".join(lines[:-2] + lines[-1:]))
    a.samples.write_bytes(a.samples.read_bytes()[1:])
    a.kept(0).unlink()
    (a.path / "x.part").touch()
    found = differences(a, b)
    assert "metrics.jsonl differs" in found
    assert "samples.txt differs" in found
    assert "x.part is left" in found
    assert any(line.startswith("kept steps") for line in found)


@pytest.mark.slow
def test_a_loss_ends_with_status_1_and_says_how_to_repeat_it(tmp_path, monkeypatch, capsys):
    """The process is made to lose something: every resumed session gets another seed."""
    monkeypatch.chdir(tmp_path)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import train\n"
        "extra = ['train.seed=1'] if '--resume' in sys.argv else []\n"
        "sys.exit(train.main(sys.argv[1:] + extra))\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(disturbed_run, "TRAIN", wrong)
    assert main(["--rounds", "1", "--seed", "1"]) == 1
    errors = capsys.readouterr().err
    assert "python -m tests.torture --rounds 1 --seed 1" in errors
    assert (tmp_path / "torture-1").is_dir()
