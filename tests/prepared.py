"""Run a command of the project in a process that has already imported PyTorch, which takes seconds.

The process is a fork of a server that has imported PyTorch alone, and takes the project's code from its own folder. It
imports this module, which therefore imports nothing of the project.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch"])


def run_prepared(arguments, *, cwd, timeout=600):
    """Run `python ARGUMENTS` and return the finished process with its output as text."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        for file in files:
            file.touch()
        process = SERVER.Process(target=run_as_main, args=(arguments, cwd, files))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(arguments, timeout)
        stdout, stderr = (file.read_text(encoding="utf-8") for file in files)
    return subprocess.CompletedProcess(arguments, process.exitcode, stdout, stderr)


def run_as_main(arguments, cwd, files):
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY), number)
    sys.stdin = os.fdopen(0)  # multiprocessing has closed it
    os.chdir(cwd)
    tests = Path(__file__).parent
    sys.path[:] = [str(cwd), *(path for path in sys.path if Path(path) not in (tests, tests.parent))]
    first, *others = sys.argv = arguments
    if first == "-m":
        sys.argv = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        exec(others[0], {"__name__": "__main__"})
    else:
        runpy.run_path(first, run_name="__main__")
