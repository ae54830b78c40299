"""The playground's web server: one page, and a few requests that the page makes. It reads no file for a request."""

import json
import secrets
import sys
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from cli.errors import UserError, checking_values, explain
from experiments.playground.models import Model
from experiments.playground.reader import Reader
from experiments.playground.request import checked
from model.generate import Sampling

MOST_BYTES = 1 << 16  # of a request
MOST_CLIENTS, MOST_WRITING = 32, 4  # requests at once, and texts written at once
MOST_SKIPPED, MOST_PAGES = 1 << 25, 1_000  # bytes of a request that is too long; pages whose requests are counted
TIMEOUT_S = 20  # of a client that sends or reads nothing

COMPUTED = {"/read": Reader.read, "/inside": Reader.look_inside, "/score": Reader.score}
HEADERS = {"X_Content_Type_Options": "nosniff", "Referrer_Policy": "no-referrer", "X_Frame_Options": "DENY"}


class RefusedError(UserError):
    """A request that is not answered; `code` is its HTTP status."""

    def __init__(self, code: HTTPStatus, reason: str):
        super().__init__(reason)
        self.code = code


class PlaygroundServer(ThreadingHTTPServer):
    """Serves the page of some models. hosts: the values of the Host header that it answers to."""

    daemon_threads = True
    request_queue_size = 2 * MOST_CLIENTS

    def __init__(self, address: tuple[str, int], models: list[Model], make_page: Callable[[str], str]):
        super().__init__(address, Handler)
        self.models, self.make_page = models, make_page
        port = self.server_address[1]
        names = {"127.0.0.1", "localhost", "[::1]", address[0]}
        self.hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set())
        self.any_host = address[0] in ("0.0.0.0", "::")  # then the page may have any name
        self.clients, self.writing = threading.Semaphore(MOST_CLIENTS), threading.Semaphore(MOST_WRITING)
        self.newest: dict[str, int] = {}  # the number of each page's newest request

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.clients.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        torch.set_num_threads(1)  # of this request's thread: one character is too little work to share
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.clients.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of a bug; ignore clients that go away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: PlaygroundServer
    protocol_version = "HTTP/1.0"  # one request for each connection: its end is the end of a text
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        self._answer({"/": self._page, "/state": self._state})

    def do_POST(self) -> None:
        computed = {path: partial(self._compute, work) for path, work in COMPUTED.items()}
        self._answer({**computed, "/write": self._write, "/choose": self._choose})

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _answer(self, routes: dict[str, Callable[[], None]]) -> None:
        try:
            self._check_origin()
            if (work := routes.get(self.path.partition("?")[0])) is None:
                raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
            work()
        except UserError as error:
            self._send({"error": explain(error)}, code=getattr(error, "code", HTTPStatus.BAD_REQUEST))

    def _check_origin(self) -> None:
        """Refuse other sites: a page elsewhere may not ask, whatever name it gives this machine (DNS rebinding)."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if not (self.server.any_host or host in self.server.hosts):
            raise RefusedError(HTTPStatus.FORBIDDEN, "open the address that the playground printed")
        if origin is not None and origin != f"http://{host}":
            raise RefusedError(HTTPStatus.FORBIDDEN, "another site may not use the playground")

    def _page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        policy = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:"
        content = self.server.make_page(nonce).encode()
        self._head("text/html; charset=utf-8", Content_Security_Policy=f"{policy}; connect-src 'self'; base-uri 'none'")
        self.wfile.write(content)

    def _state(self) -> None:
        for model in self.server.models:
            model.follow()
        self._send({"models": [model.state() for model in self.server.models]})

    def _choose(self) -> None:
        request, model = self._request()
        model.choose(request["checkpoint"])
        self._send(model.state())

    def _write(self) -> None:
        request, model = self._request()
        with checking_values():
            sampling = Sampling(**{name: request[name] for name in ("temperature", "top_k", "top_p", "min_p")})
        if not self.server.writing.acquire(blocking=False):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many texts are being written; try again")
        try:
            options = (request["length"], sampling, request["seed"], request["stop"], request["off"])
            pieces = model.reader.write(request["text"], *options)
            first = next(pieces, "")  # raises its errors before the answer begins
            self._head("text/plain; charset=utf-8")
            self.wfile.write(first.encode())
            for piece in pieces:  # the end of a page ends this with an error
                self.wfile.write(piece.encode())
        finally:
            self.server.writing.release()

    def _compute(self, work: Callable[[Reader, str, list[int]], dict[str, Any]]) -> None:
        """Answer with work(reader, text, off), unless the same page has asked for something newer meanwhile."""
        request, model = self._request()
        newest, page = self.server.newest, f"{self.path} {request['model']} {request['page']}"
        if len(newest) > MOST_PAGES:
            newest.clear()
        newest[page] = max(request["number"], newest.get(page, 0))
        reader, version = model.reader, model.version
        with reader.lock:
            is_replaced = newest.get(page, 0) > request["number"]
            answer = {"replaced": True} if is_replaced else work(reader, request["text"], request["off"])
        self._send(answer | {"version": version})

    def _request(self) -> tuple[dict[str, Any], Model]:
        """Return a request's fields, with defaults for those that it leaves out, and its model."""
        content = self._body()
        if self.headers.get_content_type() != "application/json":  # which no form of another site can send
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON")
        try:
            given = json.loads(content)
        except (ValueError, RecursionError):
            raise UserError("this is not JSON") from None
        request = checked(given)
        if request["model"] >= len(self.server.models):
            raise UserError(f"there are {len(self.server.models)} models")
        model = self.server.models[request["model"]]
        n_heads = len(model.reader.heads)
        if any(type(head) is not int or not 0 <= head < n_heads for head in request["off"]):
            raise UserError(f"off must be numbers of heads, from 0 to {n_heads - 1}")
        return request, model

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 15:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request has no proper length")
        if int(length) <= MOST_BYTES:
            return self.rfile.read(int(length))
        for _ in range(min(int(length), MOST_SKIPPED) // MOST_BYTES):  # or the client could not read the answer
            self.rfile.read(MOST_BYTES)
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have {MOST_BYTES:,} bytes")

    def _send(self, answer: dict[str, Any], code: HTTPStatus = HTTPStatus.OK) -> None:
        self._head("application/json", code)
        self.wfile.write(json.dumps(answer).encode())

    def _head(self, kind: str, code: HTTPStatus = HTTPStatus.OK, **more: str) -> None:
        self.send_response(code)
        for name, value in {"Content_Type": kind, "Cache_Control": "no-store", **HEADERS, **more}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
