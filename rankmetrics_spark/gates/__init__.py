"""Quality gates of a log and limits on metrics: what was counted, what it means, and what a run refuses."""

from rankmetrics_spark.gates.counts import Counts, Inspected, total_counts
from rankmetrics_spark.gates.limits import Findings, gate_checks
from rankmetrics_spark.gates.quality import Previous, check_quality

__all__ = [
    "Counts",
    "Findings",
    "Inspected",
    "Previous",
    "check_quality",
    "gate_checks",
    "total_counts",
]
