"""What is printed of a run that has published, and what is printed and recorded of one that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

from rankmetrics_spark.cli.options import note, say, table_of_csv
from rankmetrics_spark.config import RATES, Config
from rankmetrics_spark.engines import Choice
from rankmetrics_spark.errors import MetricGateError, RankmetricsError, without_secrets
from rankmetrics_spark.report import (
    Shown,
    accounting,
    paths_text,
    print_csv,
    print_gates,
    print_json,
    print_not_published,
    print_result,
    print_verdict,
    result_object,
)
from rankmetrics_spark.schemas import FAIL, NOT_CHECKED

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


def print_failure(error: RankmetricsError, config: Config) -> None:
    """The numbers of a run whose gates have failed, on stderr, before the sentence of the error."""
    checks = [check.as_row() for check in error.checks if check.status != NOT_CHECKED and check.name in RATES]
    with redirect_stdout(sys.stderr):
        if isinstance(error, MetricGateError) and error.record:
            print_not_published(error.record, config.metrics)
        elif any(row["status"] == FAIL for row in checks):
            print_gates(checks, "rates of the log and their margins")
    if isinstance(error, MetricGateError) and error.page:
        say.print(f"open the page, which is not published: {without_secrets(error.page)}", soft_wrap=True)


@contextmanager
def refusals_on_record(config: Config, choice: Choice) -> Iterator[None]:
    """Write a record for a run that fails before it has a session, if this process can write it."""
    try:
        yield
    except RankmetricsError as error:
        with suppress(Exception):  # without pyspark, for one; the error itself is what matters
            from rankmetrics_spark.job import record_refusal

            record_refusal(config, choice.engine, error)
        raise
