"""Importing recorded results: how they are joined, what is missing, and the golden numbers of real recordings."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvv.cases.suite import Context, ReferenceRun, Settings
from kvv.core import Answered, Case, Done, Outcome, Stat, Verdict
from kvv.profiles.profile import load_profile
from kvv.storage.importers import Imported, ImportFileError
from kvv.storage.importers.k2vv import import_k2vv
from kvv.storage.references import Header, read_reference, write_reference
from kvv.storage.store import Store
from kvv.suites.toolcall.suite import ToolcallSuite

SUITE = ToolcallSuite()


# --- helpers ---------------------------------------------------------------------------------------


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "required": ["n"]}}}


def request(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "model": "asked",
        "messages": [{"role": "user", "content": f"question {number}"}],
        "tools": [tool(f"tool_{number}")],
        "temperature": 0.6,
        **fields,
    }


def response(number: int, *, call: bool = True, name: str | None = None) -> dict[str, Any]:
    calls = (
        [{"id": "c", "type": "function", "function": {"name": name or f"tool_{number}", "arguments": '{"n": 1}'}}]
        if call
        else None
    )
    message = {"role": "assistant", "content": f"answer {number}", "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
    return {"id": f"r{number}", "object": "chat.completion", "created": 1, "model": "answered", "choices": [choice]}


def result(number: int, **fields: Any) -> dict[str, Any]:
    """K2VV's own form without the request."""
    return {
        "data_index": number,
        "status": "success",
        "finish_reason": "tool_calls",
        "response": response(number),
        **fields,
    }


def save(path: Path, lines: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return path


def load(tmp_path: Path, results: Sequence[Any], requests: Sequence[Any]) -> Imported:
    return import_k2vv(save(tmp_path / "results.jsonl", results), save(tmp_path / "requests.jsonl", requests))


def judged(imported: Imported) -> list[tuple[Case, Verdict]]:
    """What the engine does with the records."""
    cases = {case.id: case for case in imported.cases}
    found = []
    for record in imported.records:
        case = replace(cases[record.case], sample=record.sample)
        step = SUITE.step(
            case, [(Answered(request=record.request, exchange=record.exchange, observation=record.observation),)]
        )
        assert isinstance(step, Done)
        found.append((case, step.verdict))
    return found


def stats(
    imported: Imported, *references: ReferenceRun, verdicts: Sequence[tuple[Case, Verdict]] = ()
) -> Mapping[str, Stat]:
    context = Context(
        model=imported.model,
        profile=load_profile("openai"),
        settings=Settings(),
        dataset=imported.dataset,
        references=references,
    )
    return {stat.metric: stat for stat in SUITE.metrics(verdicts or judged(imported), context)}


def answers(imported: Imported) -> list[str]:
    return [record.observation.answer for record in imported.records]


# --- joining ---------------------------------------------------------------------------------------


def test_the_short_form_is_joined_by_data_index_and_says_so(tmp_path: Path) -> None:
    imported = load(tmp_path, [result(2), result(1)], [request(1), request(2)])
    assert answers(imported) == ["answer 1", "answer 2"]
    assert "2 results were joined by data_index" in imported.notes
    assert imported.model == "answered"
    assert imported.suite == "toolcall"
    assert dict(imported.samples) == {case.id: 1 for case in imported.cases}


def test_k2vvs_form_is_joined_by_content_whatever_its_data_index_says(tmp_path: Path) -> None:
    results = [
        result(1, response=response(2), request=request(2, model="x")),
        result(2, response=response(1), request=request(1, model="x")),
    ]
    imported = load(tmp_path, results, [request(1), request(2)])
    assert answers(imported) == ["answer 1", "answer 2"]
    assert "2 results were joined by the content of the request they carry" in imported.notes
    assert any("data_index of another row" in note for note in imported.notes)
    assert imported.model == "x"


def test_a_hash_alone_joins_by_content_too(tmp_path: Path) -> None:
    sent = request(1, model="answered")
    digest = hashlib.md5(
        json.dumps(sent, sort_keys=True, ensure_ascii=False).encode(), usedforsecurity=False
    ).hexdigest()
    imported = load(
        tmp_path, [{"hash": digest, "status": "success", "response": response(1)}], [request(2), request(1)]
    )
    assert [record.observation.answer for record in imported.records] == ["", "answer 1"]
    assert "1 results were joined by the hash of their request" in imported.notes


def test_an_unknown_hash_falls_back_on_data_index(tmp_path: Path) -> None:
    imported = load(tmp_path, [result(1, hash="0" * 32)], [request(1)])
    assert imported.notes[0] == "1 results were joined by data_index"


def test_position_never_joins(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match=r"results\.jsonl, line 1: carries neither its request nor a data_index"):
        load(tmp_path, [{"status": "success", "response": response(1)}], [request(1)])


def test_blank_lines_count_in_data_index_as_in_k2vv(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_text(json.dumps(request(1)) + "\n\n" + json.dumps(request(3)) + "\n", "utf-8")
    assert answers(import_k2vv(save(tmp_path / "r.jsonl", [result(1), result(3)]), requests)) == [
        "answer 1",
        "answer 3",
    ]


def test_identical_requests_keep_their_occurrences(tmp_path: Path) -> None:
    same = [result(number, response=response(number)) for number in (3, 1, 2)]
    with_request = [{**entry, "request": request(0)} for entry in same]
    for results in (same, with_request):
        imported = load(tmp_path, results, [request(0), request(0, temperature=1.0), request(0)])
        assert answers(imported) == ["answer 1", "answer 2", "answer 3"]
        assert [record.sample for record in imported.records] == [0, 1, 2]


def test_the_only_result_of_two_identical_requests_keeps_its_data_index(tmp_path: Path) -> None:
    imported = load(tmp_path, [result(2, request=request(0))], [request(0), request(0)])
    assert answers(imported) == ["", "answer 2"]


def test_a_request_file_in_another_order_is_noticed(tmp_path: Path) -> None:
    requests = [request(number) for number in range(1, 9)]
    with pytest.raises(ImportFileError, match="in the order that data_index counts"):
        load(tmp_path, [result(number) for number in range(1, 9)], requests[::-1])


def test_a_vendor_that_invents_tool_names_is_not_taken_for_another_order(tmp_path: Path) -> None:
    results = [result(number, response=response(number, name="invented")) for number in range(1, 9)]
    imported = load(tmp_path, results, [request(number) for number in range(1, 9)])
    assert {verdict.reason for _, verdict in judged(imported)} == {"unknown-tool"}


# --- what is missing or wrong -------------------------------------------------------------------------


def test_a_missing_result_is_an_inconclusive_sample(tmp_path: Path) -> None:
    imported = load(tmp_path, [result(2)], [request(1), request(2)])
    assert [(verdict.outcome, verdict.reason) for _, verdict in judged(imported)] == [
        (Outcome.INCONCLUSIVE, "missing-result"),
        (Outcome.PASS, ""),
    ]
    assert any("1 of 2 requests have no result" in note for note in imported.notes)
    row = stats(imported)["schema_accuracy"]
    assert (row.n_planned, row.n_concluded, row.n_inconclusive) == (2, 1, 1)


def test_a_failed_result_is_an_inconclusive_sample_with_its_error(tmp_path: Path) -> None:
    failed = {"data_index": 1, "status": "failed", "finish_reason": None, "response": {"error": "Request timed out."}}
    _, verdict = judged(load(tmp_path, [failed], [request(1)]))[0]
    assert (verdict.outcome, verdict.reason, verdict.detail) == (
        Outcome.INCONCLUSIVE,
        "recorded-failure",
        "Request timed out.",
    )


@pytest.mark.parametrize(
    "body", [None, "text", {}, {"choices": "x"}, {"error": {"message": "busy", "type": "rate_limit"}}]
)
def test_a_success_without_a_completion_is_never_a_verdict(tmp_path: Path, body: Any) -> None:
    _, verdict = judged(load(tmp_path, [result(1, response=body)], [request(1)]))[0]
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_an_answer_supersedes_failed_attempts_in_either_order(tmp_path: Path) -> None:
    failed = {"data_index": 1, "status": "failed", "response": {"error": "x"}}
    for results in ([failed, result(1)], [result(1), failed]):
        imported = load(tmp_path, results, [request(1)])
        assert answers(imported) == ["answer 1"]
        assert any("failed attempts" in note for note in imported.notes)


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([result(1), result(1)], "line 2: data_index 1 was answered in line 1 already"),
        ([result(3)], "line 1: data_index 3 is out of range"),
        ([result(0)], "line 1: data_index 0 is out of range"),
        ([result(1, data_index="1")], "line 1: data_index is no integer"),
        ([result(1, data_index=True)], "line 1: data_index is no integer"),
        ([result(1, request=request(9))], "line 1: its request is none of"),
        ([result(1, request={"messages": []})], "line 1: its request is broken"),
        ([result(1, request=request(1)), result(2, request=request(1))], "line 2: its request stands"),
        ([[]], "line 1: is no JSON object"),
        ([], "is empty"),
    ],
)
def test_a_result_that_cannot_be_joined_is_a_one_line_error(tmp_path: Path, results: list[Any], words: str) -> None:
    with pytest.raises(ImportFileError) as caught:
        load(tmp_path, results, [request(1), request(2)])
    assert words in str(caught.value)
    assert "results.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "requests",
    [
        [{"messages": []}],
        [{"prompt": "x"}],
        [request(1, data_index=1), request(2, data_index=1)],
        [request(1, data_index=None)],
    ],
)
def test_a_broken_request_file_is_a_one_line_error(tmp_path: Path, requests: list[Any]) -> None:
    with pytest.raises(ImportFileError, match=r"requests\.jsonl, line [12]: "):
        load(tmp_path, [result(1)], requests)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"{",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        b"\x1f\x8bdamaged",
        gzip.compress(b"{}" * 50, mtime=0)[:-9],
    ],
)
def test_damaged_files_are_one_line_errors(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(data)
    with pytest.raises(ImportFileError, match=r"results\.jsonl") as caught:
        import_k2vv(path, save(tmp_path / "requests.jsonl", [request(1)]))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match=r"nowhere: "):
        import_k2vv(tmp_path / "nowhere", save(tmp_path / "requests.jsonl", [request(1)]))


def test_a_recording_is_one_official_run_however_often_and_in_whatever_form_it_is_imported(
    kvv_cli: Any, tmp_path: Path
) -> None:
    asked = save(tmp_path / "requests.jsonl", [request(n) for n in range(1, 4)])
    plain = save(tmp_path / "plain.jsonl", [result(n) for n in range(1, 4)])
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(
        gzip.compress("\n".join(json.dumps(result(n), indent=None, sort_keys=True) for n in (3, 1, 2)).encode())
    )
    # the same scores in other words: another official run
    other = save(
        tmp_path / "other.jsonl", [result(n, response={**response(n), "id": f"other-{n}"}) for n in range(1, 4)]
    )
    for path in (plain, packed, other):
        ran = kvv_cli(
            "import",
            "k2vv",
            str(path),
            "--requests",
            str(asked),
            "--as-reference",
            f"{path}.ref",
            out=tmp_path / path.stem,
        )
        assert "wrote the reference" in ran.err, ran.said
    official = [word for path in (plain, packed, other) for word in ("--reference", f"{path}.ref")]
    ran = kvv_cli("import", "k2vv", str(plain), "--requests", str(asked), *official)
    assert [line for line in ran.err.splitlines() if "counted once" in line] == [
        f"kvv: --reference: {plain}.ref and {packed}.ref hold the same run; it is counted once"
    ]
    with Store.open(ran.folder / "store.sqlite", read_only=True) as store:
        assert len(store.meta()["suites"][0]["references"]) == 2


def test_times_and_durations_are_kept_where_they_are_sound(tmp_path: Path) -> None:
    sound = result(1, last_run_at="2025-09-30T06:08:13.458818", duration_ms=5510)
    odd = result(2, last_run_at="yesterday", duration_ms=-1)
    endless = result(3, duration_ms=10**400)
    first, second, third = load(tmp_path, [sound, odd, endless], [request(1), request(2), request(3)]).records
    assert third.exchange.timing.total_ms == 0.0
    assert (first.exchange.started, first.exchange.timing.total_ms) == ("2025-09-30T06:08:13.458818", 5510.0)
    assert (second.exchange.started, second.exchange.timing.total_ms) == ("", 0.0)


def test_a_response_put_together_from_a_stream_leaves_no_frame_to_object_to(tmp_path: Path) -> None:
    results = [result(1, request=request(1, stream=True)), result(2, request=request(2))]
    streamed, whole = load(tmp_path, results, [request(1), request(2)]).records
    assert (streamed.exchange.frames, streamed.exchange.frames_kept, streamed.findings) == ((), False, ())
    assert len(whole.exchange.frames) == 1
    assert "stream" not in streamed.request.body


OBJECTS = st.dictionaries(
    st.sampled_from(["data_index", "status", "response", "request", "hash", "last_run_at", "duration_ms"]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-1, 3) | st.text(max_size=4) | st.just("success"),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["choices", "message", "tool_calls", "error", "messages", "model"]), inner, max_size=3
            )
        ),
        max_leaves=6,
    ),
)


@given(st.lists(OBJECTS, min_size=1, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_any_results_give_records_for_every_request_or_one_line(tmp_path: Path, results: list[dict[str, Any]]) -> None:
    try:
        imported = load(tmp_path, results, [request(1), request(2), request(2)])
    except ImportFileError as error:
        said = str(error)
        imported = None
    if imported is None:
        assert "\n" not in said
        return
    assert [(record.case, record.sample) for record in imported.records] == [
        (case.id, k) for case in imported.cases for k in range(imported.samples[case.id])
    ]
    assert all(verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.FAIL) for _, verdict in judged(imported))


# --- real recordings -----------------------------------------------------------------------------------

SHARED = Path(os.environ.get("KVV_SHARED", Path(__file__).resolve().parents[3] / "shared"))
REAL = SHARED / "data" / "tool_calls"
needs_real = pytest.mark.skipif(
    not REAL.is_dir(), reason=f"the public recordings are not there: {REAL} (set KVV_SHARED)"
)


def real(name: str) -> list[dict[str, Any]]:
    path = REAL / name
    raw = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    return [json.loads(line) for line in raw.decode("utf-8").splitlines()]


@dataclass(frozen=True, kw_only=True)
class Side:
    """A recording and its verdicts."""

    imported: Imported
    verdicts: Sequence[tuple[Case, Verdict]]

    def stats(self, *references: ReferenceRun) -> Mapping[str, Stat]:
        return stats(self.imported, *references, verdicts=self.verdicts)


def side(imported: Imported) -> Side:
    return Side(imported=imported, verdicts=judged(imported))


@cache
def recording(name: str) -> Side:
    return side(import_k2vv(REAL / f"results_{name}_256.jsonl.gz", REAL / "requests_256.jsonl"))


def compared(official: Side, vendor: Side, tmp_path: Path) -> Mapping[str, Stat]:
    """As ``--as-reference`` and ``--reference`` do it: through a file."""
    path = tmp_path / "ref.jsonl"
    write_reference(path, Header(model=official.imported.model, run_id="r", created="c"), official.verdicts)
    return vendor.stats(read_reference(path).runs["toolcall"])


def cells(stat: Stat) -> tuple[int, ...]:
    return tuple(stat.breakdown[name] for name in ("tp", "fp", "fn", "tn"))


@needs_real
def test_golden_the_two_real_recordings(tmp_path: Path) -> None:
    official, vendor = recording("official"), recording("vendor")
    found, own = compared(official, vendor, tmp_path), official.stats()
    assert cells(found["trigger_f1"]) == cells(found["trigger_f1_calls"]) == (207, 11, 19, 19)
    assert round(found["trigger_f1"].estimate or 0, 4) == 0.9324
    assert (found["trigger_f1"].n_planned, len(vendor.imported.cases)) == (256, 251)
    assert (own["schema_accuracy"].breakdown["valid"], own["schema_accuracy"].breakdown["triggered"]) == (222, 226)
    assert (found["schema_accuracy"].breakdown["valid"], found["schema_accuracy"].breakdown["triggered"]) == (217, 218)
    failed = [
        (fact["class"], fact["tool"], fact["path"], fact["keyword"])
        for fact in own["schema_accuracy"].breakdown["failed_calls"]
    ]
    assert sorted(failed) == [
        ("arguments-not-json", "get_random_fact", "", ""),
        ("arguments-not-json", "get_random_joke", "", ""),
        ("schema-mismatch", "calculate_area", "$", "required"),
        ("schema-mismatch", "calculate_area", "$.dimensions", "required"),
    ]
    vendors = found["schema_accuracy"].breakdown["failed_calls"]
    assert [(fact["class"], fact["path"], fact["keyword"]) for fact in vendors] == [
        ("schema-mismatch", "$", "required")
    ]


@needs_real
def test_golden_one_failure_of_each_side_is_a_tool_that_the_request_declares_twice() -> None:
    """Both call it as its first declaration wants, which K2VV's own rule accepts."""
    for name, k2vv in (("official", 223 / 226), ("vendor", 218 / 218)):
        own = recording(name).stats()
        twice = [
            fact for fact in own["schema_accuracy"].breakdown["failed_calls"] if "declared 2 times" in fact["message"]
        ]
        assert [fact["path"] for fact in twice] == ["$"]
        assert own["schema_accuracy"].kvv_value == pytest.approx(k2vv)


@needs_real
@pytest.mark.parametrize("form", ["content", "data_index"])
def test_golden_numbers_do_not_depend_on_any_order(tmp_path: Path, form: str) -> None:
    requests = real("requests_256.jsonl")
    shuffle = random.Random(7).sample
    numbered = [{**row, "data_index": number} for number, row in enumerate(requests, start=1)]
    sent = shuffle(numbered, 256) if form == "data_index" else shuffle(requests, 256)
    sides = []
    for name in ("official", "vendor"):
        results = real(f"results_{name}_256.jsonl.gz")
        if form == "content":
            results = [{**entry, "request": {**requests[entry["data_index"] - 1], "model": name}} for entry in results]
        sides.append(side(load(tmp_path, shuffle(results, 256), sent)))
    found = compared(sides[0], sides[1], tmp_path)
    assert cells(found["trigger_f1"]) == (207, 11, 19, 19)
    assert found["schema_accuracy"].breakdown["valid"] == 217
    assert sides[0].stats()["schema_accuracy"].breakdown["valid"] == 222


@needs_real
def test_golden_results_without_their_request_beside_reordered_requests_are_refused(tmp_path: Path) -> None:
    shuffled = random.Random(7).sample(real("requests_256.jsonl"), 256)
    with pytest.raises(ImportFileError, match="calls name a tool of another request"):
        load(tmp_path, real("results_vendor_256.jsonl.gz"), shuffled)


@needs_real
def test_golden_dropped_results_stay_planned(tmp_path: Path) -> None:
    results = real("results_vendor_256.jsonl.gz")[:200]
    vendor = side(import_k2vv(save(tmp_path / "results.jsonl", results), REAL / "requests_256.jsonl"))
    stat = compared(recording("official"), vendor, tmp_path)["trigger_f1"]
    assert (stat.n_planned, stat.n_concluded, stat.n_inconclusive) == (256, 200, 56)
    assert stat.worst_case is not None
    assert stat.best_case is not None
    assert stat.worst_case < 0.9324 - 0.05
    assert stat.worst_case < 0.9324324 < stat.best_case
    assert Counter(verdict.reason for _, verdict in vendor.verdicts)["missing-result"] == 56


@needs_real
def test_the_real_k2vv_samples_are_requests_we_can_send(tmp_path: Path) -> None:
    rows = real("samples.jsonl")
    imported = load(tmp_path, [result(1, response=response(1, call=False))], rows)
    roles = {message["role"] for case in imported.cases for message in case.inputs["body"]["messages"]}
    assert "_input" in {message["role"] for row in rows for message in row["messages"]}
    assert "_input" not in roles
