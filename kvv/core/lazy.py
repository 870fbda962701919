"""Modules that are imported when they are first used: NumPy, SciPy, jsonschema and the HTTP client take most of the
time to start, and a listing, a usage error or a plan needs none or few of them.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """Stands for the module of this name in a global name of ours; `sys.modules` holds the real one alone."""

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self.__name__), attribute)
        setattr(self, attribute, found)  # from now on found without this call
        return found


if TYPE_CHECKING:
    import jsonschema as jsonschema
    import numpy as numpy
    import referencing as referencing
else:
    jsonschema = LazyModule("jsonschema")
    numpy = LazyModule("numpy")
    referencing = LazyModule("referencing")
