"""Stop between two steps on Ctrl-C, termination or hangup."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
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

    A signal that the parent process ignores, as `nohup` does with SIGHUP, stays ignored. announces: print what happens.
    agree: returns the number of the signal for all processes that must stop together.
    """

    def __init__(self, *, announces: bool = True, agree: Callable[[int], int] = int):
        self._announces, self._agree = announces, agree
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
        if number := self._agree(self.signal or 0):
            raise Stopped(number)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            if time.monotonic() - self._first_s < REPEATED_WITHIN_S:
                return
            self._announce("\nStopped at once; unsaved steps are lost.\n")
            os._exit(128 + number)
        self.signal, self._first_s = signal.Signals(number), time.monotonic()
        self._announce("\nStopping after this step and saving; press Ctrl-C again to stop at once without saving.\n")

    def _announce(self, text: str) -> None:
        if self._announces:
            # os.write bypasses Python's buffers, which the interrupted code may be using.
            with contextlib.suppress(OSError):  # the terminal may be gone
                os.write(2, text.encode())
