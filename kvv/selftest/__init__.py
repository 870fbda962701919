"""The harness's own conformance test: contract suites and passive rules against the reference endpoint, clean and
faulty.
"""

from __future__ import annotations

from kvv.selftest.matrix import Matrix, MatrixRow, State
from kvv.selftest.run import run
from kvv.selftest.table import FaultTable, TableError, load_table

__all__ = ["FaultTable", "Matrix", "MatrixRow", "State", "TableError", "load_table", "run"]
