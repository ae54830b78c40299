"""The clock of a run: its time over all sessions, and the speed of its steps without pauses."""

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Times in seconds.

    started_s: `time.perf_counter()` at the start of the command. earlier_s: the time of the run's earlier sessions.
    """

    def __init__(self, started_s: float, earlier_s: float, step: int):
        self.origin_s = started_s - earlier_s
        self.first_step = self.lap_step = step
        self.session_start_s = self.lap_start_s = started_s

    def start(self) -> None:
        """Measure the speed from now on."""
        self.session_start_s = self.lap_start_s = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Time since the command started, plus the time of the run's earlier sessions."""
        return time.perf_counter() - self.origin_s

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time inside the context from the speed."""
        began_s = time.perf_counter()
        yield
        self.lap_start_s += time.perf_counter() - began_s

    def lap(self, step: int) -> float:
        """Return the steps per second since the last call, and begin a new lap at this step."""
        now_s = time.perf_counter()
        steps_per_s = (step - self.lap_step) / (now_s - self.lap_start_s)
        self.lap_step, self.lap_start_s = step, now_s
        return steps_per_s

    def left_s(self, step: int, max_steps: int) -> float:
        """Return the time that the remaining steps will take, pauses included, if they go on like those before."""
        return (max_steps - step) * (time.perf_counter() - self.session_start_s) / (step - self.first_step)
