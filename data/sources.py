"""The files of a corpus: a named corpus, downloaded once and verified, or the user's own files."""

import difflib
import hashlib
import os
import sys
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from cli.errors import UserError, checking_values
from data.files import exclusive, replacing

BUNDLED = Path(__file__).parent / "bundled"
TIMEOUT_S = 20  # without any data


class MissingTextError(UserError):
    """There is nothing at the path of a corpus."""


class Download(NamedTuple):
    """A text on the web."""

    url: str
    sha256: str


NAMED: dict[str, Download | Path] = {
    "shakespeare": Download(
        url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    "names": Download(
        url="https://raw.githubusercontent.com/karpathy/makemore/master/names.txt",
        sha256="0a30b5557f192f32ab962680889aac5f6fda0f4cecf40a6d0b5694f58ea8cc4d",
    ),
    "selmere": BUNDLED / "selmere.txt",
}


def cache_folder() -> Path:
    """Return data/cache or, if the clone cannot be written, the user's folder for caches."""
    folder = Path(__file__).parent / "cache"
    is_writable = os.access(folder if folder.exists() else folder.parent, os.W_OK)
    return folder if is_writable else user_cache_path("character-level-gpt", appauthor=False)


def find_files(corpus: str, *, cache: Path, setting: str = "data.corpus") -> list[Path]:
    """Return the files of a corpus in reading order.

    corpus: a key of NAMED, a file, a folder or a glob; data/README.md says which files the last two stand for.
    setting: its name in errors.

    Raises MissingTextError if there is nothing at the path, UserError if it has no text file or a named corpus cannot
    be downloaded.
    """
    path = NAMED.get(corpus, Path(os.path.expanduser(corpus)))  # noqa: PTH111 - an unknown user's folder is missing
    if isinstance(path, Download):
        return [_downloaded(corpus, path, cache)]
    if path.is_file():
        return [path.absolute()]
    if path.is_dir():
        if not (files := [file for file in _matching(path, "**/*") if file.suffix.lower() == ".txt"]):
            raise UserError(f"{setting}={corpus}: the folder contains no .txt file; give a file or a glob")
        return files
    folder = next(filter(Path.is_dir, path.parents), path.parents[-1])  # a [ in its name is no wildcard
    with checking_values(f"{setting}={corpus}: "):  # no pattern before Python 3.13: **.txt
        files = _matching(folder, str(path.relative_to(folder)))
    if not files:
        close = difflib.get_close_matches(corpus, NAMED, n=1)
        hint = f"did you mean {close[0]}?" if close else f"named corpora: {', '.join(NAMED)}"
        raise MissingTextError(f"{setting}={corpus}: no such file, folder or named corpus in {Path.cwd()}; {hint}")
    return files


def _matching(folder: Path, pattern: str) -> list[Path]:
    """Return the files below a folder that match a pattern, sorted, without hidden ones and those of run folders."""
    files, folder = [], folder.absolute()
    for path in sorted(folder.glob(pattern), key=lambda path: path.parts):  # the same order on every system
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        is_of_run = all((path.parent / name).is_file() for name in ("config.yaml", "metrics.jsonl"))
        if path.is_file() and not is_hidden and not is_of_run:
            files.append(path)
    return files


def _downloaded(name: str, source: Download, cache: Path) -> Path:
    """Return the file of a named corpus; download it if the cache does not have it, or has another text."""
    target = cache / f"{name}.txt"
    with exclusive(cache, "is downloading a corpus", waits=True):
        if not (target.is_file() and _sha256(target.read_bytes()) == source.sha256):
            with replacing(target) as file:
                file.write(_download(name, source, target))
    return target


def _download(name: str, source: Download, target: Path) -> bytes:
    """Return the text of a named corpus. Raises UserError, with the reasons, if no URL has it."""
    urls, reasons = [source.url], []
    if mirror := os.environ.get("CORPUS_MIRROR"):
        if "://" not in mirror:
            mirror = Path(os.path.expanduser(mirror)).resolve().as_uri()  # noqa: PTH111 - as for a corpus
        urls.insert(0, f"{mirror.rstrip('/')}/{name}.txt")
    for url in urls:
        print(f"Downloading {url}", file=sys.stderr, flush=True)
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
                content = response.read()
            if _sha256(content) == source.sha256:
                return content
            reasons.append(f"{url}: {len(content):,} bytes without the SHA-256 {source.sha256[:12]}...")
        except (OSError, ValueError, HTTPException) as error:
            reasons.append(f"{url}: {getattr(error, 'reason', None) or error}")
    raise UserError(
        f"the corpus {name} could not be downloaded ({'; '.join(reasons)}); put the file at {target}, set "
        f"CORPUS_MIRROR to a folder or URL that contains {name}.txt, or name the bundled text, selmere, instead"
    )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
