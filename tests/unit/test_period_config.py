"""Dates that are compared as one: what a config may ask for, what is refused, and the number of a look."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankmetrics_spark.cli import main
from rankmetrics_spark.comparison import changed_settings
from rankmetrics_spark.config import Config, Days, as_dict, from_mapping
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.pointers import Compared, Entry, History, Pointer, parse
from tests.helpers.messages import messages


def config(date: str = "2026-11-21", **comparison: Any) -> Config:
    request = {"baseline": "control", **comparison}
    return from_mapping({"source": {"path": "logs"}, "evaluation_date": date, "comparison": request})


def of(settings: Config) -> tuple[str, str]:
    assert settings.comparison.period is not None
    return settings.comparison.period.first, settings.comparison.period.last


def test_a_period_ends_with_the_evaluation_date_unless_the_config_says_when() -> None:
    assert of(config(period={"from": "2026-11-08"})) == ("2026-11-08", "2026-11-21")
    assert of(config(period={"from": "2026-11-08", "to": "{date}"})) == ("2026-11-08", "2026-11-21")
    assert of(config(period={"from": "2026-11-08", "to": "2026-11-30"})) == ("2026-11-08", "2026-11-30")
    assert of(config("2026-11-08", period={"from": "2026-11-08"})) == ("2026-11-08", "2026-11-08")
    assert config().comparison.period is None
    for text in ("{from: 2026-11-08, to: '{date}'}", "{from: 2026-11-08, to: {date}}", "{from: '2026-11-08'}"):
        assert of(config(period=yaml.safe_load(text))) == ("2026-11-08", "2026-11-21")


def test_the_record_of_a_run_names_the_period_as_the_config_does() -> None:
    record = as_dict(config(period={"from": "2026-11-08"}))
    assert record["comparison"]["period"] == {"from": "2026-11-08", "to": "2026-11-21"}


@pytest.mark.outcome(
    "`comparison.period` that starts after it ends, lies before or after the day, or has no start",
    "exit 2, before anything is read: the dates and what is allowed",
)
@pytest.mark.parametrize(("period", "message"), messages("period"))
def test_a_period_that_cannot_be_is_refused_in_one_sentence(period: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(period=period)
    assert str(error.value) == message


@pytest.mark.outcome("a period from 0001-01-01 to 9999-12-31", "the dates from the first published one to the last")
def test_a_period_is_no_longer_than_what_is_published_or_ten_years() -> None:
    days = Days.of("0001-01-01", "9999-12-31", ["2026-11-08", "2026-11-10"])
    assert (days.first, days.last, days.missing) == ("2026-11-08", "2026-11-10", ("2026-11-09",))
    # 10 x 365 days and 3 of leap years; shorter ones say what they miss before and after.
    assert len(Days.of("2016-11-10", "2026-11-12", ["2026-11-08"]).missing) == 3654
    with pytest.raises(ConfigError, match=r"^dates: 0001-01-01 to 2026-11-08 has 739,928 days; allowed: up to 3,660$"):
        Days.of("0001-01-01", "9999-12-31", ["0001-01-01", "2026-11-08"])


@pytest.mark.outcome("`evaluate --from 0001-01-01 --to 9999-12-31`", "exit 2: has 3,652,059 days; allowed: up to 3,660")
def test_a_backfill_of_more_than_ten_years_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("source: {path: 'logs/{date}'}")
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", "-c", str(tmp_path / "c.yaml"), "--from", "0001-01-01", "--to", "9999-12-31"])
    said = " ".join(capsys.readouterr().err.split())
    assert said == "rankmetrics: --from and --to: 0001-01-01 to 9999-12-31 has 3,652,059 days; allowed: up to 3,660"


def test_a_period_needs_a_comparison() -> None:
    message = "comparison.period is given without comparison.baseline; allowed: both, or comparison.pairs: all"
    with pytest.raises(ConfigError, match=message):
        from_mapping({"source": {"path": "p"}, "comparison": {"period": {"from": "2026-11-08"}}})
    both = {"pairs": "all", "period": {"from": "2026-11-08"}}
    assert from_mapping({"source": {"path": "p"}, "comparison": both}).comparison.period is not None


@pytest.mark.outcome("a CUPED date that is within `comparison.period`", "exit 2: a date before the period is allowed")
def test_the_earlier_values_of_cuped_are_from_before_the_period() -> None:
    request = {"period": {"from": "2026-11-08"}}
    assert config(**request, cuped={"date": "2026-11-07"}).comparison.cuped is not None
    for date in ("2026-11-08", "2026-11-12"):
        message = f"comparison.cuped.date is '{date}'; allowed: a date before the period from 2026-11-08 on"
        with pytest.raises(ConfigError, match=message):
            config(**request, cuped={"date": date})
    with pytest.raises(ConfigError, match="allowed: a date before the evaluation date 2026-11-21"):
        config(cuped={"date": "2026-11-21"})


EVERY = ("a", "b", "c")


def pointer(date: str, *names: str, every_pair: bool = False) -> Pointer:
    """A date on which one run has compared these experiments."""
    compared = Compared(names, every_pair) if names else None
    return Pointer(date, (Entry("20261101T000000-00000000", EVERY, compared=compared),))


def looks(history: History) -> dict[str, int]:
    """The next look at each pair that was compared before."""
    pairs = {f"{first} {second}": history.get((first, second, "rr")) for first in EVERY for second in EVERY}
    return {pair: look for pair, look in pairs.items() if look > 1}


def test_a_look_counts_the_earlier_dates_on_which_a_pair_was_compared() -> None:
    days = [
        pointer("2026-11-07", "a", "b"),
        pointer("2026-11-08", *EVERY),
        pointer("2026-11-09"),
        pointer("2026-11-10", *EVERY, every_pair=True),
        pointer("2026-11-11", "a", "b"),
    ]
    known = {day.date: day for day in days}
    assert looks(History.before("2026-11-11", known)) == {"a b": 4, "a c": 3, "b c": 2}
    # A run of a day again is no further look, and what was before the period is another test.
    assert looks(History.before("2026-11-10", known, "2026-11-08")) == {"a b": 2, "a c": 2}
    assert looks(History.before("2026-11-07", known)) == {}
    # On one of these days, the runs had another metric alone; of the others, columns are not known.
    entry = replace(known["2026-11-08"].entries[0], tables={"user_metrics": {"columns": ["user_id", "ap_at_10"]}})
    known["2026-11-08"] = replace(known["2026-11-08"], entries=(entry,))
    history = History.before("2026-11-11", known)
    assert [history.get(("a", "c", metric)) for metric in ("rr", "ap@10")] == [2, 3]


def test_a_pointer_keeps_what_was_compared_with_the_experiments_that_a_run_still_holds() -> None:
    first = pointer("2026-11-08", *EVERY)
    assert parse(first.as_json()) == first
    later = first.with_run(Entry("20261102T000000-00000000", ("b",), compared=None))
    assert parse(later.as_json()) == later
    assert looks(History.before("2026-11-09", {later.date: later})) == {"a c": 2}
    # Pointers of earlier versions do not say what was compared.
    without = parse(first.as_json().replace('"compared"', '"other"'))
    assert without is not None and looks(History.before("2026-11-09", {without.date: without})) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("source.columns.relevance", "source.where", "source.first_rank", "source.list", "source.ranks"),
        *("judgements.columns.relevance", "judgements.where", "rank_by"),
    ],
)
def test_a_setting_that_changes_what_a_value_is_between_days_is_named(name: str) -> None:
    def saying(value: str) -> dict[str, Any]:
        """A config that says nothing else."""
        result: Any = value
        for part in reversed(name.split(".")):
            result = {part: result}
        return dict(result)

    days = {"2026-11-08": saying("x"), "2026-11-09": saying("x"), "2026-11-10": saying("y")}
    assert changed_settings(days) == [
        f"{name} differs between days: x on 2026-11-08, 2026-11-09, y on 2026-11-10; the period has both"
    ]
