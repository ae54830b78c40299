"""The report as one self-contained HTML file."""

from collections.abc import Mapping, Sequence
from html import escape

from experiments.formatting import signed
from experiments.html_page import make_html
from experiments.report.charts import Chart
from experiments.report.significance import POWER, PairedTest
from experiments.report.table import Comparison, Row, cells, columns

STYLE = """
.lower td:nth-child(5), .higher td:nth-child(5) { font-weight: 600; }
.samples { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(19rem, 100%), 1fr)); }
.samples section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem; }
.samples h3 { margin: 0 0 .4rem; font-size: .95rem; }
"""

LEAST_SEEDS = 4  # with fewer, the measured noise is too uncertain to say which differences can be detected


def make_page(
    title: str,
    comparison: Comparison,
    notes: Sequence[str],
    charts: Sequence[Chart],
    samples: Mapping[str, str],
    *,
    prompt: str,
    settings: str,
) -> str:
    """Return the HTML. notes: how the figures were measured. samples: a text per variant, all from the same prompt."""
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in conclusions(comparison))
    figures = "".join(
        f'<h2>{escape(c.title)}</h2><p class="faint">{escape(c.caption)}</p><figure>{c.svg}</figure>' for c in charts
    )
    cards = "".join(f"<section><h3>{escape(k)}</h3><pre>{escape(text)}</pre></section>" for k, text in samples.items())
    if cards:
        cards = (
            "<h2>Samples</h2>"
            f'<p class="faint">From the prompt {escape(repr(prompt))}, with the same random numbers; the first seed of '
            "each variant.</p>"
            f'<div class="samples">{cards}</div>'
        )
    body = f"""<ul>{sentences}</ul>
<h2>All variants</h2>
<div class="wide">{_table(comparison)}</div>
{"".join(f'<p class="faint">{escape(note)}</p>' for note in notes)}
{figures}
{cards}
<details><summary>Shared settings</summary><pre>{escape(settings)}</pre></details>"""
    return make_html(title, body, style=STYLE)


def conclusions(comparison: Comparison) -> list[str]:
    """Return the findings of the table as sentences."""
    base, others = comparison.baseline.label, [row for row in comparison.rows if row.variant is not comparison.baseline]
    if not others:
        return [f"One variant: validation loss {cells(comparison.rows[0])[2]} nats per character."]
    best = min(comparison.finished_rows, key=lambda row: row.loss)
    sentences = [f"Lowest mean validation loss: {best.mark}, {cells(best)[2]} nats per character."]
    for words, sign in (("better than", "lower"), ("worse than", "higher")):
        if found := [row for row in others if row.verdict.startswith(sign)]:
            sentences.append(f"Significantly {words} {base}: {_listed(found)}.")
    unclear = [row for row in others if row.verdict == "not significant"]
    if unclear:
        sentences.append(
            f"Not significantly different from {base}: {_listed(unclear)}. This does not prove that they are equal; "
            "the intervals show how large a difference the data allow."
        )
    tests = [row.difference for row in unclear if isinstance(row.difference, PairedTest)]
    if any(test.low > 0 or test.high < 0 for test in tests):
        n_tests = sum(row.adjusted_p is not None for row in others)
        sentences.append(
            f"Some intervals exclude zero although the difference is not significant: among {n_tests} comparisons, "
            "chance alone produces some differences (Holm's adjustment). Run more seeds to decide."
        )
    detectable = [row.difference.detectable for row in others if isinstance(row.difference, PairedTest)]
    if detectable and min(detectable) > 0 and len(comparison.seeds) >= LEAST_SEEDS:
        sizes = " to ".join(dict.fromkeys(f"{value:.4f}" for value in (min(detectable), max(detectable))))
        sentences.append(
            f"If the noise is as large as measured here, a single comparison detects a true difference of {sizes} with "
            f"a probability of about {100 * POWER:.0f} % (at the 5 % level) and often misses smaller ones."
        )
    if untested := [row for row in others if row.verdict.startswith("unknown")]:
        sentences.append(
            f"No conclusion about {', '.join(row.mark for row in untested)}: with fewer than two seeds in common with "
            f"{base}, the noise is unknown, and the lowest loss may be chance. Run at least train.seed=0..3."
        )
    if len({tuple(row.variant.runs) for row in comparison.finished_rows}) > 1:
        sentences.append("WARNING: the variants have different seeds; compare the pairs, not the means.")
    return sentences


def _listed(rows: Sequence[Row]) -> str:
    return "; ".join(f"{row.mark} ({signed(row.difference.mean)})" for row in rows if row.difference)


def _table(comparison: Comparison) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns(comparison))
    body = ""
    for row in comparison.rows:
        kind = row.verdict.partition(" ")[0]
        values = "".join(f"<td>{escape(value)}</td>" for value in cells(row))
        body += f'<tr class="{kind if kind in ("lower", "higher") else "same"}">{values}</tr>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
