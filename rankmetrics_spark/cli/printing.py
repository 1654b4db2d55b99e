"""What is printed of a run that has published."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rankmetrics_spark.cli.options import note, say, table_of_csv
from rankmetrics_spark.report import (
    Shown,
    accounting,
    paths_text,
    print_csv,
    print_json,
    print_result,
    print_verdict,
    result_object,
)

if TYPE_CHECKING:
    from rankmetrics_spark.job import Outcome


def print_outcome(
    outcome: Outcome, shown: Shown, style: str, segments: bool, checks: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Print the result on stdout, and on stderr what was counted and where it is."""
    tables = {"means": shown.rows, "comparisons": shown.compared, "checks": checks}
    if style == "json":
        print_json(result_object(outcome.record, tables, outcome.paths))
    elif style == "csv":
        print_csv(tables[table_of_csv(style, outcome.comparisons is not None)])
    if not say.quiet:
        print_verdict(outcome.record["verdict"], style, shown if style == "table" else None)
    if style == "table":
        print_result(shown, segments)
    # People can read the result before the report is written.
    sys.stdout.flush()
    for line in accounting(outcome.record):
        (say if line.startswith("warning: ") else note).print(line, markup=False, soft_wrap=True)
    note.print(paths_text(outcome.path, outcome.record, outcome.record_path), soft_wrap=True)
