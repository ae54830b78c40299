"""Console output of a run: a progress bar on a terminal, plain lines in a pipe."""

import os
import sys

from tqdm import tqdm

from cli.command import silence_output
from cli.errors import printable


class Console:
    """A display of the progress of one or more runs from start_step to max_steps."""

    def __init__(self, start_step: int, max_steps: int, *, doing: str = "Training"):
        self.max_steps = max_steps
        # Some terminals, such as those of containers, report no size, and tqdm draws nothing there.
        draws_bar = sys.stderr.isatty() and min(os.get_terminal_size(sys.stderr.fileno())) > 0
        self.prints_lines = not (draws_bar and sys.stdout.isatty())  # as in `train.py | tee log`
        self.bar = tqdm(
            initial=start_step,
            total=max_steps,
            unit="step",
            desc=doing,
            dynamic_ncols=True,
            disable=not draws_bar,
            bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}, {remaining} left{postfix}]",
        )

    def advance(self) -> None:
        self.bar.update()

    def training(self, step: int, *, loss: float, lr: float, tokens_per_s: float, left_s: float) -> None:
        """Show the training loss and speed after the bar, and print them as a line if the output is not a terminal."""
        speed = f"{tokens_per_s:,.0f} characters/s"
        self.bar.set_postfix_str(f"loss {loss:.4f}, {speed}")
        if self.prints_lines:
            self.say(f"step {step:,}/{self.max_steps:,}  loss {loss:.4f}  lr {lr:.2e}  {speed}  {left_s:.0f} s left")

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one. A closed output does not stop the run."""
        try:
            with tqdm.external_write_mode(file=sys.stdout):
                print(printable(text), flush=True)
        except OSError:
            silence_output()

    def close(self) -> None:
        self.bar.close()
