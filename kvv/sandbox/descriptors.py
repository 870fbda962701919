"""How many files and connections this process may have open at once."""

from __future__ import annotations

from contextlib import suppress


def allow_open_files(needed: int) -> int:
    """Raise this process's own limit to ``needed`` open files, as far as the system lets it; the limit that then holds.

    Windows knows no such limit for sockets: ``needed`` is what holds there.
    """
    try:
        import resource
    except ImportError:
        return needed
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed if soft == resource.RLIM_INFINITY else soft
    with suppress(ValueError, OSError):  # macOS states no hard limit and has one all the same
        wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
