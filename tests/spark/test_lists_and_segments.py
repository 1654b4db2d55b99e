"""Several lists per user, averaged per user; segments; ids that are numbers."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession, functions as F

from rankmetrics_spark import Options, compare, config as cfg, evaluate
from rankmetrics_spark.errors import InputError, QualityWarning
from rankmetrics_spark.road import Tables, UserRows, averages as averages_of
from rankmetrics_spark.sources import read as source
from tests.helpers.logs import averages, by_user, exact, impressions, judgements, random_log
from tests.helpers.messages import json_cases

ROWS = "experiment_id string, user_id string, request string, country string, item_id string, position int"
LOG = [
    # User, request, country, and the grades of the list.
    ("u1", "r1", "DE", [1, 0]),
    ("u1", "r2", "DE", [0, 1, 0]),
    ("u1", "r3", "DE", [0, 0]),
    ("u2", "r1", "FR", [0, 0, 0, 1]),
    ("u3", "r9", None, [0, 1]),
]


def rows_of(lists: list[tuple[str, str, str | None, list[int]]]) -> list[tuple[object, ...]]:
    return [
        ("a", user, request, country, f"i{rank}", rank, grade)
        for user, request, country, grades in lists
        for rank, grade in enumerate(grades, start=1)
    ]


def test_lists_are_averaged_per_user_and_users_over_the_experiment(spark: SparkSession) -> None:
    log = impressions(spark, rows_of(LOG), ROWS + ", relevance int")
    result = evaluate(log, ["rr"], list=["request"], segments=["country"])
    one = (1 + 1 / 2 + 0) / 3
    assert by_user(result.user_metrics.drop("convention_hash")) == {
        ("a", "u1"): {"country": "DE", "n_lists": 3, "n_shown": 7, "n_relevant": 2, "n_repeated": 0, "rr": one},
        ("a", "u2"): {"country": "FR", "n_lists": 1, "n_shown": 4, "n_relevant": 1, "n_repeated": 0, "rr": 1 / 4},
        ("a", "u3"): {"country": None, "n_lists": 1, "n_shown": 2, "n_relevant": 1, "n_repeated": 0, "rr": 1 / 2},
    }
    actual = averages(result.experiment_metrics)
    assert actual["a", "all", "rr"] == pytest.approx((one + 1 / 4 + 1 / 2) / 3, rel=1e-15)
    assert (actual["a", "country=DE", "rr"], actual["a", "country=FR", "rr"]) == (one, 1 / 4)
    assert actual["a", "country=null", "rr"] == 1 / 2


def test_skip_leaves_lists_without_a_relevant_item_out_of_the_mean_of_a_user(spark: SparkSession) -> None:
    log = impressions(spark, rows_of(LOG), ROWS + ", relevance int")
    result = by_user(evaluate(log, ["rr"], list=["request"], convention={"zero_relevant": "skip"}).user_metrics)
    assert result["a", "u1"]["rr"] == (1 + 1 / 2) / 2


def test_judged_items_are_counted_once_per_user_and_not_once_per_list(spark: SparkSession) -> None:
    log = impressions(spark, [row[:-1] for row in rows_of(LOG)], ROWS)
    truth = judgements(spark, [("u1", "i1", 1), ("u1", "never", 1), ("u2", "i4", 1)])
    users = evaluate(log, ["ap"], truth, list=["request"]).user_metrics
    result = by_user(users.drop("convention_hash"))
    assert result["a", "u1"] == {"n_lists": 3, "n_shown": 7, "n_relevant": 2, "n_repeated": 0, "ap": 1 / 2}
    assert result["a", "u2"]["ap"] == 1 / 4


def test_shown_items_are_counted_per_list_where_only_they_are_known(spark: SparkSession) -> None:
    log = impressions(spark, [row[:-1] for row in rows_of(LOG)], ROWS)
    truth = judgements(spark, [("u1", "i1", 1), ("u1", "never", 1), ("u2", "i4", 1)])
    found = by_user(evaluate(log, ["r@1"], truth, list=["request"], convention={"relevant_pool": "shown"}).user_metrics)
    # The first item of each of three lists is relevant, and nothing else of what was shown.
    assert (found["a", "u1"]["n_relevant"], found["a", "u1"]["r_at_1"]) == (3, 1)
    assert (found["a", "u2"]["n_relevant"], found["a", "u2"]["r_at_1"]) == (1, 0)


@pytest.mark.parametrize("layout", ["masks", pytest.param("rows", marks=pytest.mark.slow)])
def test_segments_do_not_change_the_overall_values(spark: SparkSession, layout: str) -> None:
    log = impressions(spark, rows_of(LOG), ROWS + ", relevance int")
    plain = evaluate(log, ["ap@2", "ndcg"], list=["request"], layout=layout)
    split = evaluate(log, ["ap@2", "ndcg"], list=["request"], segments=["country"], layout=layout)
    overall = {key: value for key, value in averages(split.experiment_metrics).items() if key[1] == "all"}
    assert overall == averages(plain.experiment_metrics)
    assert by_user(split.user_metrics.drop("country")) == by_user(plain.user_metrics)


def test_a_user_with_rows_of_two_segment_values_counts_once(spark: SparkSession) -> None:
    rows = [("a", "u", "r", "FR", "i1", 1, 0), ("a", "u", "r", "DE", "i2", 2, 1), ("a", "u", "r", None, "i3", 3, 0)]
    log = impressions(spark, rows, ROWS + ", relevance int")
    for layout in ("masks", "rows"):
        result = evaluate(log, ["rr"], segments=["country"], layout=layout)
        assert averages(result.experiment_metrics) == {("a", "all", "rr"): 1 / 2, ("a", "country=DE", "rr"): 1 / 2}
        mixed = r"^1 lists have rows in different segments \(segments\); each counts for the smallest of their values$"
        with pytest.warns(QualityWarning, match=mixed):
            result.check()


def test_a_user_whose_lists_are_in_several_segments_is_in_each_with_the_lists_of_it(spark: SparkSession) -> None:
    # The rank of the only relevant item of a list is 1, 2 or 4.
    lists = [
        ("u1", "r1", "DE", [1]),
        ("u1", "r2", "DE", [0, 1]),
        ("u2", "r1", "DE", [0, 1]),
        ("u2", "r2", "FR", [1]),
        ("u3", "r1", "DE", [0, 0, 0, 1]),
        ("u3", "r2", None, [1]),
        ("u4", "r1", None, [0, 1]),
        ("u4", "r2", None, [0, 0, 0, 1]),
    ]
    log = impressions(spark, rows_of(lists), ROWS + ", relevance int")
    result = evaluate(log, ["rr"], list=["request"], segments=["country"])
    actual = by_user(result.user_metrics)
    assert {user: r["country"] for (_, user), r in actual.items()} == {"u1": "DE", "u2": None, "u3": None, "u4": None}
    assert averages(result.experiment_metrics) == {
        ("a", "all", "rr"): (3 / 4 + 3 / 4 + 5 / 8 + 3 / 8) / 4,
        ("a", "country=DE", "rr"): pytest.approx((3 / 4 + 1 / 2 + 1 / 4) / 3, rel=1e-15),
        ("a", "country=FR", "rr"): 1,
        ("a", "country=null", "rr"): (1 + 3 / 8) / 2,
    }
    # u2 and u3 are in two segments; u4 is in one, which has no name. So it is in both experiments.
    both = log.union(log.withColumn("experiment_id", F.lit("b")).select(*log.columns))
    result = evaluate(both, ["rr"], list=["request"], segments=["country"])
    with pytest.warns(QualityWarning) as caught:
        result.check()
    assert next(str(each.message) for each in caught if each.category is QualityWarning) == (
        "4 users, counted in each experiment, have lists with different values of 'country': this run averages and "
        "compares their lists within each value; in user_metrics, and so for a later compare, their value is null"
    )


def test_a_user_with_several_lists_in_one_experiment_is_not_shared(spark: SparkSession) -> None:
    log = impressions(spark, rows_of(LOG), ROWS + ", relevance int")
    other = log.where("user_id = 'u2'").withColumn("experiment_id", F.lit("b"))
    for rows, rate in ((log, 0), (log.union(other), 1 / 3)):
        result = evaluate(rows, ["rr"], list=["request"])
        assert result.check(gates={"shared_user_rate": {"warn": 1.0}}).overall["shared_user_rate"] == rate


def test_segments_can_be_combined_in_means_and_comparisons(spark: SparkSession) -> None:
    shown = [("u1", "de", "web"), ("u2", "de", "app"), ("u3", "fr", "web"), ("u4", "de", "web"), ("u5", None, "web")]
    first = {"a": [1, 2, 1, 2, 4], "b": [1, 1, 2, 1, 1]}  # the rank of the only relevant item
    rows = [
        (experiment, user, country, device, f"i{rank}", rank, int(rank == best))
        for experiment, ranks in first.items()
        for (user, country, device), best in zip(shown, ranks, strict=True)
        for rank in range(1, 5)
    ]
    schema = "experiment_id string, user_id string, country string, device string, item_id string, position int, "
    log, metrics = impressions(spark, rows, schema + "relevance int"), ["rr"]
    split = {"segments": ["country", "device"], "segment_combinations": [("country", "device")]}
    result = evaluate(log, metrics, baseline="a", **split)  # type: ignore[arg-type]
    actual = averages(result.experiment_metrics)
    expected = {
        "country=de & device=web": (1 + 1 / 2) / 2,
        "country=de & device=app": 1 / 2,
        "country=fr & device=web": 1,
        "country=null & device=web": 1 / 4,
    }
    assert {segment: mean for (name, segment, _), mean in actual.items() if name == "a" and "&" in segment} == expected
    tables = Tables.of(log, None, Options.read({"metrics": metrics, **split}))
    assert averages(averages_of(UserRows(tables.user_metrics), tables.plan)) == actual
    compared = {row["segment"]: row["difference"] for row in result.comparisons.toLocalIterator()}
    assert compared["country=de & device=web"] == (0 + 1 / 2) / 2
    assert compared.keys() == {segment for _, segment, _ in actual}


def test_integer_ids_that_a_double_cannot_tell_apart_stay_distinct(spark: SparkSession) -> None:
    big = 2**53
    schema = "experiment_id bigint, user_id bigint, item_id bigint, position int, relevance int"
    rows = [(1, big + user, big + item, item + 1, int(item == user)) for user in (0, 1) for item in (0, 1)]
    result = by_user(evaluate(impressions(spark, rows, schema), ["rr"]).user_metrics)
    assert {key: row["rr"] for key, row in result.items()} == {("1", str(big)): 1, ("1", str(big + 1)): 1 / 2}


def test_a_list_column_may_have_a_dot_in_its_name(spark: SparkSession) -> None:
    schema = ROWS.replace("request", "`page.id`") + ", relevance int"
    log = [*rows_of(LOG), ("a", "u3", "r9", None, "i2", 3, 1)]
    result = evaluate(impressions(spark, log, schema), ["rr"], list=["page.id"])
    assert by_user(result.user_metrics)["a", "u1"]["rr"] == (1 + 1 / 2 + 0) / 3
    assert [row["page.id"] for row in result.quarantine.collect()] == ["r9"]


@pytest.mark.parametrize("judged", [False, True])
def test_averages_of_user_metrics_read_from_disk_are_the_same_to_the_last_bit(
    spark: SparkSession, tmp_path: Path, judged: bool
) -> None:
    log = impressions(spark, random_log(seed=4, users=20)).withColumn("country.x", F.expr("right(user_id, 1)"))
    truth = judgements(spark, [("user 1", "item 2", 1), ("user 2", "never", 1)]) if judged else None
    options = Options(metrics=["ap@10", "ndcg"], segments=["country.x"], judged=judged)
    result = Tables.of(log, truth, options)
    result.user_metrics.write.parquet(str(tmp_path / "users"))
    written = averages_of(UserRows(spark.read.parquet(str(tmp_path / "users"))), result.plan)
    assert exact(written.collect()) == exact(result.experiment_metrics.collect())


# Names that the pipeline uses for its own columns, and names that SQL has to quote.
NAMES: list[str] = json_cases("names of columns")


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(NAMES), 5))
def test_any_name_can_be_a_list_column_or_a_segment_column(spark: SparkSession, start: int) -> None:
    """One user has two lists and a third with a faulty row; another log has one list and five segments."""
    lists, segments = NAMES[start : start + 5], NAMES[start : start + 5]
    keys = ("the arm", "who", "the rank", "clicked")
    columns = {"experiment": "the arm", "user": "who", "item": None, "position": "the rank", "relevance": "clicked"}
    rows = [("r1", 1, 1), ("r2", 1, 0), ("r2", 2, 1), ("r3", 0, 1)]
    listed = [("a", "u", rank, clicked, *([request] * len(lists))) for request, rank, clicked in rows]
    result = evaluate(spark.createDataFrame(listed).toDF(*keys, *lists), ["ap@2"], columns=columns, list=lists)
    (user,) = result.user_metrics.collect()
    assert (user["n_lists"], user["ap_at_2"]) == (2, (1 + 1 / 2) / 2)
    (left_out,) = result.quarantine.collect()
    assert tuple(left_out) == ("a", "u", *["r3"] * len(lists), "0", "1", "position_below_1")

    split = [("a", "u", rank, clicked, *(["s"] * len(segments))) for rank, clicked in ((1, 0), (2, 1))]
    log = spark.createDataFrame(split).toDF(*keys, *segments)
    actual = averages(evaluate(log, ["ap@2"], columns=columns, segments=segments).experiment_metrics)
    assert actual == {("a", segment, "ap@2"): 1 / 2 for segment in ("all", *(f"{name}=s" for name in segments))}


def test_any_name_can_be_mapped_to_a_role(spark: SparkSession) -> None:
    rows = [("a", "u", "i", 1, 1), ("a", "u", "j", 2, 0), ("a", "v", "i", 2, 1)]
    roles = ("experiment", "user", "item", "position", "relevance")
    for start in range(0, len(NAMES) - len(roles), 3):
        names = NAMES[start : start + len(roles)]
        log = spark.createDataFrame(rows).toDF(*names)
        result = evaluate(log, ["rr"], columns=dict(zip(roles, names, strict=True)))
        assert {key: r["rr"] for key, r in by_user(result.user_metrics).items()} == {("a", "u"): 1, ("a", "v"): 1 / 2}


@pytest.fixture(params=["Europe/Berlin", "America/New_York"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """A session in a zone in which clocks are set back in autumn."""
    name, before = "spark.sql.session.timeZone", spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set(name, request.param)
    yield request.param
    assert spark.conf.get(name) == request.param, "no setting of the session is changed"
    spark.conf.set(name, str(before))


UTC = timezone.utc
# An hour apart; in Berlin, clocks are set back between them, and both are at half past two.
REPEATED = (datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC))


def at_times(times: Sequence[object], kind: pa.DataType) -> pa.Table:
    """One user with the first relevant item at rank 1 at one of two times, and at rank 4 at the other."""
    rows = [("a", "u", f"i{rank}", rank, int(rank == hit)) for hit in (1, 4) for rank in range(1, 5)]
    columns = dict(zip(["experiment", "user", "item", "position", "relevance"], zip(*rows, strict=True), strict=True))
    return pa.table({**columns, "at": pa.array([time for time in times for _ in range(4)], kind)})


@pytest.mark.outcome("the hour that is repeated when clocks are set back, in a {place}", "instants stay two lists")
@pytest.mark.parametrize("place", ["table", "file"])
def test_instants_stay_apart_if_clocks_are_set_back(spark: SparkSession, zone: str, tmp_path: Path, place: str) -> None:
    table = at_times(REPEATED, pa.timestamp("us", "Europe/Berlin"))
    pq.write_table(table, tmp_path / "log.parquet")
    log = spark.read.parquet(str(tmp_path / "log.parquet")) if place == "file" else table
    texts = {"2026-10-25 00:30:00": 1, "2026-10-25 01:30:00": 1 / 4}
    (row,) = evaluate(log, "rr", list="at").user_metrics.collect()
    assert (row["n_lists"], row["rr"]) == (2, (1 + 1 / 4) / 2)
    users = evaluate(log, "rr", columns={"user": "at"}).user_metrics.collect()
    assert {row["user_id"]: row["rr"] for row in users} == texts
    means = averages(evaluate(log, "rr", columns={"user": "at"}, segments="at").experiment_metrics)
    assert {segment: mean for (_, segment, _), mean in means.items()} == {
        "all": 5 / 8,
        **{f"at={text}": value for text, value in texts.items()},
    }
    # What was seen at the other time is another item of the judgements, and of the list.
    judged = pa.table({"user": ["u"], "item": pa.array(REPEATED[:1], pa.timestamp("us", "UTC")), "relevance": [1]})
    once = table.filter(pc.equal(table["position"], 1)).set_column(3, "position", pa.array([1, 2]))
    (row,) = evaluate(
        once.drop(["item"]), "rr,p@2", judged, columns={"item": "at", "relevance": None}
    ).user_metrics.collect()
    assert (row["n_shown"], row["n_relevant"], row["rr"], row["p_at_2"]) == (2, 1, 1, 1 / 2)


def test_times_without_a_zone_and_dates_are_their_own_text(spark: SparkSession, zone: str) -> None:
    times = (datetime(2026, 10, 25, 2, 30), datetime(2026, 10, 25, 2, 30, 0, 500_000))
    for given, kind, texts in (
        (times, pa.timestamp("us"), ["2026-10-25 02:30:00", "2026-10-25 02:30:00.5"]),
        ([each.date() + timedelta(days) for days, each in enumerate(times)], pa.date32(), ["2026-10-25", "2026-10-26"]),
    ):
        users = evaluate(at_times(given, kind), "rr", columns={"user": "at"}).user_metrics.collect()
        assert sorted(row["user_id"] for row in users) == texts


@pytest.mark.parametrize("of", ["UTC", None])
def test_times_that_differ_by_nanoseconds_stay_apart(spark: SparkSession, tmp_path: Path, of: str | None) -> None:
    log = at_times([1_000_000_001, 1_500_000_000], pa.timestamp("ns", of))
    got = evaluate(log, "rr", columns={"user": "at"}).user_metrics.collect()
    assert {r["user_id"]: r["rr"] for r in got} == {"1970-01-01 00:00:01.000000001": 1, "1970-01-01 00:00:01.5": 1 / 4}
    assert evaluate(at_times([1, 2], pa.timestamp("ns", of)), "rr", list="at").to_pandas()["mean"].tolist() == [5 / 8]
    pq.write_table(log, tmp_path / "log.parquet", version="2.6")
    why = "'at' has (times that differ by less than a microsecond|type timestamp.*), which the engine .* cannot"
    with pytest.raises(InputError, match=why):
        source(spark, cfg.Source(path=(str(tmp_path / "log.parquet"),), list=["at"]))


def test_clusters_and_segments_of_compared_users_are_told_apart_by_instants(spark: SparkSession, zone: str) -> None:
    rows = [
        {"experiment_id": arm, "user_id": f"{arm}{at}", "n_relevant": 1, "rr": at / 8, "home": REPEATED[at % 2]}
        for arm in "ab"
        for at in range(4)
    ]
    (row,) = compare(rows, "a", cluster="home").collect()
    # Two clusters, of two users each in either experiment.
    assert (row["n_users"], row["n_members_baseline"]) == (2, 4)
    segments = {row["segment"] for row in compare(rows, "a", segments="home").collect()}
    assert segments == {"all", "home=2026-10-25 00:30:00", "home=2026-10-25 01:30:00"}
