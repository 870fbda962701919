"""Where data sets are kept on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kvv.data.spec import load_spec


def cache_folder() -> Path:
    """KVV_CACHE, else the platform's cache folder."""
    if chosen := os.environ.get("KVV_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "kvv" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvv"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvv"


def copy_folder(name: str, variant: str = "") -> Path:
    """Where ``pull`` puts the data set unless told otherwise, and where ``load`` looks first; each variant has its
    own.
    """
    variant = load_spec(name, variant).variant
    return cache_folder() / "datasets" / (f"{name}-{variant}" if variant else name)
