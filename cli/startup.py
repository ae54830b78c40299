"""What must be checked and set before anything else: import this module first, before torch.

Descriptors: cron and daemons may start a command without standard input, output or error. The next file that is opened
would get the free descriptor, and with it the messages, so /dev/null is opened first.

OpenMP: PyTorch reads once how long threads spin at a barrier before they sleep. Waking up costs time: with a spin count
of 1,000, two threads are no faster than one. Spinning takes time from other processes: with the default, 300,000, each
of two runs on two cores takes up to 12 times as long as a single run; with this count 3.8 times, and a single run takes
10 % longer than with the default (`configs/shakespeare.yaml`, 2 cores of an Intel Xeon with AMX).
"""

import importlib.util
import os
import sys
from pathlib import Path

LIBRARIES = ("torch", "numpy", "tqdm", "fsspec", "yaml", "jinja2", "safetensors", "scipy", "matplotlib")

missing = ["Python 3.11"] * (sys.version_info < (3, 11))
missing += [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
if missing:
    programs = Path(__file__).resolve().parents[1] / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    advice = f"activate the environment (. {programs / 'activate'}), or create it as README.md says"
    print(f"{sys.executable} lacks {', '.join(missing)}: {advice}", file=sys.stderr)
    sys.exit(2)

for number, name in enumerate(("stdin", "stdout", "stderr")):
    try:
        os.fstat(number)
    except OSError:  # it is closed
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
        if number > 0:  # standard input stays None, and commands that need it say so
            setattr(sys, name, open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115

if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "8000"
