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
from conftest import train_tiny

from experiments.heads.silence import silenced
from experiments.playground.__main__ import main as playground
from experiments.playground.models import Model
from experiments.playground.page import make_page
from experiments.playground.reader import Reader
from experiments.playground.server import MOST_CLIENTS, PlaygroundServer
from model.generate import Sampling
from training.runs.checkpoint import load_checkpoint
from training.trained_model import load_model

TEXT = "9 bottles of b"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("playground")
    train_tiny(folder, "train.keep_checkpoints=3", "train.dtype=bfloat16", "train.device=cpu")
    return folder


@pytest.fixture
def server(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with PlaygroundServer(("127.0.0.1", 0), [Model(load_model("runs/tiny"))], lambda n: make_page(nonce=n)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def request(server, path, body=None, **headers):
    """Return the status, the headers and the content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request("GET" if body is None else "POST", path, content, sent)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def ask(server, path, **body):
    status, _, content = request(server, path, body)
    assert status == 200, content
    return json.loads(content)


def in_float64(text, off=()):
    """Return the log-probabilities (T, V) after each character, by the model in float64."""
    model = load_checkpoint(Path("runs/tiny/checkpoints/best.pt")).build_model().double()
    vocabulary = load_model("runs/tiny").vocabulary
    ids = torch.from_numpy(vocabulary.encode(text).astype(np.int64))[None]
    with silenced(model, [Reader(load_model("runs/tiny")).heads[i] for i in off]):
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
    loss = ask(server, "/score", text=TEXT, off=off)
    assert loss["loss"] == pytest.approx(found["nats"] / len(bits), abs=1e-5)


def test_a_text_typed_changed_and_shortened_gives_the_same_as_a_text_read_at_once(folder, monkeypatch):
    monkeypatch.chdir(folder)
    typing = Reader(load_model("runs/tiny"))
    long = TEXT * 3
    texts = [*(long[:n] for n in range(len(long) + 1)), TEXT, TEXT[:5] + "eer", TEXT, "", long[3:]]
    for off in ([], [1], []):
        for text in texts:
            at_once = Reader(load_model("runs/tiny")).read(text, off)
            assert typing.read(text, off)["bits"] == pytest.approx(at_once["bits"], abs=1e-4)
    for off in ([1], [], [0, 2]):  # the same text with other heads
        at_once = Reader(load_model("runs/tiny")).read(TEXT, off)
        assert typing.read(TEXT, off)["bits"] == pytest.approx(at_once["bits"], abs=1e-4)


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
    body = {"text": "9 b", "length": 60, "seed": 3, "top_k": 5}
    assert request(server, "/write", body)[2] == expected
    stop = expected[20:22]
    assert request(server, "/write", body | {"stop": stop})[2] == expected[: expected.index(stop)]


def test_other_checkpoints_can_be_chosen_by_name_only(server):
    (before,) = json.loads(request(server, "/state")[2])["models"]
    assert before["checkpoints"][:2] == ["best", "latest"]
    assert "step 0" in before["checkpoints"]
    after = ask(server, "/choose", checkpoint="step 0")
    assert (after["step"], after["version"]) == (0, before["version"] + 1)
    for name in ("../../secret.pt", "/etc/passwd", "runs/tiny"):
        status, _, content = request(server, "/choose", {"checkpoint": name})
        assert (status, "no checkpoint called" in content) == (400, True)


def test_the_page_follows_a_run_in_progress(folder, server):
    before = ask(server, "/read", text=TEXT)
    best, first = (folder / f"runs/tiny/checkpoints/{name}.pt" for name in ("best", "step-0"))
    content = best.read_bytes()
    best.write_bytes(first.read_bytes())
    try:
        (state,) = json.loads(request(server, "/state")[2])["models"]
        after = ask(server, "/read", text=TEXT)
        assert (state["step"], after["version"]) == (0, before["version"] + 1)
        assert after["next"] != before["next"]
    finally:
        best.write_bytes(content)


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({"Host": "evil.example"}, "open the address that the playground printed"),
        ({"Origin": "http://evil.example"}, "another site may not use the playground"),
        ({"Origin": "null"}, "another site may not use the playground"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/state", "/read", "/write"])
def test_other_sites_are_refused(server, path, headers, sentence):
    body = {"text": "9"} if path in ("/read", "/write") else None
    status, _, content = request(server, path, body, **headers)
    assert status == 403
    assert sentence in content
    assert request(server, "/state", Origin=f"http://127.0.0.1:{server.server_address[1]}")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("/read", b"x" * 10_000_000, 413, "a request may have 65,536 bytes"),
        ("/read", {"text": "9" * 20_001}, 400, "text must be a text from 0 to 20,000 characters"),
        ("/read", {"text": "Q"}, 400, "'Q' (U+0051) is not in the vocabulary"),
        ("/read", {"text": 3}, 400, "text must be a text"),
        ("/read", {"text": "9", "off": [99]}, 400, "off must be numbers of heads, from 0 to 5"),
        ("/read", {"text": "9", "off": ["x"]}, 400, "off must be numbers of heads"),
        ("/read", {"model": 1}, 400, "there are 1 models"),
        ("/read", {"path": "/etc/passwd"}, 400, "send an object with some of the fields"),
        ("/read", b"[" * 10_000, 400, "this is not JSON"),
        ("/write", {"length": 2001}, 400, "length must be a whole number from 1 to 2,000"),
        ("/write", {"temperature": "hot"}, 400, "temperature must be a number"),
        ("/write", {"top_p": 0}, 400, "top_p=0 must be above 0"),
        ("/write", {"seed": True}, 400, "seed must be a whole number"),
        ("/score", {"text": "9"}, 400, "the passage is too short"),
        ("/nothing", {}, 404, "there is no such page"),
        ("/../runs/tiny/config.yaml", None, 404, "there is no such page"),
    ],
)
def test_bad_requests_get_a_sentence(server, path, body, status, sentence):
    found, _, content = request(server, path, body)
    assert (found, list(json.loads(content))) == (status, ["error"])
    assert sentence in json.loads(content)["error"]


def test_a_form_of_another_site_is_refused(server):
    status, _, content = request(server, "/read", b'{"text": "9"}', Content_Type="text/plain")
    assert (status, "send JSON" in content) == (415, True)


def test_the_page_allows_no_script_but_its_own(server):
    status, headers, content = request(server, "/")
    nonce = headers["Content-Security-Policy"].partition("nonce-")[2].partition("'")[0]
    assert status == 200
    assert len(nonce) > 20
    assert f'<script nonce="{nonce}">' in content
    assert request(server, "/")[1]["Content-Security-Policy"] != headers["Content-Security-Policy"]


def test_fifty_clients_at_once_are_answered_or_turned_away_and_the_next_is_answered(server):
    def read(i):
        try:
            return request(server, "/read", {"text": TEXT + str(i), "page": str(i)})[0]
        except (ConnectionError, http.client.HTTPException):
            return None

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(read, range(50)))
    assert set(answers) <= {200, None}
    assert answers.count(200) >= MOST_CLIENTS // 2
    assert ask(server, "/read", text=TEXT)["next"]


def test_a_client_that_never_reads_or_goes_away_ends_its_text_and_stops_nobody(server, monkeypatch):
    monkeypatch.setattr("experiments.playground.server.Handler.timeout", 0.5)
    body = json.dumps({"text": "9", "length": 2000}).encode()
    head = f"POST /write HTTP/1.0\r\nHost: 127.0.0.1:{server.server_address[1]}\r\nContent-Type: application/json\r\n"
    clients = []
    for _ in range(6):
        client = socket.create_connection(server.server_address)
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        clients.append(client)
    silent = socket.create_connection(server.server_address)  # sends nothing
    assert ask(server, "/read", text=TEXT)["next"]
    for client in clients:
        client.close()
    deadline = time.monotonic() + 30
    while server.clients._value < MOST_CLIENTS:  # every client's thread has ended
        assert time.monotonic() < deadline
        time.sleep(0.05)
    silent.close()
    assert len(request(server, "/write", {"text": "9", "length": 30})[2]) == 30


def test_too_many_texts_at_once_are_refused(server):
    for _ in range(4):
        server.writing.acquire()
    status, _, content = request(server, "/write", {"text": "9"})
    assert (status, "too many texts" in content) == (503, True)


def test_an_exported_page_has_the_same_numbers_and_a_limit(folder, server, monkeypatch, capsys):
    assert playground(["--export", "page.html", "--text", TEXT]) == 0
    page = (folder / "page.html").read_text()
    data = json.loads(page.partition('id="exported">')[2].partition("</script>")[0])
    assert data["shown"][0]["next"] == [list(each) for each in ask(server, "/read", text=TEXT)["next"]]
    assert str(folder) not in page
    capsys.readouterr()
    assert playground(["--export", "page.html", "--text", TEXT * 3]) == 2
    assert "has space for 16" in capsys.readouterr().err


def test_mistakes_of_the_command_are_one_line(folder, server, capsys):
    port = str(server.server_address[1])
    for arguments, sentence in (
        (["--port", port, "--no-browser"], "choose another --port"),
        (["--port", "70000", "--no-browser"], "choose another --port"),
        (["--checkpoint", "runs/none"], "no such run or checkpoint"),
        (["--text", "x"], "--export needs a --text"),
    ):
        assert playground(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert sentence in line


def test_writing_lets_other_requests_have_a_turn(folder, monkeypatch):
    monkeypatch.chdir(folder)
    reader = Reader(load_model("runs/tiny"))
    pieces = reader.write("9", 20, Sampling(temperature=0), 0, "", [0, 1])
    first = next(pieces)
    assert not reader.lock.locked()
    assert reader.read(TEXT)["bits"] == pytest.approx(Reader(load_model("runs/tiny")).read(TEXT)["bits"])
    whole = first + "".join(pieces)
    assert whole == "".join(Reader(load_model("runs/tiny")).write("9", 20, Sampling(temperature=0), 0, "", [0, 1]))
