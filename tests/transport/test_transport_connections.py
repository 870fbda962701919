"""Connections, bodies, headers, proxies and redirects: what goes out, where to, and over how many connections."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kvv.core import FaultKind, Fragment, Identity, Request, Role, Timeouts
from kvv.protocol.encode import encode
from kvv.protocol.reader import ReadLimits
from kvv.protocol.redaction.redactor import Redactor
from kvv.transport.client import KEEP_ALIVE_S, STALE_LIMIT, Transport
from kvv.transport.endpoint import Endpoint, EndpointError, proxy_for

#: one, but on a machine so busy that a connection idles beyond its time a few more are opened
FEW = 3

Run = Callable[..., Any]
Serve = Callable[[Any], Any]


def in_turn(count: int, **fields: Any) -> Any:
    async def work(send: Any) -> list[Any]:
        return [await send(**fields) for _ in range(count)]

    return work


def test_requests_in_turn_share_one_connection(run: Run, serve: Serve) -> None:
    server = serve("completion")
    results = run(server.base_url, in_turn(20))
    assert all(received.observation.answer == "42" for received in results)
    assert len(server.requests) == 20
    assert server.connections <= FEW


def test_streams_leave_their_connection_usable(run: Run, serve: Serve) -> None:
    server = serve("stream")
    assert all(received.exchange.fault is None for received in run(server.base_url, in_turn(20, stream=True)))
    assert server.connections <= FEW


def test_concurrent_requests_open_no_more_connections_than_allowed(run: Run, serve: Serve) -> None:
    server = serve("completion")

    async def work(send: Any) -> list[Any]:
        return list(await asyncio.gather(*(send() for _ in range(40))))

    assert all(received.exchange.fault is None for received in run(server.base_url, work, max_connections=4))
    assert 1 <= server.connections <= 4


def test_time_counts_from_the_sending_not_from_the_waiting_for_a_connection(
    run: Run, serve: Serve, hostile: ModuleType
) -> None:
    server = serve(hostile.always(lambda talk: (time.sleep(0.3), talk.answer())))

    async def work(send: Any) -> list[Any]:
        return list(await asyncio.gather(send(), send()))

    totals = [received.exchange.timing.total_ms for received in run(server.base_url, work, max_connections=1)]
    assert all(300 <= total < 590 for total in totals)


def test_an_unfinished_answer_never_leaks_into_the_next_request(run: Run, serve: Serve, hostile: ModuleType) -> None:
    """After a time-out the connection is closed: a late answer must not be taken for the next one's."""

    def behave(talk: Any) -> None:
        while talk.read_request() is not None:
            if talk.number == 1:
                talk.server.stopped.wait(0.4)
                talk.answer(hostile.COMPLETION.replace(b'"42"', b'"late"'))
            else:
                talk.answer()

    server = serve(behave)

    async def work(send: Any) -> list[Any]:
        return [await send(timeouts=Timeouts(first_byte=0.15)), *[await send() for _ in range(3)]]

    first, *others = run(server.base_url, work)
    assert first.exchange.fault.kind is FaultKind.FIRST_BYTE_TIMEOUT
    assert [received.observation.answer for received in others] == ["42"] * 3
    assert 2 <= server.connections <= 1 + FEW


def test_a_fault_in_a_complete_answer_never_breaks_the_request_that_reuses_its_connection(
    run: Run, serve: Serve, hostile: ModuleType
) -> None:
    """The body is complete but not gzip: aiohttp has already given its connection to whoever waits for one."""

    def behave(talk: Any) -> None:
        while talk.read_request() is not None:
            broken = talk.served % 2
            talk.answer(headers=["content-encoding: gzip"] if broken else [])

    server = serve(behave)

    async def work(send: Any) -> list[Any]:
        return list(await asyncio.gather(*(send() for _ in range(40))))

    kinds = [
        received.exchange.fault and received.exchange.fault.kind
        for received in run(server.base_url, work, max_connections=2)
    ]
    assert set(kinds) == {None, FaultKind.BAD_ENCODING}
    assert server.connections <= 2 * FEW


@pytest.mark.parametrize("requests", [1, 100])
def test_a_connection_closed_as_announced_costs_no_request(
    run: Run, serve: Serve, hostile: ModuleType, requests: int
) -> None:
    server = serve(hostile.closing_after(requests, announced=True))
    results = run(server.base_url, in_turn(2 * requests + 1))
    assert not [received.exchange.fault for received in results if received.exchange.fault]
    assert 3 <= server.connections <= 2 + FEW


def test_a_connection_closed_in_silence_loses_few_requests_and_each_is_a_reset(run: Run, serve: Serve) -> None:
    server = serve("close-after-100")
    faults = [received.exchange.fault for received in run(server.base_url, in_turn(350)) if received.exchange.fault]
    assert len(faults) <= STALE_LIMIT
    assert all(fault.kind is FaultKind.RESET and not fault.after_content for fault in faults)


def test_connections_closed_after_each_answer_are_soon_not_reused(run: Run, serve: Serve, hostile: ModuleType) -> None:
    """A server that closes late enough to swallow the next request, each time."""

    def behave(talk: Any) -> None:
        if talk.read_request() is not None:
            talk.answer()
            if talk.read_request() is not None:
                talk.reset()

    faults = [received.exchange.fault for received in run(serve(behave).base_url, in_turn(30))]
    assert [fault.kind for fault in faults if fault] == [FaultKind.RESET] * STALE_LIMIT
    assert not any(faults[2 * STALE_LIMIT :])


def test_an_idle_connection_is_dropped_before_common_servers_drop_it() -> None:
    assert KEEP_ALIVE_S < 2, "gunicorn closes after 2 seconds"


def test_the_request_is_what_was_asked_for(run: Run, serve: Serve) -> None:
    server = serve("completion")
    run(server.base_url + "/", in_turn(1, body={"model": "m", "n": 1}))
    (request,) = server.requests
    assert request.head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert request.header("authorization") == "Bearer sk-canary-Zq81bYt0Wv55NcKe"
    assert request.header("content-type") == "application/json"
    assert request.header("accept-encoding") == "gzip, deflate"
    assert request.header("host") == f"127.0.0.1:{server.port}"
    assert request.header("transfer-encoding") is None
    assert json.loads(request.body) == {"model": "m", "n": 1}


def test_without_a_key_there_is_no_authorization(run: Run, serve: Serve) -> None:
    server = serve("completion")
    run(server.base_url, in_turn(1), key=None)
    assert server.requests[0].header("authorization") is None


def test_userinfo_is_a_basic_credential_and_never_part_of_the_request_line(run: Run, serve: Serve) -> None:
    server = serve("completion")
    run(server.base_url.replace("//", "//user:pa%40ss@"), in_turn(1), key=None)
    (request,) = server.requests
    assert request.header("authorization") == "Basic dXNlcjpwYUBzcw=="
    assert b"user" not in request.head.split(b"\r\n")[0]


def test_headers_of_the_endpoint_are_laid_over_the_rest(run: Run, serve: Serve) -> None:
    server = serve("completion")
    run(server.base_url, in_turn(1), headers={"Authorization": "Token abc", "X-Team": "kvv"})
    assert server.requests[0].header("authorization") == "Token abc"
    assert server.requests[0].header("x-team") == "kvv"


def test_a_query_in_the_base_url_stays_behind_the_path(run: Run, serve: Serve) -> None:
    server = serve("completion")
    run(server.base_url + "?api-version=2024-10-21", in_turn(1))
    assert server.requests[0].head.startswith(b"POST /v1/chat/completions?api-version=2024-10-21 HTTP/1.1\r\n")


def test_a_get_has_no_body(run: Run, serve: Serve) -> None:
    server = serve("completion")
    run(server.base_url, in_turn(1, method="GET", path="/models", body=b""))
    assert server.requests[0].head.startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert server.requests[0].body == b""


def test_a_large_body_of_shared_parts_arrives_whole_and_with_its_length(run: Run, serve: Serve) -> None:
    server = serve("completion")
    history = Fragment.of(json.dumps({"role": "user", "content": "x" * 4_000_000}).encode())
    (received,) = run(
        server.base_url, in_turn(1, body={"model": "m", "messages": [history, {"role": "user", "content": "and?"}]})
    )
    assert received.exchange.fault is None
    (request,) = server.requests
    assert request.header("transfer-encoding") is None
    assert request.header("content-length") == str(len(request.body))
    assert len(json.loads(request.body)["messages"][0]["content"]) == 4_000_000


def test_a_refusal_before_the_large_body_was_read_is_kept_where_the_server_lets_it_arrive(
    run: Run, serve: Serve, hostile: ModuleType
) -> None:
    def behave(talk: Any) -> None:
        talk.read_head()
        talk.answer(b'{"error":{"message":"too big"}}', status="413 Payload Too Large")
        talk.hang()

    (received,) = run(serve(behave).base_url, in_turn(1, body={"x": "y" * 8_000_000}), idle_timeout=1)
    assert received.exchange.status == 413


def test_a_server_that_never_reads_the_body_is_a_first_byte_timeout(run: Run, serve: Serve) -> None:
    server = serve(lambda talk: talk.server.stopped.wait(5))
    (received,) = run(
        server.base_url, in_turn(1, body={"x": "y" * 20_000_000}, expect_prompt_tokens=1), first_byte_timeout=0.3
    )
    assert received.exchange.fault.kind is FaultKind.FIRST_BYTE_TIMEOUT


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_is_returned_and_nothing_reaches_the_other_host(
    run: Run, serve: Serve, hostile: ModuleType, status: str
) -> None:
    other = serve("completion")
    server = serve(hostile.answering(status, b"", f"location: {other.base_url}/chat/completions"))
    (received,) = run(server.base_url, in_turn(1))
    assert received.exchange.status == int(status[:3])
    assert received.exchange.fault is None
    assert (other.connections, len(server.requests)) == (0, 1)


def test_each_role_gets_its_own_key_only(serve: Serve) -> None:
    target, judge = serve("completion"), serve("completion")
    endpoints = {
        Role.TARGET: Endpoint(role=Role.TARGET, base_url=target.base_url, key="sk-target-111111"),
        Role.JUDGE: Endpoint(role=Role.JUDGE, base_url=judge.base_url, key="sk-judge-222222"),
    }

    async def main() -> None:
        async with Transport(endpoints, redactor=Redactor(), limits=ReadLimits()) as transport:
            for role in (Role.TARGET, Role.JUDGE):
                request = Request(body={}, role=role)
                identity = Identity(case="c", sample=0, step=0, ask=0, purpose="probe")
                await transport.send(
                    request, encode(request.body), identity=identity, attempt=1, rules=None, keep_frames=True
                )

    asyncio.run(main())
    assert [request.header("authorization") for request in target.requests] == ["Bearer sk-target-111111"]
    assert [request.header("authorization") for request in judge.requests] == ["Bearer sk-judge-222222"]


def test_cookies_are_not_kept(run: Run, serve: Serve, hostile: ModuleType) -> None:
    server = serve(hostile.always(lambda talk: talk.answer(headers=["set-cookie: session=abc; path=/"])))
    run(server.base_url.replace("127.0.0.1", "localhost"), in_turn(2))
    assert server.requests[1].header("cookie") is None


def test_netrc_is_not_read(run: Run, serve: Serve, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server = serve("completion")
    run(server.base_url, in_turn(1), key=None)
    assert server.requests[0].header("authorization") is None


# --- proxies -------------------------------------------------------------------------------------


def test_a_plain_request_goes_through_the_environments_proxy_with_its_credential(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve("completion")
    monkeypatch.setenv("http_proxy", f"http://me:pw%21@127.0.0.1:{proxy.port}")
    (received,) = run("http://vendor.invalid/v1", in_turn(1))
    assert received.observation.answer == "42"
    (request,) = proxy.requests
    assert request.head.startswith(b"POST http://vendor.invalid/v1/chat/completions HTTP/1.1\r\n")
    assert request.header("proxy-authorization") == "Basic bWU6cHch"


def test_tls_goes_through_a_tunnel_that_never_sees_the_key(
    run: Run, serve: Serve, hostile: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve(hostile.answering("407 Proxy Authentication Required", b""))
    monkeypatch.setenv("https_proxy", f"127.0.0.1:{proxy.port}")
    (received,) = run("https://vendor.invalid/v1", in_turn(1))
    assert received.exchange.fault.kind is FaultKind.CONNECT
    assert "407" in received.exchange.fault.detail
    (request,) = proxy.requests
    assert request.head.startswith(b"CONNECT vendor.invalid:443 HTTP/1.1\r\n")
    assert b"canary" not in request.head


def test_a_proxy_that_is_not_there_is_a_connect_fault_without_its_password(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://me:hunter2-hunter2@127.0.0.1:9")
    (received,) = run("http://vendor.invalid/v1", in_turn(1))
    assert received.exchange.fault.kind is FaultKind.CONNECT
    assert "hunter2" not in repr(received)


PROXY = "http://proxy.test:3128"


@pytest.mark.parametrize(
    ("url", "no_proxy", "expected"),
    [
        ("http://vendor.test/v1", "", PROXY),
        ("https://vendor.test/v1", "", None),
        ("http://vendor.test/v1", "vendor.test", None),
        ("http://vendor.test/v1", " other.test , .vendor.test", None),
        ("http://api.vendor.test/v1", "vendor.test", None),
        ("http://api.vendor.test/v1", "*.vendor.test", None),
        ("http://VENDOR.test/v1", "Vendor.TEST", None),
        ("http://notvendor.test/v1", "vendor.test", PROXY),
        ("http://vendor.test.evil/v1", "vendor.test", PROXY),
        ("http://vendor.test:8000/v1", "vendor.test:8000", None),
        ("http://vendor.test/v1", "vendor.test:8000", PROXY),
        ("http://10.1.2.3/v1", "10.0.0.0/8", None),
        ("http://11.1.2.3/v1", "10.0.0.0/8", PROXY),
        ("http://10.1.2.3/v1", "10.1.2.3", None),
        ("http://[fd00::1]/v1", "fd00::1", None),
        ("http://vendor.test/v1", "*", None),
        ("http://vendor.test/v1", ".", PROXY),
        ("http://127.0.0.1:8000/v1", "", None),
        ("http://localhost:8000/v1", "", None),
        ("http://[::1]:8000/v1", "", None),
    ],
)
def test_no_proxy_and_loopback_go_straight(url: str, no_proxy: str, expected: str | None) -> None:
    assert proxy_for(url, {"http_proxy": PROXY, "no_proxy": no_proxy}) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HTTPS_PROXY": "proxy.test:3128"}, PROXY),
        ({"ALL_PROXY": PROXY}, PROXY),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other.test"}, PROXY),
        ({"http_proxy": PROXY}, None),
        ({"https_proxy": ""}, None),
    ],
)
def test_the_proxy_variables_are_read_in_either_case(environ: dict[str, str], expected: str | None) -> None:
    assert proxy_for("https://vendor.test/v1", environ) == expected


# --- configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "vendor.test/v1", "ftp://vendor.test", "http://", "http://[::1", "http://vendor.test:port/v1"]
)
def test_a_base_url_that_is_none_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(EndpointError, match="target base URL") as caught:
        Transport({Role.TARGET: Endpoint(role=Role.TARGET, base_url=url)}, redactor=Redactor(), limits=ReadLimits())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["two\nlines-canary", "smart-quote-canary’"])
def test_a_key_no_header_can_carry_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(EndpointError) as caught:
        Transport(
            {Role.TARGET: Endpoint(role=Role.TARGET, base_url="http://h", key=key)},
            redactor=Redactor(),
            limits=ReadLimits(),
        )
    assert "canary" not in str(caught.value)


def test_an_endpoints_repr_holds_neither_key_nor_headers() -> None:
    endpoint = Endpoint(role=Role.TARGET, base_url="http://h", key="sk-canary", headers={"x-key": "canary"})
    assert "canary" not in repr(endpoint)
