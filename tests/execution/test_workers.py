"""Worker processes: what hangs is killed, what dies is replaced, nothing outlives the parent."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kvv.execution import workers as room
from kvv.execution.workers import WorkerDied, WorkerError, Workers, WorkerTimeout

HOSTILE = """
import os, re, sys, time

def echo(value): return value
def pid(): return os.getpid()
def regex(): return re.match(r"(a+)+$", "a" * 64 + "b")
def spin():
    while True: pass
def lock_held(): return 9 ** 9 ** 9
def leave(): os._exit(7)
def stop(): sys.exit("out")
def letters(count): return "x" * count
def unpicklable(): return lambda: None
def deep():
    value = []
    for _ in range(100_000): value = [value]
    return value
def raises(): raise LookupError("y" * 100_000)
class Picky:
    def __reduce__(self): return (int, ("x",))
def picky(): return Picky()
class Rude(Exception):
    def __init__(self, a, b): ...
    def __str__(self): raise ValueError
def rude(): raise Rude(1, 2)
def prints():
    print("noise"); os.write(1, b"more noise"); sys.stdout.flush(); return sys.stdin.read()
def secrets(): return sorted(name for name in os.environ if "KEY" in name or "TOKEN" in name)
def main_module(): return sys.modules["__main__"].__spec__.name, "__mp_main__" in sys.modules
def ignores_interrupt():
    import signal
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN
value = 3
from os.path import join
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that registers a suite, hence may be called; its functions misbehave."""
    (tmp_path / "hostile_suite.py").write_text(HOSTILE)
    info = tmp_path / "hostile_suite-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile-suite\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[kvv.suites]\nhostile = hostile_suite:Suite\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "hostile_suite"


def with_workers(use: Callable[[Workers], Awaitable[Any]], count: int = 1, **options: Any) -> Any:
    async def main() -> Any:
        async with Workers(count, **options) as workers:
            return await use(workers)

    return asyncio.run(main())


def test_a_function_of_kvv_is_called_with_its_arguments() -> None:
    assert with_workers(lambda workers: workers.run("kvv.suites.aime2025.scoring:integer", "070", timeout_s=20)) == 70


@pytest.mark.parametrize("name", ["regex", "spin", "lock_held"])
def test_a_hang_is_killed_in_time_and_the_next_task_gets_a_new_process(hostile: str, name: str) -> None:
    async def use(workers: Workers) -> tuple[float, int, int]:
        first = await workers.run(f"{hostile}:pid", timeout_s=20)
        begin = time.monotonic()
        with pytest.raises(WorkerTimeout, match=f"{name} took longer than 0.3 s"):
            await workers.run(f"{hostile}:{name}", timeout_s=0.3)
        return time.monotonic() - begin, first, await workers.run(f"{hostile}:pid", timeout_s=20)

    seconds, first, second = with_workers(use)
    assert seconds < 2.5
    assert first != second
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_a_hang_does_not_delay_the_other_worker(hostile: str) -> None:
    async def use(workers: Workers) -> int:
        hang = asyncio.create_task(workers.run(f"{hostile}:spin", timeout_s=1.5))
        answers = 0
        while not hang.done():
            answers += await workers.run(f"{hostile}:echo", 1, timeout_s=20)
        with pytest.raises(WorkerTimeout):
            await hang
        return answers

    assert with_workers(use, count=2) > 10


def test_a_process_that_leaves_is_reported_with_its_code_and_replaced(hostile: str) -> None:
    async def use(workers: Workers) -> str:
        with pytest.raises(WorkerDied, match="exit code 7"):
            await workers.run(f"{hostile}:leave", timeout_s=20)
        return str(await workers.run(f"{hostile}:echo", "alive", timeout_s=20))

    assert with_workers(use) == "alive"


def test_exceptions_come_back_as_bounded_text_and_the_worker_lives_on(hostile: str) -> None:
    async def use(workers: Workers) -> None:
        before = await workers.run(f"{hostile}:pid", timeout_s=20)
        with pytest.raises(WorkerError, match="LookupError: yyy") as caught:
            await workers.run(f"{hostile}:raises", timeout_s=20)
        assert len(str(caught.value)) <= room.TEXT_LIMIT
        assert "in raises" in caught.value.trace
        assert len(caught.value.trace) <= room.TEXT_LIMIT
        with pytest.raises(WorkerError, match=r"^Rude$"):
            await workers.run(f"{hostile}:rude", timeout_s=20)
        with pytest.raises(WorkerError, match="SystemExit: out"):
            await workers.run(f"{hostile}:stop", timeout_s=20)
        assert await workers.run(f"{hostile}:pid", timeout_s=20) == before

    with_workers(use)


@pytest.mark.parametrize("name", ["unpicklable", "deep"])
def test_a_result_that_cannot_be_sent_is_an_error(hostile: str, name: str) -> None:
    async def use(workers: Workers) -> None:
        with pytest.raises(WorkerError, match="cannot be sent back"):
            await workers.run(f"{hostile}:{name}", timeout_s=20)

    with_workers(use)


def test_a_result_that_cannot_be_read_is_an_error(hostile: str) -> None:
    async def use(workers: Workers) -> None:
        with pytest.raises(WorkerError, match="cannot be read: ValueError"):
            await workers.run(f"{hostile}:picky", timeout_s=20)

    with_workers(use)


def test_large_results_arrive_and_huge_ones_are_refused(hostile: str) -> None:
    async def use(workers: Workers) -> int:
        with pytest.raises(WorkerError, match=f"more than {room.RESULT_LIMIT}"):
            await workers.run(f"{hostile}:letters", room.RESULT_LIMIT + 1, timeout_s=20)
        return len(await workers.run(f"{hostile}:letters", 5_000_000, timeout_s=20))

    assert with_workers(use) == 5_000_000


def test_large_arguments_arrive(hostile: str) -> None:
    text = "ü" * 3_000_000
    assert with_workers(lambda workers: workers.run(f"{hostile}:echo", text, timeout_s=20)) == text


def test_what_a_function_prints_does_not_disturb_the_answers(hostile: str) -> None:
    assert with_workers(lambda workers: workers.run(f"{hostile}:prints", timeout_s=20)) == ""


def test_a_worker_sees_no_key_and_does_not_import_the_main_module(
    hostile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVV_API_KEY", "sk-canary")
    monkeypatch.setenv("HF_TOKEN", "hf-canary")

    async def use(workers: Workers) -> tuple[Any, Any, Any]:
        names = ("secrets", "main_module", "ignores_interrupt")
        return tuple([await workers.run(f"{hostile}:{name}", timeout_s=20) for name in names])  # type: ignore[return-value]

    assert with_workers(use) == ([], ("kvv.execution.workers", False), True)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "os:getcwd",
            "kvv.execution.workers",
            "kvv..workers:serve",
            "kvvx.workers:serve",
            "kvv.execution.workers:serve.x",
        ),
        *(
            "subprocess:run",
            "kvv.execution.workers:a b",
            "",
            ":",
            "kvv:",
            "kvv.execution.workers:serve\n",
            "hostile_suite:pid",
        ),
    ],
)
def test_names_outside_the_allowed_packages_are_refused_before_a_process_starts(name: str) -> None:
    async def use(workers: Workers) -> None:
        with pytest.raises(ValueError, match=r"is no name of the form|lies neither in kvv"):
            await workers.run(name, timeout_s=20)
        assert not workers._all

    with_workers(use)


@pytest.mark.parametrize("name", ["join", "value", "absent"])
def test_only_a_modules_own_functions_can_be_called(hostile: str, name: str) -> None:
    async def use(workers: Workers) -> None:
        with pytest.raises(WorkerError, match=r"is no function of|has no attribute"):
            await workers.run(f"{hostile}:{name}", timeout_s=20)

    with_workers(use)


def test_a_module_that_is_missing_is_an_error() -> None:
    async def use(workers: Workers) -> None:
        with pytest.raises(WorkerError, match="ModuleNotFoundError"):
            await workers.run("kvv.no_such_room:function", timeout_s=20)

    with_workers(use)


def test_a_worker_is_replaced_after_its_share_of_tasks(hostile: str) -> None:
    async def use(workers: Workers) -> list[int]:
        return [await workers.run(f"{hostile}:pid", timeout_s=20) for _ in range(4)]

    first, second, third, fourth = with_workers(use, recycle_after=2)
    assert first == second != third == fourth


def test_a_cancelled_task_takes_its_process_with_it(hostile: str) -> None:
    async def use(workers: Workers) -> int:
        first: int = await workers.run(f"{hostile}:pid", timeout_s=20)
        task = asyncio.create_task(workers.run(f"{hostile}:spin", timeout_s=60))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return first

    first = with_workers(use)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_leaving_the_context_kills_what_runs_and_refuses_what_waits(hostile: str) -> None:
    async def main() -> float:
        async with Workers(1) as workers:
            pid = await workers.run(f"{hostile}:pid", timeout_s=20)
            running = asyncio.create_task(workers.run(f"{hostile}:spin", timeout_s=60))
            waiting = asyncio.create_task(workers.run(f"{hostile}:spin", timeout_s=60))
            await asyncio.sleep(0.1)
            begin = time.monotonic()
        with pytest.raises(WorkerDied):
            await running
        with pytest.raises(RuntimeError, match="not open"):
            await waiting
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        return time.monotonic() - begin

    assert asyncio.run(main()) < 2


def test_processes_start_only_when_needed() -> None:
    async def use(workers: Workers) -> int:
        await workers.run("kvv.suites.aime2025.scoring:integer", "1", timeout_s=20)
        await workers.run("kvv.suites.aime2025.scoring:integer", "2", timeout_s=20)
        return len(workers._all)

    assert with_workers(use, count=4) == 1


@pytest.mark.parametrize("count", [0, -1])
def test_no_workers_at_all_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Workers(count)


def _alive(pid: int) -> bool:
    """A zombie, which nobody in a container may reap, is dead."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
@pytest.mark.parametrize("hang", ["spin", "lock_held", "echo"])
def test_no_worker_survives_a_killed_parent(hostile: str, tmp_path: Path, hang: str) -> None:
    """``lock_held`` never lets another Python thread run: only the kernel can end it."""
    if hang == "lock_held" and sys.platform != "linux":
        pytest.skip("only Linux ends a child with its parent; elsewhere the watchdog does, after the task's time-out")
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(f"""
        import asyncio, sys
        from kvv.execution.workers import Workers

        async def main():
            async with Workers(2) as workers:
                print(await workers.run("{hostile}:pid", timeout_s=20), flush=True)
                call = workers.run("{hostile}:{hang}", *{[1] if hang == "echo" else []}, timeout_s=60)
                task = asyncio.create_task(call)
                await asyncio.sleep(0.2)
                print("busy", flush=True)
                await asyncio.sleep(60)

        asyncio.run(main())  # no __main__ guard: a worker never imports this file
        """)
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert parent.stdout.readline() == "busy\n"
    assert _alive(worker)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 3
    while _alive(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(worker)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_an_interrupt_of_the_parents_group_leaves_the_workers_alone(hostile: str, tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(
        textwrap.dedent(f"""
        import asyncio, os, signal
        from kvv.execution.workers import Workers

        async def main():
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
            async with Workers(1) as workers:
                os.killpg(0, signal.SIGINT)
                first = await workers.run("{hostile}:pid", timeout_s=20)
                os.killpg(0, signal.SIGINT)
                os.kill(first, signal.SIGINT)
                assert await workers.run("{hostile}:pid", timeout_s=20) == first

        asyncio.run(main())
        """)
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=30, start_new_session=True)


def test_the_watchdog_ends_a_worker_whose_parent_does_not(hostile: str) -> None:
    """A stopped parent cannot kill; the worker ends itself some seconds after the task's time-out, though the lock is
    held.
    """
    begin = time.monotonic()
    code = (
        "import sys; sys.argv = ['x', sys.argv[1]]; import kvv.execution.workers as w; w.SELF_KILL_GRACE_S = 0.1;"
        " w.serve(int(sys.argv[1]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    task = pickle.dumps((f"{hostile}:lock_held", 0.2, ()))
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(len(task).to_bytes(4, "big") + task)
    child.stdin.flush()
    assert child.wait(timeout=10) != 0
    assert time.monotonic() - begin < 8
    child.stdin.close()
    child.stdout.close()


@pytest.mark.parametrize(("patience_s", "started"), [(60.0, 1), (0.0, 2)])
def test_another_process_is_started_only_for_a_task_that_has_waited(patience_s: float, started: int) -> None:
    async def together() -> int:
        async with Workers(count=2, patience_s=patience_s) as workers:
            alive = "kvv.execution.scheduling.remote:alive"
            assert await asyncio.gather(*(workers.run(alive, timeout_s=60.0) for _ in range(6))) == [True] * 6
            return len(workers._all)

    assert asyncio.run(together()) == started
