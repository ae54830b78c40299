"""What all commands share: errors of one line."""

import os
import subprocess
import sys

import pytest
import torch
from conftest import ROOT

import sample
import train
from cli.command import BUG, cause_of, report_errors
from cli.errors import LONGEST_LINE, one_line
from model.gpt import GPT


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("model.n_head=5 does not divide", "model.n_head=5 does not divide"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31mred\x9b", r"\x1b[31mred\x9b"),
        ("\u202eright to left", r"\u202eright to left"),
        ("\udcff", r"\udcff"),
        ("ünï 明 🙂", "ünï 明 🙂"),
    ],
)
def test_control_characters_in_a_message_are_escaped(text, shown):
    assert one_line(text) == shown


def test_the_middle_of_a_long_message_is_left_out():
    line = one_line("begin" + "x" * 10**6 + "end")
    assert len(line) <= LONGEST_LINE + len(" ... ")
    assert line.startswith("begin")
    assert line.endswith("xend")


@pytest.mark.parametrize(
    "override",
    [
        "data.corpus=a\nb",
        "data.corpus=\x1b[31m",
        "data.corpus=" + "x" * 500_000,
        "data.corpus=~nouser/x",
        "model.n_head=\n",
    ],
)
def test_any_value_of_a_setting_produces_one_short_line_without_control_characters(workplace, capsys, override):
    assert train.main(["--config", "tiny.yaml", override]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said[:-1].isprintable()
    assert len(said) < 1_200


@pytest.mark.parametrize("argument", ["--zzz\n", "--workers=\x1b"])
def test_an_invalid_option_produces_one_line_without_control_characters(capsys, argument):
    with pytest.raises(SystemExit) as end:
        train.main(["--config", "tiny.yaml", argument])
    said = capsys.readouterr().err
    assert (end.value.code, said.count("\n")) == (2, 1)
    assert said[:-1].isprintable()


def raise_in_pytorch(*_, **__):
    """Raise a real ValueError of PyTorch."""
    torch.nn.functional.cross_entropy(torch.zeros(2, 3), torch.zeros(5, dtype=torch.long))


@pytest.mark.parametrize("command", ["train", "sample"])
def test_a_bug_is_a_traceback_and_a_line_that_says_so_but_never_looks_like_a_mistake(
    workplace, capsys, monkeypatch, command
):
    assert train.main(["--config", "tiny.yaml", "train.max_steps=2", "train.eval_every_steps=2"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(GPT, "forward", raise_in_pytorch)
    status = train.main(["--resume", "runs/tiny", "train.max_steps=4"]) if command == "train" else sample.main([])
    said = capsys.readouterr().err
    assert status == 1
    assert "Traceback" in said
    assert "ValueError: Expected input batch_size (2) to match target batch_size (5)." in said
    assert said.endswith(f"{command}.py: this is a bug in the program; please report it with the lines above\n")


def test_an_error_of_the_operating_system_that_names_no_file_is_a_bug(capsys):
    def work():
        raise OSError("no device")

    assert report_errors("x.py", work, memory="") == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("end", "status", "error"), [("return 7", 7, ""), ("1 / 0", 1, "ZeroDivisionError")])
def test_no_thread_keeps_a_process_of_torchrun_from_ending(end, status, error):
    """PyTorch's process groups leave threads that abort or block an interpreter that ends."""
    program = (
        "import threading; from cli.command import run_command\n"
        "def main():\n"
        "    threading.Thread(target=threading.Event().wait).start()\n"
        "    print('done')\n"
        f"    {end}\n"
        "run_command(main)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        timeout=60,  # detects a hang
    )
    assert (finished.returncode, finished.stdout) == (status, "done\n")
    assert error in finished.stderr


TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    main()\n'
SUMMARY = f"""{TRACEBACK}torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
==========
train.py FAILED
----------
Root Cause (first observed failure):
  exitcode  : -9 (pid: 27372)  (SIGKILL)
==========
"""


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("Corpus x\ntrain.py: out of memory; lower train.batch_size\n", "out of memory; lower train.batch_size"),
        ("train.py: warning: train.dtype=bfloat16: slow\nCorpus x\nKilled\n", "Killed"),
        (f"train.py: warning: slow\nTraceback\n  line 1\nRuntimeError: no\ntrain.py: {BUG}\n", "RuntimeError: no"),
        ("train.py: a mistake\n=====\ntrain.py FAILED\n-----\nRoot Cause\n  rank: 0\n=====\n", "a mistake"),
        (f"{TRACEBACK}RuntimeError: no\n  see\nthe page\ntrain.py: {BUG}\n{SUMMARY}", "RuntimeError: no"),
        (f"{TRACEBACK}KeyError: 'a'\ntrain.py: {BUG}\ntrain.py: another process has ended\n", "KeyError: 'a'"),
        (f"train.py: warning: slow\nstep 10/20  loss 3.2\n{SUMMARY}", "ended by SIGKILL"),
        (f"{TRACEBACK}ImportError: no torch\n", "ImportError: no torch"),
        ("step 10/20  loss 3.2\ntrain.py: warning: slow\n", "step 10/20  loss 3.2"),
        ("\n", "no output"),
    ],
    ids=[
        "an error",
        "a warning",
        "a bug",
        "torchrun's summary",
        "a bug with a long message",
        "a bug in one of several processes",
        "processes that were killed",
        "a failed import",
        "a warning at the end",
        "nothing",
    ],
)
def test_the_cause_of_a_failure_is_the_error_and_not_a_warning_or_a_summary(output, cause):
    assert cause_of(output, "train.py") == cause
