"""Several processes that train one model, started by torchrun."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, TINY_CONFIG, TINY_TEXT
from helpers import assert_same_state, metrics, untimed
from torchrun import LIMIT_S, finish, lines_of_train, losses, torchrun, train, wait_for_step, workers

LONG = ["train.max_steps=150", "train.checkpoint_every_steps=10", "train.eval_every_steps=50"]


@pytest.fixture(scope="session")
def calm(tmp_path_factory):
    """Return the folder of a run of two processes that nothing disturbed."""
    folder = tmp_path_factory.mktemp("calm")
    (folder / "tiny.yaml").write_text(TINY_CONFIG, encoding="utf-8")
    (folder / "text.txt").write_text(TINY_TEXT, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        finish(train(2, *LONG, name="calm"))
    return folder / "runs/calm"


def test_two_processes_train_like_one(workplace):
    settings = ["model.dropout=0", "train.dtype=float32", "train.accumulate=2", "train.grow_context_at=[0.5]"]
    settings += ["train.log_every_steps=1", "model.ngrams=[2,3]", "model.ngram_dropout=0"]
    finish(train(2, *settings, name="two"))
    import train as command

    assert command.main(["--config", "tiny.yaml", "train.batch_size=8", "train.name=one", *settings]) == 0
    one, two = Path("runs/one"), Path("runs/two")
    assert losses(two, "train_loss") == pytest.approx(losses(one, "train_loss"), abs=2e-4)
    assert losses(two, "val_loss") == pytest.approx(losses(one, "val_loss"), abs=2e-4)
    assert losses(two, "val_characters") == losses(one, "val_characters")


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_several_processes_exchange_values_and_act_together(n):
    output, _ = finish(torchrun(n, str(Path(__file__).with_name("several_processes.py"))))
    assert output.count("passed:") == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train.batch_size=9"], "train.batch_size=9 cannot be divided among 2 processes; use 8"),
        (["data.corpus=missing.txt"], "no such file"),
        (["train.device=cuda:0"], "device cuda:0"),
    ],
)
def test_a_mistake_is_reported_in_one_line_by_one_process(workplace, arguments, message):
    _, errors = finish(train(2, *arguments, name="x"), expected=1)  # the status of torchrun itself
    (line,) = lines_of_train(errors)
    assert message in line
    assert not Path("runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.nightly), 1])
def test_if_a_process_is_killed_all_end_and_the_run_can_be_resumed_exactly(workplace, calm, victim):
    process = train(2, *LONG, name="killed")
    wait_for_step("killed", 30)
    os.kill(workers(process)[victim], signal.SIGKILL)
    _, errors = finish(process, expected=1)
    assert "exitcode  : -9" in errors  # torchrun's summary names the cause
    finish(torchrun(2, str(ROOT / "train.py"), "--resume", "runs/killed"))
    assert untimed(metrics(Path("runs/killed"))) == untimed(metrics(calm))
    assert_same_state(Path("runs/killed/checkpoints/latest.safetensors"), calm / "checkpoints/latest.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_a_signal_stops_all_processes_at_the_same_step_and_the_run_resumes_exactly(workplace, calm, number):
    process = train(2, *LONG, name="stopped")
    wait_for_step("stopped", 30)
    os.kill(process.pid, number)
    output, _ = finish(process, expected=1)
    assert f"Stopped by {number.name} after step" in output
    finish(torchrun(2, str(ROOT / "train.py"), "--resume", "runs/stopped"))
    assert_same_state(Path("runs/stopped/checkpoints/latest.safetensors"), calm / "checkpoints/latest.safetensors")


@pytest.mark.nightly
def test_a_run_saved_by_2_processes_resumes_on_1_and_on_4(workplace):
    half = ["data.corpus=selmere", "model.dropout=0", "train.max_steps=40", "train.dtype=float32"]
    half += ["optim.decay_fraction=0"]
    for n in (1, 4):
        finish(train(2, *half, name=f"on-{n}"))
    finish(train(1, *half, "train.max_steps=80", name="whole"))
    for n in (1, 4):
        finish(torchrun(n, str(ROOT / "train.py"), "--resume", f"runs/on-{n}", "train.max_steps=80"))
        end = losses(Path("runs/whole"), "train_loss")[-1]
        assert losses(Path(f"runs/on-{n}"), "train_loss")[-1] == pytest.approx(end, abs=2e-3)


def test_an_environment_that_is_not_that_of_torchrun_is_an_error_in_one_line(workplace):
    command = [sys.executable, str(ROOT / "train.py"), "--config", "tiny.yaml"]
    result = subprocess.run(
        command, env=os.environ | {"WORLD_SIZE": "2"}, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert result.returncode == 2
    assert result.stderr == "train.py: WORLD_SIZE is set, but torchrun has not started this process; unset it\n"


def test_a_config_of_an_earlier_version_that_asks_for_two_processes_says_how_to_start_them(workplace, capsys):
    import train as command

    for number, status in ((1, 0), (2, 2)):
        Path("old.yaml").write_text(
            Path("tiny.yaml").read_text().replace("train: {", f"train: {{processes: {number}, ")
        )
        assert command.main(["--config", "old.yaml", "train.max_steps=1"]) == status
    assert "torchrun --standalone --nproc-per-node=2 train.py" in capsys.readouterr().err
