import html
import json
import re
import shutil
import statistics
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import pytest
from conftest import HEADS, SEEDS, SHORT, TINY_TEXT, train_tiny
from helpers import assert_mistake, finished_sweep, losses, metrics, train_run

from experiments.drawing import draw_chart
from experiments.formatting import signed
from experiments.heads.__main__ import main as heads
from experiments.report.__main__ import main as report
from experiments.report.charts import _curves, _times, draw_charts, draw_loss_against
from experiments.report.comparison import compare
from experiments.report.find_runs import find_runs
from experiments.report.findings import conclusions
from experiments.report.list_runs import list_runs
from experiments.report.table import table
from experiments.sweep.plan import make_plan
from page.__main__ import main as page_command
from training.config_file import read_settings
from training.runs.run_folder import RunFolder


def best_losses(n):
    return [min(losses(Path(f"runs/{n}-{seed}"))) for seed in SEEDS]


def cells(comparison):
    """Return the rows of the table, by the headings of their columns."""
    head, *lines = table(comparison)
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_the_table_agrees_with_the_metrics(runs_folder, runs):
    rows = cells(compare(find_runs(runs)[0]))
    assert [row["variant"] for row in rows] == ["n_head=1", "n_head=2", "n_head=3"]
    base = best_losses(1)
    for row, n in zip(rows, HEADS, strict=True):
        ours = best_losses(n)
        assert row["validation loss"] == f"{statistics.mean(ours):.4f} ± {statistics.stdev(ours) / 2**0.5:.4f}"
        difference = signed(statistics.mean(a - b for a, b in zip(ours, base, strict=True))) if n > 1 else ""
        assert row["difference from n_head=1 [95 % interval]"].partition(" ")[0] == difference
        both = [metrics(Path(f"runs/{n}-{seed}")) for seed in SEEDS]
        assert row["time"] == f"{statistics.median(r[-2]['elapsed_s'] for r in both):.0f} s"
        speeds = [[r["tokens_per_s"] for r in one if "tokens_per_s" in r] for one in both]
        assert row["characters/s"] == f"{statistics.median(map(statistics.harmonic_mean, speeds)):,.0f}"
        assert row["parameters"] == f"{both[0][-1]['n_parameters']:,}"
        assert row["memory"] == f"{statistics.median(r[-1]['peak_memory_bytes'] for r in both) / 1e6:,.0f} MB"


def test_the_time_to_a_target_is_that_of_the_first_evaluation_that_reaches_it(runs_folder, runs, tmp_path):
    """Each evaluation is a hundred seconds after the one before, because the table shows whole seconds."""
    slow = RunFolder(shutil.copytree(runs[0], tmp_path / "slow"))
    records = metrics(slow.path)
    evaluations = [record for record in records if "val_loss" in record]
    for i, record in enumerate(evaluations, start=1):
        record["elapsed_s"] = 100 * i
    evaluations[-1]["val_loss"] = 4.5  # the best is the one before
    slow.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    variants = find_runs([slow.path])[0]
    target = evaluations[1]["val_loss"]
    assert target < evaluations[0]["val_loss"]

    def time_to(target):
        (row,) = cells(compare(variants, target=target))
        return row[f"time to {target:g}"]

    assert (time_to(target), time_to(99), time_to(0.01)) == ("200 s", "100 s", "not reached")
    assert "not reached" not in table(compare(variants))[1]  # by default, one that every run reaches
    assert re.search(rf"slow +finished +{target:.4f} on text.txt +300 s", list_runs(tmp_path))


def test_page_and_markdown_have_the_same_values_and_need_no_other_file(runs_folder, runs, tmp_path, capsys):
    assert report([*map(str, runs), "--output", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    fetched = re.findall(r'\b(?:src|href|data)="(.*?)"', text)
    assert all(address.startswith(("#", "data:")) for address in fetched)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text, re.DOTALL)
    assert not re.search(r"@import|url\((?!#)|<script ", text)
    markdown = (tmp_path / "out.md").read_text(encoding="utf-8")
    table = [line.strip("| \n").split(" | ") for line in markdown.splitlines() if line.startswith("| n_head")]
    assert [html.unescape(cell).strip() for cell in cells] == [cell.strip() for row in table for cell in row]
    for row, n in zip(table, HEADS, strict=True):
        assert row[2] == f"{statistics.mean(best_losses(n)):.4f} ± {statistics.stdev(best_losses(n)) / 2**0.5:.4f}"
        assert re.search(rf"^n_head={n}  2 +{row[2]}  .*  {re.escape(row[5])}$", said, re.MULTILINE)
    for name in ("loss", "curves"):
        ET.fromstring((tmp_path / f"out-{name}.svg").read_text(encoding="utf-8"))
        assert f"](out-{name}.svg)" in markdown
    assert text.count("<svg") == 2
    assert "context length 16" in markdown


def test_the_users_settings_of_matplotlib_do_not_change_a_chart(runs):
    chosen = find_runs(runs)[0]
    drawn = draw_charts(compare(chosen))
    with matplotlib.rc_context({"text.usetex": True, "savefig.bbox": "tight", "lines.linewidth": 9}):
        assert draw_charts(compare(chosen)) == drawn


def drawn(draw, *arguments):
    found = []
    draw_chart("chart", "Chart", "", lambda axes: found.append(axes) or draw(axes, *arguments))
    return found[0]


def test_charts_show_the_means_errors_and_times_of_the_runs(runs):
    comparison, best = compare(find_runs(runs)[0]), {n: best_losses(n) for n in HEADS}
    axes = drawn(draw_loss_against, comparison, "model.n_head")
    ((line, _, (errors,)),) = axes.containers
    for n, point, ends, dots in zip(HEADS, line.get_xydata(), errors.get_segments(), axes.lines, strict=False):
        error = statistics.stdev(best[n]) / 2**0.5
        assert point == pytest.approx([n, statistics.mean(best[n])])
        assert ends[:, 1] == pytest.approx([point[1] - error, point[1] + error])
        assert dots.get_ydata().tolist() == best[n]
    *lines, target = drawn(_times, comparison).lines
    runs_ = [metrics(Path(f"runs/{n}-{seed}")) for n in HEADS for seed in SEEDS]
    for line, records in zip(lines, runs_, strict=True):
        expected = [(each["elapsed_s"], each["val_loss"]) for each in records if "val_loss" in each]
        assert line.get_xydata().tolist() == [*map(list, expected)]
    assert set(target.get_ydata()) == {comparison.target}
    names = [chart.name for chart in draw_charts(comparison, target=1.5)]
    assert names == ["loss", "curves", "time"]
    axes = drawn(_curves, comparison)
    for n, line, band in zip(HEADS, axes.lines, axes.collections, strict=True):
        curves = list(zip(*(losses(Path(f"runs/{n}-{seed}")) for seed in SEEDS), strict=True))
        assert line.get_xdata().tolist() == [4, 8, 12]
        assert line.get_ydata() == pytest.approx([statistics.mean(each) for each in curves])
        corners = band.get_paths()[0].vertices.tolist()
        assert all([4 * i, end(each)] in corners for i, each in enumerate(curves, start=1) for end in (min, max))


def test_what_was_measured_is_named_by_the_file_of_the_text(runs_folder, runs, tmp_path):
    train_tiny(tmp_path, "train.name=apart", "data.val_corpus=tiny.yaml", *SHORT)
    others = [runs_folder / "runs/context", tmp_path / "runs/apart"]
    comparison = compare(find_runs([runs[0], *others])[0])
    assert report([str(runs[0]), str(others[1]), "--output", str(tmp_path / "out")]) == 0
    assert re.search(r"apart +finished +[\d.]+ on tiny.yaml", list_runs(tmp_path / "runs"))
    size = len((runs_folder / "tiny.yaml").read_bytes())
    (base, context, apart), rest = comparison.rows, "of text.txt in utf-8 from 1,824 to 2,028, context length"
    assert base.variant.first.measured_in_words == f"all 203 characters {rest} 16"
    assert conclusions(comparison) == [
        f"Validation loss: {base.variant.mark}, {base.variant.loss:.4f} nats per character.",
        f"Not compared with {base.variant.mark}: {context.variant.mark}, measured over all 203 characters {rest} 8.",
        f"Not compared with {base.variant.mark}: {apart.variant.mark}, measured over all {size - 1} characters of "
        f"tiny.yaml in utf-8 from 0 to {size}, context length 16.",
    ]
    assert (comparison.ranking, context.verdict, apart.verdict) == (
        (base.variant, []),
        "not comparable",
        "not comparable",
    )
    for ending in ("md", "html"):
        assert not re.search("the text [0-9a-f]{9}", (tmp_path / f"out.{ending}").read_text(encoding="utf-8"))


def test_runs_on_different_texts_of_one_name_are_neither_seeds_of_one_variant_nor_compared(workplace, capsys):
    for seed, word in enumerate(("beer", "wine")):
        (workplace / "text.txt").write_text(TINY_TEXT.replace("beer", word))
        train_run(word, f"train.seed={seed}", *SHORT)
    edited = workplace / "runs/wine/config.yaml"
    edited.write_text(edited.read_text().replace("n_head: 3", "n_head: 2"))  # after the run
    variants = find_runs([workplace / "runs/beer", workplace / "runs/wine"])[0]
    assert [list(variant.runs) for variant in variants] == [[0], [1]]
    assert all(v.choices.keys() == {"text", "vocabulary"} and v.first.config.model.n_head == 3 for v in variants)
    comparison = compare(variants)
    base, other = comparison.rows
    assert (other.verdict, other.difference.n) == ("not comparable", 0)
    assert comparison.comparable == comparison.finished == [base.variant]
    (_, sentence) = conclusions(comparison)
    assert "measured over all 203 characters of text.txt in utf-8 from 1,824 to 2,028, context length 16, " in sentence
    assert sentence.endswith("another text of the same name.")
    capsys.readouterr()
    assert report([]) == 0
    assert sum(" text=" in line for line in capsys.readouterr().out.splitlines()) == 1


def test_a_report_replaces_only_what_an_experiment_wrote(runs, tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text("# Mine\n")
    page = ["--output", str(tmp_path / "README.html")]
    message = "was not written by an experiment, so it is not replaced"
    assert_mistake(capsys, report, [str(runs[0]), *page], f"{readme} {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    readme.unlink()
    for _ in range(2):
        assert report([str(runs[0]), *page]) == 0
    (tmp_path / "mine.html").write_text("<html>")
    for command, option in ((heads, "--output"), (page_command, "--output"), (report, "--pack")):
        assert_mistake(capsys, command, [option, str(tmp_path / "mine.html")], f"mine.html {message}")


def test_named_variants_keep_their_names_and_odd_ones_are_shown_literally(runs_folder, runs, tmp_path):
    """Each folder of the sweep is a run that was trained by hand with the same settings."""
    long = "three heads, whose name is far too long for a chart"
    variants = {"a$b$|c": {"model.n_head": "1"}, "</script>": {"model.n_head": "2"}, long: {"model.n_head": "3"}}
    settings = read_settings(runs_folder / "tiny.yaml")
    plan = make_plan(settings | {"sweep": {"variants": variants, "train.seed": "0..1"}}, SHORT)
    sweep = finished_sweep("odd", plan, runs_folder, root=tmp_path)
    rows = compare(find_runs([sweep.path])[0], baseline="</script>").rows
    assert [(row.variant.label, sorted(row.variant.runs)) for row in rows] == [(name, [0, 1]) for name in variants]
    differences = zip(best_losses(1), best_losses(2), strict=True)
    assert rows[0].difference.mean == pytest.approx(statistics.mean(a - b for a, b in differences))
    assert report([str(sweep.path), "--output", str(tmp_path / "out"), "--baseline", "</script>"]) == 0
    page, markdown = ((tmp_path / f"out.{ending}").read_text(encoding="utf-8") for ending in ("html", "md"))
    assert page.count("a$b$|c") >= 2
    assert page.count("</script>") == 1  # of the page itself
    assert "| a$b$\\|c |" in markdown
    assert f"| variant 3: {long} |" in markdown


def test_single_runs_with_many_differences_are_named_and_empty_columns_left_out(runs_folder, runs, tmp_path, capsys):
    train_tiny(tmp_path, "train.name=other", "model.norm=layer", "model.mlp=gelu", "optim.name=adamw", *SHORT)
    settings = {"1-0": "norm=rms, mlp=relu2, name=muon", "other": "norm=layer, mlp=gelu, name=adamw"}
    options = ["--output", str(tmp_path / "out"), "--baseline", "other"]
    capsys.readouterr()
    assert report([str(runs[0]), str(tmp_path / "runs/other"), *options]) == 0
    said, page = capsys.readouterr().out, (tmp_path / "out.html").read_text(encoding="utf-8")
    head, *lines = said.splitlines()
    assert re.split("  +", head) == [
        "variant",
        "seeds",
        "validation loss",
        "difference from other [95 % interval]",
        "verdict",
    ]
    assert [line.split()[0] for line in lines[:2]] == ["1-0", "other"]
    assert re.search("^other: n_head=3, .*" + settings["other"], said, re.MULTILINE)
    assert re.search("^1-0: n_head=1, .*" + settings["1-0"], said, re.MULTILINE)
    assert '<th scope="col">difference from other [95\u00a0%\u00a0interval]</th>' in page


def test_a_run_that_repeats_another_is_listed_as_left_out(runs_folder, runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "again")
    (variant,), left_out = find_runs([runs[0], tmp_path / "again"])
    assert len(variant.runs) == 1
    assert left_out["same settings and seed as another run"] == ["again"]
    assert report([str(runs[0]), str(tmp_path / "again"), "--output", str(tmp_path / "out")]) == 0


def test_control_characters_of_recorded_texts_reach_no_file(runs, tmp_path):
    run = RunFolder(shutil.copytree(runs[0], tmp_path / "odd"))
    *lines, last = run.metrics.read_text().splitlines(keepends=True)
    run.metrics.write_text("".join([*lines, json.dumps(json.loads(last) | {"machine": "\x1b[31mCPU"}), "\n"]))
    assert report([str(run.path)]) == 0
    for ending in ("html", "md"):
        assert "\x1b" not in (run.path / f"report.{ending}").read_text()
    assert "\\x1b[31mCPU" in (run.path / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no run, sweep or packed sweep is there; runs and sweeps are in runs/"),
        (["runs/1-0", "--baseline", "n_head=9"], "--baseline 'n_head=9' is not one of the variants: '1-0'"),
        (["--pack", "a.jsonl"], "--pack takes one sweep and a file that ends in .jsonl"),
        (["runs/1-0", "--pack", "a.csv"], "--pack takes one sweep and a file that ends in .jsonl"),
    ],
)
def test_mistakes_produce_a_one_line_error(runs, capsys, arguments, message):
    assert_mistake(capsys, report, arguments, message)
