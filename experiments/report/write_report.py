"""Write a report: an HTML page, its table as Markdown and CSV, and its charts as SVG files."""

import os
from collections.abc import Sequence
from pathlib import Path

from cli.errors import UserError
from data.files import replace_text
from data.vocabulary import UnknownCharacterError
from experiments.drawing import stand_alone
from experiments.report.charts import draw_charts
from experiments.report.report_page import conclusions, make_page
from experiments.report.runs import FoundRuns, Variant, find_runs, flat
from experiments.report.table import Comparison, compare, to_csv, to_markdown, to_plain
from training.runs.checkpoint import CheckpointError, load_checkpoint
from training.runs.run_folder import find_checkpoint
from training.sampling import sample_text
from training.settings.config_file import dump_yaml

SAMPLE_LENGTH = 300


def write_report(
    paths: Sequence[Path],
    output: Path,
    *,
    title: str | None = None,
    baseline: str | None = None,
    target: float | None = None,
    prompt: str | None = None,
) -> str:
    """Compare the runs of the folders, write `output`.html, .md and .csv, and return text for the console.

    baseline, target: see `compare`. prompt: text that the samples continue, by default the start of a line.
    Raises UserError if there is nothing to compare.
    """
    found = find_runs(paths)
    comparison = compare(found.variants, baseline=baseline, target=target)
    notes = make_notes(found, comparison)
    samples, prompt = sample_variants(found.variants, prompt)
    try:
        charts, missing = draw_charts(comparison), ""
    except UserError as error:
        charts, missing = [], f"no charts: {error}"
    names = ", ".join(path.resolve().name for path in paths)
    kind = f"{len(comparison.rows)} variants compared" if len(comparison.rows) > 1 else "One variant"
    title = title or (f"{kind}: {names}" if len(paths) <= 2 else kind)
    settings = dump_yaml(shared_settings(found.variants))
    page = make_page(title, comparison, notes, charts, samples, prompt=prompt, settings=settings)
    sentences, table = conclusions(comparison), to_plain(comparison)
    parts = [f"# {title}", *(f"- {sentence}" for sentence in sentences), to_markdown(comparison)]
    for chart in charts:
        file = output.with_name(f"{output.name}-{chart.name}.svg")
        replace_text(file, stand_alone(chart.svg))
        parts.append(f"![{chart.title}. {chart.caption}]({file.name})")
    markdown = "\n\n".join([*parts, *notes]).replace(".\n\n- ", ".\n- ")
    for ending, text in ((".html", page), (".md", f"{markdown}\n"), (".csv", to_csv(comparison))):
        replace_text(output.with_name(output.name + ending), text)
    where = f"Report to open in a browser: {os.path.relpath(output.with_name(output.name + '.html'))}"
    warnings = [note for note in notes if note.startswith(("WARNING", "Unfinished", "Left out"))] + (
        [missing] if missing else []
    )
    return "\n".join([table, "", *sentences, "", where, *warnings])


def make_notes(found: FoundRuns, comparison: Comparison) -> list[str]:
    """Return notes on how the figures were measured, and caveats."""
    runs = [run for variant in found.variants for run in variant.runs.values()]
    machines = list(dict.fromkeys(run.end["machine"] for run in runs if run.end))
    measured = list(dict.fromkeys(run.measured_on for run in runs))
    notes = [
        f"Validation loss: the lowest of each run's evaluations, in nats per character over {each}; mean ± standard "
        f"error over seeds {', '.join(map(str, comparison.seeds))}."
        for each in measured
    ]
    if len(measured) > 1:
        notes.append(
            "WARNING: these losses are for different texts, parts of a text or context lengths and are not comparable."
        )
    n_tests = sum(row.adjusted_p is not None for row in comparison.rows)
    if n_tests:
        pairing = ", so that both saw the same data in the same order" if _same_batches(found.variants) else ""
        notes.append(
            f"Difference: from {comparison.baseline.label}, paired by seed{pairing}, with Student's 95 % interval for "
            "each comparison alone. Verdict: a paired t-test at the 5 % level with Holm's adjustment for "
            f"{n_tests} comparison{'s' * (n_tests > 1)}; an interval may exclude zero although the difference is not "
            "significant."
        )
    notes.append(
        f"Speed, memory and times: medians over seeds; parallel runs on one machine slow each other down. Time to "
        f"{comparison.target:g}: from the start of the run's command to the first evaluation at or below this loss, "
        "by default one that every finished run reaches. "
        f"Machine: {'; '.join(machines) or 'unknown until a run is finished'}."
    )
    if len(machines) > 1:
        notes.append("WARNING: the runs differ in machine, arithmetic or threads, which also changes losses slightly.")
    for run in runs:
        if not run.end:
            notes.append(f"Unfinished: {run.folder.path.name}, {run.state}; its losses are those so far.")
    for names, why in (
        (found.without_loss, "no validation loss yet"),
        (found.repeated, "same settings and seed as another run"),
    ):
        if names:
            notes.append(f"Left out, {why}: {', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}.")
    return notes


def sample_variants(variants: Sequence[Variant], prompt: str | None) -> tuple[dict[str, str], str]:
    """Return a text from the first seed of each variant, by label, and the prompt.

    Raises UserError if a vocabulary lacks a character of the prompt.
    """
    texts, used = {}, prompt or ""
    for variant in variants:
        run = next(iter(variant.runs.values()))
        try:
            checkpoint = load_checkpoint(find_checkpoint(run.folder.path))
        except CheckpointError:
            continue  # deleted to save space: the figures remain
        vocabulary = checkpoint.vocabulary
        used = prompt or vocabulary.default_prompt
        try:
            text = sample_text(checkpoint.build_model(), vocabulary, used, SAMPLE_LENGTH, seed=0)
        except UnknownCharacterError as error:
            raise UserError(f"--prompt: {error} of {run.folder.path}; leave it out") from None
        texts[variant.label] = (prompt or "") + text
    return texts, used


def _same_batches(variants: Sequence[Variant]) -> bool:
    """Return whether runs with the same seed train on the same batches."""
    configs = [variant.config for variant in variants]
    of_training = ("batch_size", "accumulate", "max_steps", "patience", "grow_context_at")
    signs = {(c.data, c.model.block_size, *(getattr(c.train, name) for name in of_training)) for c in configs}
    return len(signs) == 1


def shared_settings(variants: Sequence[Variant]) -> dict[str, dict]:
    """Return the settings that all variants share, by section."""
    first, *others = (flat(variant.config) for variant in variants)
    shared: dict[str, dict] = {}
    for key, value in first.items():
        section, _, name = key.partition(".")
        values = shared.setdefault(section, {})
        if all(other[key] == value for other in others):
            values[name] = value
    return shared
