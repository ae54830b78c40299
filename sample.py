"""Sample text from a trained model: python sample.py --checkpoint runs/shakespeare --prompt "ROMEO:" """

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for Ctrl-C while PyTorch is imported

import cli.openmp  # noqa: F401, I001 - before torch

import argparse
import functools
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from data.vocabulary import UnknownCharacterError, Vocabulary
from model.generate import Sampling
from model.gpt import GPT
from training.compiled_sampling import StepCompiler
from training.runs.checkpoint import load_checkpoint
from cli.command import CommandParser, run_command, report_errors
from cli.errors import UserError, checking_values, explain
from training.runs.run_folder import find_checkpoint
from training.runtime import choose_device
from training.sampling import prepare_for_sampling, stream_text

AT_ONCE = 64  # texts sampled in one batch, which limits memory
MOST_SAMPLES = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 if the user made a mistake."""
    options = parse(arguments)
    return report_errors("sample.py", lambda: run(options), memory="lower --samples", encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="sample.py", description="Sample text from a trained model.")
    add = parser.add_argument
    add("--checkpoint", type=Path, metavar="PATH", help="a run folder or a checkpoint (default: the newest run's best)")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", default="", metavar="TEXT", help="text to continue (default: the start of a line)")
    prompt.add_argument("--prompt-file", metavar="FILE", help="file to continue; - is standard input")
    prompt.add_argument("--interactive", action="store_true", help="ask for one prompt after another")
    add("--length", type=int, default=500, metavar="N", help="characters to sample (%(default)s)")
    add("--samples", type=int, default=1, metavar="N", help="number of texts (%(default)s)")
    add("--temperature", type=float, default=0.8, metavar="X", help="lower is more predictable, 0 is greedy (0.8)")
    add("--top-k", type=int, metavar="K", help="sample from the K likeliest characters only")
    add("--top-p", type=float, default=1.0, metavar="P", help="keep the likeliest whose probabilities add up to P (1)")
    add("--min-p", type=float, default=0.0, metavar="P", help="drop those less than P times as likely as the best (0)")
    add("--stop", action="append", default=[], metavar="TEXT", help="stop before this text; may be repeated")
    add("--seed", type=int, default=0, metavar="N", help="the same seed gives the same text (%(default)s)")
    add("--unknown", choices=("error", "skip"), default="error", help="handling of unknown prompt characters (error)")
    add("--compile", action="store_true", help="compile the model first, once for each shape: several times as fast")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    check(options)
    with checking_values():
        sampling = Sampling(
            temperature=options.temperature, top_k=options.top_k, top_p=options.top_p, min_p=options.min_p
        )
    device = choose_device(options.device)
    if options.compile and device.type != "cpu":
        raise UserError(f"--compile is for a CPU; {device} needs none")
    path = find_checkpoint(options.checkpoint)
    checkpoint = load_checkpoint(path)
    vocabulary = checkpoint.vocabulary
    skip = options.unknown == "skip"
    prompt = "" if options.interactive else known_characters(read_prompt(options), vocabulary, skip=skip)
    print(f"Sampling from {path}, step {checkpoint.step:,}, on {device}", file=sys.stderr)
    model = checkpoint.build_model().to(device)
    prepare_for_sampling(model, options.samples)
    sampler = PromptSampler(model, vocabulary, sampling, options)
    if options.interactive:
        sampler.interact()
    else:
        sampler.sample(prompt, seed=options.seed)
    return 0


def check(options: argparse.Namespace) -> None:
    for name, lowest in (("length", 0), ("samples", 1), ("seed", 0)):
        if (value := getattr(options, name)) < lowest:
            raise UserError(f"--{name} {value} must be at least {lowest}")
    if options.samples > MOST_SAMPLES:
        raise UserError(f"--samples {options.samples} must be at most {MOST_SAMPLES:,}; use another --seed for more")
    if options.seed >= 2**32:
        raise UserError(f"--seed {options.seed} must be below 2^32")
    if "" in options.stop:
        raise UserError("--stop needs at least one character")


def read_prompt(options: argparse.Namespace) -> str:
    if options.prompt_file is None:
        return options.prompt
    name = "standard input" if options.prompt_file == "-" else options.prompt_file
    if options.prompt_file == "-" and sys.stdin is None:
        raise UserError("--prompt-file - reads standard input, which is closed; give a file")
    content = sys.stdin.buffer.read() if options.prompt_file == "-" else Path(options.prompt_file).read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} is not UTF-8 text: byte {error.start:,} ({error.reason}); convert it to UTF-8"
        ) from None


class PromptSampler:
    """A model that continues prompts on standard output."""

    def __init__(self, model: GPT, vocabulary: Vocabulary, sampling: Sampling, options: argparse.Namespace):
        self.vocabulary, self.options = vocabulary, options
        compiler = StepCompiler(model) if options.compile else None
        self.stream = functools.partial(
            stream_text, model, vocabulary, length=options.length, sampling=sampling, compiler=compiler
        )

    def sample(self, prompt: str, *, seed: int) -> None:
        """Print one text character by character, or several texts, sampled in batches, one after the other."""
        if self.options.samples == 1:
            show(prompt)
            self._continue(prompt, seed, [show])
            show("\n")
            return
        for first in range(0, self.options.samples, AT_ONCE):
            texts = [io.StringIO() for _ in range(min(AT_ONCE, self.options.samples - first))]
            self._continue(prompt, seed, [text.write for text in texts], first=first)
            for number, text in enumerate(texts, start=first + 1):
                show(f"--- sample {number} ---\n{prompt}{text.getvalue()}\n\n")

    def interact(self) -> None:
        """Continue one line of input after another, each with the next seed."""
        if sys.stdin is None:
            raise UserError("--interactive reads standard input, which is closed; use --prompt")
        if sys.stdin.isatty():
            print("Type a prompt, or Ctrl-D to quit.", file=sys.stderr)
        seed = self.options.seed
        while True:
            if sys.stdin.isatty():
                print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                return
            try:
                prompt = known_characters(line.rstrip("\r\n"), self.vocabulary, skip=self.options.unknown == "skip")
                self.sample(prompt, seed=seed)
                seed += 1
            except UserError as error:
                print(f"sample.py: {explain(error)}", file=sys.stderr)

    def _continue(self, prompt: str, seed: int, outputs: list[Callable[[str], object]], *, first: int = 0) -> None:
        """Continue the prompt once for each output and pass it the text piece by piece. first: see `stream_text`."""
        stops = [StopText(self.options.stop, output) for output in outputs]
        for characters in self.stream(prompt, seed=seed, n_samples=len(outputs), first=first):
            for stop, character in zip(stops, characters, strict=True):
                stop.add(character)
            if all(stop.reached for stop in stops):
                return
        for stop in stops:
            stop.end()


class StopText:
    """A filter that passes text on up to the first stop text and holds back characters that may begin one."""

    def __init__(self, stops: Sequence[str], output: Callable[[str], object]):
        self.stops, self.output = stops, output
        self.held, self.reached = "", False

    def add(self, character: str) -> None:
        if self.reached:
            return
        self.held += character
        found = [stop for stop in self.stops if self.held.endswith(stop)]
        n_held = max((n for stop in self.stops for n in range(len(stop)) if self.held.endswith(stop[:n])), default=0)
        if found:
            self.reached = True
            n_held = max(map(len, found))
        self.output(self.held[: len(self.held) - n_held])
        self.held = self.held[len(self.held) - n_held :]

    def end(self) -> None:
        if not self.reached:
            self.output(self.held)


def known_characters(prompt: str, vocabulary: Vocabulary, *, skip: bool) -> str:
    """Return the prompt. Drop unknown characters if `skip` is set; otherwise, raise UserError at the first."""
    if skip:
        return "".join(c for c in prompt if c in vocabulary)
    try:
        vocabulary.encode(prompt)
    except UnknownCharacterError as error:
        raise UserError(
            f"character {error.position + 1:,} of the prompt, {error}; the model knows these {len(vocabulary)}: "
            f"{shortened(vocabulary.characters)}; leave it out, or use --unknown skip"
        ) from None
    return prompt


def shortened(characters: str) -> str:
    shown = "".join(c for c in characters if c.isprintable() and not c.isspace())
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


def show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    run_command(main)
