"""What a run shows: a bar on a terminal, plain lines in a pipe."""

import sys

from tqdm import tqdm


class Console:
    """Progress of a run of max_steps, from start_step on."""

    def __init__(self, start_step: int, max_steps: int):
        self.max_steps = max_steps
        self.on_terminal = sys.stderr.isatty()
        self.bar = tqdm(
            initial=start_step,
            total=max_steps,
            unit="step",
            desc="Training",
            dynamic_ncols=True,
            disable=not self.on_terminal,
            bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}, {remaining} left{postfix}]",
        )

    def advance(self) -> None:
        self.bar.update()

    def training(self, step: int, *, loss: float, lr: float, tokens_per_s: float, left_s: float) -> None:
        """A training line: in the bar's tail on a terminal, printed elsewhere."""
        self.bar.set_postfix_str(f"loss {loss:.4f}, {tokens_per_s:,.0f} characters/s")
        if not self.on_terminal:
            print(
                f"step {step:,}/{self.max_steps:,}  loss {loss:.4f}  lr {lr:.2e}  {tokens_per_s:,.0f} characters/s  "
                f"{left_s:.0f} s left",
                flush=True,
            )

    def say(self, text: str) -> None:
        """A line that stays, above the bar where there is one."""
        with tqdm.external_write_mode(file=sys.stdout):
            print(text, flush=True)

    def close(self) -> None:
        self.bar.close()
