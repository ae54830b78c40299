"""Ctrl-C and termination, taken between two steps and not in the middle of one."""

import contextlib
import os
import signal
import time
from types import FrameType

# Shells and wrappers may send one Ctrl-C several times over.
REPEATED_WITHIN_S = 0.5


class StopRequest:
    """Within the context, the first SIGINT, SIGTERM or SIGHUP is remembered in `signal`; a second ends the process.

    A signal that is ignored from outside, as `nohup` does with SIGHUP, stays ignored.
    """

    def __init__(self):
        self.signal: signal.Signals | None = None
        self._first_s = 0.0
        self._previous = {}

    def __enter__(self) -> "StopRequest":
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        # Written past Python's buffers, which the interrupted code may be in the middle of using.
        if self.signal is not None:
            if time.monotonic() - self._first_s < REPEATED_WITHIN_S:
                return
            _write_now("\nStopped at once; what was not saved is lost.\n")
            os._exit(128 + number)
        self.signal, self._first_s = signal.Signals(number), time.monotonic()
        _write_now("\nStopping after this step, with a checkpoint; once more stops at once, without.\n")


def _write_now(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(2, text.encode())
