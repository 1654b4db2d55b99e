"""What is printed and recorded of a run that fails, before its one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress

from rankmetrics_spark.cli.options import say
from rankmetrics_spark.config import RATES, Config
from rankmetrics_spark.engines import Choice
from rankmetrics_spark.errors import MetricGateError, RankmetricsError, without_secrets
from rankmetrics_spark.report import print_gates, print_not_published
from rankmetrics_spark.schemas import FAIL, NOT_CHECKED


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
