"""A container image out of this machine's own bash, git and python3: tests of a container engine need no registry."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from kvv.sandbox.engine import ContainerEngine

NAME = "kvv-test"
PROGRAMS = (
    "bash",
    "sh",
    "sleep",
    "cat",
    "ls",
    "mktemp",
    "base64",
    "git",
    "rm",
    "env",
    "id",
    "python3",
    "patch",
    "touch",
    "head",
    "tail",
    "grep",
    "sed",
    "find",
    "kill",
    "ps",
    "timeout",
    "seq",
    "yes",
    "dd",
    "mkdir",
    "cp",
    "mv",
    "echo",
    "true",
    "sort",
    "wc",
    "setsid",
    "dirname",
    "printf",
    "tr",
    "chmod",
)
FOLDERS = ("tmp", "proc", "dev", "sys", "etc", "root", "var", "run", "testbed", "usr/bin", "usr/lib", "bin")
SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"


def image(engine: ContainerEngine) -> str:
    """The name under which the engine knows the image, made now where it is missing; "" where this machine cannot make
    it.
    """
    for name in (f"localhost/{NAME}:latest", f"{NAME}:latest"):
        if engine.image(name) is not None:
            return name
    packed = _pack()
    if packed is None:
        return ""
    engine.call("POST", "/images/create", packed, timeout_s=300, fromSrc="-", repo=NAME, tag="latest")
    return next((name for name in (f"localhost/{NAME}:latest", f"{NAME}:latest") if engine.image(name) is not None), "")


def with_tree(
    engine: ContainerEngine,
    base: str,
    workdir: str,
    bundle: bytes,
    name: str,
    *,
    files: bytes | None = None,
    changes: str = "",
) -> str:
    """An image that holds a clone of the bundle at ``workdir``, as published images of instances do.

    ``files``: a tar file that is laid over the root; ``changes``: an instruction of a Dockerfile.
    """
    container = engine.create({"Image": base, "Cmd": ["sleep", "60"], "HostConfig": {"Ulimits": _ULIMITS}})
    try:
        engine.start(container)
        engine.put(container, "/", "b.bundle", bundle)
        if files is not None:
            engine.call("PUT", f"/containers/{container}/archive", files, timeout_s=120, path="/")
        script = (
            f"rm -rf {workdir} && git clone -q -b main /b.bundle {workdir} && cd {workdir} && git remote remove origin"
            " && rm /b.bundle"
        )
        code = engine.execute(
            container,
            {"AttachStdout": True, "AttachStderr": True, "Cmd": ["sh", "-c", script]},
            lambda _: None,
            timeout_s=60,
        )
        assert code == 0
        engine.call("POST", "/commit", {}, timeout_s=120, container=container, repo=name, tag="latest", changes=changes)
    finally:
        engine.remove(container)
    return next(found for found in (f"localhost/{name}:latest", f"{name}:latest") if engine.image(found) is not None)


_ULIMITS = [{"Name": "nofile", "Soft": 4096, "Hard": 4096}, {"Name": "nproc", "Soft": 4096, "Hard": 4096}]


def _pack() -> bytes | None:
    """A tar file; None where a program or `ldd` is missing."""
    python = shutil.which("python3", path=SYSTEM_PATH)
    if python is None or shutil.which("ldd") is None or shutil.which("git", path=SYSTEM_PATH) is None:
        return None
    named = {name: found for name in PROGRAMS if (found := shutil.which(name, path=SYSTEM_PATH))}
    library = subprocess.run(
        [python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    core = subprocess.run(
        ["git", "--exec-path"], check=True, capture_output=True, text=True, env={"PATH": SYSTEM_PATH}
    ).stdout.strip()
    files = {f"usr/bin/{name}": Path(found).resolve() for name, found in named.items()}
    for root in (library, core):
        for folder, folders, names in os.walk(root):
            folders[:] = [
                each
                for each in folders
                if each not in ("__pycache__", "test", "tests", "site-packages", "dist-packages", "idlelib")
            ]
            files |= {os.path.join(folder, each).lstrip("/"): Path(folder, each) for each in names}
    for needed in libraries(
        [
            path
            for path in files.values()
            if not path.is_symlink() and (path.suffix == ".so" or os.access(path, os.X_OK))
        ]
    ):
        files[needed.lstrip("/")] = Path(needed).resolve()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        for name in named:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, f"/usr/bin/{name}"
            archive.addfile(link)
        for name, text in (("etc/passwd", b"root:x:0:0:root:/root:/bin/bash\n"), ("etc/group", b"root:x:0:\n")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
        for name, path in sorted(files.items()):
            if path.is_file():
                archive.add(path, arcname=name, recursive=False)
    return packed.getvalue()


def libraries(paths: list[Path]) -> set[str]:
    said = subprocess.run(["ldd", *map(str, paths)], check=False, capture_output=True, text=True).stdout
    return {
        word
        for line in said.splitlines()
        for word in line.split()
        if word.startswith("/") and not word.endswith(":") and os.path.exists(word)
    }
