"""The command that analyses the heads of a checkpoint."""

import json
import re

import pytest
import torch
from conftest import write_tiny

import train
from data.vocabulary import ByteVocabulary
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
    assert page.count('">scale<') == 1  # a model without normalised queries has no scales


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "nowhere"], "nowhere: no such run or checkpoint"),
        (["--text", "9"], "the text has 1 characters; give 2 to 16"),
        (["--text", "9" * 17], "the text has 17 characters; give 2 to 16"),
        (["--text", "99 Bottles"], "'B' (U+0042) is not in the vocabulary (character 4 of the text)"),
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


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory):
    """Return a folder with a run of bytes, whose validation split begins inside a character, and one of characters."""
    folder = tmp_path_factory.mktemp("bytes")
    write_tiny(folder)
    text = "99 naïve bottles of bière;\n" * 40 + "é" * 60 + "\x01\t" * 20
    (folder / "text.txt").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        size = len(text.encode())
        split = f"data.split=[{size - 159},159,0]"  # 119 of the 120 bytes of é, and those that follow
        for settings in (["data.level=byte", "train.name=bytes", split], ["train.name=characters"]):
            assert train.main(["--config", "tiny.yaml", "train.max_steps=5", *settings]) == 0
    return folder


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        ([], r"\xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3 \xA9 \xC3"),
        (["--text", "naïve\x01\n"], r"n a \xC3 \xAF v e \x01 ⏎"),
        (["--text", "naïve".encode("latin-1").decode("utf-8", "surrogateescape")], r"n a \xEF v e"),
    ],
)
def test_the_page_of_a_model_of_bytes_has_one_label_for_each_byte_of_its_text(of_bytes, monkeypatch, arguments, labels):
    monkeypatch.chdir(of_bytes)
    assert heads_command(["--checkpoint", "runs/bytes", *arguments]) == 0
    (model,) = models_in(of_bytes / "runs/bytes/heads.html")
    shown = [model["header"]["labels"][byte] for byte in ByteVocabulary().encode(model["opening"])]
    assert shown == labels.split()


def test_models_of_bytes_and_of_characters_are_shown_on_the_same_text_if_it_is_in_ascii(of_bytes, monkeypatch, capsys):
    monkeypatch.chdir(of_bytes)
    both = ["--checkpoint", "runs/bytes", "runs/characters", "--text"]
    assert heads_command([*both, "99 bottles"]) == 0
    capsys.readouterr()
    assert heads_command([*both, "naïve"]) == 2
    assert capsys.readouterr().err.endswith("divide this text differently; give a --text in ASCII\n")
