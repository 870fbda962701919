"""What other packages may build on. Stable under semantic versioning: names are added, none changes its meaning.

**A benchmark.** Subclass ``SingleTurn`` (one request, one judgement) or ``Suite`` and register the class under the
entry-point group ``kvv.suites``, by its ``id``. A ``dataset.toml`` beside the module describes its rows; ``dataset`` is
the suite's id; ``fixture`` there names a small set beside it. ``--data``, references, gates of a policy file and the
leaderboard then work as for a suite of ours.

**A profile.** Register a module under ``kvv.profiles``; the file ``NAME.toml`` beside it is the profile NAME.
``--profile FILE`` takes one without a package.

**An importer.** Register an ``Importer`` under ``kvv.importers``: ``kvv import NAME FILE`` calls it.

**A finished run.** ``read_run`` gives its tables as pandas data frames.
"""

from __future__ import annotations

from kvv.cases.answers import KeyEntry
from kvv.cases.suite import Column, Context, Result, Settings, SingleTurn, Suite, SuiteKind
from kvv.core import (
    Answered,
    Area,
    Ask,
    Case,
    Dataset,
    Done,
    Evidence,
    History,
    Level,
    Outcome,
    Request,
    Stat,
    Step,
    Verdict,
)
from kvv.profiles.profile import Profile, Sampling, load_profile, pick_profile
from kvv.reporting.frames import read_run
from kvv.stats.metrics import MeanTally, Metric
from kvv.storage.importers import Imported, Importer, ImportFileError, ImportOptions, RecordedSample
from kvv.storage.importers.recorded import Lines, RecordedLine, read_lines, record_answer, record_no_answer

__all__ = [
    "Answered",
    "Area",
    "Ask",
    "Case",
    "Column",
    "Context",
    "Dataset",
    "Done",
    "Evidence",
    "History",
    "ImportFileError",
    "ImportOptions",
    "Imported",
    "Importer",
    "KeyEntry",
    "Level",
    "Lines",
    "MeanTally",
    "Metric",
    "Outcome",
    "Profile",
    "RecordedLine",
    "RecordedSample",
    "Request",
    "Result",
    "Sampling",
    "Settings",
    "SingleTurn",
    "Stat",
    "Step",
    "Suite",
    "SuiteKind",
    "Verdict",
    "load_profile",
    "pick_profile",
    "read_lines",
    "read_run",
    "record_answer",
    "record_no_answer",
]
