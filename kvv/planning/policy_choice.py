"""The policy that ``--policy`` names: a shipped one, or a file."""

from __future__ import annotations

from pathlib import Path

from kvv.planning.config import ConfigError
from kvv.profiles.policy import Policy, PolicyError, load_policy, parse_policy, policy_ids


def choose_policy(name: str) -> Policy:
    """ConfigError, of one line, for a file that cannot be read or is no policy."""
    try:
        return load_policy(name) if name in policy_ids() else parse_policy(Path(name).read_text("utf-8"), name)
    except PolicyError as error:
        raise ConfigError(f"--policy: {error}") from error
    except (OSError, UnicodeDecodeError, ValueError):
        raise ConfigError(
            f"--policy: {name!r} is no file and no shipped policy; shipped: {', '.join(policy_ids())}"
        ) from None
