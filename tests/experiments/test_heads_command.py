"""The command that analyses the heads of a checkpoint."""

import json
import re

import pytest
import torch

import train
from experiments.heads.__main__ import main as heads_command
from training.runs.checkpoint import load_checkpoint

HEADS = [f"L{layer}H{h}" for layer in (0, 1) for h in (0, 1, 2)]


def models_in(page):
    """Return what a page holds of each model."""
    return json.loads(re.search(r'id="models-of-this-page">(.*?)</script>', page.read_text(encoding="utf-8"))[1])


def test_the_page_is_written_to_the_run_folder_and_the_heads_are_listed(run, capsys):
    assert heads_command([]) == 0
    said = capsys.readouterr().out
    weights, best = load_checkpoint(run.best).weights, load_checkpoint(run.best).progress.best_loss
    assert f"Validation loss {best:.4f} over all 203 characters of the validation split" in said
    assert "open in a browser: runs/tiny/heads.html" in said
    assert "nan" not in said
    heading, *lines = [line.split() for line in said.splitlines() if line[:4] in ("head", *HEADS)]
    assert " ".join(heading[:6]) == "head loss increase standard error scale"
    scales = torch.cat([weights[name].exp() for name in sorted(weights) if name.endswith("log_scale")]).tolist()
    listed = {head: float(scale) for head, _, _, scale, *_ in lines}
    assert listed == pytest.approx(dict(zip(HEADS, scales, strict=True)), abs=0.051)
    page = (run.path / "heads.html").read_text(encoding="utf-8")
    scales = re.findall(r"<tr>\s*<td>(L\dH\d)</td>\s*(?:<td>.*?</td>\s*){3}<td>(.*?)</td>", page)
    assert {head: float(scale) for head, scale in scales} == listed
    (model,) = models_in(run.path / "heads.html")
    assert model["parts"] == HEADS
    header = model["header"]
    assert (len(header["roles"]), header["measured"]) == (6, "over 180 characters of the validation split")
    assert "http" not in page.replace("http://www.w3.org/", "").replace("http-equiv", "")


def test_two_models_with_different_heads_are_shown_on_the_same_text(run, workplace, capsys):
    settings = ["train.name=one", "model.n_head=1", "model.qk_norm=false", "train.max_steps=10"]
    assert train.main(["--config", "tiny.yaml", *settings]) == 0
    capsys.readouterr()
    assert heads_command(["--checkpoint", "runs/tiny", "runs/one", "--text", "bottles of b"]) == 0
    said = capsys.readouterr().out
    assert sum(line.startswith("L") for line in said.splitlines()) == 6 + 2
    assert "open in a browser: heads.html" in said
    first, second = models_in(workplace / "heads.html")
    assert first["opening"] == "bottles of b"
    assert second["parts"] == ["L0H0", "L1H0"]
    page = (workplace / "heads.html").read_text(encoding="utf-8")
    assert all(f'"name": "{name}"' in page for name in ("tiny", "one"))
    assert page.count("<th>scale<") == 1  # a model without normalised queries has no scales


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "nowhere"], "nowhere: no such run or checkpoint"),
        (["--checkpoint", "runs/tiny", "runs/tiny", "runs/tiny"], "--checkpoint takes one model or two"),
        (["--device", "cuda:99"], "cuda:99"),
    ],
)
def test_mistakes_produce_a_one_line_error_before_any_work(run, capsys, arguments, message):
    capsys.readouterr()
    try:
        status = heads_command(arguments)
    except SystemExit as error:
        status = error.code
    said = capsys.readouterr()
    assert (status, said.out, said.err.count("\n")) == (2, "", 1)
    assert message in said.err


def test_the_page_of_a_model_of_bytes_begins_with_whole_characters_and_has_a_label_for_each_byte(workplace):
    (workplace / "text.txt").write_text("99 bottles of bière\t\x01;\n" * 40 + "é" * 80, encoding="utf-8")
    settings = ["data.level=byte", "data.split=[961,159,0]", "train.max_steps=2"]  # 159 of the 160 bytes of é
    assert train.main(["--config", "tiny.yaml", *settings]) == 0
    assert heads_command([]) == 0
    (model,) = models_in(workplace / "runs/tiny/heads.html")
    assert model["opening"] == "é" * 7
    labels = model["header"]["labels"]
    assert " ".join(labels[byte] for byte in "b è\t\x01\n".encode()) == r"b ␣ \xC3 \xA8 ⇥ \x01 ⏎"
