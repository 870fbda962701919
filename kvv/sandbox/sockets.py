"""A system call filter (seccomp) for sandboxed commands: sockets of the families that a network namespace closes off,
and of no other; and calls that reach keys, memory or processes beyond a command's bounds.

A namespace of its own leaves a hypervisor's sockets (AF_VSOCK) open, and whatever else reaches beyond the machine's
networks. The filter is a handful of instructions in the kernel's own form (linux/filter.h, linux/seccomp.h), so that
nothing has to be installed for it.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

#: unix, inet, inet6, netlink (linux/socket.h)
FAMILIES = (1, 2, 10, 16)

_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
#: offsets in struct seccomp_data: the call's number, the architecture, the lower half of its first argument
#: (little-endian)
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16
#: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_JMP | BPF_JGE | BPF_K, BPF_RET | BPF_K
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
#: calls of the x32 interface begin here: the same numbers under another name
_X32 = 0x4000_0000


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """AUDIT_ARCH, the numbers of the calls that make sockets, and of those that are refused whatever they ask for.

    ``io_uring`` makes sockets without a call of their own. The session's keyring belongs to the user, not to the
    command (``add_key``, ``request_key``, ``keyctl``). System V shared memory counts for no process and outlives them
    all (``shmget``, ``shmat``). Whoever traces the sandbox's first process or writes to it takes on its limits, which
    are none (``ptrace``, ``process_vm_writev``).
    """

    architecture: int
    socket: int
    socketpair: int
    refused: tuple[int, ...]


_MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(
        architecture=0xC000_003E, socket=41, socketpair=53, refused=(425, 248, 249, 250, 29, 30, 101, 311)
    ),
    "aarch64": Machine(
        architecture=0xC000_00B7, socket=198, socketpair=199, refused=(425, 217, 218, 219, 194, 196, 117, 271)
    ),
}


def socket_filter(machine: str | None = None) -> bytes:
    """The program for this machine's processor, b"" for one whose calls are not known here."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    allow, no_call = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    no_family = (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT)
    families = [(_EQUAL, len(FAMILIES) - number, 0, family) for number, family in enumerate(FAMILIES)]
    # the jumps count the instructions that are left out
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, known.architecture),
        no_call,
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 1, 0, _X32),
        *(step for number in known.refused for step in ((_EQUAL, 0, 1, number), no_call)),
        (_EQUAL, 2, 0, known.socket),
        (_EQUAL, 1, 0, known.socketpair),
        allow,
        (_LOAD, 0, 0, _FIRST),
        *families,
        no_family,
        allow,
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
