from __future__ import annotations

import resource

import pytest

from kvv.sandbox.descriptors import allow_open_files


class System:
    """Stands for the system's limits; ``most`` is what it really lets a process have."""

    def __init__(self, soft: int, hard: int, most: int) -> None:
        self.limits = (soft, hard)
        self.most = most

    def get(self, kind: int) -> tuple[int, int]:
        assert kind == resource.RLIMIT_NOFILE
        return self.limits

    def set(self, kind: int, limits: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        if limits[0] > self.most:
            raise ValueError("not allowed to raise maximum limit")
        self.limits = limits


@pytest.mark.parametrize(
    ("soft", "hard", "most", "needed", "allowed", "after"),
    [
        (1024, 20000, 20000, 4352, 4352, 4352),
        (1024, 4096, 4096, 4352, 4096, 4096),  # as far as it goes: the caller refuses
        (20000, 20000, 20000, 4352, 20000, 20000),  # never lowered
        (256, resource.RLIM_INFINITY, 10240, 4352, 4352, 4352),
        (256, resource.RLIM_INFINITY, 1000, 4352, 256, 256),  # macOS: no hard limit is stated, and there is one
    ],
)
def test_the_limit_is_raised_as_far_as_the_system_lets_it(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int, needed: int, allowed: int, after: int
) -> None:
    system = System(soft, hard, most)
    monkeypatch.setattr(resource, "getrlimit", system.get)
    monkeypatch.setattr(resource, "setrlimit", system.set)
    assert allow_open_files(needed) == allowed
    assert system.limits == (after, hard)
