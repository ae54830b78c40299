"""Ctrl-C and termination, taken between two steps and not in the middle of one."""

import signal
from types import FrameType


class StopRequest:
    """Within the context, the first SIGINT or SIGTERM is remembered in `signal`; a second ends the process at once."""

    def __init__(self):
        self.signal: signal.Signals | None = None
        self._previous = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        for caught in self._previous:
            signal.signal(caught, signal.SIG_DFL)
