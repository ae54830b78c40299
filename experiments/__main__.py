"""List the commands for experiments: python -m experiments"""

import ast
from argparse import Namespace
from pathlib import Path

from cli.command import run_command
from experiments.command import command
from experiments.formatting import in_columns

HERE = Path(__file__)


@command()
def main(options: Namespace) -> None:
    purposes = {}
    for file in (*HERE.parent.glob("*/__main__.py"), *HERE.parent.glob("*.py")):
        source = file.read_text(encoding="utf-8")
        if "run_command(main)" in source and file != HERE:
            name = file.parent.name if file.name == HERE.name else file.stem
            purposes[name] = str(ast.get_docstring(ast.parse(source))).splitlines()[0].partition(": python")[0]
    print(in_columns([(f"python -m experiments.{name}", purposes[name]) for name in sorted(purposes)]))
    print("\nEach lists its options with --help.")


if __name__ == "__main__":
    run_command(main)
