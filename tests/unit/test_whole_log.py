"""A run that evaluates every day of a log under the date of one says so."""

import pytest

from rankmetrics_spark.config import Source
from rankmetrics_spark.sources import at_midnight, whole_log
from tests.helpers.messages import json_cases

DATE = "2026-11-20"


def note(schema: dict[str, str], **source: object) -> list[str]:
    types = pytest.importorskip("pyspark.sql.types")
    kinds = {"date": types.DateType(), "time": types.TimestampType(), "text": types.StringType()}
    fields = [types.StructField(name, kinds[kind]) for name, kind in schema.items()]
    return whole_log(Source(**{"path": "logs"} | source), types.StructType(fields), DATE)  # type: ignore[arg-type]


@pytest.mark.parametrize(("schema", "named"), json_cases("a dated log without a filter is reported"))
def test_a_dated_log_without_a_filter_is_reported(schema: dict[str, str], named: str) -> None:
    (result,) = note(schema)
    assert result == (
        f"no filter selects a day: every row of the log counts as {DATE}, whatever its "
        f"'{named.removeprefix('to_date(').strip('`)')}' is; one day: source.where: \"{named} = '{{date}}'\"; "
        'all on purpose: source.where: "true"'
    )
    # What the sentence proposes is a filter that a config may hold.
    assert note(schema, where=f"{named} = '{{date}}'") == note(schema, where="true") == []


def test_a_log_by_year_month_and_day_is_filtered_by_all_three() -> None:
    parts = {name: "text" for name in ("Year", "month", "day")}
    where = "`Year` = year('{date}') AND `month` = month('{date}') AND `day` = day('{date}')"
    assert f'one day: source.where: "{where}"; all' in "".join(note(parts))
    assert "source.where: \"`at` = '{date}'\"" in "".join(note({**parts, "at": "date"}))
    assert note(parts, where=where) == []


def test_nothing_is_reported_where_something_selects_the_day_or_there_is_none() -> None:
    dated = {"user_id": "text", "event_date": "date"}
    assert note(dated, path=f"logs/event_date={DATE}") == []
    assert note(dated, path=["logs/a", f"logs/{DATE}/*"]) == []
    assert note(dated, where="surface = 'search'") == []
    # A date that is the name of a user is no day of the log.
    assert note({"dt": "text", "item": "text"}, columns={"user": "dt"}) == []
    assert note({"user_id": "text", "updated": "text"}) == []


def midnights(where: str) -> list[str]:
    types = pytest.importorskip("pyspark.sql.types")
    fields = [types.StructField("At", types.TimestampType()), types.StructField("day", types.DateType())]
    return at_midnight(Source(path=("logs",), where=where), types.StructType(fields))


@pytest.mark.parametrize(("where", "compared"), json_cases("a time that is compared with a day gets a note"))
@pytest.mark.outcome("compares a time with a bare day: {where}", "a note: it is about midnight alone, with `to_date`")
def test_a_time_that_is_compared_with_a_day_gets_a_note(where: str, compared: str) -> None:
    operator, _, day = compared.partition(" ")
    assert midnights(where) == [
        f"source.where compares the time `At` with {day} by {operator}, which is about midnight alone; for the whole "
        "day compare to_date(`At`)"
    ]


@pytest.mark.parametrize("where", json_cases("a filter that parts the log between days gets none"))
def test_a_filter_that_parts_the_log_between_days_gets_none(where: str) -> None:
    assert midnights(where) == []
