"""A stored run under another policy and against other references: a view of it as if it had been run so. Nothing is
written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvv.cases.suite import ReferenceRun
from kvv.profiles.policy import Policy
from kvv.storage.snapshot import build_view
from kvv.storage.store import Store
from kvv.storage.view import RunView


class ReevaluatedStore(Store):
    """A read-only store whose meta names another policy and other references; ``server_counts`` are gone, so that the
    references decide.
    """

    _policy: Policy | None = None
    _references: Mapping[str, Sequence[ReferenceRun]] = {}

    @classmethod
    def of(cls, path: Path, policy: Policy, references: Mapping[str, Sequence[ReferenceRun]]) -> ReevaluatedStore:
        store = cls.open(path, read_only=True)
        store._policy, store._references = policy, references
        return store

    def meta(self) -> dict[str, Any]:
        meta = super().meta()
        if self._policy is None:
            return meta
        suites = [
            {
                **entry,
                "references": [
                    {
                        "name": run.name,
                        "model": run.model,
                        "cases": {case: list(samples) for case, samples in run.cases.items()},
                    }
                    for run in self._references.get(entry["id"], ())
                ],
            }
            for entry in meta["suites"]
        ]
        policy = {"policy": self._policy.model_dump(mode="json"), "policy_sha256": self._policy.sha256}
        return {**meta, **policy, "suites": suites, "server_counts": None, "beside": None}


def reevaluate(path: Path, policy: Policy, references: Mapping[str, Sequence[ReferenceRun]]) -> RunView:
    """``references`` is by suite; a suite without one keeps none of its own."""
    store = ReevaluatedStore.of(path, policy, references)
    try:
        return build_view(store)
    finally:
        store.close()
