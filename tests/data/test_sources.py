import contextlib
import dataclasses
import functools
import hashlib
import sys
import threading
import time
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from data import sources
from data.sources import Download, DownloadError, find_files

TEXT = b"Once upon a time there was a corpus.\n" * 100


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve a folder on this machine; the named corpus `story` is origin.txt there, which does not exist yet."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(SimpleHTTPRequestHandler, directory=folder)
    handler.log_message = lambda *_: None
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{http.server_port}"
    story = Download(url=f"{url}/origin.txt", sha256=hashlib.sha256(TEXT).hexdigest(), n_bytes=len(TEXT))
    monkeypatch.setitem(sources.NAMED, "story", story)
    monkeypatch.delenv("CORPUS_MIRROR", raising=False)
    yield folder, url
    http.shutdown()
    http.server_close()


def test_a_named_corpus_is_downloaded_once_and_verified(server, tmp_path):
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT)
    (path,) = find_files("story", cache=tmp_path / "cache")
    assert path.read_bytes() == TEXT
    (folder / "origin.txt").unlink()
    assert find_files("story", cache=tmp_path / "cache") == [path]


def test_a_download_may_be_a_zip_archive(server, tmp_path, monkeypatch):
    folder, url = server
    with zipfile.ZipFile(folder / "origin.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text", TEXT)
    story = dataclasses.replace(sources.NAMED["story"], url=f"{url}/origin.zip")
    monkeypatch.setitem(sources.NAMED, "story", story)
    (path,) = find_files("story", cache=tmp_path / "cache")
    assert path.read_bytes() == TEXT
    (folder / "origin.zip").write_bytes(b"PK no archive")
    with pytest.raises(DownloadError, match=r"cannot be unpacked"):
        find_files("story", cache=tmp_path / "another cache")


def test_a_mirror_is_tried_first_and_may_be_a_folder_or_a_url(server, tmp_path, monkeypatch):
    folder, url = server
    (folder / "story.txt").write_bytes(TEXT)
    for n, mirror in enumerate((str(folder), url, f"{url}/")):
        monkeypatch.setenv("CORPUS_MIRROR", mirror)
        (path,) = find_files("story", cache=tmp_path / f"cache-{n}")
        assert path.read_bytes() == TEXT


def test_the_origin_is_tried_if_the_file_on_the_mirror_is_wrong(server, tmp_path, monkeypatch):
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT)
    (folder / "story.txt").write_bytes(TEXT[:-1] + b"?")
    monkeypatch.setenv("CORPUS_MIRROR", str(folder))
    (path,) = find_files("story", cache=tmp_path / "cache")
    assert path.read_bytes() == TEXT


def test_a_mirror_in_the_folder_of_an_unknown_user_is_passed_over(server, tmp_path, monkeypatch):
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT)
    monkeypatch.setenv("CORPUS_MIRROR", "~nouser/x")
    (path,) = find_files("story", cache=tmp_path / "cache")
    assert path.read_bytes() == TEXT


def test_a_server_that_sends_a_byte_now_and_then_does_not_keep_the_download_going(server, tmp_path, monkeypatch):
    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):  # the client gives up
            while True:
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(0.05)

    monkeypatch.setattr(SimpleHTTPRequestHandler, "do_GET", drip)
    monkeypatch.setattr(sources, "STALLED_S", 1)
    with pytest.raises(DownloadError, match="bytes arrived in 1 s; start again to continue"):
        find_files("story", cache=tmp_path / "cache")
    assert not (tmp_path / "cache" / "story.txt").exists()


@pytest.fixture
def halting(server, monkeypatch):
    """Serve the text in halves: each connection ends after 1,000 bytes. Return the Range of each request."""
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT)
    ranges = []

    def send_a_part(handler):
        ranges.append(handler.headers.get("Range"))
        first = int(ranges[-1].removeprefix("bytes=").removesuffix("-")) if ranges[-1] else 0
        if first >= len(TEXT):
            handler.send_error(416)
            return
        handler.send_response(206 if ranges[-1] else 200)
        handler.send_header("Content-Length", str(len(TEXT) - first))
        handler.end_headers()
        handler.wfile.write((folder / "origin.txt").read_bytes()[first : first + 1_000])

    monkeypatch.setattr(SimpleHTTPRequestHandler, "do_GET", send_a_part)
    return ranges


def test_an_interrupted_download_continues_where_it_stopped(halting, tmp_path):
    for _ in range(3):
        with pytest.raises(DownloadError):
            find_files("story", cache=tmp_path / "cache")
    (path,) = find_files("story", cache=tmp_path / "cache")
    assert path.read_bytes() == TEXT
    assert halting == [None, "bytes=1000-", "bytes=2000-", "bytes=3000-"]
    assert [file.name for file in path.parent.glob("*.download*")] == []


def test_a_download_starts_again_if_the_file_on_the_server_has_changed_since_its_beginning(server, halting, tmp_path):
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT.replace(b"time", b"mime"))
    for _ in range(3):
        with pytest.raises(DownloadError):
            find_files("story", cache=tmp_path / "cache")
    (folder / "origin.txt").write_bytes(TEXT)
    with pytest.raises(DownloadError, match="do not have the SHA-256"):
        find_files("story", cache=tmp_path / "cache")
    for _ in range(4):
        with contextlib.suppress(DownloadError):
            find_files("story", cache=tmp_path / "cache")
    assert (tmp_path / "cache" / "story.txt").read_bytes() == TEXT
    assert halting[3:5] == ["bytes=3000-", None]


def test_a_download_that_was_complete_but_not_stored_is_used(halting, server, tmp_path):
    for _ in range(3):
        with pytest.raises(DownloadError):
            find_files("story", cache=tmp_path / "cache")
    (unfinished,) = (tmp_path / "cache").glob("*.download")
    unfinished.write_bytes(TEXT)
    find_files("story", cache=tmp_path / "cache")
    assert (tmp_path / "cache" / "story.txt").read_bytes() == TEXT


def test_a_corpus_that_has_not_changed_since_it_was_verified_is_not_read_again(server, tmp_path):
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT)
    (path,) = find_files("story", cache=tmp_path / "cache")
    find_files("story", cache=tmp_path / "cache")  # verifies it and notes that
    opened = []
    sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == "open" else None)
    assert find_files("story", cache=tmp_path / "cache") == [path]
    assert str(path) not in [str(file) for file in opened]
    path.write_bytes(TEXT.replace(b"time", b"mime"))
    assert find_files("story", cache=tmp_path / "cache") == [path]
    assert path.read_bytes() == TEXT


@pytest.mark.parametrize(
    "served", [None, b"<html>Please log in</html>", TEXT[:100], TEXT + b"more", TEXT.replace(b"time", b"mime", 1)]
)
def test_a_download_with_the_wrong_content_leaves_no_file(server, tmp_path, served):
    folder, _ = server
    if served is not None:
        (folder / "origin.txt").write_bytes(served)
    with pytest.raises(DownloadError, match=r"could not be downloaded .*put the file at .*story.txt.*CORPUS_MIRROR"):
        find_files("story", cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.txt"))


def test_a_damaged_copy_in_the_cache_is_downloaded_again(server, tmp_path):
    folder, _ = server
    (folder / "origin.txt").write_bytes(TEXT)
    (path,) = find_files("story", cache=tmp_path / "cache")
    path.write_bytes(TEXT[: len(TEXT) // 2])
    find_files("story", cache=tmp_path / "cache")
    assert path.read_bytes() == TEXT


def test_a_refused_connection_is_reported_as_a_failed_download(tmp_path, monkeypatch):
    monkeypatch.setitem(sources.NAMED, "story", Download(url="http://127.0.0.1:9/x", sha256="0" * 64, n_bytes=9))
    with pytest.raises(DownloadError, match="refused"):
        find_files("story", cache=tmp_path)


def test_a_folder_stands_for_its_text_files_in_order_and_a_glob_for_its_matches(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.txt", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [p.name for p in find_files(str(tmp_path))] == ["a.txt", "b.txt", "c.txt"]
    assert [p.name for p in find_files(f"{tmp_path}/*.md")] == ["notes.md"]
    assert [p.name for p in find_files(f"{tmp_path}/**/*.txt")] == ["a.txt", "b.txt", "c.txt"]
    assert [p.name for p in find_files(f"{tmp_path}/notes.md")] == ["notes.md"]


def test_the_error_for_a_missing_file_suggests_a_name(tmp_path):
    with pytest.raises(ValueError, match=r"data.corpus=shakespear: no such file.*did you mean shakespeare\?"):
        find_files("shakespear")
    with pytest.raises(ValueError, match="named corpora: shakespeare, selmere"):
        find_files(str(tmp_path / "gone.txt"))
    with pytest.raises(ValueError, match=r"contains no .txt file"):
        find_files(str(tmp_path))
