import os
import pty
import re
import signal
import subprocess
import sys
import termios

import pytest
from conftest import ROOT, run_command, run_script
from helpers import assert_mistake, heed_signals, read_available

import train
from training.runs.checkpoint import load_checkpoint


def test_tensorboard_is_optional_and_the_error_says_how_to_install_it(workplace, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    command = ["--config", "tiny.yaml", "train.logger=tensorboard"]
    assert_mistake(capsys, train.main, command, "pip install tensorboard")


def test_a_second_ctrl_c_ends_the_process_at_once_but_a_repeated_signal_does_not():
    script = """
import os, signal
from cli import command
command.REPEATED_WITHIN_S = 60
with command.StopRequest() as stop:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    print(stop.signal.name, flush=True)
    command.REPEATED_WITHIN_S = 0
    os.kill(os.getpid(), signal.SIGTERM)
    print("still here")
"""
    stopped = run_command([sys.executable, "-c", script], cwd=ROOT, preexec_fn=heed_signals)
    assert (stopped.stdout, stopped.returncode) == ("SIGINT\n", 143)
    assert stopped.stderr.endswith("Stopped at once; unsaved steps are lost.\n")


@pytest.mark.slow
def test_signals_that_the_parent_process_ignores_stay_ignored(workplace):
    """`nohup` ignores signals in this way, as do scripts for their background jobs."""
    ignoring = "import os, signal, sys; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGHUP, signal.SIGINT)]; "
    ignoring += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", ignoring, str(ROOT / "train.py"), "--config", "tiny.yaml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("step 10/"):
                process.send_signal(signal.SIGHUP)
                process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert load_checkpoint(workplace / "runs/tiny/checkpoints/latest.safetensors").step == 40


@pytest.mark.slow
def test_a_run_continues_if_the_output_pipe_is_closed(workplace):
    train_200_steps = f"{sys.executable} {ROOT / 'train.py'} --config tiny.yaml train.max_steps=200"
    command = f"{train_200_steps} | head -n 1; exit ${{PIPESTATUS[0]}}"
    finished = run_command(["bash", "-c", command])
    assert (finished.returncode, finished.stderr) == (0, "")
    assert load_checkpoint(workplace / "runs/tiny/checkpoints/latest.safetensors").step == 200


@pytest.mark.slow
def test_a_run_continues_if_the_output_cannot_encode_the_text(workplace):
    (workplace / "text.txt").write_text("床前明月光,疑是地上霜。\n举头望明月,低头思故乡。\n" * 30, encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    finished = run_script("train.py", "--config", "tiny.yaml", env=environment)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "--checkpoint runs/tiny" in finished.stdout


@pytest.mark.slow
def test_training_shows_a_bar_on_a_terminal_and_prints_lines_to_a_pipe(workplace):
    leader, follower = pty.openpty()  # standard error is a terminal even with a pipe, as in `train.py | tee log`
    command = [sys.executable, str(ROOT / "train.py"), "--config", "tiny.yaml"]
    piped = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, text=True, timeout=180)
    assert ("\r" in piped.stdout, read_available(leader)) == (False, "")
    line = re.compile(r"^step \d+/40  loss [\d.]+  lr \S+  [\d,]+ characters/s  \d+ s left$", re.MULTILINE)
    assert len(line.findall(piped.stdout)) == 4

    for width in (100, 20):
        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (24, width))
        with subprocess.Popen(command, stdout=follower, stderr=follower) as process:
            process.wait(timeout=180)
            shown = read_available(leader)
        assert process.returncode == 0
        assert "\rTraining" in shown
        assert "validation loss" in shown
        bars = [line for line in shown.split("\r") if line.startswith("Training")]
        assert max(map(len, bars)) <= width
    assert "step 10/40" not in shown
