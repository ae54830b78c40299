"""The command `python -m page` and what its page holds; the other tests of this folder open pages."""

import base64
import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from helpers import assert_mistake, models_in

from experiments.heads.__main__ import main as heads_command
from page.__main__ import main as page_command
from training.runs.find_checkpoint import BUNDLED_MODEL


@pytest.fixture(autouse=True)
def beside_the_run(trained, monkeypatch):
    monkeypatch.chdir(trained)


def test_a_run_becomes_a_page_in_its_folder_with_its_losses(trained, capsys):
    assert page_command(["--no-browser"]) == 0
    page = Path("runs/tiny/page.html")
    size = f"{page.stat().st_size / 1e6:.1f} MB"
    assert re.match(f"{page}, {size}, works in any browser, also offline; it is .*, step 40", capsys.readouterr().out)
    (model,) = models_in(page)
    assert [characters for characters, _ in model["points"]] == [20 * 5 * 16, 40 * 5 * 16]
    assert page_command(["--no-browser", "--prompt", "9 b"]) == 0  # in its place
    (model,) = models_in(page)
    assert model["opening"] == "9 b"
    for other, n_warnings in (("runs/tiny", 0), (str(BUNDLED_MODEL), 1)):
        assert page_command(["--no-browser", "--checkpoint", "runs/tiny", other]) == 0
        assert len(models_in("page.html")) == 2
        sentence = '<p id="warning" class="warning">Do not compare these models'
        assert Path("page.html").read_text(encoding="utf-8").count(sentence) == n_warnings


def test_a_page_has_all_that_it_needs_names_no_path_of_this_machine_and_may_not_connect_anywhere(trained):
    assert page_command(["--no-browser", "--output", "page.html"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert str(trained) not in page
    assert str(ROOT) not in page
    assert "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval'; worker-src blob:; style-src" in page
    assert not re.search(r"<(script|img|link|iframe)[^>]*(src|href)=\"(?!data:)", page)


def test_pages_have_titles_of_their_own_and_their_foot_names_the_project(trained, monkeypatch):
    for address, checkpoint, title, project in (
        ("", "runs/tiny", "tiny", "character-level GPT."),
        (
            "https://a.test/?b&c",
            BUNDLED_MODEL,
            "Watch a GPT learn",
            '<a href="https://a.test/?b&amp;c">character-level',
        ),
    ):
        monkeypatch.setattr("page.models.ADDRESS", address)
        assert page_command(["--checkpoint", str(checkpoint), "--no-browser", "--output", "titled.html"]) == 0
        page = Path("titled.html").read_text(encoding="utf-8")
        assert f"<title data-own>{title}</title>" in page
        (foot,) = re.findall("<footer>.*</footer>", page, re.DOTALL)
        assert (project in foot, foot.count("<a ")) == (True, bool(address))


def test_the_page_of_the_bundled_model_is_what_its_command_writes():
    """The bytes of gzip differ between builds of zlib, so the weights and the text are compared unpacked."""
    assert page_command(["--checkpoint", str(BUNDLED_MODEL), "--no-browser", "--output", "page.html"]) == 0
    found = []
    for page in (Path("page.html"), ROOT / "page/gpt.html"):
        packed = r'(?<="weights": ")[\w+/=]+|(?<=data-name="Selmere, a short play" data-own>)[\w+/=]+'
        content = page.read_text(encoding="utf-8")
        unpacked = [gzip.decompress(base64.b64decode(each)) for each in re.findall(packed, content)]
        found.append((re.sub(packed, "", content), unpacked))
    is_new = found[0] == found[1]
    assert is_new, "run the command on data/README.md that makes this page"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs the browsers of Linux")
@pytest.mark.parametrize(("chosen", "is_opened"), [(None, False), ("graphical", True)])
def test_a_page_opens_in_a_browser_that_leaves_the_terminal_alone_and_in_no_other(
    tmp_path, monkeypatch, chosen, is_opened
):
    for name in ("www-browser", "links", "elinks", "lynx", "w3m", "graphical"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$0" "$1" >"$(dirname "$0")/opened"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if chosen:
        monkeypatch.setenv("BROWSER", chosen)
    page = tmp_path / "page.html"
    command = [sys.executable, "-P", "-m", "page", "--output", str(page)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, timeout=180)
    opened = (tmp_path / "opened").read_text() if (tmp_path / "opened").exists() else ""
    assert opened == (f"{tmp_path / 'graphical'} {page.as_uri()}\n" if is_opened else "")


@pytest.mark.parametrize("command", [page_command, heads_command])
def test_a_page_shows_one_model_or_two(trained, capsys, command):
    assert_mistake(capsys, command, ["--checkpoint", *["runs/tiny"] * 3], "--checkpoint takes one model or two")
