from rankmetrics_spark.gates.counts import Counts, total_counts
from rankmetrics_spark.gates.findings import Inspected
from rankmetrics_spark.gates.limits import Findings, failed_gates
from rankmetrics_spark.gates.quality import check_quality

__all__ = [
    "Counts",
    "Findings",
    "Inspected",
    "check_quality",
    "failed_gates",
    "total_counts",
]
"""Limits that a run has to keep: what was counted, what it says of the log, and the limits on rows and metrics."""
