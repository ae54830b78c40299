"""Stop between two steps on Ctrl-C, termination or hangup."""

import contextlib
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

# Shells and wrappers may send one Ctrl-C several times.
REPEATED_WITHIN_S = 0.5


class Stopped(Exception):  # noqa: N818 - it is no error
    """The command must stop now, because of a signal."""

    def __init__(self, number: int):
        super().__init__(number)
        self.signal = signal.Signals(number)


class StopRequest:
    """A context that stores the first SIGINT, SIGTERM or SIGHUP in `signal`; a second one ends the process.

    A signal that the parent process ignores, as `nohup` does with SIGHUP, stays ignored.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._first_s = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is not threading.main_thread():
            return self  # Python lets only the main thread handle signals
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise Stopped if a signal has arrived."""
        if self.signal:
            raise Stopped(self.signal)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            if time.monotonic() - self._first_s < REPEATED_WITHIN_S:
                return
            _announce("\nStopped at once; unsaved steps are lost.\n")
            os._exit(128 + number)
        self.signal, self._first_s = signal.Signals(number), time.monotonic()
        _announce("\nStopping after this step and saving; press Ctrl-C again to stop at once without saving.\n")


def _announce(text: str) -> None:
    # os.write bypasses Python's buffers, which the interrupted code may be using.
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(2, text.encode())
