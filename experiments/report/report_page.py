"""The report as one self-contained HTML file."""

from collections.abc import Mapping, Sequence
from html import escape

from experiments.html_page import make_html
from experiments.report.charts import Chart
from experiments.report.runs import flat
from experiments.report.table import Comparison, contrast_cells, table
from training.config_file import dump_yaml

STYLE = """
td.significant { font-weight: 600; }
.samples { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(19rem, 100%), 1fr)); }
.samples section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem; }
.samples h3 { margin: 0 0 .4rem; font-size: .95rem; }
"""


def make_page(
    title: str,
    comparison: Comparison,
    sentences: Sequence[str],
    notes: Sequence[str],
    charts: Sequence[Chart],
    samples: Mapping[str, str],
    prompt: str,
) -> str:
    """Return the HTML.

    sentences: the findings. notes: how the figures were measured. samples: a text per variant, all from the prompt.
    """
    findings = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    first, *others = (flat(row.variant.config) for row in comparison.rows)
    shared = {key: value for key, value in first.items() if all(other[key] == value for other in others)}
    contrasts = contrast_cells(comparison)
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
    body = f"""<ul>{findings}</ul>
{f"<h2>Contrasts</h2>{_table(contrasts)}" if contrasts else ""}
<h2>All variants</h2>
{_table(table(comparison))}
{"".join(f'<p class="faint">{escape(note)}</p>' for note in notes)}
{figures}
{cards}
<details><summary>Shared settings</summary><pre>{escape(dump_yaml(shared))}</pre></details>"""
    return make_html(title, body, style=STYLE)


def _table(lines: Sequence[Sequence[str]]) -> str:
    """Return a table, whose first line is its head; significant verdicts are bold."""
    head = "".join(f"<th>{escape(name)}</th>" for name in lines[0])
    verdict, body = lines[0].index("verdict"), ""
    for line in lines[1:]:
        cells = [f"<td>{escape(cell)}</td>" for cell in line]
        if line[verdict].startswith(("lower", "higher")):
            cells[verdict] = cells[verdict].replace("<td>", '<td class="significant">', 1)
        body += f"<tr>{''.join(cells)}</tr>"
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
