"""How an effect develops, in sentences and on a page, and the runs that are missing."""

from dataclasses import replace
from typing import Any

import pytest

from rankmetrics_spark import config as cfg, report as rep
from tests.helpers.figures import compared, mean


def developed(kind: str, label: str, change: float, p: float = 0.5, **more: Any) -> dict[str, Any]:
    """A row of ``effect_over_time``: a difference of ``change`` to a mean of 0.5, and 0.02 to each side."""
    row = compared("b", None, change, baseline="a", **more)
    number = int(label) if kind == "days_since_first" else None
    return row | {"kind": kind, "label": label, "day_number": number, "p_value": p, "p_adjusted": p, "note": None}


def sentences(slope: dict[str, Any], whole_p: float = 0.001, whole: float = 0.05, *more: dict[str, Any]) -> list[str]:
    rows = [developed("cumulative", "2026-11-08", 0.2, 0.9), developed("cumulative", "2026-11-21", whole, whole_p),
            developed("days_since_first", "0", 0.1), developed("days_since_first", "1", 0.02), slope,
            *more]  # fmt: skip
    return [line.replace("\N{MINUS SIGN}", "-") for line in rep.sentences_over_time(rows)]


def test_an_effect_that_gets_smaller_with_the_days_of_a_user_fades() -> None:
    assert sentences(developed("slope", "per day", -0.025, 0.0123)) == [
        "The effect of b against a on MAP@10 fades with a user's days: -5.0 % per day within users "
        "(95 % interval -9.0 to -1.0 %, p = 0.012). It is +20.0 % on a user's first day."
    ]
    # A candidate that is worse by less and less.
    (line,) = sentences(developed("slope", "per day", 0.025, 0.01), 0.001, -0.05)
    assert line.startswith("The effect of b against a on MAP@10 fades with a user's days: +5.0 % per day")


def test_an_effect_that_gets_larger_grows_and_one_that_is_not_shown_is_a_difference() -> None:
    (line,) = sentences(developed("slope", "per day", 0.025, 0.01))
    assert line.startswith("The effect of b against a on MAP@10 grows with a user's days: +5.0 % per day")
    (line,) = sentences(developed("slope", "per day", 0.025, 0.01), 0.2)
    assert line.startswith("The difference between b and a on MAP@10 rises with a user's days: +5.0 % per day")
    (line,) = sentences(developed("slope", "per day", -0.025, 0.01), 0.2)
    assert line.startswith("The difference between b and a on MAP@10 falls with a user's days: -5.0 % per day")


def test_a_slope_that_chance_explains_is_no_sign() -> None:
    assert sentences(developed("slope", "per day", -0.005, 0.4)) == [
        "No sign that the effect of b against a on MAP@10 fades or grows: -1.0 % per day within users "
        "(95 % interval -5.0 to +3.0 %, p = 0.400)."
    ]
    (line,) = sentences(developed("slope", "per day", -0.005, 0.4), 0.2)
    assert line.startswith(
        "No sign that the difference between b and a on MAP@10 changes with a user's days: -1.0 % per"
    )
    unknown = developed("slope", "per day", -0.005) | {"p_adjusted": None, "note": "no slope: too few users"}
    assert sentences(unknown) == [
        "Nobody can tell yet whether the effect of b against a on MAP@10 changes with a user's days: no slope: too few "
        "users."
    ]


def test_an_effect_over_days_that_differ_is_doubted_and_not_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    doubt = {"note": "not trustworthy: b has no users on 2 of the 9 days of a"}
    slope = developed("slope", "per day", -0.025, 0.0123) | doubt
    assert sentences(slope) == [
        "The effect of b against a on MAP@10 over time is not trustworthy: b has no users on 2 of the 9 days of a."
    ]
    rows = [developed("day", "2026-11-21", 0.2, 0.9), developed("cumulative", "2026-11-21", 0.2, 0.001) | doubt]
    rep.print_over_time(cfg.Days("2026-11-21", "2026-11-21", ("2026-11-21",)), rows, "table")
    of_day, up_to = (line for line in capsys.readouterr().out.splitlines() if "2026-11-21 │" in line)
    assert "0.900" in of_day and "not trustworthy" not in of_day
    assert "not trustworthy" in up_to and "0.001" not in up_to


def test_a_slope_between_users_is_told_as_one_of_users_who_come_later(capsys: pytest.CaptureFixture[str]) -> None:
    within, later = developed("slope", "per day", -0.005, 0.4), developed("slope_between", "later", 0.025, 0.002)
    told = sentences(within, 0.001, 0.05, later)
    assert told[0].startswith("No sign that the effect of b against a on MAP@10 fades or grows: -1.0 % per day within")
    assert told[1:] == [
        "Between users, the difference between b and a on MAP@10 on their first day changes by +5.0 % per day that "
        "they come later (95 % interval +1.0 to +9.0 %, p = 0.002): others come, or the days differ; that is no "
        "effect that fades."
    ]
    for quiet in ({"p_adjusted": 0.2}, {"p_adjusted": None}, {"note": "not trustworthy: no hits"}):
        assert sentences(within, 0.001, 0.05, later | quiet) == told[:1]
    rep.print_over_time(cfg.Days("2026-11-21", "2026-11-21", ("2026-11-21",)), [within, later], "table")
    out = capsys.readouterr().out
    assert "change per day within users" in out and "between users, per day that they come later" in out


def test_users_who_differed_before_the_start_come_first() -> None:
    slope = developed("slope", "per day", -0.005, 0.4)
    same = sentences(slope, 0.001, 0.05, developed("before", "2026-11-08", 0.005, 0.6))
    assert same[0] == (
        "Before 2026-11-08, the users of b and a did not differ clearly, as it should be: +1.0 % on MAP@10 (95 % "
        "interval -3.0 to +5.0 %, p = 0.600)."
    )
    other = sentences(slope, 0.001, 0.05, developed("before", "2026-11-08", 0.05, 0.003, metric="ndcg@10"))
    assert len(other) == 2 and other[0].startswith(
        "Before 2026-11-08, the users of b and a differed already: +10.0 % on NDCG@10 (95 % interval +6.0 to +14.0 %, "
        "p = 0.003). Find the cause before you trust this effect"
    )
    doubted = developed("before", "2026-11-08", 0.005, 0.6) | {"note": "not trustworthy: ..."}
    assert [line for line in sentences(slope, 0.001, 0.05, doubted) if "as it should be" in line] == []
    # Of other metrics, only what is out of the ordinary is said.
    quiet = [developed(kind, "2026-11-08", 0.005, 0.6, metric="ndcg@10") for kind in ("before", "cumulative", "slope")]
    assert len(sentences(slope, 0.001, 0.05, *quiet)) == 1


def test_bad_days_are_those_that_failed_warned_or_are_missing() -> None:
    error = {"message": "the gate allows 0.09", "class": "MetricGateError"}
    history = [{"evaluation_date": f"2026-11-{day:02}"} for day in (8, 9, 10, 12)]
    history[1] |= {"quality": {"warnings": ["tie_rate is 31.00%"]}}
    history[2] |= {"error": error}
    rows = [developed("day", f"2026-11-{day:02}", 0.1) | {"p_adjusted": None} for day in (8, 9, 12)]
    actual = rep.payload_of(rep.Figures([mean("a"), mean("b")], rows[:1], over_time=rows, history=history))
    assert [(day["date"][-2:], day["state"], day["text"]) for day in actual["alerts"]] == [
        ("09", "warned", "tie_rate is 31.00%"),
        ("10", "failed", "the gate allows 0.09"),
        ("11", "missing", "nothing is published for this date"),
    ]
    assert actual["overTime"]["label"] == ["2026-11-08", "2026-11-09", "2026-11-12"]
    assert (actual["overTime"]["d"][0], actual["overTime"]["low"][0], actual["overTime"]["rel"][0]) == (0.1, 0.08, 0.2)


def test_failed_runs_of_newer_dates_are_named_above_the_headline() -> None:
    history: list[dict[str, Any]] = [
        {"evaluation_date": f"2026-11-{day}", "error": {"message": f"reason {day}"}} for day in range(19, 25)
    ]
    history += [{"evaluation_date": "2026-11-25"}, {"error": {"message": "refused"}}]
    shown = rep.Figures([mean("a")], record={"evaluation_date": "2026-11-20"}, history=history)
    text = "The run of 2026-11-{0} failed, so nothing newer than 2026-11-20 is shown: reason {0}"
    assert rep.newer_failures(shown) == [*map(text.format, (24, 23, 22)), "1 more run of a newer date failed."]
    assert len(rep.newer_failures(replace(shown, record={"evaluation_date": "2026-11-22"}))) == 2
    assert rep.newer_failures(rep.Figures([mean("a")], record={"evaluation_date": "2026-11-26"}, history=history)) == []


def test_the_page_says_which_looks_an_interval_up_to_a_day_holds_for() -> None:
    row = compared("b", None, 0.1, baseline="a") | {"evaluation_date": "2026-11-19", "sequential_ci_low": -0.5}
    row |= {"p_adjusted": None}
    row |= {f"sequential_{name}": 0.5 for name in ("ci_high", "relative_ci_low", "relative_ci_high")}
    of_period = row | {"period_from": "2026-11-08"}
    for given, valid in (
        (row | {"looks": None}, ""),
        (of_period | {"looks": None}, "each valid at a single look"),
        (row | {"looks": "any"}, ""),
        (of_period | {"looks": "any"}, "valid at every look"),
        (of_period | {"looks": "6 of 14, pocock"}, "valid at the look of its day"),
    ):
        payload = rep.payload_of(rep.Figures([mean("a"), mean("b")], over_time=rep.difference_rows([given])))
        assert payload["validOverTime"] == valid
        assert payload["overTime"]["low"] == [-0.5 if given["looks"] else given["ci_low"]]


def test_failed_runs_after_a_period_are_named_after_its_last_day() -> None:
    days = cfg.Days("2026-11-08", "2026-11-30", ("2026-11-08", "2026-11-21"))
    history = [{"evaluation_date": f"2026-11-{day}", "error": {"message": "why"}} for day in (20, 22)]
    shown = rep.Figures([mean("a")], record={"evaluation_date": "2026-11-08"}, history=history, days=days)
    assert rep.newer_failures(shown) == ["The run of 2026-11-22 failed, so nothing newer than 2026-11-21 is shown: why"]
