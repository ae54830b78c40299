"""The files of a corpus: a named corpus, downloaded once and verified, or the user's own files."""

import difflib
import fnmatch
import glob
import hashlib
import os
import shlex
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from cli.errors import UserError
from data.files import exclusive, replacing

BUNDLED = Path(__file__).parent / "bundled"
UNPACK = {".bz2": "bunzip2", ".gz": "gunzip", ".xz": "unxz", ".zip": "unzip", ".zst": "unzstd"}  # the commands
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
    """Return data/cache or, if the clone cannot be written, a folder of the user. Raises UserError without either."""
    folder = Path(__file__).parent / "cache"
    if os.access(folder if folder.exists() else folder.parent, os.W_OK):
        return folder
    try:
        of_user = user_cache_path("character-level-gpt", appauthor=False).expanduser()
        of_user.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        advice = "set XDG_CACHE_HOME to one that you can write"
        raise UserError(f"there is no folder for encoded texts ({error}); {advice}") from None
    return of_user


def find_files(corpus: str, *, cache: Path, setting: str = "data.corpus") -> list[Path]:
    """Return the files of a corpus in reading order.

    corpus: a key of NAMED, a file, a folder or a glob; data/README.md says which files the last two stand for.
    setting: its name in errors.

    Raises MissingTextError if there is nothing at the path, UserError if it has no text file, a file is packed or a
    named corpus cannot be downloaded, and OSError if a folder may not be read.
    """
    path = NAMED.get(corpus, Path(os.path.expanduser(corpus)))  # noqa: PTH111 - an unknown user's folder is missing
    if isinstance(path, Download):
        return [_downloaded(corpus, path, cache)]
    if path.is_dir():
        files = _without_runs(file for file in _matching(path, ["**"]) if file.suffix.lower() == ".txt")
        if not files:
            raise UserError(f"{setting}={corpus}: the folder contains no .txt file; give a file or a glob")
    elif path.is_file():
        files = [path]
    else:
        folder = next(filter(Path.is_dir, path.parents), path.parents[-1])  # a [ in its name is no wildcard
        files = _without_runs(_matching(folder, path.relative_to(folder).parts))
        if not files:
            close = difflib.get_close_matches(corpus, NAMED, n=1)
            hint = f"did you mean {close[0]}?" if close else f"named corpora: {', '.join(NAMED)}"
            raise MissingTextError(f"{setting}={corpus}: no such file, folder or named corpus in {Path.cwd()}; {hint}")
    for file in files:
        if command := UNPACK.get(file.suffix.lower()):
            raise UserError(f"{setting}={corpus}: unpack the file first: {command} {shlex.quote(str(file))}")
    return [file.absolute() for file in files]


def _matching(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield what a glob below a folder, given by its parts, matches; ** stands for folders at any depth.

    As in a shell, wildcards match no hidden name, and ** follows no link to a folder. Raises OSError if a folder may
    not be read, which Python's own globs leave out.
    """
    first, *rest = parts
    paths = [folder / first]
    if glob.has_magic(first):
        paths = [path for path in folder.iterdir() if fnmatch.fnmatch(path.name, first)]
        paths = [path for path in paths if path.name[0] != "." or first[0] == "."]
    if first == "**":
        yield from _matching(folder, rest or ["*"])
        paths, rest = [path for path in paths if not path.is_symlink()], [*parts]
    for path in paths:
        if not rest:
            yield path
        elif path.is_dir():
            yield from _matching(path, rest)


def _without_runs(paths: Iterable[Path]) -> list[Path]:
    """Return the files among the paths, sorted, without those of run folders."""
    files = []
    for path in sorted(paths, key=lambda path: path.parts):  # the same order on every system
        is_of_run = all((path.parent / name).is_file() for name in ("config.yaml", "metrics.jsonl"))
        if path.is_file() and not is_of_run:
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
