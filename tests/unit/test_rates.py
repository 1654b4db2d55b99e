"""Rates of a log against limits, and against the previous run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rankmetrics_spark.config import RATES, Quality
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.gates import Findings
from rankmetrics_spark.gates.limits import rate_checks, rates

Limits = Mapping[str, Mapping[str, float]]


def breaches(result: Findings, limits: Limits, level: str) -> list[str]:
    return [*dict.fromkeys(check.sentence for check in rate_checks(result, limits) if check.status == level)]


COUNTS = {
    "rows": 40,
    "evaluated": 32,
    "repeated": 8,
    "tied": 4,
    "lists": 10,
    "gaps": 1,
    "short": 5,
    "no_relevant": 2,
    "judged_lists": 7,
    "graded_lists": 6,
}


def test_a_rate_is_a_share_of_rows_or_of_lists() -> None:
    assert rates([COUNTS], RATES) == {
        "duplicate_rate": 8 / 40,
        "tie_rate": 4 / 32,
        "gap_rate": 1 / 10,
        "short_rate": 5 / 10,
        "no_relevant_rate": 2 / 10,
        "unjudged_rate": 3 / 10,
        "graded_rate": 6 / 10,
    }


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
        "(warning above a change of 10 %: quality.gates.tie_rate.warn_change)",
    ]
    assert [line.split(":")[0] for line in breaches(result, limits, "fail")] == ["fell"]
    assert result.as_record()["previous"] == {"run_id": "earlier", "overall": {}}
    assert "previous" not in Findings({}, now, {}).as_record()


def test_every_rate_is_a_row_with_the_limit_that_judged_it() -> None:
    limits = {"tie_rate": {"warn": 0.1, "fail": 0.5, "fail_change": 0.25}, "unjudged_rate": {"fail": 0.1}}
    now = {name: {"tie_rate": rate, "gap_rate": 0.25} for name, rate in (("low", 0.0625), ("odd", 0.25), ("bad", 0.75))}
    before = {"rates": {"low": {"tie_rate": 0.0625}, "bad": {"tie_rate": 0.25}}}
    result = rate_checks(Findings({}, now, {"shared_user_rate": 0.5}, before), limits)
    rows = {
        (check.experiment, check.name): (check.status, check.observed, check.limit, check.margin) for check in result
    }
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


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ({"tie_rates": {}}, "quality.gates: unknown rate 'tie_rates'; did you mean 'tie_rate'?"),
        ({"tie_rate": 0.5}, "quality.gates.tie_rate is 0.5; allowed: a mapping with keys out of warn, fail"),
        ({"tie_rate": {"max": 0.5}}, "quality.gates.tie_rate: unknown limit 'max'"),
        ({"tie_rate": {"warn": 5}}, "quality.gates.tie_rate.warn is 5; allowed: a number from 0 to 1"),
        ("tie_rate", "quality.gates is 'tie_rate'; allowed: a mapping with keys out of duplicate_rate, tie_rate"),
    ],
)
def test_limits_that_mean_nothing_are_refused(gates: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Quality.read({"gates": gates})
    assert str(caught.value).startswith(message)
