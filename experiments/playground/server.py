"""The playground's web server: one page, and a few requests that the page makes. It reads no file for a request."""

import json
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import torch

from experiments.pages import render
from experiments.playground.models import Model
from model.generate import Sampling

PAGE = "playground/playground.html"
MOST_BYTES = 1 << 16  # of a request
MOST_AT_ONCE = 16  # requests in work
LONGEST_OUTPUT = 2_000  # characters
TIMEOUT_S = 20  # of a client that sends or reads nothing
LOCAL = ("127.0.0.1", "localhost", "::1")


class PlaygroundServer(ThreadingHTTPServer):
    """Serves a page about some models. It answers to the host of its address and to this machine's local names."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], models: list[Model]):
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)
        self.models, self.page = models, render(PAGE, title="Playground", exported=None)
        self.hosts = {address[0], *LOCAL}
        self.any_host = address[0] in ("0.0.0.0", "::")  # then the page may have any name
        self.free = threading.Semaphore(MOST_AT_ONCE)
        self.choosing = threading.Lock()  # held while a checkpoint loads: a state could undo a choice


class Handler(BaseHTTPRequestHandler):
    """Answers one request. The fields of a POST request are the arguments of the method that answers it."""

    server: PlaygroundServer
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        self._answer({"/": self._page, "/state": self._state})

    def do_POST(self) -> None:
        self._answer({"/read": self._read, "/inside": self._inside, "/write": self._write, "/choose": self._choose})

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _answer(self, routes: dict[str, Callable[..., None]]) -> None:
        """Answer a request of the page by one of these methods."""
        try:
            length = int(self.headers.get("Content-Length", 0))
            if not self._is_of_this_page():
                reason = "open the address that the playground printed; other sites may not ask"
                self._refuse(HTTPStatus.FORBIDDEN, reason)
            elif self.path not in routes:
                self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            elif not 0 <= length <= MOST_BYTES:
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have {MOST_BYTES:,} bytes")
            elif not self.server.free.acquire(blocking=False):
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many people use the playground; try again")
            else:
                try:
                    torch.set_num_threads(1)  # of this request's thread: one character is too little work to share
                    routes[self.path](**json.loads(self.rfile.read(length) or "{}"))
                finally:
                    self.server.free.release()
        except ValueError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error), position=getattr(error, "position", None))
        except (ConnectionError, TimeoutError):
            pass  # the page was closed, or has stopped a text

    def _is_of_this_page(self) -> bool:
        """Return False for other sites, whatever name they give this machine (DNS rebinding).

        A script may invent X-Forwarded headers, but neither Origin nor Sec-Fetch-Site, which browsers send only over
        HTTPS and to this machine's local names. So a proxy's own name must come with one of these.
        """
        header = self.headers.get
        host, origin, site = header("Host", ""), header("Origin"), header("Sec-Fetch-Site")
        is_known = self.server.any_host or urlsplit(f"//{host}").hostname in self.server.hosts
        if not is_known and header("X-Forwarded-Proto") != "https":
            return False
        if site:
            follows_link = self.command == "GET" and header("Sec-Fetch-Mode") == "navigate"
            return site in ("same-origin", "none") or follows_link
        forwarded = f"{header('X-Forwarded-Proto')}://{header('X-Forwarded-Host')}"
        return origin == f"https://{host}" or (is_known and origin in (None, f"http://{host}", forwarded))

    def _page(self) -> None:
        self._send(self.server.page, "text/html")

    def _state(self) -> None:
        with self.server.choosing:
            states = [model.state() for model in self.server.models]
        self._send_json({"models": states})

    def _choose(self, model: int, checkpoint: str) -> None:
        with self.server.choosing:
            self.server.models[model].choose(checkpoint)
            state = self.server.models[model].state()
        self._send_json(state)

    def _read(self, model: int, text: str, off: list[int]) -> None:
        self._send_json(self.server.models[model].reader.read(text, off))

    def _inside(self, model: int, text: str, off: list[int]) -> None:
        self._send_json(self.server.models[model].reader.look_inside(text, off))

    def _write(self, model: int, text: str, off: list[int], length: int, seed: int, stop: str, **sampling: Any) -> None:
        reader, length = self.server.models[model].reader, min(length, LONGEST_OUTPUT)
        pieces = reader.write(text, length, Sampling(**sampling), seed, stop, off)
        first = next(pieces, "")  # raises its errors before the answer begins
        self._send(first, "text/plain")
        for piece in pieces:
            self.wfile.write(piece.encode())

    def _refuse(self, status: HTTPStatus, reason: str, position: int | None = None) -> None:
        """Send an error. position: of the character at fault in the text."""
        self._send_json({"error": reason, "position": position}, status)

    def _send_json(self, answer: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(answer), "application/json", status)

    def _send(self, content: str, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Send an answer, or its beginning: the end of the connection is the end of the answer (HTTP/1.0)."""
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content.encode())
