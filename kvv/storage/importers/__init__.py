"""Recorded results of other tools, turned into what a run of ours would have stored, to be judged under our rules."""

from __future__ import annotations

from kvv.storage.importers.beam import import_beam
from kvv.storage.importers.k2vv import import_k2vv
from kvv.storage.importers.mmmu_pro import import_mmmu_pro
from kvv.storage.importers.recorded import Imported, ImportFileError, Record

__all__ = ["ImportFileError", "Imported", "Record", "import_beam", "import_k2vv", "import_mmmu_pro"]
