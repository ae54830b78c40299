"""The playground's server: its numbers against float64, and what it refuses."""

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.playground.reader import Reader
from experiments.playground.server import MOST_AT_ONCE, PlaygroundServer
from helpers import wait_for

from experiments.heads.silence import silenced
from experiments.playground.__main__ import main as playground
from experiments.playground.__main__ import start_server
from experiments.playground.models import Model
from model.generate import Sampling
from training.trained_model import load_model

TEXT = "9 bottles of b"
REQUEST = {"model": 0, "text": "9", "off": []}
WRITING = REQUEST | {"length": 30, "temperature": 0.8, "top_k": None, "top_p": 1, "min_p": 0, "seed": 0, "stop": ""}


@pytest.fixture
def server(trained, monkeypatch):
    monkeypatch.chdir(trained)
    with PlaygroundServer(("127.0.0.1", 0), [Model(load_model("runs/tiny"))]) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def request(server, path, body=None, **headers):
    """Return the status and the content of an answer."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=180)
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request("GET" if body is None else "POST", path, content, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def ask(server, path, **body):
    status, content = request(server, path, REQUEST | body)
    assert status == 200, content
    return json.loads(content)


def in_float64(text, off=()):
    """Return the log-probabilities (T, V) after each character, by the model in float64, and the ids."""
    trained = load_model("runs/tiny")
    model, vocabulary = trained.model.double(), trained.vocabulary
    ids = torch.from_numpy(vocabulary.encode(text).astype(np.int64))[None]
    with silenced(model, [Reader(load_model("runs/tiny")).parts[i] for i in off]):
        return model(ids)[0].log_softmax(-1), ids[0], vocabulary


@pytest.mark.parametrize("off", [[], [0, 4]])
def test_probabilities_and_surprise_are_those_of_the_model_in_float64(server, off):
    found = ask(server, "/read", text=TEXT, off=off)
    expected, ids, vocabulary = in_float64(TEXT, off)
    for _, character, probability in found["next"]:
        assert probability == pytest.approx(expected[-1, vocabulary.encode(character)[0]].exp().item(), abs=1e-5)
    bits = [-expected[t, ids[t + 1]].item() / np.log(2) for t in range(len(ids) - 1)]
    assert found["bits"][0] is None
    assert found["bits"][1:] == pytest.approx(bits, abs=1e-4)
    assert found["nats"] == pytest.approx(sum(bits) * np.log(2), abs=1e-4)


def test_the_lens_of_the_last_layer_is_the_prediction_and_of_an_earlier_one_that_of_a_shorter_model(server):
    found = ask(server, "/inside", text=TEXT)
    reading = ask(server, "/read", text=TEXT)
    assert [c for _, c, _ in found["lens"][-1][-1]] == [c for _, c, _ in reading["next"][:3]]
    shorter = load_model("runs/tiny").model.double()
    shorter.blocks = shorter.blocks[:1]
    _, ids, vocabulary = in_float64(TEXT)
    expected = shorter(ids[None])[0].softmax(-1)
    for t, row in enumerate(found["lens"][0]):
        for _, character, probability in row:
            assert probability == pytest.approx(expected[t, vocabulary.encode(character)[0]].item(), abs=1e-5)


def test_a_continuation_is_that_of_sample_and_ends_before_the_stop_text(server):
    expected = load_model("runs/tiny").generate("9 b", 60, seed=3, top_k=5)[3:]
    body = WRITING | {"text": "9 b", "length": 60, "seed": 3, "top_k": 5}
    assert request(server, "/write", body)[1] == expected
    stop = expected[20:22]
    assert request(server, "/write", body | {"stop": stop})[1] == expected[: expected.index(stop)]


def test_writing_lets_other_requests_have_a_turn(trained, monkeypatch):
    monkeypatch.chdir(trained)
    reader, other = (Reader(load_model("runs/tiny")) for _ in range(2))
    pieces = reader.write("9", 20, Sampling(temperature=0), 0, "", [0, 1])
    first = next(pieces)
    assert reader.read(TEXT)["bits"] == pytest.approx(other.read(TEXT)["bits"])
    assert first + "".join(pieces) == "".join(other.write("9", 20, Sampling(temperature=0), 0, "", [0, 1]))


def test_other_checkpoints_are_chosen_by_name_only_and_the_page_follows_a_run(trained, server):
    (before,) = json.loads(request(server, "/state")[1])["models"]
    assert before["checkpoints"][:3] == ["best", "latest", "step 0"]
    for name in ("../../secret", "/etc/passwd", "runs/tiny"):
        status, content = request(server, "/choose", {"model": 0, "checkpoint": name})
        assert (status, "no checkpoint called" in content) == (400, True)
    reading = ask(server, "/read", text=TEXT)
    files = server.models[0].checkpoints()
    content = files["best"].read_bytes()
    files["best"].write_bytes(files["step 0"].read_bytes())
    try:
        (state,) = json.loads(request(server, "/state")[1])["models"]
    finally:
        files["best"].write_bytes(content)
    assert (state["step"], state["chosen"]) == (0, "best")
    assert ask(server, "/read", text=TEXT)["next"] != reading["next"]
    status, content = request(server, "/choose", {"model": 0, "checkpoint": "latest"})
    assert (json.loads(content)["step"], json.loads(content)["chosen"]) == (40, "latest")


def test_a_choice_of_a_checkpoint_is_kept_while_pages_follow_the_run(server):
    with ThreadPoolExecutor(4) as pages:
        for name in ["step 0", "latest"] * 10:
            states = [pages.submit(request, server, "/state") for _ in range(8)]
            assert request(server, "/choose", {"model": 0, "checkpoint": name})[0] == 200
            assert [state.result()[0] for state in states] == [200] * 8
            assert json.loads(request(server, "/state")[1])["models"][0]["chosen"] == name


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
@pytest.mark.parametrize("path", ["/", "/state", "/read", "/write"])
def test_other_sites_are_refused(server, path, headers):
    status, content = request(server, path, WRITING if path in ("/read", "/write") else None, **headers)
    assert (status, "other sites may not ask" in content) == (403, True)
    assert request(server, "/state", Origin=f"http://127.0.0.1:{server.server_address[1]}")[0] == 200


PROXY = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "play.example"}


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {"Host": "localhost:9999", "Origin": "http://localhost:9999"}),  # a tunnel with another local port
        (200, {"Host": "localhost:9999", "Origin": "https://localhost:9999"}),
        (200, {"Origin": "http://localhost:9999", "Sec-Fetch-Site": "same-origin"}),  # a tunnel that changes the host
        (200, PROXY | {"Origin": "https://play.example"}),  # a proxy that changes the host
        (200, PROXY | {"Host": "play.example", "Origin": "https://play.example"}),  # and one that does not
        (200, PROXY | {"Host": "play.example", "Sec-Fetch-Site": "same-origin"}),
        (403, PROXY | {"Host": "play.example", "Origin": "https://evil.example"}),
        (403, PROXY | {"Host": "play.example", "Origin": "https://play.example", "Sec-Fetch-Site": "cross-site"}),
        (403, PROXY | {"Host": "evil.example", "Origin": "http://evil.example"}),  # a script may invent these headers
        (403, PROXY | {"Host": "evil.example"}),
        (403, {"Host": "evil.example", "Sec-Fetch-Site": "same-origin"}),
        (403, {"Origin": "https://evil.example", "X-Forwarded-Host": "play.example"}),
        (403, {"Sec-Fetch-Site": "cross-site"}),
        (403, {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}),  # a form of another site
        (400, {"Host": "["}),
    ],
)
def test_tunnels_and_proxies_are_let_in_but_no_other_site(server, status, headers):
    assert request(server, "/read", REQUEST, **headers)[0] == status


def test_a_link_from_another_site_opens_the_page(server):
    assert request(server, "/", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})[0] == 200


def test_the_playground_serves_an_ipv6_address_at_the_next_free_port(server):
    with (
        start_server("::1", 0, server.models) as other,
        start_server("127.0.0.1", server.server_address[1], []) as next_,
    ):
        threading.Thread(target=other.serve_forever, args=(0.01,)).start()
        assert request(other, "/read", REQUEST)[0] == 200
        assert next_.server_address[1] > server.server_address[1]
        other.shutdown()


def test_the_playground_waits_for_the_first_checkpoint_of_a_run(run, monkeypatch, capsys):
    away = run.checkpoints.rename(run.path / "away")
    run.checkpoints.mkdir()
    monkeypatch.setattr(time, "sleep", lambda _: away.rename(run.checkpoints))
    assert playground(["--checkpoint", "runs/tiny", "--export", "page.html", "--text", TEXT]) == 0
    assert "runs/tiny has no checkpoint yet; waiting for the first one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("/read", b"x" * 66_000, 413, "a request may have 65,536 bytes"),
        ("/read", REQUEST | {"text": "Q"}, 400, "'Q' (U+0051) is not in the vocabulary"),
        ("/read", b"[" * 10, 400, "Expecting value"),
        ("/write", WRITING | {"top_p": 0}, 400, "top_p=0 must be above 0"),
        ("/nothing", {}, 404, "there is no such page"),
        ("/../runs/tiny/config.yaml", None, 404, "there is no such page"),
    ],
)
def test_bad_requests_get_a_sentence(server, path, body, status, sentence):
    found, content = request(server, path, body)
    assert (found, list(json.loads(content))) == (status, ["error", "position"])
    assert sentence in json.loads(content)["error"]


def test_requests_beyond_the_limit_are_refused(server):
    for _ in range(MOST_AT_ONCE):
        server.free.acquire()
    status, content = request(server, "/write", WRITING)
    assert (status, "too many people" in content) == (503, True)


def test_a_client_that_never_reads_or_goes_away_ends_its_text_and_stops_nobody(server, capfd):
    body = json.dumps(WRITING | {"length": 2000}).encode()
    head = f"POST /write HTTP/1.0\r\nHost: 127.0.0.1:{server.server_address[1]}\r\n"
    clients = [socket.create_connection(server.server_address) for _ in range(4)]
    for client in clients[1:]:  # the first one sends nothing
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert ask(server, "/read", text=TEXT)["next"]
    for client in clients:
        client.close()
    wait_for(lambda: server.free._value == MOST_AT_ONCE)
    assert len(request(server, "/write", WRITING)[1]) == 30
    assert capfd.readouterr().err == ""


def test_an_exported_page_has_the_same_numbers(trained, server):
    assert playground(["--export", "page.html", "--text", TEXT]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('id="exported">')[2].partition("</script>")[0])
    assert data["shown"][0]["next"] == [list(each) for each in ask(server, "/read", text=TEXT)["next"]]
    assert str(trained) not in page


def test_mistakes_of_the_command_are_one_line(server, capsys):
    for arguments, sentence in (
        (["--host", "192.0.2.1", "--no-browser"], "choose another --host or --port"),
        (["--port", "70000", "--no-browser"], "choose another --host or --port"),
        (["--checkpoint", "runs/none"], "no such run or checkpoint"),
        (["--text", "x"], "--export needs a --text"),
    ):
        assert playground(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert sentence in line
