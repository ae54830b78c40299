"""The files of a corpus: a named corpus, downloaded once and verified, or the user's own files."""

import contextlib
import difflib
import glob
import hashlib
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from tqdm import tqdm

from cli.errors import UserError
from data.compressed import SUFFIXES, open_text
from data.files import exclusive, file_digest, file_stat, remove_partial_files, replace_text, replacing

BUNDLED = Path(__file__).parent / "bundled"
DEFAULT_CACHE = Path(__file__).parent / "cache"
TIMEOUT_S = 20  # without any data
STALLED_S, LEAST_BYTES = 60, 60_000  # a download that is slower than that is given up
PARTIAL_CONTENT, NOTHING_IN_RANGE = 206, 416  # HTTP


class DownloadError(UserError):
    """A named corpus is not in the cache and cannot be downloaded."""


class MissingTextError(UserError):
    """There is nothing at the path of a corpus."""


@dataclass(frozen=True)
class Download:
    """A text on the web, perhaps as the only file of a .zip archive. sha256, n_bytes: of the text."""

    url: str
    sha256: str
    n_bytes: int


NAMED: dict[str, Download | Path] = {
    "shakespeare": Download(
        url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        n_bytes=1_115_394,
    ),
    "selmere": BUNDLED / "selmere.txt",
    # The first 10^8 bytes of the English Wikipedia of 3 March 2006 (Hutter Prize).
    "enwik8": Download(
        url="https://mattmahoney.net/dc/enwik8.zip",
        sha256="2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
        n_bytes=100_000_000,
    ),
}


def find_files(corpus: str, *, cache: Path = DEFAULT_CACHE, setting: str = "data.corpus") -> list[Path]:
    """Return the files of a corpus in reading order.

    corpus: a key of NAMED, a file, a folder (its .txt files, including subfolders and .txt.gz and the like, sorted by
    path) or a glob. setting: its name in errors.

    Raises DownloadError if a named corpus cannot be downloaded, MissingTextError if there is nothing at the path, and
    UserError if it has no text file.
    """
    source = NAMED.get(corpus)
    if isinstance(source, Download):
        return [_downloaded(corpus, source, cache)]
    if source is not None:
        return [source]
    path = Path(os.path.expanduser(corpus))  # noqa: PTH111 - an unknown user's folder is a missing file
    if path.is_dir():
        names = ("*.txt", *(f"*.txt{suffix}" for suffix in SUFFIXES))
        files = sorted(p for name in names for p in path.rglob(name) if p.is_file())
        if not files:
            raise UserError(f"{setting}={corpus}: the folder contains no .txt file; give a file or a glob")
    elif path.is_file():
        files = [path]
    elif path.exists():
        raise UserError(f"{setting}={corpus}: not a regular file or folder; give a file, a folder or a glob")
    else:
        files = sorted(p for p in map(Path, glob.glob(str(path), recursive=True)) if p.is_file())  # noqa: PTH207 - any root
        if not files:
            close = difflib.get_close_matches(corpus, NAMED, n=1)
            hint = f"did you mean {close[0]}?" if close else f"named corpora: {', '.join(NAMED)}"
            raise MissingTextError(f"{setting}={corpus}: no such file, folder or named corpus in {Path.cwd()}; {hint}")
    return [p.resolve() for p in files]


def _downloaded(name: str, source: Download, cache: Path) -> Path:
    """Return the verified file of a named corpus; download it if the cache does not have it."""
    target = cache / f"{name}.txt"
    try:
        if not _is_intact(target, source):
            with exclusive(cache, "another process is downloading a corpus"):
                if not _is_intact(target, source):
                    remove_partial_files(cache)
                    _download(name, source, target)
    except OSError as error:
        raise DownloadError(f"the corpus {name} could not be stored ({error}); free or unlock {cache}") from None
    return target


def _is_intact(target: Path, source: Download) -> bool:
    """Return whether a file is the text; read it only if it has changed since it was verified."""
    if not target.is_file() or target.stat().st_size != source.n_bytes:
        return False
    note, stat = target.with_suffix(".verified"), json.dumps([source.sha256, *file_stat(target)])
    if note.is_file() and note.read_text(encoding="utf-8") == stat:
        return True
    is_intact = file_digest(target) == source.sha256
    if is_intact:
        with contextlib.suppress(OSError):  # a cache that cannot be written is verified at every start
            replace_text(note, stat)
    return is_intact


def _download(name: str, source: Download, target: Path) -> None:
    """Write the file of a named corpus. Raises DownloadError if no URL has it."""
    reasons = []
    for url in (*_mirrored(name), source.url):
        # One file per URL, which a later attempt continues, or else removes.
        sign = hashlib.sha256(url.encode()).hexdigest()[:8]
        fetched = target.with_name(f"{name}.{sign}.download{'.zip' if url.endswith('.zip') else ''}")
        try:
            _fetch(url, source.n_bytes, fetched)
            _store(fetched, source, target)
            fetched.unlink()
            return
        except UserError as error:
            fetched.unlink()
            reasons.append(f"{url}: {error}")
        except (OSError, HTTPException) as error:
            reasons.append(f"{url}: {getattr(error, 'reason', None) or error}")
    raise DownloadError(
        f"the corpus {name} could not be downloaded ({'; '.join(reasons)}); put the file at {target}, set "
        f"CORPUS_MIRROR to a folder or URL that contains {name}.txt, or train on the bundled text with "
        "data.corpus=selmere"
    )


def _store(fetched: Path, source: Download, target: Path) -> None:
    """Write the text of a fetched file, which may be a .zip archive. Raises UserError if it is another text."""
    sha256, n_bytes = hashlib.sha256(), 0
    with open_text(fetched) as (read, _), replacing(target) as out:
        while n_bytes <= source.n_bytes and (piece := read(1 << 20)):
            out.write(piece)
            sha256.update(piece)
            n_bytes += len(piece)
        if sha256.hexdigest() != source.sha256:
            raise UserError(f"the {n_bytes:,} bytes do not have the SHA-256 {source.sha256[:12]}...")


def _mirrored(name: str) -> list[str]:
    """Return the URL of the corpus on CORPUS_MIRROR, a folder or a URL prefix; return [] if that is not set."""
    mirror = os.environ.get("CORPUS_MIRROR")
    if not mirror:
        return []
    if "://" not in mirror:
        mirror = Path(os.path.expanduser(mirror)).resolve().as_uri()  # noqa: PTH111 - as for a corpus
    return [f"{mirror.rstrip('/')}/{urllib.parse.quote(name)}.txt"]


def _fetch(url: str, n_bytes: int, target: Path) -> None:
    """Download a URL to a file, at most one chunk more than n_bytes, or what an earlier attempt left to download.

    It goes on as long as LEAST_BYTES arrive every STALLED_S. Raises OSError or HTTPException if the server fails.
    """
    n_before = target.stat().st_size if target.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={n_before}-"} if n_before else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code == NOTHING_IN_RANGE:
            return  # the earlier attempt downloaded everything
        raise
    bar = tqdm(total=n_bytes, unit="B", unit_scale=True, desc="Downloading", disable=None, leave=False)
    with response, bar, target.open("ab" if response.status == PARTIAL_CONTENT else "wb") as file:
        bar.update(file.tell())
        n_expected = int(response.headers.get("Content-Length", 0)) + file.tell()
        began_s, n_arrived = time.monotonic(), 0
        # read1 returns what has arrived: a server that sends a byte now and then cannot keep a read waiting.
        while file.tell() <= n_bytes and (chunk := response.read1(1 << 16)):
            file.write(chunk)
            bar.update(len(chunk))
            n_arrived += len(chunk)
            if time.monotonic() - began_s > STALLED_S:
                if n_arrived < LEAST_BYTES:
                    raise TimeoutError(f"only {n_arrived:,} bytes arrived in {STALLED_S} s; start again to continue")
                began_s, n_arrived = time.monotonic(), 0
        if file.tell() < min(n_expected, n_bytes):
            raise OSError("the connection ended early; start again to continue")
