"""Test, train, sample and measure on an NVIDIA GPU within 8 minutes: bash .ci/gpu [OUTPUT_FOLDER]

Use the PyTorch of `python3`; install nothing. Continue after a failure, list all failures at the end and return 1 if
there are any. Write log.txt, benchmark.json, and, after every step, results.json and table.md to the output folder
(default: gpu).

Environment: CORPUS_MIRROR is a folder or URL that contains shakespeare.txt; without it and without a network, the
recipes train on the bundled play, and the table says so. LIMIT_S changes the time limit. DEVICE=cpu runs tiny versions
of the same steps on the CPU, to test this script.
"""

import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from step_runner import ROOT, TARGET_LOSS, StepRunner

sys.path.insert(0, str(ROOT))
from training.runs.metrics import read_records

DESCRIBE = """
import importlib.util, json, torch
print(json.dumps({
    "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "missing": [n for n in ("numpy", "yaml", "tqdm", "filelock", "pytest") if not importlib.util.find_spec(n)],
}))
"""


def main(arguments: list[str]) -> int:
    device = os.environ.get("DEVICE", "cuda")
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments) or device not in ("cuda", "cpu"):
        print("usage: [DEVICE=cpu] bash .ci/gpu [OUTPUT_FOLDER]", file=sys.stderr)
        return 2
    described = subprocess.run([sys.executable, "-c", DESCRIBE], capture_output=True, text=True)
    if described.returncode:
        print(f"gpu: {described.stderr.strip().splitlines()[-1]}; install the requirements", file=sys.stderr)
        return 2
    machine = json.loads(described.stdout)
    if device == "cuda" and machine["gpu"] is None:
        print("gpu: PyTorch finds no CUDA device; DEVICE=cpu tests this script on the CPU", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(*arguments[:1] or ["gpu"]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        runner = StepRunner(folder, Path(work), machine, float(os.environ.get("LIMIT_S", 480)))
        print(f"{machine['gpu'] or 'CPU'}, PyTorch {machine['torch']}; missing: {machine['missing'] or 'nothing'}")
        run_all(runner, device, tiny=device == "cpu")
    return runner.report()


def run_all(runner: StepRunner, device: str, *, tiny: bool) -> None:
    """Run every step, the most important first. `share` is the fraction of the remaining time that a step may take."""
    python = sys.executable
    tests = [python, "-m", "pytest", "-v", "--tb=short", "--continue-on-collection-errors", "-m", "", "-k", "cuda"]
    tested = runner.run("CUDA tests", tests, share=0.45, cwd=ROOT)

    small = "data.corpus=selmere train.max_steps=4 train.eval_every_steps=2 train.batch_size=2 model.n_layer=1"
    for name in ("shakespeare", "shakespeare_gpt2"):
        command = [python, ROOT / "train.py", "--config", ROOT / "configs" / f"{name}.yaml", f"train.device={device}"]
        command += small.split() if tiny else []
        runner.run(f"{name}.yaml", command, share=0.5, result=functools.partial(training_result, runner.work, name))
        if name == "shakespeare":
            sample(runner, [python, ROOT / "sample.py", "--device", device], length=100 if tiny else 10_000)
    if tested["status"] == "failed" and "pytest" not in runner.machine["missing"]:
        # One CUDA error can fail all tests after it in the same process.
        runner.run("CUDA tests that failed, again", [*tests, "--last-failed"], share=0.3, cwd=ROOT)

    figures = runner.folder / "benchmark.json"
    figures.unlink(missing_ok=True)
    benchmark = [python, "-m", "experiments.benchmark", "--device", device, "--json", figures]
    benchmark += ["--quick"] if tiny or runner.left_s < 150 else []
    benchmark += ["--only", "encoding", "--megabytes", "1"] if tiny else []
    runner.run("benchmark", benchmark, share=1, cwd=ROOT, result=lambda _: benchmark_result(figures))


def sample(runner: StepRunner, command: list, *, length: int) -> None:
    """Time sampling with 1 and 64 streams, and subtract the time of a single character, which is start-up."""

    def seconds(step: dict) -> dict:
        return {"value": f"{step['seconds']:.1f} s"}

    start_up = runner.run("sampling, start-up", [*command, "--length", 1], share=0.2, result=seconds, keep_output=False)
    for streams in (1, 64):

        def speed(step: dict, streams: int = streams) -> dict:
            if not step["status"] == start_up["status"] == "passed":
                return {}
            rate = streams * (length - 1) / max(step["seconds"] - start_up["seconds"], 1e-3)
            return {"characters_per_s": round(rate), "value": f"{rate:,.0f} characters/s"}

        arguments = [*command, "--length", length, "--samples", streams]
        runner.run(f"sampling, streams: {streams}", arguments, share=0.2, result=speed, keep_output=False)


def training_result(work: Path, name: str, step: dict) -> dict:
    """Return the results of a run so far, or those of the run on the fallback corpus in its place."""
    metrics = [*work.glob(f"runs/{name}/metrics.jsonl"), *work.glob(f"runs/{name}-on-*/metrics.jsonl")]
    records = [record for path in metrics for record in read_records(path)]
    evaluations = [r for r in records if "val_loss" in r]
    if not evaluations:
        return {"value": f"no evaluation; {len(records)} log lines"}
    corpus, best = evaluations[0]["corpus"], min(evaluations, key=lambda r: r["val_loss"])
    reached_s = next((r["elapsed_s"] for r in evaluations if r["val_loss"] <= TARGET_LOSS), None)
    reached = f"{TARGET_LOSS} after {reached_s:.1f} s" if reached_s else f"{TARGET_LOSS} not reached"
    if corpus != "shakespeare":
        reached = f"on the corpus {corpus}, so {TARGET_LOSS} does not apply"
    speed = statistics.median([r["tokens_per_s"] for r in records if "tokens_per_s" in r] or [0])
    return {
        "value": f"validation loss {reached}; best {best['val_loss']:.4f} after {best['elapsed_s']:.1f} s, "
        f"step {best['step']:,}; {speed:,.0f} characters/s",
        "seconds_to_target": reached_s,
        "steps_per_s": round(records[-1]["step"] / step["seconds"], 2),
        "evaluations": evaluations,
        "last_record": records[-1],
        "characters_per_s": speed,
    }


def benchmark_result(path: Path) -> dict:
    try:
        figures = json.loads(path.read_text())["figures"]
    except (OSError, ValueError):  # it failed before its first figure
        figures = []
    return {"value": f"{len(figures)} figures", "figures": figures}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
