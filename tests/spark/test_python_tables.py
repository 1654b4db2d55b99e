"""Tables of Python instead of DataFrames of Spark: the same values, on the session that is there."""

import datetime
import inspect
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import (
    changed,
    coec_judgements,
    compare,
    compare_conventions,
    effect_over_time,
    evaluate,
    exposure,
    interleaving,
    off_policy,
    plan,
    propensities,
    unjudged,
)
from rankmetrics_spark.engines import is_laptop, spark_table
from rankmetrics_spark.errors import ConfigError, InputError, RankmetricsError
from tests.helpers.logs import SCHEMA, Shown, a_list, impressions
from tests.helpers.messages import slow
from tests.helpers.packages import HALF_FLOATS

LOG = [
    *a_list([0, 1, 0], "u", "a"),
    *a_list([1, 0, 0], "u", "b"),
    *a_list([0, 0, 1], "v", "a"),
    *a_list([1, 0, 1], "v", "b"),
]
# By the definition: the mean over the relevant ranks of the share of relevant items up to there.
AP = {("a", "u"): 1 / 2, ("b", "u"): 1.0, ("a", "v"): 1 / 3, ("b", "v"): (1 + 2 / 3) / 2}


def dicts() -> list[dict[str, Any]]:
    return [row._asdict() for row in LOG]


def polars_of(rows: list[dict[str, Any]]) -> Any:
    import polars

    return polars.DataFrame(rows)


TABLES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": lambda rows: rows,
    "pandas": pd.DataFrame,
    "pyarrow": pa.Table.from_pylist,
    "batch": pa.RecordBatch.from_pylist,
}
if find_spec("polars"):  # an environment with the oldest libraries has none
    TABLES |= {"polars": polars_of, "lazy polars": lambda rows: polars_of(rows).lazy()}


def values(rows: pd.DataFrame, name: str = "ap_at_3") -> dict[tuple[str, str], float]:
    return {(row.experiment_id, row.user_id): getattr(row, name) for row in rows.itertuples()}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_of_python_has_the_values_of_the_definition(spark: SparkSession, kind: str) -> None:
    result = evaluate(TABLES[kind](dicts()), metrics="ap@3", baseline="a")
    assert result.user_metrics.sparkSession is spark
    assert values(result.to_pandas("user_metrics")) == pytest.approx(AP, rel=1e-15)
    (row,) = result.comparisons.where("metric = 'ap@3'").take(1)
    assert row.difference == pytest.approx((1 - 1 / 2 + (1 + 2 / 3) / 2 - 1 / 3) / 2, rel=1e-14)


def test_one_table_of_spark_decides_the_session_of_both(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    log = impressions(spark, LOG, SCHEMA)
    qrels = pd.DataFrame({"user_id": ["u", "v"], "item_id": ["i3", "i1"], "relevance": [1, 1]})
    # AP with one relevant item is 1 / its rank.
    expected = {("a", "u"): 1 / 3, ("b", "u"): 1 / 3, ("a", "v"): 1.0, ("b", "v"): 1.0}
    columns = {"relevance": None}

    def no_session() -> None:
        raise AssertionError("a session is looked for, although a table has one")

    monkeypatch.setattr("rankmetrics_spark.engines.choice.session_in_use", no_session)
    result = evaluate(log, "ap@3", qrels, columns=columns)
    assert values(result.to_pandas("user_metrics")) == pytest.approx(expected, rel=1e-15)
    shown = pd.DataFrame(LOG)
    result = evaluate(shown, "ap@3", spark_table(qrels, "judgements", log), columns=columns)
    assert values(result.to_pandas("user_metrics")) == pytest.approx(expected, rel=1e-15)
    earlier = pd.DataFrame({"experiment_id": ["a"], "user_id": ["u"], "ap_at_3": [0.5]})
    users = evaluate(log, "ap@3").user_metrics
    assert compare(users, "a", before=earlier).count() == 1


def test_written_rows_are_compared_out_of_python(spark: SparkSession) -> None:
    users = evaluate(impressions(spark, LOG, SCHEMA), "ap@3").to_pandas("user_metrics")
    (row,) = compare(users, "a").take(1)
    assert (row.experiment_id, row.n_users) == ("b", 2)
    assert row.mean_candidate == pytest.approx((1 + (1 + 2 / 3) / 2) / 2, rel=1e-15)
    names = {line["experiment_id"] for line in compare_conventions(pd.DataFrame(LOG), options={"metrics": "ap@3"})}
    assert names == {"a", "b"}
    # Every item was shown with certainty: the weighted mean is the mean.
    weighted = off_policy(pd.DataFrame(LOG).assign(propensity=1.0), "ap@3", estimators="ips", least_effective=0)
    assert {row.experiment_id: row.value for row in weighted.collect()} == pytest.approx(
        {"a": (1 / 2 + 1 / 3) / 2, "b": (1 + (1 + 2 / 3) / 2) / 2}, rel=1e-14
    )


def test_types_that_no_engine_has_become_their_plain_kin(spark: SparkSession) -> None:
    table = pa.table(
        {
            "experiment_id": pa.array(["a", None]).dictionary_encode(),
            "user_id": pa.array([1, 2**31], pa.uint32()),
            "item_id": pa.array(["x", "y"], pa.large_string()),
            "position": pa.array([1, 2], pa.uint8()),
            "relevance": pa.array(np.array([0.5, float("nan")], "float16" if HALF_FLOATS else "float32")),
            "at": pa.array([0, 1_000], pa.timestamp("ns")),
            "nothing": pa.nulls(2),
            "day": pa.array([datetime.date(2026, 11, 20), None], pa.date64()),
            "wide": pa.array([Decimal("1.25"), Decimal("-3.50")], pa.decimal256(40, 2)),
        }
    )
    _, (*types, _, of_nothing, of_day, of_wide) = zip(*spark_table(table, "impressions").dtypes, strict=True)
    assert types == ["string", "bigint", "string", "smallint", "float"]
    assert (of_nothing, of_day, of_wide) == ("double", "date", "decimal(38,2)")
    first, second = spark_table(table, "impressions").orderBy("position").collect()
    assert (first.experiment_id, first.user_id, first.relevance, first.nothing) == ("a", 1, 0.5, None)
    assert (second.experiment_id, second.user_id, str(second.relevance)) == (None, 2**31, "nan")
    assert (first.day, second.wide) == (datetime.date(2026, 11, 20), Decimal("-3.50"))
    digits = table.set_column(table.num_columns - 1, "wide", pa.array([Decimal(10**37), None], pa.decimal256(40, 2)))
    with pytest.raises(ConfigError, match=r"column 'wide' has values that no engine takes: .*; allowed: text"):
        spark_table(digits, "impressions")
    assert second.at.replace(tzinfo=None) == datetime.datetime(1970, 1, 1, 0, 0, 0, 1)


def test_a_missing_value_of_pandas_is_null(spark: SparkSession) -> None:
    table = pd.DataFrame({"a": [1.5, np.nan], "b": pd.Series([1, None], dtype="Int64"), "c": ["x", None]})
    rows = {tuple(row) for row in spark_table(table, "impressions").collect()}
    assert rows == {(1.5, 1, "x"), (None, None, None)}


def test_a_row_may_lack_a_key(spark: SparkSession) -> None:
    rows = [{"user_id": "u"}, {"user_id": "v", "country": "DE"}]
    assert {tuple(row) for row in spark_table(rows, "impressions").collect()} == {("u", None), ("v", "DE")}


MIXED = pd.DataFrame({"user_id": ["u", 1]})
SEVERAL = "impressions: column 'user_id' has values of several types (int, str); allowed: one type per column"
TAKES = "impressions: column 'at' has values that no engine takes:"
NO_ROWS = "impressions has no rows, and its column 'user_id' has no type; allowed: a"
CLOCK = pa.table({"at": pa.array([datetime.time(1)], pa.time64("us"))})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (MIXED, SEVERAL),
        (MIXED.to_dict("records"), SEVERAL),
        (pd.DataFrame([["u", "v"]], columns=["user_id", "user_id"]), "several columns named 'user_id'; allowed: each"),
        (pd.DataFrame(index=[1]), "impressions is a table without columns"),
        (pd.DataFrame(columns=["user_id"]), NO_ROWS),
        ([], "impressions is a list without rows; allowed: a DataFrame"),
        (({"user_id"},), "impressions is a tuple without dicts; allowed: a DataFrame"),
        (pd.Series(["u"]), "impressions is a pandas.core.series.Series; allowed: a DataFrame"),
        (pa.table({"at": pa.array([2**64 - 1], pa.uint64())}), f"{TAKES} Integer value {2**64 - 1} not in range"),
        (CLOCK, f"{TAKES} they have the type time64[us]; allowed: text"),
        (pd.DataFrame({"at": [pd.Period("2026-01")]}), f"{TAKES} they"),
    ],
)
def test_what_is_no_table_of_one_type_per_column_is_refused(spark: SparkSession, table: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        spark_table(table, "impressions")
    assert "\n" not in str(caught.value)


def test_a_column_that_nobody_reads_may_hold_anything(spark: SparkSession) -> None:
    log = pd.DataFrame(LOG).assign(
        mixed=["x", 1, None, b"1", *[{}] * 8], month=pd.Period("2026-01"), clock=datetime.time(1)
    )
    assert values(evaluate(log, "ap@3").to_pandas("user_metrics")) == pytest.approx(AP, rel=1e-15)
    with pytest.raises(ConfigError, match="impressions: column 'clock' has values that no engine takes"):
        evaluate(log, "ap@3", segments="clock")
    # A user's value is needed by each name that its role may have.
    with pytest.raises(ConfigError, match=r"column 'user_id' has values of several types \(int, str\)"):
        evaluate(log.assign(user_id=["u", *[1] * 11]), "ap@3")
    weighted = log.assign(propensity=1.0)
    assert off_policy(weighted, "ap@3", estimators="ips", least_effective=0).count() == 2


PANDAS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "categories": lambda t: t.astype(dict.fromkeys(("experiment_id", "user_id", "item_id", "relevance"), "category")),
    "nullable types": lambda log: log.convert_dtypes(),
    "text of Arrow": lambda log: log.astype({"user_id": "string[pyarrow]", "item_id": "string"}),
    "objects": lambda log: log.astype(object),
    "booleans": lambda log: log.assign(relevance=log.relevance.astype("boolean")),
    "decimals": lambda log: log.assign(relevance=[Decimal(grade) for grade in log.relevance]),
    "sparse": lambda log: log.assign(relevance=pd.arrays.SparseArray(log.relevance)),
    "times with a zone": lambda log: log.assign(at=pd.Timestamp("2026-11-20", tz="Europe/Berlin")),
    "durations": lambda log: log.assign(took=pd.Timedelta("1s1500ns")),
    "an index that was cut": lambda log: pd.concat([log, log])[: len(log)],
    "a named index": lambda log: log.set_index("user_id"),
    "several named indexes": lambda log: log.set_index(["experiment_id", "user_id"]),
    "an index with the name of a column": lambda log: log.rename_axis("user_id"),
}
if "dtype_backend" in inspect.signature(pd.DataFrame.convert_dtypes).parameters:  # from pandas 2 on
    PANDAS["types of Arrow"] = lambda log: log.convert_dtypes(dtype_backend="pyarrow")
if "na_value" in inspect.signature(pd.StringDtype).parameters:  # the text of pandas 3, as pandas 2.3 has it
    PANDAS |= {
        "text of pandas 3": lambda t: t.astype(dict.fromkeys(("user_id", "item_id"), pd.StringDtype(na_value=np.nan)))
    }


USUAL = ("categories", "nullable types", "text of Arrow", "decimals", "a named index", "types of Arrow")


@pytest.mark.parametrize("kind", [kind if kind in USUAL else slow(kind) for kind in PANDAS])
def test_whatever_pandas_calls_its_types_the_values_are_those_of_the_definition(spark: SparkSession, kind: str) -> None:
    result = evaluate(PANDAS[kind](pd.DataFrame(LOG)), metrics="ap@3")
    assert values(result.to_pandas("user_metrics")) == pytest.approx(AP, rel=1e-15)


@pytest.mark.skipif(find_spec("polars") is None, reason="the environment with the oldest libraries has no polars")
def test_whatever_polars_calls_its_types_the_values_are_those_of_the_definition(spark: SparkSession) -> None:
    import polars as pl

    log = pl.DataFrame(dicts()).with_columns(
        pl.col("experiment_id").cast(pl.Categorical),
        pl.col("item_id").cast(pl.Enum(["i1", "i2", "i3"])),
        pl.col("position").cast(pl.UInt8),
        pl.col("relevance").cast(pl.Decimal(10, 2)),
        words=pl.lit(["a", "b"]),
        pair=pl.Series([[1, 2]] * len(LOG), dtype=pl.Array(pl.Int64, 2)),
        both=pl.struct("item_id", "position"),
        clock=pl.lit(datetime.time(1)),
        day=pl.lit(datetime.date(2026, 11, 20)),
        nothing=pl.lit(None),
    )
    result = evaluate(log, "ap@3", segments="day")
    assert values(result.to_pandas("user_metrics")) == pytest.approx(AP, rel=1e-15)
    assert {*result.to_polars()["segment"]} == {"all", "day=2026-11-20"}


def knows_uuids() -> bool:
    """Whether this PyArrow has a type for them."""
    try:
        return bool(pa.array([uuid.UUID(int=7)]))
    except pa.ArrowInvalid:
        return False


def test_an_id_is_the_same_to_the_last_digit_and_with_its_zeros(spark: SparkSession) -> None:
    log = pd.DataFrame(LOG).assign(experiment_id="007", item_id=["i1", "i2", "i3"] * 4)
    log["user_id"] = [2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3] * 3
    result = evaluate(log, "p@3").to_pandas("user_metrics")
    assert {*result.experiment_id} == {"007"}
    assert [*map(int, result.user_id)] == [2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3]
    made = uuid.UUID(int=7)
    by_uuid = [row | {"user_id": made} for row in dicts()]
    if knows_uuids():
        assert evaluate(by_uuid, "p@3").to_pandas("user_metrics").user_id[0] == str(made)
    else:
        with pytest.raises(ConfigError, match=r"^impressions: column 'user_id' has values that no engine takes"):
            evaluate(by_uuid, "p@3")
    # A number that may be another one is no id.
    rough = evaluate(log.assign(user_id=float(2**53)), "p@3")
    assert {*rough.to_pandas("quarantine").reason} == {"inexact_user"}


@pytest.mark.parametrize("role", ["relevance", *(slow(each) for each in ("user_id", "position", "item_id"))])
def test_a_missing_value_leaves_its_row_out_with_a_reason(spark: SparkSession, role: str) -> None:
    log = pd.DataFrame(LOG).astype({role: object})
    log.loc[0, role] = None
    reason = f"null_{role.removesuffix('_id')}"
    assert [*evaluate(log, "ap@3").to_pandas("quarantine").reason] == [reason]
    # A column without a value has no type either.
    nothing = evaluate(pd.DataFrame(LOG).assign(**{role: None}), "ap@3")
    assert {*nothing.to_pandas("quarantine").reason} == {reason}
    numbers = pa.Table.from_pandas(pd.DataFrame(LOG).assign(relevance=[np.nan] + [1.0] * 11), preserve_index=False)
    assert [*evaluate(numbers, "ap@3").to_pandas("quarantine").reason] == ["null_relevance"]


def test_a_table_without_rows_gives_tables_without_rows(spark: SparkSession) -> None:
    empty = pa.Table.from_pylist(dicts())[:0]
    result = evaluate(empty, "ap@3")
    assert (len(result.to_pandas("user_metrics")), len(result.to_pandas())) == (0, 0)


def test_what_is_compared_or_weighted_becomes_a_table_of_python(spark: SparkSession) -> None:
    users = evaluate(pd.DataFrame(LOG), "ap@3").to_pandas("user_metrics")
    compared = compare(users, "a")
    difference = (1 + (1 + 2 / 3) / 2) / 2 - (1 / 2 + 1 / 3) / 2
    assert [*compared.to_pandas().difference] == pytest.approx([difference], rel=1e-14)
    assert {"to_pandas", "to_polars", "where"} <= {*dir(compared)}
    assert [*compared.where("metric = 'ap@3'").toPandas().n_users] == [2]
    weighted = off_policy(pd.DataFrame(LOG).assign(propensity=1.0), "ap@3", estimators="ips", least_effective=0)
    assert {*weighted.to_pandas().experiment_id} == {"a", "b"}
    if find_spec("polars"):
        assert compared.to_polars()["difference"].to_list() == pytest.approx([difference], rel=1e-14)


def test_a_large_table_reaches_the_laptop_engine_as_a_file(spark: SparkSession) -> None:
    lists, length = 20_000, 10
    table = pa.table(
        {
            "experiment_id": pa.array(["a"] * lists * length),
            "user_id": np.repeat(np.arange(lists), length),
            "item_id": np.tile(np.arange(length), lists),
            "position": np.tile(np.arange(1, length + 1), lists),
            "relevance": np.tile([0] * (length - 1) + [1], lists),
        }
    )
    rows = spark_table(table, "impressions")
    assert bool(rows.inputFiles()) == is_laptop(spark)
    result = evaluate(table, "ap@10").to_pandas()
    assert (result.n_users[0], result["mean"][0]) == (lists, pytest.approx(1 / length, rel=1e-15))


def test_a_table_is_sorted_by_its_keys_and_known_by_name(spark: SparkSession) -> None:
    result = evaluate(pd.DataFrame(LOG[::-1]), metrics=["ndcg@3", "ap@3"])
    users = result.to_pandas("user_metrics")
    assert [*zip(users.experiment_id, users.user_id, strict=True)] == sorted(AP)
    assert [*result.to_pandas().metric] == ["ap@3", "ndcg@3"] * 2
    if find_spec("polars"):
        assert result.to_polars("user_metrics")["user_id"].to_list() == [*users.user_id]
    with pytest.raises(ConfigError, match="table: unknown value 'users'; did you mean 'user_metrics'"):
        result.to_pandas("users")  # type: ignore[arg-type]


def test_a_frame_keeps_the_order_of_columns(spark: SparkSession, tmp_path: Path) -> None:
    assert spark_table(pd.DataFrame(LOG), "impressions").columns == list(Shown._fields)


def log_of_all() -> list[dict[str, Any]]:
    """A log that every function reads: two users of two experiments, with what each needs beside the ranks."""
    lists = (("a", "u", 1), ("a", "v", 2), ("b", "u", 2), ("b", "v", 0))
    return [
        Shown(name, user, item, rank, int(rank == hit))._asdict()
        | {"query": "q", "score": 1 / rank, "propensity": 0.5, "team": ("x", "y")[(rank + len(user)) % 2]}
        for name, user, hit in lists
        for rank, item in enumerate("ij" if name == "a" else "ji", 1)
    ]


USERS = [
    {"experiment_id": name, "user_id": f"u{at}", "evaluation_date": day, "rr": at / 4}
    | {"n_lists": 1, "n_relevant": 1, "convention_hash": "c"}
    for day in ("2026-11-20", "2026-11-21")
    for name, at in (("a", 1), ("a", 2), ("b", 3), ("b", 4))
]
JUDGED = [{"user_id": user, "item_id": "i", "relevance": 1} for user in "uv"]


SHOWN = [{"experiment_id": "a", "user_id": "u", "item_id": "x", "position": 1, "at": 1_795_175_999}]
ASSIGNED = [{"user_id": f"u{n}", "item_id": "x", "position": 1, "relevance": 1} for n in range(3)]
READS: dict[str, tuple[list[dict[str, Any]], Callable[[Any], Any]]] = {
    "evaluate": (log_of_all(), lambda t: evaluate(t, "rr", baseline="a").comparisons),
    "evaluate by score": (log_of_all(), lambda t: evaluate(t, "rr", rank_by="score").user_metrics),
    "judgements": (JUDGED, lambda t: evaluate(log_of_all(), "rr", t).user_metrics),
    "events": (
        [{"user_id": "u", "item_id": "x", "time": 1_795_176_000}] * 3,
        lambda t: evaluate(SHOWN, "rr", events=t, columns={"time": "at"}).user_metrics,
    ),
    "assignments": (
        [{"arm": "a", "user_id": f"u{n}"} for n in range(3)],
        lambda t: evaluate(ASSIGNED, "rr", assignments=t).user_metrics,
    ),
    "compare": (USERS[:4], lambda t: compare(t, "a")),
    "compare with an earlier date": (USERS[4:], lambda t: compare(USERS[:4], "a", before=t)),
    "effect_over_time": (USERS, lambda t: effect_over_time(t, "a")),
    "plan": (USERS, lambda t: plan(t, "rr", days=4)),
    "compare_conventions": (log_of_all(), lambda t: compare_conventions(t, options={"metrics": "rr"})),
    "changed": (log_of_all(), lambda t: changed(t, "a")),
    "changed by score": (log_of_all(), lambda t: changed(t, "a", rank_by="score")),
    "exposure": (log_of_all(), lambda t: exposure(t, replicates=100)),
    "exposure of a catalogue": (JUDGED, lambda t: exposure(log_of_all(), replicates=100, catalogue=t)),
    "exposure beside interactions": (JUDGED, lambda t: exposure(log_of_all(), replicates=100, interactions=t)),
    "interleaving": (log_of_all()[:4], interleaving),
    "off_policy": (log_of_all(), lambda t: off_policy(t, "p@2", propensity="propensity", estimators="ips")),
    "off_policy with propensities": (
        [{"rank": rank, "propensity": 1 / rank} for rank in (1, 2)],
        lambda t: off_policy([{**row, "propensity": None} for row in log_of_all()], "p@2", propensities=t),
    ),
    "propensities": (log_of_all(), lambda t: propensities(t, ["query", "item_id"], k=2, replicates=100)),
    "coec_judgements": (log_of_all(), lambda t: coec_judgements(t, min_impressions=1)),
    "unjudged": (log_of_all(), lambda t: unjudged(t, JUDGED, ["p@2"], baseline="a").means),
    "judgements of unjudged": (JUDGED, lambda t: unjudged(log_of_all(), t, ["p@2"], baseline="a").means),
}


def rows_of(result: Any) -> list[str]:
    """The rows of a result, in an order of their own; NaN is equal to NaN."""
    rows = result.collect() if hasattr(result, "collect") else result if isinstance(result, list) else [result]
    return sorted(map(repr, rows))


QUICK = ("evaluate", "judgements", "compare with an earlier date", "exposure of a catalogue", "unjudged")


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in READS])
def test_empty_chunks_of_a_table_change_nothing(spark: SparkSession, name: str) -> None:
    rows, read = READS[name]
    whole = pa.Table.from_pylist(rows)
    expected, cut = rows_of(read(whole)), len(rows) // 2
    assert expected
    # As a filtered data set of PyArrow gives them: the first, one in the middle, and the last.
    table = pa.concat_tables([whole[:0], whole[:cut], whole[:0], whole[cut:], whole[:0]])
    assert table.column(0).num_chunks == 5
    assert rows_of(read(table)) == expected


def of_unjudged(name: str) -> Any:
    return getattr(unjudged(log_of_all(), JUDGED, ["p@2"], baseline="nobody"), name)


FROM_0 = [{**row, "position": row["position"] - 1} for row in log_of_all()]
NOBODY = "unknown experiment 'nobody'; known: a, b"
# Two of the eight rows of the log are at rank 0, and so is one of each list.
RANKS = "rows have a rank below 1, and there are"
LATE: dict[str, tuple[Callable[[], Any], type[RankmetricsError], str]] = {
    "comparisons": (lambda: evaluate(log_of_all(), "rr", baseline="nobody").comparisons, ConfigError, NOBODY),
    "sorted": (lambda: evaluate(log_of_all(), "rr", baseline="nobody").to_pandas("comparisons"), ConfigError, NOBODY),
    "compare": (lambda: compare(USERS[:4], "nobody"), ConfigError, NOBODY),
    "rows of it": (lambda: compare(USERS[:4], "nobody").where("p_value < 1").select("metric"), ConfigError, NOBODY),
    "compare of two dates": (lambda: compare(USERS, "a"), InputError, "dates"),
    "effect_over_time": (lambda: effect_over_time(USERS, "nobody"), ConfigError, NOBODY),
    "changed": (lambda: changed(log_of_all(), "nobody"), ConfigError, NOBODY),
    "changed from rank 0": (lambda: changed(FROM_0, "a"), InputError, RANKS),
    "exposure": (lambda: exposure(log_of_all(), baseline="nobody"), ConfigError, NOBODY),
    "exposure from rank 0": (lambda: exposure(FROM_0), InputError, RANKS),
    "interleaving": (lambda: interleaving(FROM_0[:4]), InputError, RANKS),
    "off_policy": (lambda: off_policy(FROM_0, "p@2", propensity="propensity"), InputError, RANKS),
    "coec_judgements": (lambda: coec_judgements(FROM_0), InputError, RANKS),
    "propensities": (lambda: propensities(FROM_0, ["query", "item_id"]), InputError, RANKS),
    **{
        f"{name} of unjudged": (partial(of_unjudged, name), ConfigError, NOBODY)
        for name in ("users", "means", "pairs", "to_judge")
    },
    "plan": (lambda: plan(USERS, "ap"), ConfigError, "user_metrics has no column for ap"),
    "compare_conventions": (lambda: compare_conventions([]), ConfigError, "rows"),
}


@pytest.mark.parametrize("name", LATE)
def test_what_a_call_refuses_is_its_own_error_also_when_its_rows_are_read_later(spark: SparkSession, name: str) -> None:
    made, kind, sentence = LATE[name]
    for read in (lambda table: table.to_pandas(), lambda table: table.collect()):
        with pytest.raises(kind) as caught:
            read(made())
        assert sentence in str(caught.value) and "Traceback" not in str(caught.value)


def test_every_action_of_a_result_raises_the_error_of_its_call(spark: SparkSession) -> None:
    table = changed(log_of_all(), "nobody")
    names = ["collect", "count", "first", "head", "isEmpty", "show", "toPandas"]
    names += [name for name in ("toArrow", "to_polars") if hasattr(table, name) and find_spec("polars")]
    actions = [getattr(table, name) for name in names]
    for action in (*actions, lambda: table.take(1), lambda: table.tail(1), lambda: [*table.toLocalIterator()]):
        with pytest.raises(ConfigError, match=f"^{NOBODY}$"):
            action()
            pytest.fail(f"{action} raises nothing")
    good = changed(log_of_all(), "a")
    assert good.count() == len(good.collect()) == len([*good.toLocalIterator()]) == 2


def test_a_notebook_shows_a_result_whatever_the_session(spark: SparkSession) -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    result = evaluate(log_of_all(), "rr", baseline="a")
    # The mean of the reciprocal ranks: (1 + 1 / 2) / 2 in a, (1 / 2 + 0) / 2 in b.
    for table in (result, result.comparisons, compare(result.user_metrics, "a")):
        shown, _ = formatters.DisplayFormatter().format(table)
        text = re.sub("<[^>]+>", " ", shown["text/html"])
        assert "no difference shown" in text or "0.750 in" in text
    # A column is still one by its name.
    assert str(result.comparisons.p_value).startswith("Column<")


@pytest.mark.skipif(not hasattr(pa, "RunEndEncodedArray"), reason="older versions of pyarrow have no such columns")
@pytest.mark.outcome("a run-end-encoded column of a table of PyArrow", "`ConfigError` where it is read: its type")
def test_columns_of_runs_are_left_out_or_named(spark: SparkSession) -> None:
    runs = pa.RunEndEncodedArray.from_arrays([len(LOG)], ["x"])
    log = pa.Table.from_pylist(dicts()).append_column("runs", runs)
    assert values(evaluate(log, "ap@3").to_pandas("user_metrics")) == pytest.approx(AP, rel=1e-15)
    with pytest.raises(
        ConfigError, match=r"^impressions: column 'runs' has values that no engine takes: they have the type"
    ):
        evaluate(log, "ap@3", segments="runs")


def test_a_list_of_grades_needs_a_list_of_items(spark: SparkSession) -> None:
    lists = pa.Table.from_pylist([row | {"relevance": [0, 1]} for row in dicts()])
    # Each row is a list, of one item with two grades.
    with pytest.raises(InputError, match=r"column 'item_id' .*"):
        evaluate(lists, "ap@3", columns={"items": "item_id"})


@pytest.mark.outcome(
    "users without an experiment, and texts and times as values, in `compare` and `effect_over_time`",
    "`InputError`: the column, its type, what is allowed",
)
@pytest.mark.parametrize("read", [compare, effect_over_time], ids=["compare", "effect_over_time"])
def test_users_without_an_experiment_or_with_other_values_than_numbers_are_refused(
    spark: SparkSession, read: Callable[..., Any]
) -> None:
    users = USERS[:4] if read is compare else USERS
    nameless = [*users, {**users[0], "experiment_id": None, "user_id": "x"}]
    with pytest.raises(InputError, match=r"^user_metrics has rows without a value of experiment_id; allowed: an exper"):
        read(nameless, "a").collect()
    day = datetime.date(2026, 11, 20)
    time = datetime.datetime(2026, 11, 20)
    for value, kind in (("0.5", "string"), (time, "timestamp_ntz"), (day, "date")):
        with pytest.raises(InputError, match=f"^user_metrics has values of rr of type {kind}; allowed: numbers$"):
            read([{**row, "rr": value} for row in users], "a")
    if read is compare:
        with pytest.raises(InputError, match="values of rr of type string"):
            plan([{**row, "rr": "0.5"} for row in USERS], "rr", days=4)
