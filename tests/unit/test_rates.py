"""Rates of a log against limits, and against the previous run."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import pytest

from rankmetrics_spark.config import RATES, OfTest, Quality
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.gates import Findings, past_checks
from rankmetrics_spark.gates.limits import rate_checks, rates
from rankmetrics_spark.pointers import Entry, Pointer, parse
from tests.helpers.messages import messages

Limits = Mapping[str, Mapping[str, float]]


def breaches(result: Findings, limits: Limits, level: str) -> list[str]:
    return [*dict.fromkeys(check.sentence for check in rate_checks(result, limits) if check.status == level)]


COUNTS = {
    "rows": 40, "evaluated": 32, "repeated": 8, "tied": 4, "lists": 10, "gaps": 1, "short": 5, "no_relevant": 2,
    "judged_lists": 7, "graded_lists": 6,
}  # fmt: skip


def test_a_rate_is_a_share_of_rows_or_of_lists() -> None:
    assert rates([COUNTS], RATES) == {
        "duplicate_rate": 8 / 40, "tie_rate": 4 / 32, "gap_rate": 1 / 10, "short_rate": 5 / 10,
        "no_relevant_rate": 2 / 10, "unjudged_rate": 3 / 10, "graded_rate": 6 / 10,
    }  # fmt: skip


def test_rates_over_all_experiments_are_weighted_by_their_sizes() -> None:
    assert rates([COUNTS, COUNTS | {"lists": 30, "gaps": 9}], ["gap_rate"]) == {"gap_rate": 10 / 40}
    assert rates([COUNTS | {"lists": 0}], ["gap_rate"]) == {}


def test_a_rate_beyond_a_limit_is_named_with_its_experiment() -> None:
    limits = {"tie_rate": {"warn": 0.1, "fail": 0.5}, "gap_rate": {"fail": 0.1}, "shared_user_rate": {"warn": 0.0}}
    result = Findings({}, {"a": {"tie_rate": 0.2, "gap_rate": 0.1}, "b": {"tie_rate": 0.6}}, {"shared_user_rate": 0.25})
    assert breaches(result, limits, "warn") == [
        "a: 20 % of the rows have tied scores (warning above 10 %: quality.gates.tie_rate.warn)",
        "25 % of the users are in several experiments (warning above 0 %: quality.gates.shared_user_rate.warn)",
    ]
    assert breaches(result, limits, "fail") == [
        "b: 60 % of the rows have tied scores (refused above 50 %: quality.gates.tie_rate.fail)"
    ]


def test_a_rate_is_also_held_against_that_of_the_previous_run() -> None:
    limits = {"tie_rate": {"warn_change": 0.1, "fail_change": 0.3}}
    before = {"run_id": "earlier", "rates": {"rose": {"tie_rate": 0.1}, "fell": {"tie_rate": 0.5}}, "overall": {}}
    now = {"rose": {"tie_rate": 0.25}, "fell": {"tie_rate": 0.125}, "new": {"tie_rate": 0.9}}
    result = Findings({}, now, {"tie_rate": 0.4}, before)
    assert breaches(result, limits, "warn") == [
        "rose: 25 % of the rows have tied scores, 10 % in the previous run "
        "(warning above a change of 10 %: quality.gates.tie_rate.warn_change)"
    ]
    assert [line.split(":")[0] for line in breaches(result, limits, "fail")] == ["fell"]
    assert result.as_record()["previous"] == {"run_id": "earlier", "overall": {}}
    assert "previous" not in Findings({}, now, {}).as_record()


def test_every_rate_is_a_row_with_the_limit_that_judged_it() -> None:
    limits = {"tie_rate": {"warn": 0.1, "fail": 0.5, "fail_change": 0.25}, "unjudged_rate": {"fail": 0.1}}
    now = {name: {"tie_rate": rate, "gap_rate": 0.25} for name, rate in (("low", 0.0625), ("odd", 0.25), ("bad", 0.75))}
    before = {"rates": {"low": {"tie_rate": 0.0625}, "bad": {"tie_rate": 0.25}}}
    result = rate_checks(Findings({}, now, {"shared_user_rate": 0.5}, before), limits)
    rows = {(c.experiment, c.name): (c.status, c.observed, c.limit, c.margin) for c in result}
    assert rows["low", "tie_rate"] == ("ok", 0.0625, 0.1, pytest.approx(0.0375))
    assert rows["odd", "tie_rate"] == ("warn", 0.25, 0.1, pytest.approx(-0.15))
    assert rows["bad", "tie_rate"] == ("fail", 0.75, 0.5, -0.25)
    assert rows["low", "tie_rate_change"] == ("ok", 0.0, 0.25, 0.25)
    assert rows["odd", "tie_rate_change"] == ("not_checked", None, None, None)
    assert rows["bad", "tie_rate_change"] == ("fail", 0.5, 0.25, -0.25)
    # Without a limit there is nothing to judge, and without judgements no rate.
    assert rows["low", "gap_rate"] == ("not_checked", 0.25, None, None)
    assert rows["low", "unjudged_rate"] == ("not_checked", None, None, None)
    # A rate of the whole log has the same row in each experiment.
    assert {rows[name, "shared_user_rate"] for name in now} == {("not_checked", 0.5, None, None)}
    assert len(rows) == 3 * 5 == len(result)


@pytest.mark.parametrize(("gates", "message"), messages("limits of rates"))
def test_limits_that_mean_nothing_are_refused(gates: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Quality.read({"gates": gates})
    assert str(caught.value).startswith(message)


MONDAY = date(2026, 11, 2)
WEEK = (100, 110, 90, 105, 95, 40, 20)
"""Rows of each day of a week; half as many users."""


def past(numbers: Mapping[int, int], now: int, at: int, **gates: Any) -> list[tuple[str, str, str]]:
    """Name, status and sentence of what a day ``at`` days after a Monday is held against, where days had such rows."""
    pointers = {}
    for day, rows in numbers.items():
        entries = (Entry("r", ("a",), log={"a": (rows, rows // 2)}), Entry("other", ("x",), log={"x": (10**6, 1)}))
        pointer = Pointer(f"{MONDAY + timedelta(days=day)}", entries)
        assert parse(pointer.as_json()) == pointer
        pointers[pointer.date] = pointer
    counts = {"a": {"rows": now, "no_experiment": 0}}
    found = past_checks(counts, {"a": now // 2}, f"{MONDAY + timedelta(days=at)}", pointers, Quality(gates=gates))
    return [(check.name, check.status, check.sentence) for check in found if check.name == "rows_change"]


def test_the_rows_of_a_new_test_are_no_growth_of_the_log() -> None:
    days = [f"{MONDAY + timedelta(days=at)}" for at in range(4)]
    pointers = {day: Pointer(day, (Entry("r", ("s:a",), log={"s:a": (100, 50)}),)) for day in days[:3]}
    counts = {name: {"rows": 100, "no_experiment": 0} for name in ("s:a", "t:a")}

    def texts(tests: Mapping[str, OfTest] | None, name: str = "rows_change") -> set[str]:
        checks = past_checks(counts, dict.fromkeys(counts, 50), days[3], pointers, Quality(), tests)
        return {check.sentence for check in checks if check.name == name}

    median = "the median of the last 3 published days (100)"
    assert texts({}) == {f"100 rows of the arms of all these days, as many as {median}"}
    assert texts(None) == {
        f"200 rows of the log, 100 % more than {median} (warning from 40 % on: quality.gates.rows.warn_change)"
    }
    # An arm that was away on one of the days says nothing of the log.
    pointers[days[1]] = Pointer(days[1], (Entry("r", ("t:a",), log={"t:a": (100, 50)}),))
    assert texts({}) == {"no arm of the log is in all of the last 3 published days"}
    # A test that is over is not missing.
    both, _ = Entry("r", tuple(counts), log=dict.fromkeys(counts, (100, 50))), counts.pop("s:a")
    pointers = {day: Pointer(day, (both,)) for day in days[:3]}
    missing = [texts({"s": OfTest(last=last)}, "experiments_missing").pop()[:5] for last in days[2:]]
    assert missing == ["every", "s:a o"]  # experiment is in the log; of the last 3 days is missing


def test_a_day_is_held_against_the_median_of_its_weekday_or_of_the_last_days() -> None:
    # Three days, one of them odd: their median is 100. Runs of other experiments, and later days, are not read.
    assert past({0: 100, 1: 900, 2: 90, 9: 5}, 60, 3) == [
        ("rows_change", "warn", "60 rows of the log, 40 % fewer than the median of the last 3 published days (100) "
         "(warning from 40 % on: quality.gates.rows.warn_change)"),
    ]  # fmt: skip
    assert [row[1] for row in past({0: 100, 1: 900, 2: 90}, 61, 3)] == ["ok"]
    assert past({0: 100, 1: 900}, 61, 3) == [] == past({0: 100, 1: 900, 2: 90}, 1, 3, rows={})
    # Three weeks with quiet weekends: a Sunday is held against Sundays, and twice as many rows are odd as well.
    weeks = {7 * week + day: n for week in range(3) for day, n in enumerate(WEEK)}
    ((_, status, text),) = past(weeks, 21, 27)
    assert (status, text) == ("ok", "21 rows of the log, 5 % more than the median of the last 3 published Sundays (20)")
    ((_, status, text),) = past(weeks, 60, 27, rows={"fail_change": 2})
    assert (status, text.partition(" (refused")[2]) == ("fail", " from 200 % on: quality.gates.rows.fail_change)")
    # Seven days: 20, 40, 90, 95, 100, 105, 110.
    ((_, status, text),) = past(dict(enumerate(WEEK)), 95, 7)
    assert (status, text) == ("ok", "95 rows of the log, as many as the median of the last 7 published days (95)")
