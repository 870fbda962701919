"""Every line of the table of guarantees in ARCHITECTURE.md, by trying to break it."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvv.core import Command
from kvv.sandbox import Session
from kvv.sandbox.container import LABEL, OWNER, owner
from kvv.sandbox.engine import ContainerEngine, socket_path
from kvv.sandbox.sockets import socket_filter

if TYPE_CHECKING:
    from .conftest import Box

DOCKER = pytest.param("docker", marks=pytest.mark.engines)
REAL = pytest.mark.parametrize("box", ["bwrap", DOCKER], indirect=True)
ALL = pytest.mark.parametrize("box", ["bwrap", DOCKER, "none"], indirect=True)


def processes() -> dict[int, str]:
    """Pid and command line of every process of this machine."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                )
            except OSError:
                continue
    return found


@ALL
def test_the_tree_is_at_its_commit_and_keeps_what_a_command_changed(box: Box) -> None:
    first, second, third = box.run(
        "git log --oneline | wc -l; cat a; git status -s", "echo new > b; cd /; exit 3", "cat b; pwd; git status -s"
    )
    assert (first.exit_code, first.output.split()) == (0, ["1", "hello"])
    assert second.exit_code == 3
    assert third.output.split()[0] == "new"
    assert third.output.rstrip().endswith("?? b")


@ALL
def test_nothing_of_our_environment_is_inherited(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVV_API_KEY", "sk-secret-in-the-environment")
    (done,) = box.run("env; cat /proc/1/environ /proc/self/environ 2>/dev/null | tr '\\0' '\\n'")
    assert "sk-secret" not in done.output
    assert "TZ=UTC" in done.output


@REAL
def test_there_is_no_network_not_even_ours(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        dial = f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 2)'"
        done, abroad = box.run(
            dial, "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 53), 2)'; cat /proc/net/route"
        )
    assert done.exit_code == 1
    assert "Refused" in done.output or "unreachable" in done.output
    assert "unreachable" in abroad.output.lower()
    assert len([line for line in abroad.output.splitlines() if line[:1].isalpha() and "\t0" in line]) == 0


FAMILIES = """
import ctypes, errno, socket
def tried(family):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        return "open"
    except OSError as error:
        return errno.errorcode[error.errno]
def called(number, *arguments):
    ctypes.set_errno(0)
    return errno.errorcode.get(libc.syscall(number, *arguments) < 0 and ctypes.get_errno(), "open")
libc = ctypes.CDLL(None, use_errno=True)
print("vsock", tried(40), "packet", tried(17), "alg", tried(38), "inet", tried(2), "inet6", tried(10), "unix", tried(1))
print("ring", called(425, 1, 0), "x32", called(0x40000000 | 41, 40, 1, 0), "wide", called(SOCKET, ctypes.c_ulong((1 << 32) | 40), 1, 0))
socket.socketpair()
"""


@pytest.mark.skipif(not socket_filter(), reason="the system calls of this processor are not known to the filter")
@pytest.mark.parametrize("box", ["bwrap"], indirect=True)
def test_no_socket_reaches_a_hypervisor_by_whatever_call_it_is_made(box: Box) -> None:
    number = 41 if platform.machine() == "x86_64" else 198
    (done,) = box.run(f"python3 - <<'END'\n{FAMILIES.replace('SOCKET', str(number))}\nEND")
    families, calls = done.output.splitlines()
    assert families == "vsock EAFNOSUPPORT packet EAFNOSUPPORT alg EAFNOSUPPORT inet open inet6 open unix open"
    assert calls == "ring ENOSYS x32 ENOSYS wide EAFNOSUPPORT"


#: name -> number on x86_64 and aarch64, and arguments with which the kernel does not say ENOSYS
REFUSED = {
    "add_key": (248, 217, 'b"user", b"kvv", b"x", 1, ctypes.c_int(-2)'),
    "request_key": (249, 218, 'b"user", b"kvv", None, 0'),
    "keyctl": (250, 219, "0, ctypes.c_int(-3), 0"),
    "shmget": (29, 194, "0, 4096, 0o1600"),
    "shmat": (30, 196, "0, None, 0"),
    "ptrace": (101, 117, "0, 0, None, None"),
    "process_vm_writev": (311, 271, "1, None, 0, None, 0, 0"),
    "getpid": (39, 172, ""),
}


@pytest.mark.skipif(not socket_filter(), reason="the system calls of this processor are not known to the filter")
@pytest.mark.parametrize("box", ["bwrap"], indirect=True)
def test_no_command_reaches_keys_shared_memory_or_another_process_by_a_call(box: Box) -> None:
    column = 0 if platform.machine() == "x86_64" else 1
    tries = "".join(
        f"ctypes.set_errno(0); r = libc.syscall({call[column]}{', ' * bool(call[2])}{call[2]})\n"
        f"print('{name}', errno.errorcode[ctypes.get_errno()] if r < 0 else 'done')\n"
        for name, call in REFUSED.items()
    )
    (done,) = box.run(f"python3 - <<'END'\nimport ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n{tries}END")
    assert dict(line.split() for line in done.output.splitlines()) == dict.fromkeys(REFUSED, "ENOSYS") | {
        "getpid": "done"
    }


@pytest.mark.parametrize("box", ["bwrap"], indirect=True)
def test_the_first_process_does_not_tell_where_anything_lies_outside(box: Box) -> None:
    done, held = box.run(
        "tr '\\0' ' ' < /proc/1/cmdline; echo; cat /proc/1/environ | wc -c; ls -l /proc/1/fd",
        "cd /proc/self/fd; echo *",
    )
    assert done.output.startswith("bwrap --args")
    assert {"0", "1", "2"} <= set(held.output.split()) <= {"0", "1", "2", "3"}  # the last is the folder that is listed
    assert "kvv-sandbox-" not in done.output
    assert "--ro-bind" not in done.output


@REAL
def test_files_of_the_machine_are_not_there_and_the_system_cannot_be_changed(box: Box, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not read")
    home = Path.home()
    read, write = box.run(
        f"cat {secret}; ls {home}/.ssh {home}/.netrc; cat /etc/shadow; ls /var/lib /root /home /work 2>/dev/null |"
        " head",
        "for f in /usr/bin/evil /etc/evil /evil /proc/sys/kernel/hostname; do (echo x > $f) 2>&1; done; true",
    )
    assert "do not read" not in read.output
    assert "root:x:" not in read.output
    assert "root:*:" not in read.output
    assert not Path("/usr/bin/evil").exists()
    assert not Path("/etc/evil").exists()
    assert not Path("/evil").exists()
    if box.sandbox.name == "bwrap":
        assert write.output.count("Read-only file system") >= 3


@pytest.mark.parametrize("box", ["bwrap"], indirect=True)
def test_no_command_holds_a_capability_or_sees_another_process(box: Box) -> None:
    (done,) = box.run(
        "grep Cap /proc/self/status; ls -d /proc/[0-9]* | wc -l; id -u; mount -t tmpfs none /tmp; unshare -m true"
    )
    assert all(line.split()[1].strip("0") == "" for line in done.output.splitlines() if line.startswith("Cap"))
    assert int(done.output.splitlines()[5]) < 10
    assert done.output.splitlines()[6] == "1000"
    assert "root" not in done.output.splitlines()[6]


@pytest.mark.parametrize("box", ["bwrap"], indirect=True)
def test_no_namespace_can_be_made_inside_to_mount_memory_without_a_bound(box: Box) -> None:
    (done,) = box.run(
        "unshare -Urm bash -c 'mount -t tmpfs none /tmp && dd if=/dev/zero of=/tmp/x bs=1M count=20'; echo code $?"
    )
    assert "20971520" not in done.output
    assert "code 0" not in done.output


@REAL
def test_memory_is_bounded(box: Box) -> None:
    done, alive = box.run("python3 -c 'x = bytearray(1 << 30); print(len(x))'", "echo alive")
    assert done.exit_code not in (0, None)
    assert str(1 << 30) not in done.output
    assert alive.output.strip().endswith("alive")


@pytest.mark.parametrize("box", ["bwrap"], indirect=True)
def test_memory_is_bounded_over_all_processes_of_a_command(box: Box) -> None:
    hold = "python3 -c 'import time; x = bytearray(100 << 20); x[::4096] = b\"1\" * len(x[::4096]); time.sleep(60)' & "
    (done,) = box.run(hold * 6 + "wait", timeout_s=60)
    assert done.killed == "memory"
    assert done.exit_code == 137


@pytest.mark.parametrize("box", ["bwrap"], indirect=True)
@pytest.mark.parametrize(
    "hold",
    [
        "import mmap; m = mmap.mmap(-1, 500 << 20); [m.write(b'x' * 4096) for _ in range(500 << 8)]",
        "import os; fds = [os.memfd_create('x') for _ in range(12)]; [os.write(fd, b'x' * (30 << 20)) for fd in fds]",
    ],
)
def test_memory_that_is_shared_or_a_file_in_memory_counts_too(box: Box, hold: str) -> None:
    (done,) = box.run(f'python3 -c "{hold}; import time; time.sleep(60)"', timeout_s=60)
    assert done.killed == "memory", done


@REAL
def test_a_fork_bomb_meets_the_bound_on_processes_and_ends_with_the_command(box: Box) -> None:
    before = set(processes())
    again = "python3 -c 'import os; [os.fork() for _ in range(9)]'"
    (done,) = box.run(f"bomb() {{ bomb | bomb & }}; bomb; sleep 1; {again}; exit 0", timeout_s=20, limit=2_000)
    assert "Resource temporarily unavailable" in done.output or "BlockingIOError" in done.output or done.timed_out
    left = {pid: line for pid, line in processes().items() if pid not in before and "bomb" in line}
    assert left == {}


@ALL
def test_a_time_out_kills_children_of_children_too(box: Box) -> None:
    """Without a sandbox one that has lost its parent is out of reach."""
    mark = f"31536{os.getpid()}"
    orphan = "" if box.sandbox.name == "none" else f"(setsid sleep {mark} &); "
    (done,) = box.run(
        f"echo begun; {orphan}setsid sleep {mark} & bash -c 'sleep {mark} & wait' & sleep {mark}", timeout_s=3
    )
    assert (done.exit_code, done.timed_out, done.killed) == (None, True, "time")
    assert "begun" in done.output
    assert [line for line in processes().values() if line.startswith(f"sleep {mark}")] == []


@ALL
def test_a_command_is_over_when_its_shell_is_whoever_holds_the_pipe(box: Box) -> None:
    (done,) = box.run("sleep 60 & echo out", timeout_s=15)
    assert (done.exit_code, done.timed_out) == (0, False)
    assert done.output.strip().endswith("out")


@REAL
def test_one_file_is_bounded(box: Box) -> None:
    done, after = box.run("dd if=/dev/zero of=big bs=1M count=200 2>&1; ls -l big | head -1", "echo alive")
    assert "209715200 bytes" not in done.output
    assert after.output.strip().endswith("alive")


@pytest.mark.parametrize("box", ["bwrap"], indirect=True)
def test_the_tree_and_the_scratch_space_are_bounded(box: Box) -> None:
    tree, scratch, shared = box.run(
        "for i in $(seq 9); do dd if=/dev/zero of=f$i bs=1M count=30 2>/dev/null; sleep 0.4; done; echo finished",
        "dd if=/dev/zero of=/tmp/x bs=1M count=30 2>&1 | tail -1",
        "dd if=/dev/zero of=/dev/shm/x bs=1M count=31 2>&1 | tail -1; dd if=/dev/zero of=/dev/x bs=1M count=1; echo x >"
        " /dev/y",
        timeout_s=60,
    )
    assert tree.killed == "disk"
    assert "finished" not in tree.output
    assert "31457280" not in scratch.output
    assert "Read-only" in shared.output


UNLINKED = """
import os, time
held = []
for number in range(9):
    held.append(open("f", "wb"))
    os.unlink("f")
    held[-1].write(b"x" * (20 << 20))
    held[-1].flush()
print("finished", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("box", ["bwrap", "none"], indirect=True)
def test_files_without_a_name_count_as_long_as_they_are_held_open(box: Box) -> None:
    done, after = box.run(f"python3 -c '{UNLINKED}'", "df . | tail -1; echo alive", timeout_s=50)
    assert done.killed == "disk"
    assert after.output.strip().endswith("alive")


DEEP = (
    'python3 -c \'import os; [(os.mkdir("d" * 9), os.chdir("d" * 9)) for _ in range(3000)]; open("f", "w").write("x" *'
    " 9)'"
)


@pytest.mark.parametrize("box", ["bwrap", "none"], indirect=True)
def test_a_tree_that_is_deeper_than_paths_are_long_is_removed(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path("/tmp") / f"kvv-deep-{os.getpid()}-{box.sandbox.name}"  # noqa: S108 every part of the way must be open to the sandbox's user
    place.mkdir(mode=0o711)
    monkeypatch.setattr("tempfile.tempdir", str(place))
    (done,) = box.run(DEEP, timeout_s=60)
    assert done.exit_code == 0 or done.killed == "disk"
    place.rmdir()  # empty


@pytest.mark.parametrize("box", ["bwrap"], indirect=True)
def test_what_lies_too_deep_to_be_counted_counts_as_too_much(box: Box) -> None:
    (done,) = box.run(f"{DEEP}; sleep 60", timeout_s=60)
    assert done.killed == "disk"


@ALL
def test_output_is_cut_in_the_middle_and_the_cut_is_counted(box: Box) -> None:
    (done,) = box.run("printf first; head -c 3000000 /dev/zero; printf last; printf '\\377'", limit=1_000)
    assert len(done.output) == 1_000
    assert done.output.endswith("last\N{REPLACEMENT CHARACTER}")
    assert "first" in done.output[:200]
    assert 2_999_000 < done.elided < 3_001_000


@ALL
def test_standard_input_arrives_whole_and_is_empty_otherwise(box: Box) -> None:
    (done,) = box.run("wc -c", stdin="é" * 150_000)
    assert done.output.split()[-1] == "300000"
    (empty,) = box.run("cat; echo over", timeout_s=5)
    assert empty.output.strip().endswith("over")


@ALL
def test_ten_sessions_at_once_leave_no_process_mount_container_or_file(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path("/tmp") / f"kvv-ten-{os.getpid()}-{box.sandbox.name}"  # noqa: S108 every part of the way must be open to the sandbox's user
    place.mkdir(mode=0o711)
    monkeypatch.setattr("tempfile.tempdir", str(place))
    mounts = Path("/proc/mounts").read_text().count("\n")
    mark = f"86399{os.getpid()}"

    async def one(session: Session, number: int) -> int | None:
        done = await session.run(
            Command(argv=("bash", "-c", f"mkdir -p d && chmod 0 d; sleep {mark} & exit {number}"), timeout_s=30)
        )
        return done.exit_code

    async def all_of_them() -> list[int | None]:
        sessions = await asyncio.gather(*(box.sandbox.open(box._workspace) for _ in range(10)))
        try:
            return await asyncio.gather(*(one(session, number) for number, session in enumerate(sessions)))
        finally:
            await asyncio.gather(*(session.close() for session in sessions))
            await box.sandbox.close()

    assert asyncio.run(all_of_them()) == list(range(10))
    place.rmdir()  # empty
    assert Path("/proc/mounts").read_text().count("\n") <= mounts
    assert [line for line in processes().values() if line.startswith(f"sleep {mark}")] == []
    assert not any(thread.name.startswith("Timer") and thread.is_alive() for thread in threading.enumerate())
    if box.sandbox.name == "docker" and (path := socket_path()):
        assert [entry for entry in ContainerEngine(path).labelled(LABEL) if entry["labels"].get(OWNER) == owner()] == []
