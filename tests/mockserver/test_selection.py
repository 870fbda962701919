"""Variations of faults, and the faults that need neighbours in flight or a client that gives up."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import httpx
import pytest

from kvv.mockserver import FAULTS, MockConfig, MockServer

PAST = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "x"}]


def capped(got: Any) -> bool:
    """H06 was at work: the answer was cut at its default budget."""
    return bool(got.message["finish"] == "length")


def test_stream_and_nonstream(serve):
    for variation, faulted in (
        ("stream", [True, False]),
        ("nonstream", [False, True]),
        ("stream+nonstream", [False, False]),
    ):
        client = serve(faults=(f"H06:{variation}",))
        assert [capped(client.ask("x", stream=stream)) for stream in (True, False)] == faulted


def test_tools_only(serve, weather):
    client = serve(faults=("H06:tools",))
    assert not capped(client.ask("x"))
    assert capped(client.ask("x", tools=[weather]))
    assert capped(client.ask(messages=[{"role": "system", "tools": [weather]}, {"role": "user", "content": "x"}]))


def test_from_the_second_turn_on(serve):
    client = serve(faults=("H06:turn2",))
    assert not capped(client.ask("x"))
    assert capped(client.ask(messages=PAST))


def test_only_while_more_than_n_requests_are_under_way(serve):
    client = serve(faults=("H06:busy1",), ttft_ms=150)
    assert not capped(client.ask("x"))
    with ThreadPoolExecutor(2) as pool:
        got = [pool.submit(client.ask, "x") for _ in range(2)]
        assert sorted(capped(one.result()) for one in got) == [False, True]


def test_one_in_n_is_exact_in_each_run_of_n_and_drawn_from_the_seed(serve):
    def pattern(seed: int) -> list[bool]:
        client = serve(faults=("H06:1in4",), seed=seed, fresh=True)
        return [capped(client.ask("x", reasoning_effort="low")) for _ in range(32)]

    one, same, other = pattern(1), pattern(1), pattern(2)
    assert one == same != other
    assert [sum(one[at : at + 4]) for at in range(0, 32, 4)] == [1] * 8


def test_variations_combine(serve, weather):
    client = serve(faults=("H06:stream+tools",))
    seen = [
        capped(client.ask("x", stream=stream, **fields))
        for stream in (True, False)
        for fields in ({}, {"tools": [weather]})
    ]
    assert seen == [False, True, False, False]


def test_several_faults_act_together(serve):
    got = serve(faults=("C16", "C14")).ask("x", stream=True)
    assert {(frame["object"], frame["id"]) for frame in got.frames} == {("chat.completions.chunk", "")}


@pytest.mark.parametrize("name", ["Z99", "B19:sometimes", "B19:1in0", "quirk:none", ""])
def test_unknown_faults_and_variations_are_refused(name):
    with pytest.raises(ValueError, match="unknown"):
        MockServer(MockConfig(faults=(name,)))


@pytest.mark.parametrize("fault_id", sorted(FAULTS))
def test_every_variation_of_every_fault_can_be_selected(fault_id):
    MockServer(MockConfig(faults=(f"{fault_id}:1in3+turn2", f"{fault_id}:stream+tools", f"{fault_id}:nonstream")))


async def gather(server: MockServer, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    async with aiohttp.ClientSession() as session:

        async def one(body: dict[str, Any]) -> dict[str, Any]:
            async with session.post(
                f"{server.base_url}/chat/completions", json={"model": "kimi-k3", **body}
            ) as response:
                return dict(await response.json())

        answers = await asyncio.gather(*map(one, bodies))
    await asyncio.sleep(0)  # lets the session's sockets close before the loop does
    return answers


def run(faults: tuple[str, ...], bodies: list[dict[str, Any]], read: Callable[[dict[str, Any]], str]) -> list[str]:
    with MockServer(MockConfig(faults=faults)) as server:
        return [read(body) for body in asyncio.run(gather(server, bodies))]


def content(body: dict[str, Any]) -> str:
    return str(body["choices"][0]["message"]["content"])


def test_a08_a_seed_is_kept_alone_and_lost_in_company():
    seeded = {"messages": [{"role": "user", "content": "Give me a random string"}], "seed": 5}
    assert len(set(run((), [seeded] * 8, content))) == 1
    assert len(set(run(("A08",), [seeded] * 8, content))) > 1
    assert run(("A08",), [seeded], content) == run((), [seeded], content)


def test_j04_a_key_is_damaged_under_load_only():
    schema = {"type": "object", "properties": {"alpha": {"type": "integer"}}, "required": ["alpha"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = {"messages": [{"role": "user", "content": "x"}], "response_format": wanted}
    keys = [next(iter(json.loads(text))) for text in run(("J04",), [body] * 10, content)]
    assert any(key != "alpha" for key in keys)
    assert run(("J04",), [body], content) == run((), [body], content)


def test_i10_a_request_with_logprobs_is_never_answered(serve):
    client = serve(faults=("I10",), fresh=True)
    with pytest.raises(httpx.ReadTimeout):
        client.http.post(
            "/chat/completions",
            json={"model": "kimi-k3", "messages": [{"role": "user", "content": "x"}], "logprobs": True},
            timeout=0.2,
        )
    assert client.ask("x").status == 200
