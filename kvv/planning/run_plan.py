"""A run that is ready to be sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvv.decision.inputs import OfficialRates
from kvv.planning.config import RunConfig
from kvv.planning.plan import Plan
from kvv.profiles.policy import Policy
from kvv.profiles.profile import Prices, Profile

#: the name of an official endpoint's part (``--reference-base-url``) in what is shown
LANE = "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run, ready to be sent. ``in_process``: our own reference endpoint is the target; ``sandbox``: the backend,
    where a suite needs one.
    """

    config: RunConfig
    model: str
    profile: Profile
    profile_reason: str
    policy: Policy
    plan: Plan
    in_process: bool
    contract_only: bool = False
    sandbox: str = ""
    #: sentences on references that were given twice
    counted_once: tuple[str, ...] = ()
    #: how often rules about the model itself objected in the references
    official: OfficialRates = field(default_factory=OfficialRates)

    @property
    def prices(self) -> Prices | None:
        return self.plan.prices
