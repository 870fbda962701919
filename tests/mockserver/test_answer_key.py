"""The answer key: matching, accuracy that can be counted, draws that do not depend on order or on lost answers."""

import asyncio
import json

import aiohttp
import openai
import pytest

from kvv.mockserver import KeyedAnswer, MockConfig, MockServer, Reply
from kvv.mockserver.content.answers import AnswerKey, Asks, draw
from kvv.mockserver.validation.request import Message

SUFFIX = "\n\n Please reason step by step, and put your final answer within \\boxed{}."


def key(n: int) -> tuple[KeyedAnswer, ...]:
    return tuple(
        KeyedAnswer(
            suite="aime2025",
            case=f"p{at}",
            prompt=f"Problem {at}: find m+n.",
            right=Reply(text=f"\\boxed{{{at}}}"),
            wrong=Reply(text="\\boxed{999}"),
        )
        for at in range(n)
    )


def _streamed(text: str) -> str:
    frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content", "") for frame in frames for choice in frame["choices"])


async def _hits(server: MockServer, problems: int, samples: int, streams: bool) -> int:
    limit = asyncio.Semaphore(16)
    async with aiohttp.ClientSession() as session:

        async def one(at: int) -> bool:
            body = {
                "model": "kimi-k3",
                "messages": [{"role": "user", "content": f"Problem {at}: find m+n.{SUFFIX}"}],
                "stream": streams,
            }
            async with limit, session.post(f"{server.base_url}/chat/completions", json=body) as response:
                text = await response.text()
                return f"boxed{{{at}}}" in (_streamed(text) if streams else text)

        hits = sum(await asyncio.gather(*(one(at) for at in range(problems) for _ in range(samples))))
    await asyncio.sleep(0)  # lets the session's sockets close before the loop does
    return hits


@pytest.mark.parametrize("streams", [False, True])
def test_the_servers_count_equals_the_clients(streams):
    with MockServer(MockConfig(accuracy=0.8, seed=7, answers=key(30))) as server:
        hits = asyncio.run(_hits(server, 30, 4, streams))
        counted = server.stats()["answers"]["aime2025"]
    assert counted == {"asked": 120, "right": hits}
    assert 80 <= hits <= 110


def test_equal_seeds_give_equal_draws_whatever_the_order():
    counts = []
    for _ in range(2):
        with MockServer(MockConfig(accuracy=0.5, seed=3, answers=key(10))) as server:
            asyncio.run(_hits(server, 10, 6, False))
            counts.append(server.stats()["answers"]["aime2025"]["right"])
    assert counts[0] == counts[1]
    assert draw(3, "a", 0) != draw(4, "a", 0)


@pytest.mark.parametrize(("accuracy", "right"), [(1.0, 5), (0.0, 0)])
def test_extreme_accuracies(serve, accuracy, right):
    client = serve(accuracy=accuracy, answers=key(1), fresh=True)
    for _ in range(5):
        client.ask("Problem 0: find m+n.")
    assert client.server.stats()["answers"]["aime2025"] == {"asked": 5, "right": right}


def test_only_delivered_answers_are_counted(serve):
    client = serve(answers=key(1), faults=("I12", "quirk:rate-limit-1in5"), fresh=True)
    for _ in range(5):
        client.ask("Problem 0: find m+n.")
    client.ask("Problem 0: find m+n.", temperature=7)
    assert client.server.stats()["answers"]["aime2025"]["asked"] == 4
    assert client.server.stats()["completions"] == 4
    assert client.server.stats()["by_status"] == {"200": 4, "429": 1, "400": 1}
    assert client.server.stats()["requests"] == 6


def test_an_index_that_was_not_used_up_is_handed_out_again():
    asks = Asks()
    assert [asks.take("a"), asks.take("a"), asks.take("b")] == [0, 1, 0]
    asks.give_back("a", 0)
    assert [asks.take("a"), asks.take("a")] == [0, 2]


def _user(text: str) -> Message:
    return Message(role="user", parts=(text,))


def test_matching_by_hash_by_suffix_by_line_and_by_search():
    answers = key(2000)
    finder = AnswerKey(answers)
    assert finder.find(_user("  Problem 77: find m+n. ")) is answers[77]
    assert finder.find(_user(f"Problem 1234: find m+n.{SUFFIX}")) is answers[1234]
    assert finder.find(_user("Intro.\nProblem 5: find m+n.\nOutro.")) is answers[5]
    assert finder.find(_user("Now do Problem 6: find m+n. Thanks")) is answers[6]
    assert finder.find(_user("Problem 2001: find m+n.")) is None
    assert finder.find(None) is None


def test_the_longest_contained_prompt_wins():
    short = KeyedAnswer(suite="s", case="short", prompt="What is it?", right=Reply(text="a"), wrong=Reply(text="b"))
    long = KeyedAnswer(
        suite="s", case="long", prompt="What is it? Say more.", right=Reply(text="a"), wrong=Reply(text="b")
    )
    assert AnswerKey((short, long)).find(_user("Please: What is it? Say more. Now.")) is long


def test_a_key_entry_can_ask_for_a_tool_call_or_forbid_it(serve, weather):
    entries = (
        KeyedAnswer(
            suite="t", case="call", prompt="weather of Rome", right=Reply(tool="get_weather"), wrong=Reply(text="sunny")
        ),
        KeyedAnswer(
            suite="t",
            case="talk",
            prompt="call get_weather in words",
            right=Reply(text="no call"),
            wrong=Reply(tool="get_weather"),
        ),
    )
    client = serve(answers=entries, fresh=True)
    called = client.ask("weather of Rome", tools=[weather])
    assert [call[1] for call in called.message["calls"]] == ["get_weather"]
    assert called.message["finish"] == "tool_calls"
    assert client.ask("please call get_weather in words", tools=[weather]).message["content"] == "no call"


def test_the_sdk_reads_a_keyed_answer(serve):
    client = serve(answers=key(1), fresh=True)
    sdk = openai.OpenAI(base_url=client.server.base_url, api_key="none", max_retries=0)
    with sdk:
        answer = sdk.chat.completions.create(
            model="kimi-k3", messages=[{"role": "user", "content": "Problem 0: find m+n."}]
        )
    assert answer.choices[0].message.content == "\\boxed{0}"
