import functools
import hashlib
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cli.errors import UserError
from data import sources
from data.config import DataConfig
from data.corpus import open_corpus
from data.sources import Download, find_files

TEXT = b"Once upon a time there was a corpus.\n" * 100
CHANGED = TEXT.replace(b"time", b"mime", 1)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Return a folder that this machine serves; the named corpus `story` is origin.txt there."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "origin.txt").write_bytes(TEXT)
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=folder)
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    name_story(monkeypatch, f"http://127.0.0.1:{http.server_port}/origin.txt")
    monkeypatch.delenv("CORPUS_MIRROR", raising=False)
    yield folder
    http.shutdown()
    http.server_close()


def name_story(monkeypatch, url):
    story = Download(url=url, sha256=hashlib.sha256(TEXT).hexdigest())
    monkeypatch.setitem(sources.NAMED, "story", story)


def story(cache):
    (path,) = find_files("story", cache=cache)
    return path.read_bytes()


def test_a_named_corpus_is_downloaded_once_and_again_if_it_is_damaged(served, cache):
    assert story(cache) == TEXT
    for damaged in (TEXT[: len(TEXT) // 2], CHANGED):
        (cache / "story.txt").write_bytes(damaged)
        assert story(cache) == TEXT
    (served / "origin.txt").unlink()
    assert story(cache) == TEXT


@pytest.mark.parametrize("mirror", ["{folder}", "{url}", "{url}/", "~nouser/x", "http://[bad"])
@pytest.mark.parametrize("of_mirror", [TEXT, CHANGED])
def test_a_mirror_is_tried_first_and_then_the_origin(served, cache, monkeypatch, mirror, of_mirror):
    url = sources.NAMED["story"].url.removesuffix("/origin.txt")
    monkeypatch.setenv("CORPUS_MIRROR", mirror.format(folder=served, url=url))
    (served / "story.txt").write_bytes(of_mirror)
    if of_mirror == TEXT and mirror not in ("~nouser/x", "http://[bad"):
        (served / "origin.txt").unlink()
    assert story(cache) == TEXT


@pytest.mark.parametrize("content", [None, b"<html>Please log in</html>", TEXT[:100], TEXT + b"more", CHANGED])
def test_a_download_with_the_wrong_content_leaves_no_file(served, cache, content):
    (served / "origin.txt").write_bytes(content) if content else (served / "origin.txt").unlink()
    with pytest.raises(UserError, match=r"could not be downloaded .*put the file at .*story.txt.*CORPUS_MIRROR"):
        story(cache)
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_a_download_that_stalls_or_ends_early_is_an_error_and_leaves_no_file(served, cache, monkeypatch):
    pauses_s = [60, 0]

    def send_a_part(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(TEXT)))
        handler.end_headers()
        handler.wfile.write(TEXT[:1000])
        time.sleep(pauses_s.pop(0))

    monkeypatch.setattr(SimpleHTTPRequestHandler, "do_GET", send_a_part)
    for limit_s, reason in ((0.5, "timed out"), (60, r"IncompleteRead\(1000 bytes read")):
        monkeypatch.setattr(sources, "TIMEOUT_S", limit_s)
        with pytest.raises(UserError, match=reason):
            story(cache)
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_the_cache_of_a_clone_that_cannot_be_written_is_in_the_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setattr(sources.os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    corpus = open_corpus(DataConfig(corpus="selmere"))
    assert corpus.ids.filename.is_relative_to(tmp_path / "elsewhere/character-level-gpt")


def test_a_folder_stands_for_its_text_files_in_order_and_a_glob_for_its_matches(tmp_path, cache):
    left_out = [".ipynb_checkpoints/a.txt", "._a.txt", "notes.md", "notes.txt.html"]
    of_runs = ["runs/tiny/config.yaml", "runs/tiny/metrics.jsonl", "runs/tiny/samples.txt"]
    for name in ["a.txt", "b.txt", "config.yaml", "sub/D.TXT", "sub/c.txt", "b.txt.gz", *left_out, *of_runs]:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    (tmp_path / "linked").symlink_to(tmp_path / "sub")

    def found(corpus):
        return [str(path.relative_to(tmp_path)) for path in find_files(corpus, cache=cache)]

    assert found(str(tmp_path)) == ["a.txt", "b.txt", "sub/D.TXT", "sub/c.txt"]
    assert found(f"{tmp_path}/*.md") == ["notes.md"]
    assert found(f"{tmp_path}/*.txt") == ["a.txt", "b.txt"]
    assert found(f"{tmp_path}/n*") == ["notes.md", "notes.txt.html"]
    assert found(f"{tmp_path}/[rs]*/**/*.txt") == ["sub/c.txt"]
    assert found(f"{tmp_path}/**/[!ab].txt") == ["sub/c.txt"]
    assert found(f"{tmp_path}/*/c.txt") == ["linked/c.txt", "sub/c.txt"]
    for file in left_out:
        assert found(f"{tmp_path}/{file}") == [file]


@pytest.mark.parametrize("rest", ["", "**/*.txt", "*/*.txt"])
def test_a_folder_whose_name_has_brackets_is_searched(tmp_path, cache, rest):
    file = tmp_path / "My [old] books*" / "one" / "a.txt"
    file.parent.mkdir(parents=True)
    file.touch()
    assert find_files(f"{tmp_path}/My [old] books*/{rest}", cache=cache) == [file]
