"""Statistics of a verdict: intervals, paired tests, looks, power. Pure; a numpy Generator is passed in where one is
needed.
"""

from __future__ import annotations

from kvv.stats.confirmed import repeated_alarm
from kvv.stats.f1 import Confusion, NullF1, mean_f1, official_null
from kvv.stats.interval import (
    ClusteredMean,
    ClusterSum,
    Interval,
    clopper_pearson,
    clustered_mean,
    exact_lower,
    exact_upper,
    normal_quantile,
    t_quantile,
    wilson,
)
from kvv.stats.many import benjamini_hochberg
from kvv.stats.paired import (
    Difference,
    PairedCase,
    bca_interval,
    mcnemar_exact,
    mcnemar_midp,
    paired_difference,
    tango_interval,
    tango_limits,
    tango_p,
    tango_z,
)
from kvv.stats.passk import avg_at_k, pass_at_k, pass_hat_k
from kvv.stats.power import (
    Design,
    all_pass_probability,
    binary_design,
    detectable,
    fail_probability,
    failing_difference,
    more_samples,
    pass_probability,
    required_n,
    seen_probability,
    visible_loss,
)
from kvv.stats.sequential import (
    LookChance,
    bound_confidence,
    crossing_probability,
    equal_looks,
    look_chances,
    obrien_fleming,
)

__all__ = [
    "ClusterSum",
    "ClusteredMean",
    "Confusion",
    "Design",
    "Difference",
    "Interval",
    "LookChance",
    "NullF1",
    "PairedCase",
    "all_pass_probability",
    "avg_at_k",
    "bca_interval",
    "benjamini_hochberg",
    "binary_design",
    "bound_confidence",
    "clopper_pearson",
    "clustered_mean",
    "crossing_probability",
    "detectable",
    "equal_looks",
    "exact_lower",
    "exact_upper",
    "fail_probability",
    "failing_difference",
    "look_chances",
    "mcnemar_exact",
    "mcnemar_midp",
    "mean_f1",
    "more_samples",
    "normal_quantile",
    "obrien_fleming",
    "official_null",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "pass_probability",
    "repeated_alarm",
    "required_n",
    "seen_probability",
    "t_quantile",
    "tango_interval",
    "tango_limits",
    "tango_p",
    "tango_z",
    "visible_loss",
    "wilson",
]
