"""Makes and replays the golden corpus: what commit f692479 left and said, which every later version must say again.

    python tests/golden/make.py corpus      run folders, baselines, references: made once, by f692479, never again
    python tests/golden/make.py verdicts    verdicts/*.json from the corpus; only for what the corpus newly holds
    python tests/golden/make.py changed     changed/*.json: new values of what a pattern of changed_verdicts.toml covers
    python tests/golden/make.py --update    texts/*.txt, whose wording may change: the diff of the commit shows how

It drives the `kvv` that the interpreter imports, so any checkout's `.venv/bin/python` makes or replays it. Only the
command line and files are used: no module of the package but its entry point is named here. The strict part (verdicts/)
changes through `changed_verdicts.toml` alone.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import zstandard

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
VERDICTS = HERE / "verdicts"
TEXTS = HERE / "texts"
CHANGES = HERE / "changed_verdicts.toml"
CHANGED = HERE / "changed"
SHIPPED = HERE.parents[1] / "fixtures"
ZSTANDARD = b"\x28\xb5\x2f\xfd"
MADE_BY = "f692479"
PORT = 18431  # of the endpoint that the corpus was asked of; it stands in its runs

# --- servers and calls -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """What one call of the command line ended with."""

    code: int
    out: str
    err: str


Call = Callable[..., Any]  # (*arguments) -> something with code, out and err; writes runs below ./out


def call_kvv(*arguments: str) -> Said:
    """The command line in this process; verbs that write a run write it below ./out, as the fixture of the tests has
    them do.
    """
    from kvv.cli.main import main

    argv = [*arguments]
    if argv[0] in ("run", "check", "import", "resume", "score", "vendors"):
        argv += ["--out", "out"]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(argv)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


def kvv_command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from kvv.cli.main import main; sys.exit(main())", *arguments]


@contextmanager
def served(*options: str, port: int = 0) -> Iterator[str]:
    """`kvv serve` on a free port (or a given one); yields its address."""
    command = kvv_command("serve", "--port", str(port), *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            if found is None:
                raise RuntimeError(f"kvv serve did not start: {line}{process.stdout.read()}")
            yield found.group()
        finally:
            process.terminate()


# --- the corpus: made once -------------------------------------------------------------------------------------------

#: kept of a run's folder; the rest is made from these
KEPT = ("run.toml", "store.sqlite", "report.json")
BENCHMARKS = ("ocrbench", "mmmu_pro", "aime2025", "toolcall", "swebench", "beam")
#: the nightly job whose results are baselines, references and later nights
NIGHT = (
    "run",
    "params",
    "ocrbench",
    "aime2025",
    "toolcall",
    "--case",
    "params/rejected/top-p*",
    "--case",
    "ocrbench/*",
    "--case",
    "aime2025/*",
)
NIGHT_OPTIONS = ("--case", "toolcall/*", "--samples", "2", "--tier", "nightly", "--policy", "smoke", "--yes", "-q")


def fixtures_of(*suites: str) -> list[str]:
    return [word for suite in suites for word in ("--data", f"{suite}=fixture")]


def make_corpus() -> None:
    """Run folders as this checkout leaves them; refuses where a corpus already is."""
    if CORPUS.exists() and any(CORPUS.iterdir()):
        raise SystemExit(f"{CORPUS} is not empty: a corpus is made once, by {MADE_BY}")
    CORPUS.mkdir(parents=True, exist_ok=True)
    with empty_folder():
        night = [*NIGHT, *fixtures_of("ocrbench", "aime2025", "toolcall"), *NIGHT_OPTIONS, "--model", "kimi-k3"]
        with served("--accuracy", "0.8", "--seed", "7", port=PORT) as url:
            here = ["--base-url", url, "--model", "kimi-k3"]
            judge = ["--judge-base-url", url, "--judge-model", "kimi-k3"]
            keep(
                "clean",
                "run",
                *here,
                *judge,
                *fixtures_of(*BENCHMARKS),
                "--tier",
                "smoke",
                "--limit",
                "6",
                "--samples",
                "1",
                "--yes",
                "-q",
            )
            for number in (1, 2):
                folder = keep(
                    f"base-{number}",
                    *night,
                    "--base-url",
                    url,
                    "--seed",
                    "0",
                    "--as-reference",
                    f"official-{number}.jsonl",
                )
                call_kvv("baseline", "accept", str(folder), "--note", "golden", "--force")
            pair = ["--reference", "official-1.jsonl", "--reference", "official-2.jsonl"]
            keep("referenced", *night, "--base-url", url, *pair)
            for part in (1, 2):
                keep(
                    f"shard-{part}",
                    "run",
                    "aime2025",
                    *here,
                    *fixtures_of("aime2025"),
                    "--samples",
                    "1",
                    "--shard",
                    f"{part}/2",
                    "-q",
                )
            record_k2vv(url)
        with served("--accuracy", "0.8", "--seed", "8", port=PORT) as url:
            keep("night-same", *night, "--base-url", url)
        with served("--accuracy", "0.1", "--seed", "9", "--fault", "A05", port=PORT) as url:
            keep("night-bad", *night, "--force", "--base-url", url)
            keep("bad-referenced", *night, "--force", "--base-url", url, *pair)
        with served("--accuracy", "0.8", "--seed", "7", "--fault", "B19", port=PORT) as url:
            few = [
                "--case",
                "streaming/usage/*",
                "--case",
                "tools/parallel/*",
                "--case",
                "tools/fixed/ascii/*",
                "--case",
                "toolcall/*",
            ]
            options = [
                *few,
                "--base-url",
                url,
                "--model",
                "kimi-k3",
                *fixtures_of("toolcall"),
                "--limit",
                "6",
                "--samples",
                "1",
                "-q",
            ]
            keep("fault-B19", "run", "streaming", "tools", "toolcall", *options, "--force")
        with served("--fault", "A05", port=PORT) as url:
            keep("fault-A05", "check", "params", "--base-url", url, "--model", "kimi-k3", "-q")
        make_unfinished()
        for name in ("official-1.jsonl", "official-2.jsonl", "baselines", "k2vv-requests.jsonl", "k2vv-results.jsonl"):
            shutil.move(name, CORPUS / name)


def keep(name: str, *arguments: str) -> Path:
    """Runs, and packs what the run left as ``corpus/NAME.tar.xz``."""
    ended = call_kvv(*arguments)
    folder = max(Path("out").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    print(f"{name}: exit code {ended.code}: {ended.out.splitlines()[:1]} {ended.err[-200:]}", flush=True)
    pack(folder, name)
    return folder


def pack(folder: Path, name: str) -> None:
    def bare(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    forget_checkout(folder / "store.sqlite")
    with tarfile.open(CORPUS / f"{name}.tar.xz", "w:xz", format=tarfile.USTAR_FORMAT) as packed:
        for file in KEPT:
            if (folder / file).is_file():
                packed.add(folder / file, f"{folder.name}/{file}", filter=bare)


def forget_checkout(path: Path) -> None:
    """A case with a picture says where the picture was read, by its path on the machine: it becomes a path in the
    checkout.
    """
    with closing(sqlite3.connect(path)) as store:
        for case, record in store.execute("select id, record from cases").fetchall():
            packed = bytes(record).startswith(ZSTANDARD)
            text = zstandard.ZstdDecompressor().decompressobj().decompress(record) if packed else bytes(record)
            bare = text.replace(f"{SHIPPED.parent}/".encode(), b"")
            if bare != text:
                store.execute(
                    "update cases set record = ? where id = ?", (zstandard.compress(bare) if packed else bare, case)
                )
        store.commit()
        store.execute("vacuum")
        store.execute("pragma wal_checkpoint(truncate)")  # no bytes stay in a log beside it


def make_unfinished() -> None:
    """A run that kill -9 ended in its benchmark: all that was concluded is wrong, so that who resumes it and asks again
    is found out.
    """
    with served("--accuracy", "0", "--ttft-ms", "60", port=PORT) as url:
        options = [
            "--base-url",
            url,
            "--model",
            "kimi-k3",
            *fixtures_of("aime2025"),
            "--samples",
            "4",
            "--concurrency",
            "2",
            "-q",
            "--out",
            "killed",
        ]
        case = ["--case", "params/rejected/top-p*", "--case", "aime2025/*"]
        process = subprocess.Popen(kvv_command("run", "params", "aime2025", *case, *options))
        while concluded_in(Path("killed")) < 11:
            time.sleep(0.01)
            assert process.poll() is None, "the run ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    (folder,) = Path("killed").iterdir()
    with closing(
        sqlite3.connect(folder / "store.sqlite")
    ) as store:  # folds the log of the dead process into the one file
        store.execute("pragma wal_checkpoint(truncate)")
    print(f"unfinished: {sorted(path.name for path in folder.iterdir())}")
    pack(folder, "unfinished")


def concluded_in(root: Path) -> int:
    """How many verdicts of the benchmark the store of the one run below this folder holds by now."""
    for path in root.glob("*/store.sqlite"):
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
                return int(store.execute("select count(*) from verdict where case_id like 'aime2025/%'").fetchone()[0])
        except sqlite3.OperationalError:
            return 0
    return 0


def record_k2vv(url: str) -> None:
    """Requests and results in the form of K2-Vendor-Verifier, asked plainly."""
    asked = [json.loads(line) for line in (SHIPPED / "toolcall" / "samples.jsonl").read_text("utf-8").splitlines()[:16]]
    results = []
    for number, request in enumerate(asked, 1):
        request.pop("expected", None)
        body = json.dumps({**request, "model": "kimi-k3", "stream": False, "temperature": 1.0}).encode()
        post = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(post, timeout=60) as answer:  # noqa: S310
            response = json.load(answer)
        finish = response["choices"][0]["finish_reason"]
        results.append({"data_index": number, "status": "success", "finish_reason": finish, "response": response})
    for name, lines in (("requests", asked), ("results", results)):
        Path(f"k2vv-{name}.jsonl").write_text(
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8"
        )


@contextmanager
def empty_folder() -> Iterator[Path]:
    """The current directory is an empty one, without settings of whoever runs this."""
    for name in [name for name in os.environ if name.startswith("KVV_")]:
        del os.environ[name]
    os.environ |= TERMINAL
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


#: text is laid out for this terminal
TERMINAL = {"COLUMNS": "120", "LINES": "40", "NO_COLOR": "1", "TERM": "dumb"}

# --- what is said of the corpus: replayed by every version -----------------------------------------------------------

Fact = str | int | float | bool | None
VERBS = (
    *(
        "run",
        "check",
        "plan",
        "vendors",
        "resume",
        "score",
        "report",
        "show",
        "list",
        "doctor",
        "data",
        "serve",
        "selftest",
        "compare",
        "gate",
    ),
    *("baseline", "leaderboard", "history", "merge", "import"),
)
FORMATS = ("json", "junit", "md", "html", "github", "csv", "leaderboard", "kvv", "text")
#: faults of the ordinary test, one of each group and kind of sight; KVV_GOLDEN_FULL=1 asks all
FAULT_SAMPLE = ("A05", "B19", "B26:stream+1in4", "C22", "D06:stream", "E08", "F12", "G05", "H08", "I03", "J13")
#: verdicts on these groups may gain entries (a verb's new option, a new case), but lose or change none
ADDITIVE = ("help", "list", "doctor")
#: keys whose values are prose, times or places
UNSTABLE = {
    *(
        "headline",
        "why",
        "requirement",
        "source",
        "message",
        "title",
        "detail",
        "notes",
        "note",
        "examples",
        "evidence",
        "events",
        "selected",
    ),
    *(
        "started",
        "finished",
        "date",
        "run_id",
        "kvv_version",
        "base_url",
        "coverage",
        "published",
        "from_",
        "answers",
        "run_ids",
        "why_not",
    ),
}


@dataclass
class Replay:
    """One group's replay in the current (empty) directory: ``facts`` are compared strictly, ``texts`` are wording."""

    call: Call
    facts: dict[str, Fact] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def unpack(self, name: str) -> str:
        """The run folder of this name in the corpus, below ./runs/NAME (so that its own name, the run's id, stands as
        it was).
        """
        root = Path("runs") / name
        if not root.exists():
            with tarfile.open(CORPUS / f"{name}.tar.xz") as packed:
                packed.extractall(root, filter="data")
        (folder,) = root.iterdir()
        return str(folder)

    def say(self, name: str, *arguments: str, show: bool = True) -> Any:
        """One call; its exit code is a fact, its output a text."""
        said = self.call(*arguments)
        self.facts[f"{name}/exit_code"] = said.code
        if show:
            self.texts[name] = normalised(said.out + said.err)
        return said

    def note(self, name: str, value: Any, without: Sequence[str] = ()) -> None:
        """Every decision and number below a JSON value, each under its path."""
        for path, fact in flat(value, frozenset({*UNSTABLE, *without})):
            self.facts[f"{name}/{path}"] = fact

    def note_report(self, name: str, report: Mapping[str, Any], without: Sequence[str] = ()) -> None:
        """A report.json; its checks take one line each."""
        self.note(name, {key: value for key, value in report.items() if key != "checks"}, without)
        for check in report["checks"]:
            values = json.dumps({key: rounded(value) for key, value in sorted(check["values"].items())})
            words = [
                check["verdict"],
                check["level"],
                check["area"],
                check["reason"] or "-",
                "truncated" if check["truncated"] else "whole",
                values,
            ]
            self.facts[f"{name}/checks/{check['id']}#{check['sample']}"] = " ".join(words)


def flat(value: Any, without: frozenset[str]) -> Iterator[tuple[str, Fact]]:
    """Leaves of a JSON value with their paths; entries of lists go by what names them. Prose is left out, but for the
    reason code it begins with.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in without:
                yield from ((f"{key}/{path}" if path else key, fact) for path, fact in flat(inner, without))
        if not value:
            yield "", "{}"
    elif isinstance(value, list):
        names = [name_of(entry, index) for index, entry in enumerate(value)]
        for index, (name, inner) in enumerate(zip(names, value, strict=True)):
            unique = name if names.count(name) == 1 else f"{name}~{names[:index].count(name)}"
            yield from ((f"{unique}/{path}" if path else unique, fact) for path, fact in flat(inner, without))
        if not value:
            yield "", "[]"
    elif isinstance(value, str):
        code = re.match(r"[a-z0-9-]+(?=:\s)", value)
        if not re.search(r"\s", value) or code:
            yield "", code.group() if code else normalised(value)
    else:
        yield "", rounded(value)


def name_of(entry: Any, index: int) -> str:
    if not isinstance(entry, Mapping):
        return str(index)
    names = [
        str(entry[key])
        for key in ("id", "rule", "label", "suite", "case", "metric", "first", "second")
        if entry.get(key) is not None
    ]
    return "+".join(names) or str(index)


def rounded(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def normalised(text: str) -> str:
    """Without what differs from one machine, day or version to the next."""
    for pattern, word in (
        (re.escape(f"{Path.cwd()}/"), ""),
        (re.escape(str(Path.cwd())), "<work>"),
        (re.escape(str(Path.home())) + r"(?=[/\s])", "<home>"),
        (r"\b\d{8}T\d{6}Z-[\w.-]+", "<run>"),
        (r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)", "<time>"),
        (r"\b20\d\d-\d\d-\d\d \d\d:\d\d(?::\d\d)?", "<time>"),
        (r"\b2026-1\d-\d\d\b", "<day>"),
        (r"127\.0\.0\.1:(?!18431)\d+", "127.0.0.1:<port>"),
        (r"local-(?!18431)\d+", "local-<port>"),
        (r"\bkvv \d+\.\d+\.\d+\S*", "kvv <version>"),
        (r'"kvv_version": "[^"]*"', '"kvv_version": "<version>"'),
        (r"[ \t]+$", ""),
    ):
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def report_in(root: str | Path) -> dict[str, Any]:
    """The newest report.json below a folder."""
    path = max(Path(root).rglob("report.json"), key=lambda path: path.stat().st_mtime_ns)
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def replay_help(replay: Replay) -> None:
    for verb in VERBS:
        said = replay.say(verb, verb, "--help")
        replay.facts |= {f"{verb}/{option}": True for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", said.out)}
    replay.say("kvv", "--help")


def replay_list(replay: Replay) -> None:
    for kind in ("suites", "cases", "rules", "faults", "profiles", "policies"):
        replay.say(kind, "list", kind)
        listed = json.loads(replay.call("list", kind, "--json").out)
        replay.facts |= {
            f"{kind}/{entry['id']}": " ".join(str(entry.get(key, "-")) for key in ("level", "area", "areas"))
            for entry in listed
        }
    engine = json.loads(replay.call("list", "cases", "--json", "--surface", "engine", "--profile", "qwen3").out)
    replay.facts |= {f"cases of qwen3 engine/{entry['id']}": f"{entry['level']} {entry['area']}" for entry in engine}


def replay_plan(replay: Replay) -> None:
    target = ("--base-url", "http://127.0.0.1:9/v1", "--model", "kimi-k3", *fixtures_of(*BENCHMARKS))
    pair = ("--reference", str(CORPUS / "official-1.jsonl"), "--reference", str(CORPUS / "official-2.jsonl"))
    judge = ("--judge-base-url", "http://127.0.0.1:9/v1", "--judge-model", "kimi-k3")
    for name, options in (
        ("full", (*judge, "--tier", "full")),
        ("night", (*pair, "--samples", "2", "--price-in", "0.6", "--price-out", "2.5")),
    ):
        suites = () if name == "full" else ("ocrbench", "aime2025", "toolcall")
        named = target if name == "full" else (*target[:4], *fixtures_of(*suites))
        replay.say(name, "plan", *suites, *named, *options)
        replay.note(name, json.loads(replay.call("plan", *suites, *named, *options, "--json").out))


def replay_score(name: str) -> Callable[[Replay], None]:
    def replay_one(replay: Replay) -> None:
        folder = replay.unpack(name)
        written = Path(folder) / "report.json"
        before = json.loads(written.read_text("utf-8")) if written.exists() else None  # a killed run has none
        replay.say("score", "score", folder)
        replay.note_report("report", json.loads(written.read_text("utf-8")))
        if before:
            replay.note(
                "as written when the run ended", {key: before[key] for key in ("verdict", "exit_code", "areas")}
            )

    return replay_one


def replay_report(replay: Replay) -> None:
    folder = replay.unpack("fault-B19")
    for form in FORMATS:
        replay.say(form, "report", folder, "--format", form)
    replay.say("parquet", "report", folder, "--format", "parquet", "--to", "tables", show=False)
    replay.facts |= {f"parquet/{path.name}": True for path in sorted(Path("tables").rglob("*.parquet"))}


def replay_show(replay: Replay) -> None:
    bad, params = replay.unpack("fault-B19"), replay.unpack("fault-A05")
    failed = next(check["id"] for check in report_in(params)["checks"] if check["verdict"] == "fail")
    passed = next(check["id"] for check in report_in(bad)["checks"] if check["verdict"] == "pass")
    replay.say("failed", "show", failed, "--run", params, "--export", "export")
    replay.facts |= {f"failed/{path.name}": True for path in sorted(Path("export").rglob("*")) if path.is_file()}
    replay.say("passed", "show", passed, "--run", bad)
    replay.say("rule", "show", "--rule", "tools/index-reused", "--run", bad)
    replay.say("unknown", "show", "params/no-such-case", "--run", params)


def replay_compare(replay: Replay) -> None:
    runs = [replay.unpack(name) for name in ("base-1", "base-2", "night-bad")]
    replay.say("text", "compare", *runs)
    replay.note("json", json.loads(replay.call("compare", *runs, "--format", "json").out))
    replay.say("different", "compare", runs[0], replay.unpack("fault-A05"))


def replay_gate(replay: Replay) -> None:
    shutil.copytree(CORPUS / "baselines", "baselines")
    replay.say("baselines", "baseline", "list")
    for name in ("night-same", "night-bad"):
        run = replay.unpack(name)
        replay.say(name, "gate", run)
        replay.note(name, json.loads(replay.call("gate", run, "--format", "json").out))
    bad, same, first = (replay.unpack(name) for name in ("night-bad", "night-same", "base-1"))
    replay.say("one baseline, named", "gate", same, "--baseline", first, "--on-inconclusive", "warn")
    replay.say("confirmed", "gate", bad, "--baseline", first, "--confirm", replay.unpack("bad-referenced"))
    replay.note(
        "confirmed",
        json.loads(
            replay.call(
                "gate", bad, "--baseline", first, "--confirm", replay.unpack("bad-referenced"), "--format", "json"
            ).out
        ),
    )
    replay.say("not confirmed", "gate", bad, "--baseline", first, "--confirm", same)
    replay.say("accept", "baseline", "accept", same, "--baselines", "accepted", "--note", "again", "--force")
    replay.facts["accept/files"] = len([path for path in Path("accepted").rglob("*") if path.is_file()])


def replay_history(replay: Replay) -> None:
    for name in ("base-1", "base-2", "night-same", "night-bad"):
        shutil.copytree(replay.unpack(name), Path("reports") / Path(replay.unpack(name)).name)
    for verb in ("history", "leaderboard"):
        replay.say(verb, verb, "reports")
        replay.note(verb, json.loads(replay.call(verb, "reports", "--format", "json").out))


def replay_import(replay: Replay) -> None:
    options = ("--requests", str(CORPUS / "k2vv-requests.jsonl"), "--as-reference", "imported.jsonl")
    replay.say("k2vv", "import", "k2vv", str(CORPUS / "k2vv-results.jsonl"), *options)
    replay.note_report("report", report_in("."), without=("timing",))
    for line in Path("imported.jsonl").read_text("utf-8").splitlines()[1:]:
        row = json.loads(line)
        replay.note(f"reference/{row['case']}", row["samples"])


def replay_merge(replay: Replay) -> None:
    replay.say("merge", "merge", replay.unpack("shard-1"), replay.unpack("shard-2"), "--out", "merged")
    replay.note_report("report", report_in("merged"))


def replay_resume(replay: Replay) -> None:
    """What a killed run concluded stays (all wrong); what it did not is asked, of an endpoint that now answers
    rightly.
    """
    folder = replay.unpack("unfinished")
    with served() as url:
        replay.say("resume", "resume", folder, "--base-url", url, show=False)
    replay.note_report("report", report_in(folder), without=("timing", "traffic", "endpoint"))


def replay_vendors(replay: Replay) -> None:
    """Two sides, asked now; what a side's own run concludes is compared, its pace is not."""
    with served("--accuracy", "1") as good, served("--accuracy", "0", "--fault", "A05") as bad:
        sides = {"good": good, "bad": bad}
        Path("sides.toml").write_text(
            "".join(f'[[vendor]]\nname = "{name}"\nbase_url = "{url}"\n' for name, url in sides.items()), "utf-8"
        )
        options = (
            "--model",
            "kimi-k3",
            *fixtures_of("aime2025"),
            "--samples",
            "1",
            "--case",
            "params/rejected/top-p*",
            "--case",
            "aime2025/*",
        )
        replay.say("vendors", "vendors", "sides.toml", *options, "--force", "-q", show=False)
    for path in sorted(Path(".").rglob("report.json")):
        report = json.loads(path.read_text("utf-8"))
        replay.note_report(f"side {report['endpoint']['vendor']}", report, without=("timing", "traffic", "endpoint"))


def replay_doctor(replay: Replay) -> None:
    """What a machine has is no fact here, what is looked at is."""
    said = replay.say("doctor", "doctor", "--profile", "kimi-k3", show=False)
    for line in said.out.splitlines():
        if " suite " in line or "profile" in line:
            replay.facts[line.split(maxsplit=1)[1]] = True
    replay.say("data", "data", "where", "aime2025", show=False)


def replay_selftest(replay: Replay, faults: Sequence[str] = FAULT_SAMPLE) -> None:
    """Fault by area, as the matrix prints it (F a must case, R a must rule, f and r should ones), and the first that
    saw it.
    """
    said = replay.call("selftest", "-q", *(("--fault", *faults) if faults else ()))
    replay.facts |= matrix_of(said.out)
    replay.facts["exit_code"] = said.code


def matrix_of(printed: str) -> dict[str, Fact]:
    """State, areas and witnesses of each fault. What a fault that a rate decides does beside its areas is drawn anew in
    each run, and is left out.
    """
    lines = printed.splitlines()
    (head,) = (index for index, line in enumerate(lines) if line.startswith("fault "))
    columns = lines[head].split()[1:-1]
    drawn = {
        lines[index - 1].split(" ")[0]
        for index, line in enumerate(lines)
        if line.startswith(" ") and line.strip().startswith("gate: ")
    }
    facts: dict[str, Fact] = {}
    for line in lines[head + 1 :]:
        fault, rest = line.split(" ")[0], line.partition(" ")[2].strip()
        cells = re.findall(r"\[[ .FRfr]*\]|(?<!\S)[.FRfr]+(?!\S)", rest)
        if len(cells) == len(columns):
            marks = [
                f"{name}:{cell.strip('[] ')}"
                for name, cell in zip(columns, cells, strict=True)
                if cell.strip("[] .") and (fault not in drawn or cell.startswith("["))
            ]
            facts[fault] = " ".join([rest.split()[-1], *marks])
        elif rest.startswith("seen by ") and fault in facts and fault not in drawn:
            facts[f"{fault}/seen by"] = rest.removeprefix("seen by ").split(" (should: ")[0]
    return facts


GROUPS: dict[str, Callable[[Replay], None]] = {
    "help": replay_help,
    "list": replay_list,
    "plan": replay_plan,
    **{
        f"score-{name}": replay_score(name)
        for name in ("clean", "fault-B19", "fault-A05", "base-1", "referenced", "bad-referenced", "unfinished")
    },
    "report": replay_report,
    "show": replay_show,
    "compare": replay_compare,
    "gate": replay_gate,
    "history": replay_history,
    "import": replay_import,
    "merge": replay_merge,
    "resume": replay_resume,
    "vendors": replay_vendors,
    "doctor": replay_doctor,
    "selftest": replay_selftest,
}

# --- what is expected ------------------------------------------------------------------------------------------------


#: in ``changed/``: the fact is not there any more
GONE = "(gone)"


def verdicts_of(group: str) -> dict[str, Fact]:
    """What f692479 said, with the changes that changed_verdicts.toml lists; every entry must have changed something
    from what it names.
    """
    facts: dict[str, Fact] = json.loads((VERDICTS / f"{group}.json").read_text("utf-8"))
    for change in changes():
        if change["group"] != group or not {"from", "to"} & set(change):
            continue
        named = (
            [key for key in facts if key == change["what"] or fnmatchcase(key, change["what"])]
            if "from" in change
            else [change["what"]]
        )
        if (
            not named
            or any(facts.get(key) != change.get("from") for key in named)
            or ("from" not in change and change["what"] in facts)
        ):
            raise ValueError(
                f"{CHANGES.name}: {change['what']!r} in {group} is not {change.get('from', 'absent')!r} there"
            )
        for key in named:
            if "to" in change:
                facts[key] = change["to"]
            else:
                del facts[key]
    for key, value in recorded(group).items():
        if not any(fnmatchcase(key, pattern) for pattern in patterns(group)):
            raise ValueError(f"changed/{group}.json: {key!r} is under no entry of {CHANGES.name}")
        if value == GONE:
            del facts[key]
        else:
            facts[key] = value
    return facts


def recorded(group: str) -> dict[str, Fact]:
    """New values of facts that a pattern of changed_verdicts.toml covers, as `make.py changed` wrote them."""
    path = CHANGED / f"{group}.json"
    found: dict[str, Fact] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


def patterns(group: str) -> list[str]:
    """Patterns of facts that may differ from f692479 in this group, each with its reason."""
    return [c["what"] for c in changes() if not {"from", "to"} & set(c) and fnmatchcase(group, c["group"])]


def write_changed(group: str, facts: Mapping[str, Fact]) -> None:
    """Records the new values of what differs from f692479 under the patterns, and of nothing else."""
    before: dict[str, Fact] = json.loads((VERDICTS / f"{group}.json").read_text("utf-8"))
    keys = set(before) if group in ADDITIVE else {*before, *facts}
    differing = {
        key: facts.get(key, GONE)
        for key in sorted(keys)
        if (key not in before or key not in facts or not same(before[key], facts[key]))
        and any(fnmatchcase(key, pattern) for pattern in patterns(group))
    }
    path = CHANGED / f"{group}.json"
    path.unlink(missing_ok=True)
    if differing:
        CHANGED.mkdir(exist_ok=True)
        path.write_text(json.dumps(differing, indent=0, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


def changes() -> list[dict[str, Any]]:
    """Entries of changed_verdicts.toml: with ``from`` or ``to``, or with neither (recorded values)."""
    found: list[dict[str, Any]] = tomllib.loads(CHANGES.read_text("utf-8")).get("change", [])
    for change in found:
        if (
            not {"group", "what", "why"} <= set(change) <= {"group", "what", "why", "from", "to"}
            or not change["why"].strip()
        ):
            raise ValueError(f"{CHANGES.name}: an entry needs group, what and why, and may have from and to: {change}")
    return found


def differences(group: str, expected: Mapping[str, Fact], found: Mapping[str, Fact]) -> list[str]:
    """One line for each fact that is not as expected; groups in ADDITIVE may hold more."""
    keys = set(expected) if group in ADDITIVE else {*expected, *found}
    return [
        f"{key}: {expected.get(key, 'ABSENT')!r} -> {found.get(key, 'ABSENT')!r}"
        for key in sorted(keys)
        if key not in expected or key not in found or not same(expected[key], found[key])
    ]


def same(one: Fact, other: Fact) -> bool:
    """Equal, and a number up to the last digits that a library's next version may round otherwise."""
    numbers = [value for value in (one, other) if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) == 2:
        return abs(numbers[0] - numbers[1]) <= 1e-7 * max(1.0, abs(numbers[0]))
    return type(one) is type(other) and one == other


def texts_of(group: str) -> dict[str, str]:
    return {path.stem: path.read_text("utf-8") for path in sorted((TEXTS / group).glob("*.txt"))}


def write_texts(group: str, texts: Mapping[str, str]) -> None:
    shutil.rmtree(TEXTS / group, ignore_errors=True)
    for name, text in texts.items():
        (TEXTS / group).mkdir(parents=True, exist_ok=True)
        (TEXTS / group / f"{name}.txt").write_text(text, "utf-8")


def replayed(group: str) -> Replay:
    """This group, by the `kvv` that is imported, in a folder of its own."""
    replay = Replay(call_kvv)
    with empty_folder():
        GROUPS[group](replay)
    return replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("corpus", "verdicts", "changed"))
    parser.add_argument("--update", action="store_true", help="write texts/ anew")
    parser.add_argument("--group", action="append", choices=GROUPS, help="these groups alone")
    arguments = parser.parse_args()
    if arguments.what == "corpus":
        make_corpus()
        return
    for group in arguments.group or GROUPS:
        started = time.process_time()
        replay = replayed(group)
        print(
            f"{group}: {len(replay.facts)} facts, {len(replay.texts)} texts, {time.process_time() - started:.1f} s"
            " of CPU",
            flush=True,
        )
        if arguments.what == "verdicts":
            write_verdicts(group, replay.facts)
        elif arguments.what == "changed":
            write_changed(group, replay.facts)
        elif found := differences(group, verdicts_of(group), replay.facts):
            print("  " + "\n  ".join(found[:20]))
        if arguments.update or arguments.what == "verdicts":
            write_texts(group, replay.texts)


def write_verdicts(group: str, facts: Mapping[str, Fact]) -> None:
    """The strict part of a group that has none; what is there stays."""
    path = VERDICTS / f"{group}.json"
    if path.exists():
        print(f"  {path.name} is there and stays: what changes stands in {CHANGES.name}")
        return
    VERDICTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(facts, indent=0, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
