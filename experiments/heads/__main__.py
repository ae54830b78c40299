"""Show what the attention heads of a checkpoint do: python -m experiments.heads --checkpoint runs/shakespeare"""

import argparse
import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data.files import replace_text
from data.vocabulary import UnknownCharacterError, Vocabulary
from experiments.formatting import in_columns, signed
from experiments.heads.analysis import Analysis, analyse
from experiments.heads.heads_page import make_page
from experiments.heads.measures import TARGETS
from experiments.heads.model_access import HeadIndex, all_heads, weights_of
from experiments.heads.prune import choose, n_parameters, prune
from training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from training.command import CommandParser, run_command, tell_mistakes
from training.config_file import to_yaml
from training.evaluation import evaluate
from training.metrics import append_record
from training.preparation import reopen_corpus
from training.run_folder import RunFolder, find_checkpoint
from training.runtime import Runtime, choose_runtime
from training.sweep.launch import is_sweep

DEFAULT_LENGTH = 160  # characters of the page's text by default


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    memory = "shorten --text, or analyse a model with fewer heads or a shorter context"
    return tell_mistakes("experiments.heads", lambda: run(options), memory=memory)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="experiments.heads", description=__doc__)
    add = parser.add_argument
    add("--checkpoint", type=Path, metavar="PATH", help="a run folder or a checkpoint (default: the newest run's best)")
    add("--text", metavar="TEXT", help="the text of the attention maps (default: the start of the validation split)")
    add("--output", type=Path, metavar="FILE", help="the page to write (default: heads.html in the run folder)")
    add("--windows", type=int, default=64, metavar="N", help="windows to measure heads on (%(default)s)")
    add("--characters", type=int, metavar="N", help="validation characters for the losses (all)")
    add("--prune", type=int, metavar="K", help="write a run without the K least important heads")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (%(default)s)")
    options = parser.parse_args(arguments)
    for name, lowest in (("windows", 1), ("characters", 1), ("prune", 1)):
        if (value := getattr(options, name)) is not None and value < lowest:
            parser.error(f"--{name} must be at least {lowest}")
    return options


def run(options: argparse.Namespace) -> int:
    path = find_checkpoint(options.checkpoint)
    checkpoint = load_checkpoint(path)
    config, vocabulary = checkpoint.config(), checkpoint.vocabulary
    corpus = reopen_corpus(checkpoint, path)
    runtime = choose_runtime(options.device, config.train.dtype)
    model = checkpoint.build_model().to(runtime.device)
    val_ids = corpus.split(config.data.split, config.model.block_size).validation
    text = options.text or vocabulary.decode(val_ids[1 : 1 + min(DEFAULT_LENGTH, config.model.block_size)].tolist())
    text_ids = encode(text, vocabulary, config.model.block_size)
    if options.prune:
        prune(checkpoint, [])  # raises its errors before the long analysis
        choose(all_heads(model), options.prune)
    analysis = analyse(model, vocabulary, val_ids, runtime, n_windows=options.windows, n_characters=options.characters)
    lines = [table(analysis)]
    if not options.prune or options.text or options.output:  # pruning alone does not replace an existing page
        output = options.output or (path.parent.parent / "heads.html" if is_of_a_run(path) else Path("heads.html"))
        page, missing = make_page(path, checkpoint, analysis, text, weights_of(model, text_ids))
        replace_text(output, page)
        lines.append(f"Page to open in a browser: {os.path.relpath(output)}" + (f"\n{missing}" if missing else ""))
    if options.prune:
        heads = choose(analysis.order, options.prune)
        lines.append(write_pruned(name_of(path), checkpoint, heads, val_ids, runtime))
    print("\n\n".join(lines))  # after all files are written, because a reader may close the pipe
    return 0


def encode(text: str, vocabulary: Vocabulary, block_size: int):
    """Return the ids (T,) of the text. Raises ValueError if its length or one of its characters is invalid."""
    if not 2 <= len(text) <= block_size:
        raise ValueError(f"--text has {len(text)} characters; give 2 to {block_size}, this model's context length")
    try:
        return vocabulary.encode(text)
    except UnknownCharacterError as error:
        raise ValueError(f"--text, character {error.position + 1}: {error}; leave it out") from None


def name_of(checkpoint: Path) -> str:
    """Return the name of a checkpoint's run, preceded by the name of its sweep if it has one."""
    if not is_of_a_run(checkpoint):
        return checkpoint.stem
    folder = checkpoint.resolve().parent.parent
    return f"{folder.parent.name}-{folder.name}" if is_sweep(folder.parent) else folder.name


def is_of_a_run(checkpoint: Path) -> bool:
    return (checkpoint.parent.parent / "config.yaml").is_file()


def table(analysis: Analysis) -> str:
    """Return a line for a head with uniform weights, then one line per head, the most important first."""
    measures = analysis.measures
    names = [name for name in TARGETS if not math.isnan(measures.uniform[name])]
    scale = ["scale"] * bool(analysis.scales)
    lines = [["head", "loss increase", *scale, "characters back", *(f"on {name}" for name in names)]]
    lines.append(["uniform", "", *[""] * len(scale), "", *(f"{measures.uniform[name]:.2f}" for name in names)])
    for head in reversed(analysis.order):
        i = analysis.heads.index(head)
        shares = (f"{measures.shares[name][i]:.2f}" for name in names)
        gain = signed(analysis.losses_without[head] - analysis.loss)
        scales = [f"{value:.1f}" for value in analysis.scales[i : i + 1]]
        lines.append(["L{}H{}".format(*head), gain, *scales, f"{measures.distance[i]:.1f}", *shares])
    title = f"Validation loss {analysis.loss:.4f} over {analysis.n_characters:,} characters."
    return f"{title} Its increase without each head, the most important first:\n{in_columns(lines)}"


def write_pruned(
    name: str, checkpoint: Checkpoint, heads: list[HeadIndex], val_ids: np.ndarray, runtime: Runtime
) -> str:
    """Create a run folder with the model without these heads; return a summary to print."""
    pruned = prune(checkpoint, heads)
    config, step = pruned.config(), pruned.step
    block_size = config.model.block_size
    result = evaluate(pruned.build_model().to(runtime.device), val_ids, block_size, runtime)
    new = RunFolder.create(f"{name}-pruned-{len(heads)}", to_yaml(config))
    names = ", ".join(f"L{layer}H{h}" for layer, h in sorted(heads))
    common = {"step": step, "elapsed_s": pruned.progress["elapsed_s"], "corpus": pruned.corpus["name"]}
    append_record(new.metrics, common | {"changes": [f"heads removed: {names}"]})
    append_record(new.metrics, common | result.record())
    progress = {**pruned.progress, "best_loss": result.loss, "log_sizes": new.sizes()}
    save_checkpoint(dataclasses.replace(pruned, progress=progress), new.best, new.latest)
    return (
        f"Without {names}: {n_parameters(pruned):,} parameters, {n_parameters(checkpoint):,} before; validation loss "
        f"{result.loss:.4f} over the whole split. To sample from this model, or to train it further:\n"
        f"  python sample.py --checkpoint {new.path}\n"
        f"  python train.py --resume {new.path} train.max_steps={step + max(100, step // 5)}"
    )


if __name__ == "__main__":
    run_command(main)
