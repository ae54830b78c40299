import functools
import hashlib
import threading
import time
import zipfile
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from data import sources
from data.config import DataConfig
from data.corpus import open_corpus
from data.sources import Download, DownloadError, MissingTextError, cache_folder, find_files

TEXT = b"Once upon a time there was a corpus.\n" * 100
CHANGED = TEXT.replace(b"time", b"mime", 1)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve a folder on this machine; the named corpus `story` is origin.txt there, which does not exist yet."""
    folder = tmp_path / "served"
    folder.mkdir()
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=folder)
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{http.server_port}"
    story = Download(url=f"{url}/origin.txt", sha256=hashlib.sha256(TEXT).hexdigest(), n_bytes=len(TEXT))
    monkeypatch.setitem(sources.NAMED, "story", story)
    monkeypatch.delenv("CORPUS_MIRROR", raising=False)
    yield folder, url
    http.shutdown()
    http.server_close()


def test_a_named_corpus_is_downloaded_once(server, cache):
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT)
    (path,) = find_files("story", cache=cache)
    assert path.read_bytes() == TEXT
    (folder / "origin.txt").unlink()
    assert find_files("story", cache=cache) == [path]


@pytest.mark.parametrize("damaged", [TEXT[: len(TEXT) // 2], CHANGED])
def test_a_damaged_copy_in_the_cache_is_downloaded_again(server, cache, damaged):
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT)
    cache.mkdir()
    (cache / "story.txt").write_bytes(damaged)
    (path,) = find_files("story", cache=cache)
    assert path.read_bytes() == TEXT


def test_a_download_may_be_a_zip_archive(server, tmp_path, monkeypatch):
    folder, url = server
    with zipfile.ZipFile(folder / "origin.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text", TEXT)
    monkeypatch.setitem(sources.NAMED, "story", replace(sources.NAMED["story"], url=f"{url}/origin.zip"))
    (path,) = find_files("story", cache=tmp_path / "cache")
    assert path.read_bytes() == TEXT
    (folder / "origin.zip").write_bytes(b"PK no archive")
    with pytest.raises(DownloadError, match=r"not a zip file"):
        find_files("story", cache=tmp_path / "another cache")


def test_a_mirror_is_tried_first_and_may_be_a_folder_or_a_url(server, tmp_path, monkeypatch):
    folder, url = server
    (folder / "story.txt").write_bytes(TEXT)
    for n, mirror in enumerate((str(folder), url, f"{url}/")):
        monkeypatch.setenv("CORPUS_MIRROR", mirror)
        (path,) = find_files("story", cache=tmp_path / f"cache-{n}")
        assert path.read_bytes() == TEXT


@pytest.mark.parametrize("mirror", ["{folder}", "~nouser/x"])
def test_the_origin_is_tried_if_the_mirror_is_missing_or_has_another_text(server, cache, monkeypatch, mirror):
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT)
    (folder / "story.txt").write_bytes(CHANGED)
    monkeypatch.setenv("CORPUS_MIRROR", mirror.format(folder=folder))
    (path,) = find_files("story", cache=cache)
    assert path.read_bytes() == TEXT


@pytest.mark.parametrize("served", [None, b"<html>Please log in</html>", TEXT[:100], TEXT + b"more", CHANGED])
def test_a_download_with_the_wrong_content_leaves_no_file(server, cache, served):
    folder, _ = server
    if served is not None:
        (folder / "origin.txt").write_bytes(served)
    with pytest.raises(DownloadError, match=r"could not be downloaded .*put the file at .*story.txt.*CORPUS_MIRROR"):
        find_files("story", cache=cache)
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_a_download_that_stalls_or_ends_early_is_an_error_and_leaves_no_file(server, cache, monkeypatch):
    pauses_s = [2, 0]

    def send_a_part(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(TEXT)))
        handler.end_headers()
        handler.wfile.write(TEXT[:1000])
        time.sleep(pauses_s.pop(0))

    monkeypatch.setattr(sources, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(SimpleHTTPRequestHandler, "do_GET", send_a_part)
    for reason in ("timed out", "1,000 bytes without the SHA-256"):
        with pytest.raises(DownloadError, match=reason):
            find_files("story", cache=cache)
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_the_fallback_replaces_only_a_corpus_whose_download_fails_and_gives_the_reason(cache, monkeypatch):
    monkeypatch.setitem(sources.NAMED, "story", Download(url="http://127.0.0.1:9/x", sha256="0" * 64, n_bytes=9))
    monkeypatch.delenv("CORPUS_MIRROR", raising=False)
    corpus = open_corpus(DataConfig(corpus="story", fallback="selmere"), cache=cache)
    assert corpus.name == "selmere"
    assert "story could not be downloaded (http://127.0.0.1:9/x: [Errno 111]" in corpus.fallback_reason
    with pytest.raises(DownloadError, match="refused"):
        open_corpus(DataConfig(corpus="story"), cache=cache)
    with pytest.raises(MissingTextError, match="no such file"):
        open_corpus(DataConfig(corpus="no/such/file.txt", fallback="selmere"), cache=cache)


def test_the_cache_of_a_clone_that_cannot_be_written_is_in_the_folder_of_the_user(tmp_path, monkeypatch):
    assert cache_folder().parent.name == "data"
    monkeypatch.setattr(sources.os, "access", lambda *_: False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / "home/.cache/character-level-gpt"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    corpus = open_corpus(DataConfig(corpus="selmere"))
    assert corpus.ids.file.name.startswith(str(tmp_path / "elsewhere/character-level-gpt"))


def test_a_folder_stands_for_its_text_files_in_order_and_a_glob_for_its_matches(tmp_path, cache):
    names = ["a.txt", "b.txt", "b.txt.gz", "notes.md", "notes.txt.html", "sub/c.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def found(corpus):
        return [str(path.relative_to(tmp_path)) for path in find_files(corpus, cache=cache)]

    assert found(str(tmp_path)) == ["a.txt", "b.txt", "b.txt.gz", "sub/c.txt"]
    assert found(f"{tmp_path}/*.md") == ["notes.md"]
    assert found(f"{tmp_path}/**/*.txt") == ["a.txt", "b.txt", "sub/c.txt"]
    assert found(f"{tmp_path}/notes.md") == ["notes.md"]


def test_the_error_for_a_missing_file_suggests_a_name(tmp_path, cache):
    with pytest.raises(ValueError, match=r"data.corpus=shakespear: no such file.*did you mean shakespeare\?"):
        find_files("shakespear", cache=cache)
    with pytest.raises(ValueError, match="named corpora: shakespeare, selmere"):
        find_files(str(tmp_path / "gone.txt"), cache=cache)
    with pytest.raises(ValueError, match=r"contains no .txt file"):
        find_files(str(tmp_path), cache=cache)
