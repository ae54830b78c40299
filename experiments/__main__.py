"""List the commands for experiments: python -m experiments"""

from pathlib import Path

if __name__ == "__main__":
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        first_line = file.read_text(encoding="utf-8").partition("\n")[0].strip('"')
        purpose, _, example = first_line.partition(": python -m ")
        if example.startswith("experiments."):
            print(f"python -m {example.split()[0]:28} {purpose}")
    print("\nEach lists its options with --help.")
