import pytest
from conftest import ROOT
from helpers import assert_mistake

import train

IN_A_FILE = [
    ("model: {lr: 1e-3}", "unknown key model.lr; did you mean optim.lr?"),
    ("modle: {n_head: 4}", "unknown key modle; did you mean model?"),
    ("model:\n  n_head: 4\n  n_head: 8", "line 3: 'n_head' is given twice"),
    ("model: {n_head: four}", "model.n_head=four must be a whole number or a list in brackets"),
    ("model: {longest_copy: 2}", "model.longest_copy=2 must be 0, for none, or at least 3"),
    ("model: {ngrams: [2, 3, 2]}", "model.ngrams=[2, 3, 2] names a length twice"),
    ("model: {n_embd: " + "9" * 5000 + "}", "... must be a whole number"),
    ("model: {n_head: " + "[" * 500 + "]" * 500 + "}", "is not a config (maximum recursion depth"),
    ("data: {lines: maybe}", "data.lines=maybe must be true or false"),
    ("data: {corpus: }", "data.corpus= must be text"),
    ("model: 3", "model must be a section of settings, not 3"),
    ('data: {corpus: "C:\\my.txt"}', "line 1: found unknown escape character 'm'"),
    ("model: !!python/object/apply:os.system [true]", "model must be a section of settings"),
    ("# nothing but a comment", "a config has the sections model, data, optim, train"),
    ("model: {n_head: 4", "is not a config (line 1: "),
    *((f"base: {name}", "in the same folder, one without") for name in ("x.yaml", "../tiny.yaml", "any.yaml", "[a]")),
]
IN_A_SETTING = [
    ("n_head=8", "unknown key n_head; did you mean model.n_head?"),
    ("model.n_head", "'model.n_head' is not an override; write section.key=value"),
    ("model.n_head=1,2", "-m experiments.sweep trains with each of several values"),
    *((f"model.ngrams={list}", f"model.ngrams={list} must be a list in brackets") for list in ("[2,3", "[2,3]]", "2")),
    ("model.n_head=0", "model.n_head=0 must be at least 1"),
    ("model.n_head=5", "model.n_head=5 does not divide model.n_embd=24; try 2, 3, 4 or 6, or set model.head_size"),
    ("model.n_head=[3]", "model.n_head=[3] has 1 entries; give one for each of the 2 layers, or one number for all"),
    ("model.n_kv_head=2", "model.n_kv_head=2 does not divide model.n_head=3; try 1 or 3"),
    ("model.n_head=8", "rope rotates pairs of channels, but a head has 3 channels"),
    ("model.score=dot model.attention=fused", "set model.attention=auto for dot"),
    ("optim.lr=-1", "optim.lr=-1.0 must be above 0"),
    ("optim.muon_lr=1e308", "at most 1,000,000,000,000"),
    ("train.name=../elsewhere", "train.name='../elsewhere' must be a folder name"),
    ("train.keep_checkpoints=2", "train.keep_checkpoints=2 must be 0, or at least 3"),
    ("train.grow_context_at=[0.5,0.4]", "must be rising fractions between 0 and 1"),
    ("train.grow_context_at=[.1,.2,.3,.4,.5]", "model.block_size=16 must be a multiple of 32"),
    ("train.device=cuda:99", "PyTorch finds no device 'cuda:99' here"),
    ("train.device=tpu", "PyTorch finds no device 'tpu' here"),
    ("data.corpus=gone.txt", "data.corpus=gone.txt: no such file"),
    ("data.corpus=shakespear", "did you mean shakespeare?"),
    ("data.corpus=empty", "contains no .txt file"),
    ("data.corpus=C:\\x.txt", "data.corpus=C:\\x.txt: no such file, folder or named corpus in"),
    ("data.corpus=~nouser/x", "~nouser/x"),
    ("data.corpus=gone/**.txt", "data.corpus=gone/**.txt: "),  # no pattern before Python 3.13
    *((f"train.name={name}", "must be a folder name") for name in ("a\nb", "a.", "Lock", "x.HTML", "con", "Com1.5")),
    ("data.corpus=empty.txt", "is empty"),
    ("data.corpus=same.txt", "same.txt repeats one character: nothing to learn"),
    ("data.corpus=latin.txt", "latin-1 reads any file"),
    ("data.split=[0.9,0.1]", "0.1] must be three numbers"),
    ("data.split=[1,0,0]", "training and validation must be above 0"),
    ("data.split=[0.8,0.1,0]", "fractions must add up to 1"),
    ("data.split=[1000,0.1,0]", "whole numbers of characters"),
    ("data.lines=true data.corpus=names.txt", r"needs lines that end in \n, but names.txt has none"),
    ("data.encoding=utf-9", "data.encoding=utf-9 is not a text encoding"),
    ("data.val_corpus=val.txt data.split=[0.8,0.1,0.1]", "data.split divides one text"),
    ("model.block_size=500", "is too short"),
]
IN_THE_COMMAND = [
    ("", "name a config or a run, such as --config configs/shakespeare.yaml or --resume"),
    ("--config tiny.yaml --resume runs/a", "not allowed with argument --config"),
    ("--config tiny.yaml --from gone", "gone: no such run or checkpoint"),
    ("--config tiny.yaml optim.lr=1 --max_steps=9 optim.beta2=0", "--max_steps=9; settings have no dashes"),
    ("--config tiny.yaml --zzz\x1b", "--zzz\\x1b"),
    ("--config gone.yaml", "gone.yaml: no such file in"),
    ("--config configs/selmere.yaml", f"; did you mean {ROOT}/configs/selmere.yaml?"),
    ("--config lock.yaml", "train.name='lock' must be a folder name"),
    ("--config swept.yaml", "this is a sweep; start it with "),
    ("--config .", ".: Is a directory"),
    ("--resume runs/gone", "no such run folder"),
    ("--resume tiny.yaml", "is not a run folder"),
]


@pytest.fixture
def place(workplace):
    (workplace / "empty.txt").touch()
    (workplace / "empty").mkdir()
    for name, text in {"same": "a", "names": "anna bob "}.items():
        (workplace / f"{name}.txt").write_text(text * 90, newline="")
    (workplace / "lock.yaml").write_text("data: {corpus: text.txt}\nmodel: {block_size: 16}")
    (workplace / "swept.yaml").write_text("sweep: {train.seed: 0..1}")
    (workplace / "latin.txt").write_bytes("caf\xe9 au lait".encode("latin-1"))
    yield workplace
    assert not (workplace / "runs").exists()


@pytest.mark.parametrize(("content", "message"), IN_A_FILE, ids=lambda text: text[:40])
def test_a_mistake_in_a_config(place, capsys, content, message):
    (place / "any.yaml").write_text(content, encoding="utf-8", errors="surrogateescape")
    assert "any.yaml: " in assert_mistake(capsys, train.main, ["--config", "any.yaml"], message)


@pytest.mark.parametrize(("settings", "message"), IN_A_SETTING, ids=lambda text: text[:40])
def test_a_mistake_in_a_setting_on_the_command_line(place, capsys, settings, message):
    line = assert_mistake(capsys, train.main, ["--config", "tiny.yaml", *settings.split(" ")], message)
    assert "tiny.yaml" not in line  # which has no mistake


@pytest.mark.parametrize(("arguments", "message"), IN_THE_COMMAND)
def test_a_mistake_in_the_command(place, capsys, arguments, message):
    assert_mistake(capsys, train.main, arguments.split(), message)
