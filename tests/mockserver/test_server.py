"""The server as a process: start and stop, limits, keys, timing, and the command-line form."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from kvv.mockserver import MockConfig, MockServer
from kvv.mockserver.app import MAX_BODY

BODY = {"model": "kimi-k3", "messages": [{"role": "user", "content": "Hello"}]}


def test_it_accepts_at_once_and_is_gone_after_the_context():
    with MockServer() as server:
        assert httpx.get(f"{server.base_url}/models").status_code == 200
        url = server.base_url
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models")


def test_a_taken_port_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match=r"use|permission|access"):
        MockServer(MockConfig(port=taken.getsockname()[1])).__enter__()


def test_it_stops_while_requests_hang():
    """It would wait for the hanging request for ever."""
    with MockServer(MockConfig(faults=("I10",))) as server, pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.base_url}/chat/completions", json={**BODY, "logprobs": True}, timeout=0.1)


def test_unknown_paths_and_wrong_methods(kimi):
    root = kimi.server.base_url.removesuffix("/v1")
    for method, path, status in (
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/nothing", 404),
        ("POST", "/", 404),
    ):
        answer = kimi.http.request(method, root + path)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
    assert kimi.http.get("/chat/completions").headers["allow"] == "POST"


def test_keys(serve):
    client = serve(api_key="right")
    assert client.post(BODY).status == 401
    assert client.post(BODY).body["error"]["type"] == "invalid_authentication_error"
    wrong = client.post(BODY, headers={"authorization": "Bearer wrong"})
    assert (wrong.status, wrong.body["error"]["type"]) == (401, "incorrect_api_key_error")
    assert client.post(BODY, headers={"authorization": "Bearer right"}).status == 200
    assert client.http.get("/models").status_code == 401
    assert client.http.get("/models", headers={"authorization": "Bearer right"}).status_code == 200


def test_stats_over_http_equal_those_in_process(serve):
    client = serve(fresh=True)
    client.ask("x")
    client.ask("x", temperature=9)
    root = client.server.base_url.removesuffix("/v1")
    assert client.http.get(f"{root}/kvv/stats").json() == client.server.stats()
    assert client.server.stats() == {"requests": 2, "completions": 1, "answers": {}, "by_status": {"200": 1, "400": 1}}


def test_a_declared_body_above_the_limit_is_refused_unread(kimi):
    with socket.create_connection(("127.0.0.1", int(kimi.server.base_url.split(":")[2].split("/")[0]))) as connection:
        connection.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_BODY + 1}\r\n\r\n".encode()
        )
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_large_body_is_answered_and_others_go_on_meanwhile(kimi):
    body = {**BODY, "messages": [{"role": "user", "content": " ".join(["word"] * 400_000)}]}
    answers: list[httpx.Response] = []
    url = f"{kimi.server.base_url}/chat/completions"
    slow = threading.Thread(target=lambda: answers.append(httpx.post(url, json=body, timeout=60)))
    slow.start()
    answered = 0
    while slow.is_alive() and answered < 2000:
        assert kimi.ask("Reply with exactly: a", reasoning_effort="low").status == 200
        answered += 1
    slow.join()
    assert answered > 2
    assert answers[0].json()["usage"]["prompt_tokens"] == 400_000 + 11 + 67 + 7


def test_timing_of_first_token_and_gaps(serve):
    client = serve(ttft_ms=60, itl_ms=3)
    start = time.monotonic()
    times = []
    with client.http.stream("POST", "/chat/completions", json={**BODY, "stream": True, "max_tokens": 20}) as response:
        for _ in response.iter_raw():
            times.append(time.monotonic() - start)
    assert times[0] >= 0.06
    assert len(times) > 5
    assert times[-1] >= 0.06 + 20 * 0.003
    start = time.monotonic()
    client.ask("Hello", max_tokens=20)
    assert time.monotonic() - start >= 0.06 + 19 * 0.003


def test_a_client_that_leaves_is_not_counted(serve):
    client = serve(itl_ms=20, fresh=True)
    with client.http.stream("POST", "/chat/completions", json={**BODY, "stream": True}) as response:
        next(response.iter_raw())
    deadline = time.monotonic() + 5
    while client.server._engine.active and time.monotonic() < deadline:
        time.sleep(0.01)
    assert client.server.stats()["completions"] == 0


@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serving_in_the_foreground_ends_with_the_stats(number):
    code = "from kvv.mockserver import *; serve_forever(MockConfig(faults=('C16',)))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": ""}
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        url = first.split()[2]
        assert first == f"listening on {url} (model kimi-k3, faults C16)\n"
        assert httpx.post(f"{url}/chat/completions", json=BODY).status_code == 200
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(10) == 0
    assert json.loads(rest)["completions"] == 1
