"""Where commands of a model run: the only room that starts containers or sandboxed processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from kvv.sandbox.base import Sandbox, SandboxError, SandboxLimits, Session, Workspace

__all__ = [
    "BACKENDS",
    "WARNING",
    "Sandbox",
    "SandboxError",
    "SandboxLimits",
    "Session",
    "Workspace",
    "choose",
    "find_backend",
]

WARNING = (
    "warning: --sandbox none: the model's commands run on this machine as this user, with its network and its files"
)

#: in the order in which they are tried; ``none`` is only taken by name
BACKENDS = ("bwrap", "docker", "none")


def _bubblewrap() -> Sandbox:
    from kvv.sandbox.bubblewrap import Bubblewrap

    return Bubblewrap()


def _containers() -> Sandbox:
    from kvv.sandbox.container import Containers

    return Containers()


def _none() -> Sandbox:
    from kvv.sandbox.none import NoSandbox

    return NoSandbox()


_MAKE: Mapping[str, Callable[[], Sandbox]] = {"bwrap": _bubblewrap, "docker": _containers, "none": _none}


def find_backend(name: str) -> Sandbox:
    """The backend with this name, untried. SandboxError for an unknown one, or on a system that has none."""
    if name not in _MAKE:
        raise SandboxError(f"no sandbox {name!r}; known: {', '.join(BACKENDS)}")
    if sys.platform == "win32":
        raise SandboxError("sandboxes need a POSIX system (on Windows: WSL)")
    return _MAKE[name]()


def choose(name: str | None, workspace: Workspace | None = None) -> Sandbox:
    """The backend with this name, or the first that works here and can hold the workspace. SandboxError says in one
    line what to install.
    """
    if name is not None:
        sandbox = find_backend(name)
        if why := sandbox.missing():
            raise SandboxError(f"{name}: {why}")
        if workspace is not None and (refusal := sandbox.refuses(workspace)):
            raise SandboxError(f"{name}: {refusal}")
        return sandbox
    found: list[str] = []
    for candidate in ("bwrap", "docker"):
        sandbox = find_backend(candidate)
        why = sandbox.missing() or (sandbox.refuses(workspace) if workspace is not None else "")
        if not why:
            return sandbox
        found.append(f"{candidate}: {why}")
    raise SandboxError("; ".join(found))
