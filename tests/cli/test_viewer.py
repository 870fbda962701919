"""`kvv view`: who is let in, what pages say, and the static export."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from viewed import CLEAN, FAULTY, HOSTILE, TOKEN, UNFINISHED, lay_out

from kvv.cli.verbs.viewer.app import make_app
from kvv.cli.verbs.viewer.library import CAUSE, Library, shaped
from kvv.cli.verbs.viewer.pages import difference
from kvv.cli.verbs.viewer.samples import Filters, scan
from kvv.core import Outcome
from kvv.storage.store import Store

ADDRESS = "http://127.0.0.1:80"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def library(folder: Path) -> Library:
    return Library(folder)


@pytest.fixture
def client(library: Library) -> Iterator[TestClient]:
    made = TestClient(make_app(library, TOKEN, 80), base_url=ADDRESS, follow_redirects=False)
    made.headers["host"] = "127.0.0.1:80"
    made.cookies.set("kvv-view-80", TOKEN)
    with made:
        yield made


def test_the_token_becomes_a_cookie_that_no_script_and_no_other_site_can_use(library: Library) -> None:
    stranger = TestClient(make_app(library, TOKEN, 80), base_url=ADDRESS, follow_redirects=False)
    stranger.headers["host"] = "127.0.0.1:80"
    assert stranger.get("/").status_code == 403
    assert stranger.get("/?token=wrong").status_code == 403
    first = stranger.get(f"/board?sort=price&token={TOKEN}")
    assert (first.status_code, first.headers["location"]) == (303, "/board?sort=price")
    assert first.headers["set-cookie"] == f"kvv-view-80={TOKEN}; HttpOnly; Path=/; SameSite=strict"
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("path", ["//evil.invalid/", "/\\evil.invalid/"])
def test_the_token_leads_to_no_other_site(client: TestClient, path: str) -> None:
    found = client.get(f"{ADDRESS}{path}?token={TOKEN}").headers["location"]
    assert found.startswith("/")
    assert not found.startswith(("//", "/\\"))


@pytest.mark.parametrize(
    ("method", "host", "status"),
    [
        ("GET", "127.0.0.1:80", 200),
        ("HEAD", "localhost:80", 200),
        ("GET", "evil.invalid:80", 421),  # another name that leads here
        ("GET", "127.0.0.1:81", 421),
        ("POST", "127.0.0.1:80", 405),
        ("DELETE", "127.0.0.1:80", 405),
    ],
)
def test_only_reading_under_our_own_name(client: TestClient, method: str, host: str, status: int) -> None:
    answer = client.request(method, "/", headers={"host": host})
    assert answer.status_code == status
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/r/%2e%2e%2f%2e%2e",
        "/r/nowhere",
        f"/r/{CLEAN}/file/store.sqlite",
        f"/r/{CLEAN}/file/..%2Frun.toml",
        "/x",
    ],
)
def test_no_address_leads_out_of_what_is_listed(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_pages_say_the_causes_first_and_write_nothing(client: TestClient, folder: Path) -> None:
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file()}
    runs = client.get("/").text
    assert "invalid requests are accepted" in runs
    assert runs.index(UNFINISHED) < runs.index(FAULTY) < runs.index(CLEAN)  # what goes on is on top
    page = client.get(f"/r/{FAULTY}").text
    assert "2 causes explain 15 failed cases of 70 (15 must)." in page or re.search(
        r"causes? explains? \d+ failed", page
    )
    assert page.index("What is wrong") < page.index("Suites") < page.index("Gates")
    assert {path: hashlib.sha256(path.read_bytes()).digest() for path in before} == before


def test_text_from_outside_is_text_on_every_page(client: TestClient, folder: Path) -> None:
    with Store.open(folder / FAULTY / "store.sqlite", read_only=True) as store:
        case = next(verdict.case for _, _, verdict in store.verdicts() if verdict.detail == HOSTILE)
    seen = 0
    for path in (f"/r/{FAULTY}?outcome=fail", f"/r/{FAULTY}/c/{case}", f"/compare?r={CLEAN}&r={FAULTY}&case={case}"):
        text = client.get(path).text
        assert "<script>document" not in text
        assert "<img src=//" not in text
        assert "\u202e" not in text
        seen += "&lt;script&gt;document" in text
    assert seen == 3


def test_a_filter_shows_what_fits_and_previous_and_next_stay_in_it(client: TestClient, folder: Path) -> None:
    with Store.open(folder / FAULTY / "store.sqlite", read_only=True) as store:
        failed = [v.case for _, _, v in store.verdicts() if v.outcome is Outcome.FAIL and v.case.endswith("/stream")]
    text = client.get(f"/r/{FAULTY}?outcome=fail&mode=stream").text
    listed = re.findall(r'<td class="id"><a href="/r/[^"]*/c/([^"?]+)', text)
    assert listed == failed
    middle = client.get(f"/r/{FAULTY}/c/{failed[1]}?outcome=fail&mode=stream").text
    assert f'rel="prev" href="/r/{FAULTY}/c/{failed[0]}?outcome=fail&amp;mode=stream"' in middle
    assert f'rel="next" href="/r/{FAULTY}/c/{failed[2]}?outcome=fail&amp;mode=stream"' in middle
    assert 'rel="prev"' not in client.get(f"/r/{FAULTY}/c/{failed[0]}?outcome=fail&mode=stream").text


def test_a_search_ends_after_its_time_and_goes_on_where_it_ended(folder: Path) -> None:
    times = iter(range(10_000))
    with Store.open(folder / CLEAN / "store.sqlite", read_only=True) as store:
        every = [sample.id for sample in scan(store, Filters(), limit=10_000, clock=lambda: 0.0).rows]
        found: list[str] = []
        page = scan(store, Filters(), limit=10_000, clock=lambda: next(times))
        assert page.searched
        while page.after is not None:
            found += [sample.id for sample in page.rows]
            page = scan(store, Filters(), place=page.after, limit=10_000, clock=lambda: next(times))
    assert found + [sample.id for sample in page.rows] == every


def test_words_of_an_answer_are_found(client: TestClient) -> None:
    found = client.get(f"/r/{CLEAN}?q=ready&outcome=pass").text
    assert 'class="id"><a' in found
    assert 'class="id"><a' not in client.get(f"/r/{CLEAN}?q=no-such-word-anywhere&outcome=pass").text


def test_a_report_of_a_stranger_has_the_types_that_pages_read() -> None:
    odd = {
        "id": 3,
        "title": "t",
        "cases": "many",
        "faults": [7, {"id": "A", "link": None}],
        "example": "x",
        "rules": "r",
    }
    found = shaped(odd, CAUSE)
    assert (found["id"], found["title"], found["cases"], found["rules"]) == ("", "t", 0, [])
    assert found["faults"][1] == {"id": "A", "where": "", "link": ""}
    assert found["example"]["case"] == ""
    assert shaped(None, CAUSE)["counts"] is False


def test_two_answers_are_marked_where_the_other_differs() -> None:
    left, right = difference("the answer is 42.", "the answer is 41!")
    assert [text for text, other in left if other] == ["42."]
    assert [text for text, other in right if other] == ["41!"]
    assert "".join(text for text, _ in left) == "the answer is 42."


@pytest.mark.parametrize("public", [False, True])
def test_an_export_is_a_site_whose_links_all_lead_somewhere(
    kvv_cli: Any, folder: Path, tmp_path: Path, public: bool
) -> None:
    site = tmp_path / "site"
    done = kvv_cli("view", str(folder), "--export", str(site), *(["--public"] if public else []))
    assert (done.code, done.err) == (0, "")
    pages = {path.name: path.read_text("utf-8") for path in site.glob("*.html")}
    assert {"index.html", "runs.html"} <= set(pages)
    assert any(name.startswith("case-") for name in pages) is not public
    for text in pages.values():
        for link in re.findall(r'(?:href|src)="([^"#]+)', text):
            assert link.startswith("https://github.com/") or (site / link).is_file(), link
        assert "127.0.0.1:18431" not in text or not public
        assert "curl" not in text or not public
    again = kvv_cli("view", str(folder), "--export", str(site))
    assert (again.code, again.err) == (2, f"kvv view: --export: {site} is no empty folder; name a new one\n")


def test_a_folder_without_runs_is_a_usage_error(kvv_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = kvv_cli("view", str(tmp_path / "empty"))
    assert (done.code, done.err) == (2, f"kvv view: DIR: {tmp_path / 'empty'} holds no run\n")
