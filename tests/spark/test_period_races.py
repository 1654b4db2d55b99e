"""Runs over a period while other runs publish its days: the pointer names the runs whose users were compared."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.helpers.days import DAYS, PERIOD, Log, a_log, all_at_once, numbers

ROWS = a_log(DAYS[:3])
# Half of the users of the first day were missing.
MENDED = [row for row in ROWS if row[0] != DAYS[0] or int(row[2][1:]) % 2]


def at(step: str, work: Callable[[], None]) -> Callable[[str], None]:
    """A progress that does work once, as a step begins."""
    begun: list[str] = []

    def progress(text: str) -> None:
        if text.startswith(step) and not begun:
            begun.append(text)
            work()

    return progress


@pytest.mark.outcome(
    "a day of the period that is published again while a run compares the period",
    "exit 0: the day counts with its new rows if its old ones were not read yet, else as it was; the pointer and the "
    "record name the runs of all days",
)
@pytest.mark.parametrize("step", [pytest.param("checking the rows", marks=pytest.mark.slow), "comparing over"])
def test_a_day_replaced_before_it_is_read_counts_with_new_rows(spark: SparkSession, tmp_path: Path, step: str) -> None:
    log = Log(spark, tmp_path, ROWS)
    first, second = log.run(DAYS[0]), log.run(DAYS[1])
    again: list[str] = []

    def replace_first_day() -> None:
        mended = Log(spark, tmp_path / "mended", MENDED)
        mended.out = log.out
        again.append(mended.run(DAYS[0]).run_id)

    outcome = log.run(DAYS[2], progress=at(step, replace_first_day))
    assert numbers(log.rows(DAYS[2])) == all_at_once(spark, MENDED) != all_at_once(spark, ROWS)
    runs = {DAYS[0]: again, DAYS[1]: [second.run_id]}
    assert again != [first.run_id]
    assert log.compared(DAYS[2])["runs"] == outcome.record["period"]["runs"] == runs


@pytest.mark.slow
def test_a_day_that_is_replaced_after_it_was_read_counts_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(spark, tmp_path, ROWS)
    first, second = log.run(DAYS[0]), log.run(DAYS[1])

    def replace_first_day() -> None:
        mended = Log(spark, tmp_path / "mended", MENDED)
        mended.out = log.out
        mended.run(DAYS[0])

    outcome = log.run(DAYS[2], progress=at("publishing", replace_first_day))
    assert numbers(log.rows(DAYS[2])) == all_at_once(spark, ROWS)
    # Wilcoxon's test reads the users twice, so those of the period are read before the tables are written.
    runs = {DAYS[0]: [first.run_id], DAYS[1]: [second.run_id]}
    assert log.compared(DAYS[2])["runs"] == outcome.record["period"]["runs"] == runs
    log = Log(spark, tmp_path / "gate", ROWS)
    first, second = log.run(DAYS[0]), log.run(DAYS[1])
    log.run(DAYS[2], PERIOD | {"wilcoxon": True}, progress=at("writing the tables", replace_first_day))
    result = log.rows(DAYS[2])
    assert any(row["p_wilcoxon"] for row in result.values())
    assert numbers({key: row | {"p_wilcoxon": None} for key, row in result.items()}) == all_at_once(spark, ROWS)
    assert log.compared(DAYS[2])["runs"] == {DAYS[0]: [first.run_id], DAYS[1]: [second.run_id]}


@pytest.mark.slow
def test_of_two_runs_at_once_over_one_period_the_later_day_names_the_earlier_as_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Log(spark, tmp_path, ROWS)
    first = log.run(DAYS[0])
    outcome = log.run(DAYS[2], progress=at("checking the rows", lambda: log.run(DAYS[1]) and None))
    assert numbers(log.rows(DAYS[2])) == all_at_once(spark, [row for row in ROWS if row[0] != DAYS[1]])
    assert numbers(log.rows(DAYS[1])) == all_at_once(spark, [row for row in ROWS if row[0] != DAYS[2]])
    assert log.compared(DAYS[2])["runs"] == log.compared(DAYS[1])["runs"] == {DAYS[0]: [first.run_id]}
    assert outcome.record["verdict"][-1].endswith(f"1 of 3 days is not published: {DAYS[1]}")
    # Run again, it has them all.
    log.run(DAYS[2])
    assert numbers(log.rows(DAYS[2])) == all_at_once(spark, ROWS)
    assert [*log.compared(DAYS[2])["runs"]] == [*DAYS[:2]]
