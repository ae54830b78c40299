"""Commands for experiments and finished runs; `python -m experiments` lists them by their first lines."""

import signal
import sys

if sys.argv[0] == "-m" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for Ctrl-C while PyTorch is imported

import cli.startup  # noqa: F401 - before torch
