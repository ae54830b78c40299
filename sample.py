"""Sample text from a trained model: python sample.py --checkpoint runs/shakespeare --prompt "ROMEO:" """

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import cli.startup  # noqa: F401 - before torch
from cli.command import CommandParser, report_errors, run_command, whole
from cli.errors import UserError, checking_values, one_line, printable
from model.generate import Sampling
from training.copied import how_much_is_copied
from training.sampling import TextSampler, use_one_thread
from training.trained_model import load_model

AT_ONCE = 64  # texts sampled in one batch, which limits memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 if the user made a mistake."""
    return report_errors("sample.py", lambda: run(parse(arguments)), memory="lower --samples", encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="sample.py", description="Sample text from a trained model.")
    add = parser.add_argument
    add("--checkpoint", type=Path, metavar="PATH", help="a run folder or a checkpoint (default: the best saved last)")
    add("--prompt", default="", metavar="TEXT", help="text to continue (default: the start of a line)")
    add("--length", type=whole(0), default=500, metavar="N", help="characters to sample (%(default)s)")
    add("--samples", type=whole(1), default=1, metavar="N", help="number of texts (%(default)s)")
    add("--temperature", type=float, default=0.8, metavar="X", help="lower is more predictable, 0 is greedy (0.8)")
    add("--top-k", type=int, metavar="K", help="sample from the K likeliest characters only")
    add("--top-p", type=float, default=1.0, metavar="P", help="keep the likeliest whose probabilities add up to P (1)")
    add("--min-p", type=float, default=0.0, metavar="P", help="drop those less than P times as likely as the best (0)")
    add("--copied", action="store_true", help="say what of the text stands in the training text")
    add("--text", type=Path, metavar="FILE", help="the training text of --copied (default: the one of the run)")
    add("--stop", action="append", default=[], metavar="TEXT", help="stop before this text; may be repeated")
    add("--seed", type=whole(0), default=0, metavar="N", help="the same seed gives the same text (%(default)s)")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Check the options, load the model, and continue the prompt."""
    if "" in options.stop:
        raise UserError("--stop needs at least one character")
    if options.text and not options.copied:
        raise UserError("--text is for --copied; add it, or leave out --text")
    with checking_values():
        filters = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        sampling = Sampling(**filters)
    trained = load_model(options.checkpoint, options.device, text=options.text)
    if options.copied and options.stop and trained.stops:
        raise UserError("--copied compares whole lines with those of the text; leave out --stop")
    if options.copied:  # raises UserError if the training text is missing
        training = trained.vocabulary.decode(trained.split(None if options.text else "train"))
    for text in (options.prompt, *options.stop):
        trained.vocabulary.encode(text)  # raises UserError before anything is printed
    print(one_line(f"Sampling on {trained.runtime.device} from {trained.source}"), file=sys.stderr)
    options.stop += trained.stops
    if options.samples == 1:
        use_one_thread()
    sampler = TextSampler(trained.model, trained.vocabulary, sampling)
    began_s = time.perf_counter()
    texts = write(sampler, options, lines=bool(trained.stops))
    n, elapsed_s = sum(map(len, texts)), time.perf_counter() - began_s
    time_taken = f"{elapsed_s:.2f} s: {n / elapsed_s:,.0f} characters/s"
    print(f"Sampled {n:,} character{'s' * (n != 1)} in {time_taken}", file=sys.stderr)
    if options.copied:
        for sentence in how_much_is_copied(trained, training, texts, options.prompt, options.length):
            print(sentence, file=sys.stderr)
    return 0


def write(sampler: TextSampler, options: argparse.Namespace, *, lines: bool) -> list[str]:
    """Continue the prompt, print the texts, and return them without it. Raises UserError as `encode` does.

    lines: print one text on a line, without a number.
    """
    prompt = options.prompt
    if options.samples == 1:
        pieces = sampler.stream(prompt, options.length, seed=options.seed, stops=options.stop)
        text = ""
        show(prompt)
        for (piece,) in pieces:
            show(piece)
            text += piece
        show("\n")
        return [text]
    sampled: list[str] = []
    for first in range(0, options.samples, AT_ONCE):
        streams = range(first, min(first + AT_ONCE, options.samples))
        pieces = sampler.stream(prompt, options.length, seed=options.seed, streams=streams, stops=options.stop)
        texts = ["".join(text) for text in zip(*pieces, strict=True)]
        for number, text in enumerate(texts, first + 1):
            show(f"{prompt}{text}\n" if lines else f"--- sample {number} ---\n{prompt}{text}\n\n")
            sampled.append(text)
    return sampled


def show(text: str) -> None:
    # The model and its control characters may be a stranger's.
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


if __name__ == "__main__":
    run_command(main)
