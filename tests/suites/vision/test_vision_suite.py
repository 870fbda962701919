"""The vision suite: clean against an endpoint that sees, and able to say no."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import pytest

from kvv.core import Outcome, Request
from kvv.suites.vision.checks import names, reads
from kvv.suites.vision.suite import VisionSuite

SUITE = VisionSuite()
SHOWN = re.compile(rb"kvv-shows: ([ -~]{1,60})\n")


def shown(part: Mapping[str, Any]) -> str | None:
    """What the comment of a picture says; None for a part that is no picture of ours."""
    url = part.get("image_url", {}).get("url", "")
    try:
        found = SHOWN.search(base64.b64decode(url.partition(",")[2], validate=True))
    except ValueError:
        return None
    return found[1].decode() if found else None


class Eyes:
    """An endpoint that reads the pictures' comments, and answers as ``wrong`` says it should."""

    def __init__(self, stage: Any, wrong: str = "") -> None:
        self.stage = stage
        self.wrong = wrong
        self.known: dict[str, str] = {}
        self.drawn = 0

    def __call__(self, request: Request) -> Any:
        assert isinstance(request.body, Mapping)
        messages = [message["content"] for message in request.body["messages"]]
        parts = [part for content in messages if not isinstance(content, str) for part in content]
        if any(part["type"] == "image_url" and shown(part) is None for part in parts):
            return self.stage.says("fine") if self.wrong == "believes" else self.stage.refuses()
        if self.wrong == "budget" and "max_tokens" not in request.body:
            return self.stage.refuses()
        pictures = [str(shown(part)) for part in parts if part["type"] == "image_url"]
        usage = self.stage.counts(
            20 + (0 if self.wrong == "blind" else 50 * len(pictures)) + (self.wrong == "bos" and bool(pictures))
        )
        return self.stage.says(self.answer(messages[-1], pictures), usage=usage)

    def answer(self, content: Any, pictures: list[str]) -> str:
        question = (
            content
            if isinstance(content, str)
            else " ".join(part["text"] for part in content if part["type"] == "text")
        )
        if "random string" in question:
            self.drawn += self.wrong != "greedy"
            return f"text{self.drawn}"
        if not pictures or self.wrong == "blind":
            return "ready" if not isinstance(content, list) else "I see no picture."
        if self.wrong == "cache":
            return self.known.setdefault(question, self.right(content, question, pictures))
        return self.right(content, question, pictures)

    def right(self, content: Any, question: str, pictures: list[str]) -> str:
        seen = pictures[::-1] if self.wrong == "reversed" else pictures
        if found := re.search(r"picture (\d+)", question):
            return seen[int(found[1]) - 1]
        if found := re.search(r"after the word (\w+)", question):
            place = next(at for at, part in enumerate(content) if part.get("text") == found[1])
            return str(shown(content[place + 1])) if self.wrong != "reversed" else seen[-1]
        return ", ".join(seen) if "pictures" in question else seen[-1]


def verdicts(stage: Any, wrong: str, pattern: str = "") -> dict[str, Outcome]:
    eyes = Eyes(stage, wrong)
    return {case.id: stage.against(SUITE, case, eyes).outcome for case in stage.asked(SUITE) if pattern in case.id}


def test_an_endpoint_that_sees_passes_every_case(stage: Any) -> None:
    assert set(verdicts(stage, "").values()) == {Outcome.PASS}


def test_an_endpoint_that_is_greedy_beside_a_picture_fails_the_drawn_texts(stage: Any) -> None:
    assert set(verdicts(stage, "greedy", "vision/sampled").values()) == {Outcome.FAIL}


def test_a_blind_endpoint_fails_all_that_must_be_seen(stage: Any) -> None:
    found = verdicts(stage, "blind")
    passing = {name.split("/")[1] for name, outcome in found.items() if outcome is not Outcome.FAIL}
    # these ask for an answer or a refusal, whatever it says, and pictures that are not counted at all are counted
    # evenly
    assert passing == {"odd-size", "broken", "content-alone", "sampled", "counted-evenly"}


@pytest.mark.parametrize(
    ("wrong", "case"),
    [
        ("reversed", "vision/several/2"),
        ("reversed", "vision/several/10"),
        ("reversed", "vision/between-texts/bravo"),
        ("reversed", "vision/turns/1"),
        ("cache", "vision/swapped"),
        ("budget", "vision/default-budget"),
        ("bos", "vision/counted-evenly"),
        ("believes", "vision/broken/no-image"),
        ("believes", "vision/broken/svg"),
    ],
)
def test_a_wrong_view_fails_the_case_made_for_it(stage: Any, wrong: str, case: str) -> None:
    assert set(verdicts(stage, wrong, case).values()) == {Outcome.FAIL}


def test_a_crash_on_a_tiny_picture_fails_and_a_refusal_passes(stage: Any) -> None:
    [case] = [one for one in stage.asked(SUITE) if one.id == "vision/odd-size/1x1/thinking-on/whole"]
    plain = stage.says("ready")

    def crashes(request: Request) -> Any:
        return plain if request.purpose.startswith(("control", "between")) else (500, stage.refuses()[1])

    assert stage.against(SUITE, case, crashes).reason == "reproducible-500"
    refuses_it = stage.against(SUITE, case, lambda request: plain if request.purpose == "control" else stage.refuses())
    assert (refuses_it.outcome, refuses_it.reason) == (Outcome.PASS, "refused")
    assert stage.against(SUITE, case, lambda request: stage.refuses()).outcome is Outcome.INCONCLUSIVE


# --- checks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted", "right"),
    [
        ("4817", "4817", True),
        ("The number is 4,817.", "4817", True),
        ("Picture 2 shows 4817.", "4817", True),
        ("4818", "4817", False),
        ("48170", "4817", False),
        ("4817, 2953", "4817", False),
        ("none", "4817", False),
        ("4817, 2953", ["4817", "2953"], True),
        ("1. 4817\n2. 2953", ["4817", "2953"], True),
        ("2953, 4817", ["4817", "2953"], False),
        ("4817", ["4817", "4817"], False),
        ("3", 3, True),
        ("There are 3 circles.", 3, True),
        ("6", 3, False),
    ],
)
def test_numbers_are_read_in_their_order(stage: Any, text: str, wanted: Any, right: bool) -> None:
    problem = reads(stage.look(stage.asked(SUITE)[0], stage.says(text)), wanted)
    assert (problem is None) is right


@pytest.mark.parametrize(
    ("text", "wanted", "right"),
    [
        ("Red.", "red", True),
        ("It is gray", "grey", True),
        ("blue", "red", False),
        ("red or green", "red", False),
        ("A circle", "circle", True),
        ("square", "circle", False),
    ],
)
def test_one_colour_or_shape_is_named_and_no_other(stage: Any, text: str, wanted: str, right: bool) -> None:
    assert (names(stage.look(stage.asked(SUITE)[0], stage.says(text)), wanted) is None) is right


def test_an_answer_cut_by_length_is_not_blamed(stage: Any) -> None:
    assert (
        reads(stage.look(stage.asked(SUITE)[0], stage.says("48", finish="length")), "4817").outcome
        is Outcome.INCONCLUSIVE
    )
