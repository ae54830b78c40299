"""Show a chapter on attention with shapes and numbers, or list the chapters: python -m experiments.textbook 3"""

import inspect
from argparse import Namespace
from types import ModuleType

from torch import Tensor

from cli.command import run_command
from cli.errors import UserError
from experiments.command import command, new_file, option, positive, whole
from experiments.textbook import bigram, gpt, patches, picture, pooling, reversal
from experiments.textbook.matrices import draw_matrices, written
from model.textbook import (
    chapter1_average,
    chapter2_similarity,
    chapter3_head,
    chapter4_heads,
    chapter5a_masks,
    chapter6a_scores,
)

# Each part of a chapter by name. A module of model.textbook shows its own code; a module of experiments, something with
# data, options or training.
PARTS: dict[str, tuple[int, ModuleType]] = {
    "average": (1, chapter1_average),
    "similarity": (2, chapter2_similarity),
    "head": (3, chapter3_head),
    "heads": (4, chapter4_heads),
    "patches": (4, patches),
    "masks": (5, chapter5a_masks),
    "reversal": (5, reversal),
    "scores": (6, chapter6a_scores),
    "pooling": (6, pooling),
    "bigram": (7, bigram),
    "gpt": (7, gpt),
}
DRAWERS = {"head": picture.draw, "pooling": pooling.draw}


@command(
    option("chapter", nargs="?", help="a number from 1 to 7, or the name of a part; without it: the list"),
    option("--output", type=new_file, metavar="FILE", help="also draw a picture (needs matplotlib, but for head)"),
    option("--seed", type=whole(0), default=0, metavar="N", help="random seed of a training or of examples (0)"),
    option("--steps", type=whole(1), metavar="N", help="train for N steps (reversal: 300; gpt: see --seconds)"),
    option("--seconds", type=positive, default=60, metavar="S", help="train gpt for S seconds (60)"),
    option("--corpus", default="selmere", metavar="NAME", help="the text of bigram: a named corpus or a file"),
)
def main(options: Namespace) -> None:
    if options.chapter is None:
        for name, (_, module) in PARTS.items():
            print(f"{name:11} {str(module.__doc__).splitlines()[0]}")
        print("\nShow one with python -m experiments.textbook 3, or a part with its name")
        return
    names = [name for name, (number, _) in PARTS.items() if options.chapter in (name, str(number))]
    if not names:
        raise UserError(f"there is no chapter {options.chapter}; choose 1 to 7, {', '.join(PARTS)}")
    for name in names:
        module = PARTS[name][1]
        explanation, _, following = str(module.__doc__).partition("\nNext: ")
        print(f"{'=' * 100}\n{explanation.strip()}\n")
        steps = module.show(options) if inspect.signature(module.show).parameters else module.show()
        matrices = {}
        for title, value in steps:
            print(written(title, value), flush=True)
            if isinstance(value, Tensor):
                matrices[title] = value
        print(f"Next: {following}" if following else "")
        if options.output and (matrices or name in DRAWERS):
            path = options.output.with_stem(f"{options.output.stem}-{name}") if len(names) > 1 else options.output
            draw_matrices(path, matrices) if name not in DRAWERS else DRAWERS[name](path, options)
            print(f"Drew {path}")


if __name__ == "__main__":
    run_command(main)
