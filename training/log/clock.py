"""The clock of a run: the only place that measures how long it takes."""

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """A clock that measures a run's time in seconds.

    started_s: `time.perf_counter()` at the start of the command. earlier_s: the time of the run's earlier sessions.
    """

    def __init__(self, started_s: float, *, earlier_s: float = 0.0):
        self._origin_s = started_s - earlier_s
        self._session_start_s = self._lap_start_s = time.perf_counter()
        self._paused_s = 0.0  # in this lap

    @property
    def elapsed_s(self) -> float:
        """Time since the command started, plus the time of earlier sessions."""
        return time.perf_counter() - self._origin_s

    @property
    def session_s(self) -> float:
        """Time since training began in this process, pauses included."""
        return time.perf_counter() - self._session_start_s

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time inside the context from the lap, because it is not training time."""
        began_s = time.perf_counter()
        yield
        self._paused_s += time.perf_counter() - began_s

    def lap_s(self) -> float:
        """Return the training time since the last call, without pauses, and begin a new lap."""
        now_s = time.perf_counter()
        lap_s = now_s - self._lap_start_s - self._paused_s
        self._lap_start_s, self._paused_s = now_s, 0.0
        return lap_s
