"""Sample text from a trained model: python sample.py --checkpoint runs/shakespeare --prompt "ROMEO:" """

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for Ctrl-C while PyTorch is imported

import cli.openmp  # noqa: F401, I001 - before torch

import argparse
import dataclasses
import functools
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from data.vocabulary import UnknownCharacterError, Vocabulary
from model.generate import Sampling
from training.sampling.step_compiler import StepCompiler
from cli.command import CommandParser, run_command, report_errors
from cli.errors import UserError, checking_values, explain
from training.sampling.texts import StopText, prepare_for_sampling, stream_texts
from training.trained_model import TrainedModel, load_model

AT_ONCE = 64  # texts sampled in one batch, which limits memory
MOST_SAMPLES = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 if the user made a mistake."""
    options = parse(arguments)
    return report_errors("sample.py", lambda: run(options), memory="lower --samples", encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="sample.py", description="Sample text from a trained model.")
    add = parser.add_argument
    add("--checkpoint", type=Path, metavar="PATH", help="a run folder or a checkpoint (default: the newest best one)")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", default="", metavar="TEXT", help="text to continue (default: the start of a line)")
    prompt.add_argument("--prompt-file", metavar="FILE", help="file to continue; - is standard input")
    prompt.add_argument("--prompts", metavar="FILE", help="file of prompts, one per line; .jsonl: JSON lines")
    prompt.add_argument("--interactive", action="store_true", help="ask for one prompt after another")
    add("--length", type=int, default=500, metavar="N", help="characters to sample (%(default)s)")
    add("--samples", type=int, default=1, metavar="N", help="number of texts for each prompt (%(default)s)")
    add("--temperature", type=float, default=0.8, metavar="X", help="lower is more predictable, 0 is greedy (0.8)")
    add("--top-k", type=int, metavar="K", help="sample from the K likeliest characters only")
    add("--top-p", type=float, default=1.0, metavar="P", help="keep the likeliest whose probabilities add up to P (1)")
    add("--min-p", type=float, default=0.0, metavar="P", help="drop those less than P times as likely as the best (0)")
    add("--stop", action="append", default=[], metavar="TEXT", help="stop before this text; may be repeated")
    add("--seed", type=int, default=0, metavar="N", help="the same seed gives the same text (%(default)s)")
    add("--unknown", choices=("error", "skip"), default="error", help="handling of unknown prompt characters (error)")
    add("--compile", action="store_true", help="compile the model first: small models are about 3 times as fast")
    add("--json", action="store_true", help="print a JSON object per text, with the log-probability of each character")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)")
    options, others = parser.parse_known_args(arguments)
    if others and others[0].startswith("-"):
        parser.error(f"unrecognized arguments: {others[0]}")
    elif others:
        hint = "a text to continue follows --prompt"
        if Path(others[0]).exists():
            hint = f"did you mean --checkpoint {others[0]}?"
        parser.error(f"unknown argument {others[0]!r}; {hint}")
    return options


def run(options: argparse.Namespace) -> int:
    check(options)
    with checking_values():
        sampling = Sampling(
            temperature=options.temperature, top_k=options.top_k, top_p=options.top_p, min_p=options.min_p
        )
    trained = load_model(options.checkpoint, options.device)
    device = trained.runtime.device
    if options.compile and device.type != "cpu":
        raise UserError(f"--compile is for a CPU; {device} needs none")
    if options.json and trained.vocabulary.unit == "byte":
        raise UserError("--json scores characters, but this is a model of bytes")
    texts = [] if options.interactive else read_prompts(options, trained.vocabulary)
    prompts = [text for text in texts for _ in range(options.samples)]
    if len(prompts) > MOST_SAMPLES:
        raise UserError(f"{len(prompts):,} texts are too many; sample at most {MOST_SAMPLES:,} at once")
    print(f"Sampling from {trained.path}, step {trained.checkpoint.step:,}, on {device}", file=sys.stderr)
    prepare_for_sampling(trained.model, options.samples if options.interactive else len(prompts))
    sampler = PromptSampler(trained, sampling, options)
    if options.interactive:
        sampler.interact()
    elif len(prompts) == 1 and not options.json and options.prompts is None:
        sampler.show_one(prompts[0], seed=options.seed)
    else:
        sampler.show_all(prompts, seed=options.seed)
    return 0


def check(options: argparse.Namespace) -> None:
    for name, lowest in (("length", 0), ("samples", 1), ("seed", 0)):
        if (value := getattr(options, name)) < lowest:
            raise UserError(f"--{name} {value} must be at least {lowest}")
    if options.samples > MOST_SAMPLES:
        raise UserError(f"--samples {options.samples} must be at most {MOST_SAMPLES:,}; use another --seed for more")
    if options.seed >= 2**32:
        raise UserError(f"--seed {options.seed} must be below 2^32")
    if options.compile and options.prompts is not None:
        raise UserError("--compile makes one text faster; --prompts samples many together")
    if "" in options.stop:
        raise UserError("--stop needs at least one character")


def read_prompts(options: argparse.Namespace, vocabulary: Vocabulary) -> list[str]:
    """Return the prompts. Raises UserError if a file is not UTF-8 text, or a line of it is no prompt for the model."""
    skip = options.unknown == "skip"
    if options.prompts is None:
        prompt = options.prompt if options.prompt_file is None else read_file(options.prompt_file)
        return [known_characters(prompt, vocabulary, skip=skip)]
    *lines, rest = read_file(options.prompts).split("\n")
    prompts = []
    for number, line in enumerate([*lines, rest] if rest else lines, start=1):
        prompt = line.removesuffix("\r")
        try:
            prompt = parse_json_line(prompt) if options.prompts.endswith(".jsonl") else prompt
            prompts.append(known_characters(prompt, vocabulary, skip=skip))
        except UserError as error:
            raise UserError(f"{options.prompts}, line {number}: {error}") from None
    if not prompts:
        raise UserError(f"{options.prompts} has no prompts; write one per line")
    return prompts


def parse_json_line(line: str) -> str:
    """Return the prompt in a JSON line: a text, or an object with a `prompt`. Raises UserError if it is neither."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    prompt = value.get("prompt") if isinstance(value, dict) else value
    if not isinstance(prompt, str):
        raise UserError('is no prompt; write "a text", or {"prompt": "a text"}')
    return prompt


def read_file(file: str) -> str:
    """Return the text of a file; - is standard input."""
    if file == "-" and sys.stdin is None:
        raise UserError("--prompt-file - reads standard input, which is closed; give a file")
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        name = "standard input" if file == "-" else file
        raise UserError(
            f"{name} is not UTF-8 text: byte {error.start:,} ({error.reason}); convert it to UTF-8"
        ) from None


class PromptSampler:
    """A model that continues prompts on standard output."""

    def __init__(self, trained: TrainedModel, sampling: Sampling, options: argparse.Namespace):
        self.trained, self.sampling, self.options = trained, sampling, options
        compiler = StepCompiler(trained.model) if options.compile else None
        self.stream = functools.partial(
            stream_texts, trained.model, trained.vocabulary, length=options.length, sampling=sampling, compiler=compiler
        )

    def show_one(self, prompt: str, *, seed: int) -> None:
        """Print one text character by character."""
        pieces = self.stream([prompt], seed=seed, streams=[0])  # with --compile, this compiles first and prints a line
        show(prompt)
        self._pass_on(pieces, [show])
        show("\n")

    def show_all(self, prompts: Sequence[str], *, seed: int) -> None:
        """Print one text for each prompt, in their order; those with prompts of equal length are sampled together."""
        lengths = [len(self.trained.vocabulary.encode(prompt)) for prompt in prompts]
        order = sorted(range(len(prompts)), key=lambda i: lengths[i])
        together = [list(group) for _, group in itertools.groupby(order, key=lambda i: lengths[i])]
        batches = [group[i : i + AT_ONCE] for group in together for i in range(0, len(group), AT_ONCE)]
        texts: dict[int, str] = {}
        shown = 0
        with tqdm(total=len(prompts), desc="Sampling", unit=" texts", disable=None, leave=False) as bar:
            for batch in batches:
                outputs = [io.StringIO() for _ in batch]
                pieces = self.stream([prompts[i] for i in batch], seed=seed, streams=batch)
                self._pass_on(pieces, [output.write for output in outputs])
                texts |= {i: output.getvalue() for i, output in zip(batch, outputs, strict=True)}
                bar.update(len(batch))
                while shown in texts:
                    show(self._record(shown, prompts[shown], texts.pop(shown), seed))
                    shown += 1

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
                skip = self.options.unknown == "skip"
                prompt = known_characters(line.rstrip("\r\n"), self.trained.vocabulary, skip=skip)
                if self.options.samples == 1 and not self.options.json:
                    self.show_one(prompt, seed=seed)
                else:
                    self.show_all([prompt] * self.options.samples, seed=seed)
                seed += 1
            except UserError as error:
                print(f"sample.py: {explain(error)}", file=sys.stderr)

    def _record(self, number: int, prompt: str, text: str, seed: int) -> str:
        if not self.options.json:
            return f"--- sample {number + 1} ---\n{prompt}{text}\n\n"
        prompt = prompt or self.trained.vocabulary.default_prompt
        scores = self.trained.log_probabilities(prompt + text).tolist()
        settings = dataclasses.asdict(self.sampling) | {"length": self.options.length, "stop": self.options.stop}
        record = {
            "prompt": prompt,
            "text": text,
            "log_probabilities": [None, *(round(x, 6) for x in scores)],
            "checkpoint": str(self.trained.path),
            "step": self.trained.checkpoint.step,
            "seed": seed,
            "sample": number,
            "settings": settings,
        }
        return json.dumps(record) + "\n"

    def _pass_on(self, pieces: Iterator[list[str]], outputs: Sequence[Callable[[str], object]]) -> None:
        """Pass each text to its output, piece by piece, up to the first stop text."""
        stops = [StopText(self.options.stop, output) for output in outputs]
        for characters in pieces:
            for stop, character in zip(stops, characters, strict=True):
                stop.add(character)
            if all(stop.reached for stop in stops):
                return
        for stop in stops:
            stop.end()


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
    spaces = [name for c, name in (("\n", "newline"), (" ", "space")) if c in characters]
    return ", ".join(filter(None, [*spaces, shown if len(shown) <= 80 else f"{shown[:80]}..."]))


def show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    run_command(main)
