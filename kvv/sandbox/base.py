"""What a sandbox is: one tree of files per session, and commands that run in it and nowhere else.

Commands come from a model or from a data set: they are hostile. What each backend guarantees is the table in
ARCHITECTURE.md, and tests/sandbox tries to break every line of it.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kvv.core import Command, Executed

MIB = 1024 * 1024

#: where the tree stands inside a sandbox, as in SWE-bench's images
WORKDIR = "/testbed"

#: what mini-swe-agent sets, so that nothing waits for a key
QUIET: Mapping[str, str] = {
    "PAGER": "cat",
    "MANPAGER": "cat",
    "LESS": "-R",
    "PIP_PROGRESS_BAR": "off",
    "TQDM_DISABLE": "1",
}

#: the whole environment of a command where the machine's own programs run; nothing of ours is inherited. An image has
#: its own beside QUIET.
ENVIRONMENT: Mapping[str, str] = {
    **QUIET,
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 the sandbox's own
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "GIT_AUTHOR_NAME": "agent",
    "GIT_AUTHOR_EMAIL": "agent@localhost",
    "GIT_COMMITTER_NAME": "agent",
    "GIT_COMMITTER_EMAIL": "agent@localhost",
    "GIT_CONFIG_NOSYSTEM": "1",
}

#: unpacks a bundle given on standard input as base64 and leaves the tree at one commit: nothing later is in the bundle,
#: so nothing later can be found
UNPACK = (
    'set -e; b=$(mktemp); base64 -d > "$b"; git init -q -b main .; git fetch -q "$b" "+refs/heads/*:refs/heads/*"'
    ' --update-head-ok; rm -f "$b"; git reset -q --hard "$1"'
)
UNPACK_TIMEOUT_S = 300.0
SETUP_TIMEOUT_S = 1_800.0


class SandboxError(Exception):
    """The sandbox itself failed, or there is none; the message is one line. Nobody's verdict: INCONCLUSIVE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """Bytes, and a number of processes. ``memory`` is for all processes of a command together."""

    memory: int = 2048 * MIB
    processes: int = 512
    file: int = 512 * MIB
    disk: int = 2048 * MIB
    scratch: int = 512 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """What a session starts from: a git bundle (base64) at a commit, or the tree that an image holds. With both, the
    bundle is unpacked in the image. ``setup`` are commands that are run in the tree first.
    """

    bundle: str = ""
    commit: str = ""
    image: str = ""
    workdir: str = WORKDIR
    setup: str = ""

    @staticmethod
    def of(fields: Mapping[str, Any]) -> Workspace:
        """From a case's ``inputs["sandbox"]``. SandboxError where that is none."""
        try:
            workspace = Workspace(**{name: str(value) for name, value in fields.items()})
            base64.b64decode(workspace.bundle, validate=True)
        except (TypeError, binascii.Error) as error:
            raise SandboxError(f"the case's sandbox cannot be read: {error}") from error
        if not workspace.bundle and not workspace.image:
            raise SandboxError("the case names neither a bundle nor an image")
        return workspace


#: what a backend without images says of a workspace that is one
ONLY_BUNDLES = "its instances come as container images: a Docker or Podman socket is needed"


class Session(ABC):
    """One tree. Commands run one at a time; what they leave running ends with them or, at the latest, with the
    session.
    """

    #: the machine's processor is emulated: time-outs say nothing
    emulated: bool = False

    @abstractmethod
    async def run(self, command: Command) -> Executed:
        """Run it in the tree. SandboxError where it could not be run at all; a time-out or a broken limit is a
        result.
        """

    @abstractmethod
    async def close(self) -> None:
        """Ends what still runs and removes the tree. May be called twice."""


class Sandbox(ABC):
    """A way to get sessions."""

    name: ClassVar[str]

    @abstractmethod
    def missing(self) -> str:
        """Why it cannot be used on this machine, as a clause that says what to install; "" where it can. Tried, not
        guessed.
        """

    def refuses(self, workspace: Workspace) -> str:
        """Why it cannot hold this workspace, "" where it can."""
        return ""

    @abstractmethod
    async def begin(self, workspace: Workspace) -> Session:
        """A session with an empty tree, or the image's own. SandboxError where there can be none, or the workspace is
        refused.
        """

    async def open(self, workspace: Workspace, tree: str = "") -> Session:
        """A session with the workspace's tree; nothing is left where that fails. SandboxError as ``begin`` does.
        ``tree`` is its name in a step.
        """
        session = await self.begin(workspace)
        if workspace.bundle or workspace.setup:
            try:
                if workspace.bundle:
                    await unpack(session, workspace)
                if workspace.setup:
                    await set_up(session, workspace)
            except BaseException:  # a cancelled run must leave no tree behind either
                await session.close()
                raise
        return session

    def identity(self, workspace: Workspace) -> str:
        """What decides how commands end in this workspace, whenever they are run: an image's digest. "" where nothing
        does.
        """
        return ""

    async def close(self) -> None:  # noqa: B027 a backend without anything to give back
        """Give back what all sessions shared."""


async def set_up(session: Session, workspace: Workspace) -> None:
    """Run the set-up commands, which stop at the first that fails."""
    command = Command(argv=("bash", "-ec", workspace.setup), timeout_s=SETUP_TIMEOUT_S, output_limit=2_000)
    done = await session.run(command)
    if done.exit_code != 0:
        raise SandboxError(f"the set-up commands failed: {' '.join(done.output.split())[-300:]}")


async def unpack(session: Session, workspace: Workspace) -> None:
    """Make the tree from its bundle, inside the sandbox: the bundle is somebody's data."""
    command = Command(
        argv=("bash", "-c", UNPACK, "unpack", workspace.commit),
        stdin=workspace.bundle,
        timeout_s=UNPACK_TIMEOUT_S,
        output_limit=2_000,
    )
    done = await session.run(command)
    if done.exit_code != 0:
        raise SandboxError(f"the work tree could not be made: {' '.join(done.output.split())[-300:]}")
