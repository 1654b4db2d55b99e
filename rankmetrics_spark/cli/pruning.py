"""``rankmetrics prune``: how long the dates of an output are kept, and in how many files."""

from __future__ import annotations

import re
from dataclasses import asdict

import click

from rankmetrics_spark.cli.exit_codes import exit_codes
from rankmetrics_spark.cli.options import FORMAT, Command, say
from rankmetrics_spark.errors import ConfigError

DAYS = {"d": 1, "w": 7}


def days_of(keep: str) -> int:
    """The days that ``--keep`` means.

    Raises:
        ConfigError: It is no number of days or weeks.

    >>> days_of("90d"), days_of("12w")
    (90, 84)
    """
    match = re.fullmatch(r"([1-9][0-9]{0,4})([dw])", keep)
    if match is None:
        raise ConfigError(f"--keep is '{keep}'; allowed: a number of days or weeks such as 90d or 12w")
    return int(match[1]) * DAYS[match[2]]


@click.command(cls=Command)
@click.option("--output", required=True, help="Output folder of the runs, with tables in Parquet.")
@click.option("--keep", help="Days up to the newest published one, such as 90d or 12w; older ones go.")
@click.option("--compact", is_flag=True, help="Merge small files of a partition; every reader sees the same rows.")
@click.option("--dry-run", "dry", is_flag=True, help="Only say what would be done.")
@FORMAT
def prune(output: str, keep: str | None, compact: bool, dry: bool, style: str) -> None:
    """Remove old dates from an output, and files that no pointer names; merge small files. Needs no engine.

    Dates that a kept comparison of several days names stay, and so does what a run is writing.
    """
    with exit_codes(say):
        if keep is None and not compact:
            raise ConfigError("nothing to do; allowed: --keep with a number of days such as 90d, --compact, or both")
        days = None if keep is None else days_of(keep)
        from rankmetrics_spark import sinks
        from rankmetrics_spark.report import LIST_PRINTERS

        rows = sinks.prune(sinks.files_of(output), output, days, dry, compact)
    if rows or style != "table":
        LIST_PRINTERS[style]([asdict(row) for row in rows])
    say.print(sinks.in_words(rows, dry), soft_wrap=True)
