"""What was shown, without relevance: how much lists differ, and which items users saw; on both engines."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F
from scipy import stats

from rankmetrics_spark import changed, errors as err, exposure, statistics as st
from tests.helpers.messages import refusal, slow
from tests.unit.test_overlaps import rbo_by_definition

SCHEMA = "experiment_id string, user_id string, item_id string, position int, score double"
MEASURES = ("same_top", "jaccard", "rbo", "kendall", "unexpectedness")
LISTS = {("control", user): "abcd" for user in ("same", "swapped", "half", "gone")}
LISTS |= {("new", "same"): "abcd", ("new", "swapped"): "abdc", ("newer", "swapped"): "dcba", ("new", "half"): "axyb"}
LISTS |= {("new", "come"): "abcd", ("control", "short"): "a", ("new", "short"): "abc"}


def log(spark: SparkSession, lists: dict[tuple[str, str], str] = LISTS, more: Sequence[Any] = ()) -> DataFrame:
    rows = [
        (experiment, user, item, rank, -float(rank))
        for (experiment, user), items in lists.items()
        for rank, item in enumerate(items, start=1)
    ]
    return spark.createDataFrame([*rows, *more], SCHEMA)


def by_pair(table: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["experiment_id"], row["user_id"]): row.asDict() for row in table.collect()}


@pytest.mark.both_engines
def test_each_user_of_both_experiments_has_the_likeness_of_their_lists(spark: SparkSession) -> None:
    rows = by_pair(changed(log(spark), "control", k=4))
    assert {key: tuple(row[name] for name in MEASURES) for key, row in rows.items()} == {
        ("new", "same"): (1.0, 1.0, pytest.approx(1.0), 1.0, 0.0),
        # One of six pairs is in another order.
        ("new", "swapped"): (0.0, 1.0, pytest.approx(rbo_by_definition([*b"abcd"], [*b"abdc"], 0.9)), 4 / 6, 0.0),
        ("newer", "swapped"): (0.0, 1.0, pytest.approx(rbo_by_definition([*b"abcd"], [*b"dcba"], 0.9)), -1.0, 0.0),
        ("new", "half"): (0.0, 2 / 6, pytest.approx(rbo_by_definition([*b"abcd"], [*b"axyb"], 0.9)), 1.0, 2 / 4),
        ("new", "short"): (0.0, 1 / 3, pytest.approx(rbo_by_definition([*b"a"], [*b"abc"], 0.9)), None, 2 / 3),
    }
    half = rows["new", "half"]
    assert [half[name] for name in ("baseline", "n_items_baseline", "n_items", "n_common")] == ["control", 4, 4, 2]


def test_only_the_top_k_counts(spark: SparkSession) -> None:
    rows = by_pair(changed(log(spark), "control", k=2, p=0.5))
    assert [rows["new", "swapped"][name] for name in MEASURES] == [1.0, 1.0, pytest.approx(1.0), 1.0, 0.0]
    assert rows["new", "half"]["jaccard"] == 1 / 3


def test_faulty_rows_are_left_out_and_a_repeated_item_counts_at_its_best_rank(spark: SparkSession) -> None:
    faulty = [("new", "same", None, 1, 0.0), ("new", "same", "z", None, 0.0), ("new", "same", "a", 4, 0.0)]
    rows = by_pair(changed(log(spark, more=faulty), "control", k=4, max_invalid_fraction=0.1))
    assert rows["new", "same"]["same_top"] == 1.0


def test_by_score_the_lists_are_those_of_the_ranks(spark: SparkSession) -> None:
    table = log(spark).drop("position")
    by_score = by_pair(changed(table, "control", k=4, rank_by="score"))
    assert by_pair(changed(log(spark), "control", k=4)) == by_score
    tied = spark.createDataFrame([("a", "u", i, 1, 0.0) for i in "xy"] + [("b", "u", "y", 1, 1.0)], SCHEMA)
    (row,) = changed(tied, "a", k=1, rank_by="score").collect()
    assert row["same_top"] == 1.0


@pytest.mark.parametrize("kind", ["decimal(20,2)", *(slow(k) for k in ("double", "bigint"))])
def test_by_score_ties_fall_by_item_and_rows_logged_twice_take_a_rank(spark: SparkSession, kind: str) -> None:
    rng = random.Random(6)
    rows = [(e, f"u{u}", str(rng.randrange(14)), None, float(rng.randrange(6))) for e in ("control", "new")
            for u in range(30) for _ in range(rng.randrange(1, 16))]  # fmt: skip
    tops: dict[tuple[str, str], list[str]] = {}
    for experiment, user, item, _, _ in sorted(rows, key=lambda row: (row[4], row[2]), reverse=True):
        tops.setdefault((experiment, user), []).append(item)
    expected = {}
    for (experiment, user), items in tops.items():
        mine, base = ([*dict.fromkeys(top[:5])] for top in (items, tops["control", user]))
        if experiment == "new":
            expected[user] = (len(base), len(mine), len({*mine} & {*base}), float(mine == base))
    table = spark.createDataFrame(rows, SCHEMA).withColumn("score", F.col("score").cast(kind))
    again = table.orderBy(F.rand(2)).repartition(3)
    for each in (table, again):
        got = by_pair(changed(each, "control", k=5, rank_by="score"))
        names = ("n_items_baseline", "n_items", "n_common", "same_top")
        assert {user: tuple(row[name] for name in names) for (_, user), row in got.items()} == expected


def test_items_at_one_rank_follow_one_another_in_any_order_of_the_rows(spark: SparkSession) -> None:
    rows = [(e, "u", i, rank, 0.0) for e in ("control", "new") for i, rank in zip("abcd", (1, 2, 2, 3), strict=True)]
    table = spark.createDataFrame(rows[:4] + rows[:3:-1], SCHEMA)
    (row,) = changed(table, "control", max_invalid_fraction=0.25).collect()
    assert (row["same_top"], row["kendall"]) == (1, 1)


def test_other_columns_and_tables_of_python_are_read(spark: SparkSession) -> None:
    shown = [{"arm": arm, "query": "q", "doc": doc, "at": at} for arm in "ab" for at, doc in enumerate("xy")]
    columns = {"experiment": "arm", "user": "query", "item": "doc", "position": "at"}
    (row,) = changed(shown, "a", columns=columns, first_rank=0).collect()
    assert (row["experiment_id"], row["user_id"], row["same_top"]) == ("b", "q", 1.0)


@pytest.mark.parametrize("study", [pytest.param(changed, marks=pytest.mark.both_engines), exposure])
def test_an_unknown_baseline_is_named_when_the_rows_are_computed(spark: SparkSession, study: Any) -> None:
    table = study(log(spark), baseline="kontrol")
    error = refusal(table.collect)
    assert type(error) is err.ConfigError
    assert str(error) == "unknown experiment 'kontrol'; did you mean 'control'? known: control, new, newer"


def test_a_log_without_rows_has_no_change(spark: SparkSession) -> None:
    assert changed(log(spark, {}), "nobody").collect() == exposure(log(spark, {}), baseline="nobody").collect() == []


@pytest.mark.parametrize("study", [changed, exposure])
def test_more_faulty_rows_than_allowed_are_refused(spark: SparkSession, study: Any) -> None:
    lists = {(arm, f"u{user}"): "abcde" for user in range(20) for arm in ("control", "new")}
    faulty = [("new", "u1", None, 1, 0.0), ("new", None, "z", 1, 0.0), ("new", "u1", "z", 0, 0.0)]
    assert str(refusal(study(log(spark, lists, faulty), baseline="control").collect)) == (
        "3 of 203 rows are faulty (1.48%, allowed 1.00%: max_invalid_fraction is 0.01): they lack a value or have a "
        "wrong one, 1 of them a rank below 1; to go on, repair the log, or allow more"
    )
    clean = sorted(study(log(spark, lists), baseline="control").collect())
    assert sorted(study(log(spark, lists, faulty[:2]), baseline="control").collect()) == clean
    assert sorted(study(log(spark, lists, faulty), baseline="control", max_invalid_fraction=0.02).collect()) == clean


def test_several_requests_of_a_user_are_no_list(spark: SparkSession) -> None:
    # 20 users with two requests each, of which ranks 1 to 3 of 50 are read.
    users = [(arm, f"u{user}") for arm in ("control", "new") for user in range(20)]
    rows = [(*user, f"{request}-{rank}", rank, 0.0) for user in users for request in "ab" for rank in range(1, 51)]
    table = spark.createDataFrame(rows, SCHEMA)
    error = refusal(changed(table, "control", k=3).collect)
    assert type(error) is err.InputError
    assert str(error) == (
        "120 of 240 rows repeat a rank of their user in one experiment (50.00%, allowed 1.00%: max_invalid_fraction is "
        "0.01); allowed: one list per user: if users have several requests each, name the column of the request as the "
        "user (columns.user)"
    )
    requests = table.withColumn("request", F.expr("concat(user_id, left(item_id, 1))"))
    assert {row["same_top"] for row in changed(requests, "control", columns={"user": "request"}).collect()} == {1.0}
    # A row that is logged twice is no second list.
    two = table.where("item_id LIKE 'a%'").unionAll(table.where("concat(experiment_id, user_id, item_id) = 'newu1a-2'"))
    assert len(changed(two, "control", k=3).collect()) == 20


# ---- which items users saw

SHOWN = {("a", "u1"): "xyz", ("a", "u2"): "xy", ("b", "u1"): "xx", ("b", "u3"): "xw"}
MEASURED = ("coverage@2", "gini@2", "entropy@2", "novelty@2")


def exposures(table: Any, **request: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["experiment_id"], row["metric"]): row.asDict() for row in exposure(table, k=2, **request).collect()}


def items(spark: SparkSession, names: str) -> DataFrame:
    return spark.createDataFrame([(name,) for name in names], "item_id string")


@pytest.mark.both_engines
def test_each_experiment_has_the_spread_of_its_items(spark: SparkSession) -> None:
    """Exposures in the top 2: of a, x 2 and y 2; of b, x 3 and w 1. The catalogue is w, x, y, z and q."""
    interactions = items(spark, "xxxxyywq")
    rows = exposures(log(spark, SHOWN), catalogue=items(spark, "qwxyzz"), interactions=interactions, baseline="a")
    assert {key: row["value"] for key, row in rows.items()} == {
        ("a", "coverage@2"): 2 / 5,
        # Counts 0, 0, 0, 2, 2: (2j - 6) x 2 for j = 4 and 5, over 5 x 4.
        ("a", "gini@2"): (2 * 2 + 4 * 2) / (5 * 4),
        ("a", "entropy@2"): 1.0,
        ("a", "novelty@2"): pytest.approx((2 * 1 + 2 * 2) / 4),
        ("b", "coverage@2"): 2 / 5,
        ("b", "gini@2"): (2 * 1 + 4 * 3) / (5 * 4),
        ("b", "entropy@2"): pytest.approx(2 - 3 / 4 * math.log2(3)),
        ("b", "novelty@2"): pytest.approx((3 * 1 + 1 * 3) / 4),
    }
    row = rows["b", "gini@2"]
    counts = ("n_shown", "n_items", "n_catalogue", "n_outside", "n_unknown")
    assert [row[name] for name in counts] == [4, 2, 5, 0, 0]
    assert (row["baseline"], row["difference"]) == ("a", pytest.approx(14 / 20 - 12 / 20))
    assert (rows["a", "gini@2"]["baseline"], rows["a", "gini@2"]["difference"]) == (None, None)


def test_items_outside_of_the_catalogue_and_without_interactions_are_counted(spark: SparkSession) -> None:
    rows = exposures(log(spark, SHOWN), catalogue=items(spark, "yz"), interactions=items(spark, "wwww"), replicates=0)
    a, b = rows["a", "coverage@2"], rows["b", "coverage@2"]
    assert [a[name] for name in ("value", "n_items", "n_outside", "n_unknown")] == [1 / 2, 1, 1, 4]
    assert [b[name] for name in ("value", "n_items", "n_outside", "n_unknown")] == [None, 0, 2, 3]
    assert (rows["a", "novelty@2"]["value"], rows["b", "novelty@2"]["value"]) == (None, 0.0)


def test_a_table_of_interactions_without_rows_leaves_no_novelty(spark: SparkSession) -> None:
    none = spark.createDataFrame([], "item_id string")
    rows = exposures(log(spark, SHOWN), interactions=none, replicates=0)
    assert (rows["a", "novelty@2"]["value"], rows["a", "novelty@2"]["n_unknown"]) == (None, 4)
    assert exposures(log(spark, SHOWN), catalogue=none, replicates=0)["a", "coverage@2"]["value"] is None


def test_without_a_catalogue_it_is_what_any_experiment_shows(spark: SparkSession) -> None:
    rows = exposures(log(spark, SHOWN), replicates=0)
    assert rows["a", "coverage@2"]["value"] == rows["b", "coverage@2"]["value"] == 2 / 3
    assert ("a", "novelty@2") not in rows
    assert rows["a", "coverage@2"]["n_catalogue"] == 3
    assert rows["a", "coverage@2"]["n_unknown"] is None


def test_by_score_tied_items_are_seen_from_the_highest_id_down(spark: SparkSession) -> None:
    tied = [("a", "u", item, None, 1.0) for item in "xyz"]
    strict = [("a", "v", item, None, score) for item, score in zip("yzx", (3.0, 2.0, 1.0), strict=True)]
    rows = exposures(spark.createDataFrame(tied + strict, SCHEMA), rank_by="score", catalogue=4, replicates=0)
    # Both users see z and y; from the lowest id up, the first one would see x and y.
    assert rows["a", "coverage@2"]["value"] == 2 / 4


def test_a_catalogue_may_be_a_number_which_is_not_too_small(spark: SparkSession) -> None:
    assert exposures(log(spark, SHOWN), catalogue=8, replicates=0)["a", "coverage@2"]["value"] == 2 / 8
    small = exposures(log(spark, SHOWN), catalogue=1, replicates=0)
    assert [small["a", metric]["value"] for metric in MEASURED[:3]] == [None, None, 1.0]


def test_the_intervals_are_those_of_the_replicates_of_each_user(spark: SparkSession) -> None:
    rng = random.Random(5)
    lists = {(e, f"u{u}"): "".join(rng.sample("abcdefghijkl", 3)) for e in "ab" for u in range(25 + (e == "b"))}
    rows = exposures(log(spark, lists), catalogue=12, baseline="a", replicates=50, confidence=0.9, seed=7)
    hashes = {
        row["user_id"]: row["hash"]
        for row in log(spark, lists).selectExpr("user_id", "xxhash64(user_id) AS hash").distinct().collect()
    }
    weights = {user: st.poisson_weights(np.array([n]).view(np.uint64), 7, 50)[0] for user, n in hashes.items()}

    def replicates(experiment: str) -> list[tuple[float, float]]:
        values = []
        for replicate in range(50):
            counts = Counter[str]()
            for (arm, user), shown in lists.items():
                for item in shown[:2] if arm == experiment else "":
                    counts[item] += int(weights[user][replicate])
            positive = [count for count in counts.values() if count]
            values.append((len(positive) / 12, float(stats.entropy(positive, base=2))))
        return values

    both = np.array([replicates("a"), replicates("b")])
    half = stats.norm.ppf(0.95) * both[1].std(axis=0, ddof=1)
    apart = stats.norm.ppf(0.95) * (both[1] - both[0]).std(axis=0, ddof=1)
    for place, metric in enumerate(("coverage@2", "entropy@2")):
        row = rows["b", metric]
        high = row["value"] + half[place]
        assert row["ci_low"] == pytest.approx(row["value"] - half[place])
        assert row["ci_high"] == pytest.approx(min(high, 1.0) if place == 0 else high)
        assert row["difference_ci_low"] == pytest.approx(row["difference"] - apart[place])
        assert row["difference_ci_high"] == pytest.approx(row["difference"] + apart[place])


NOT_COMPARED = "not compared: b shows 20 items and a 30, and more items cover more; "
OF_EQUAL = "difference_equal_users is of about 10 users of each"
BY_HAND = "leave out users of the larger experiment by chance until both show as many"


def test_experiments_of_different_size_are_not_compared_but_in_novelty(spark: SparkSession) -> None:
    lists = {(e, f"u{u}"): "abcd"[u % 3 :][:2] for e, n in (("a", 15), ("b", 10), ("c", 15)) for u in range(n)}
    request: dict[str, Any] = {"baseline": "a", "interactions": items(spark, "aabcd")}
    for replicates in (0, 20):
        rows = exposures(log(spark, lists), replicates=replicates, **request)
        assert all(row["value"] is not None for row in rows.values())
        for metric in ("coverage@2", "gini@2", "entropy@2", "novelty@2"):
            refused = metric != "novelty@2"
            assert rows["b", metric]["note"] == (f"{NOT_COMPARED}{OF_EQUAL}" if refused else None)
            assert (rows["b", metric]["difference"] is None) is refused
            assert (rows["c", metric]["difference"], rows["c", metric]["note"]) == (0.0, None)
    # The catalogue is what all users see; as many users with shorter lists still show fewer items.
    assert rows["b", "coverage@2"]["n_catalogue"] == 4
    shorter = {(e, f"u{u}"): "ab" if e == "a" else "b" for e, n in (("a", 15), ("b", 10)) for u in range(n)}
    row = exposures(log(spark, shorter), baseline="a")["b", "gini@2"]
    assert row["note"] == f"{NOT_COMPARED.replace('20', '10')}{BY_HAND}"
    assert (row["n_equal_users"], row["value_equal_users"]) == (10, 0.5) and row["difference_equal_users"] is None


@pytest.mark.both_engines
def test_experiments_of_different_size_are_compared_at_the_users_with_the_lowest_hashes(spark: SparkSession) -> None:
    rng = random.Random(8)
    sizes = {"a": 40, "b": 25, "c": 60}
    lists = {(e, f"{e}{u}"): "".join(rng.sample("abcdefghijkl", 2)) for e, n in sizes.items() for u in range(n)}
    table, more = log(spark, lists), {"catalogue": 12, "baseline": "a", "interactions": items(spark, "abbc")}
    rows = exposures(table, replicates=20, **more)
    hashed = table.selectExpr("experiment_id", "user_id", "xxhash64(user_id) AS hash").distinct().collect()
    named = {row["user_id"]: row["hash"] for row in hashed}
    few = {e: sorted((user for name, user in lists if name == e), key=named.__getitem__)[:25] for e in sizes}
    weights = {user: st.poisson_weights(np.array([n]).view(np.uint64), 1, 20)[0] for user, n in named.items()}

    def entropies(e: str) -> list[float]:
        counts = [Counter[str]() for _ in range(21)]
        for user in few[e]:
            for replicate, times in enumerate([1, *weights[user].tolist()]):
                counts[replicate].update(dict.fromkeys(lists[e, user], times))
        assert rows[e, "coverage@2"]["value_equal_users"] == len(counts[0]) / 12
        apart = sum(abs(one - other) for one in every(counts[0]) for other in every(counts[0]))
        assert rows[e, "gini@2"]["value_equal_users"] == pytest.approx(apart / (2 * 12 * 50), rel=1e-12)
        return [float(stats.entropy([*each.values()], base=2)) for each in counts]

    def every(counts: Counter[str]) -> list[int]:
        return [*counts.values(), *[0] * (12 - len(counts))]

    of = {e: entropies(e) for e in sizes}
    for e in "bc":
        row, against = rows[e, "entropy@2"], np.array(of[e]) - np.array(of["a"])
        assert (row["n_equal_users"], row["value_equal_users"]) == (25, pytest.approx(of[e][0], rel=1e-12))
        assert row["difference_equal_users"] == pytest.approx(against[0], rel=1e-9)
        half = stats.norm.ppf(0.975) * against[1:].std(ddof=1)
        assert row["difference_equal_users_ci_low"] == pytest.approx(against[0] - half, rel=1e-9)
        assert row["difference_equal_users_ci_high"] == pytest.approx(against[0] + half, rel=1e-9)
    assert rows["b", "entropy@2"]["value_equal_users"] == rows["b", "entropy@2"]["value"]
    novelty = rows["b", "novelty@2"]
    assert novelty["difference"] is not None and novelty["value_equal_users"] is None
    # Other partitions change no bit; what does not ask for a comparison has the values of all users, bit for bit.
    assert exposures(table.repartition(5), replicates=20, **more) == rows
    alone = exposures(table, replicates=20, catalogue=12, interactions=more["interactions"])
    own = ("value", "ci_low", "ci_high", "n_shown", "n_items", "n_catalogue", "n_outside", "n_unknown")
    assert all(row[name] == rows[key][name] for key, row in alone.items() for name in own)
    assert all(row["n_equal_users"] is None for row in alone.values())


@pytest.mark.slow
def test_one_model_differs_from_itself_in_no_interval_whatever_the_sizes(spark: SparkSession) -> None:
    """Eight logs of one model: 540 and 60 users against 300, and sizes that chance gives."""
    rng, held, of_equal = np.random.default_rng(3), [], []
    popularity = 1 / np.arange(1, 301)
    for _ in range(8):
        sizes = {"a": 300, **{f"b{i}": int(rng.poisson(300)) for i in range(5)}, "y": 540, "z": 60}
        rows = [
            (name, f"{name}{user}", f"i{item:03d}", rank, 0.0)
            for name, n in sizes.items()
            for user in range(n)
            for rank, item in enumerate(rng.choice(300, 3, replace=False, p=popularity / popularity.sum()), start=1)
        ]
        for row in exposure(spark.createDataFrame(rows, SCHEMA), k=3, baseline="a", replicates=60).collect():
            if row["experiment_id"] in ("y", "z"):
                assert row["difference"] is None and row["note"].startswith("not compared: ")
                assert row["note"].endswith(" 60 users of each")
                of_equal.append(row["difference_equal_users_ci_low"] <= 0 <= row["difference_equal_users_ci_high"])
            elif row["difference"] is not None:
                held.append(row["difference_ci_low"] <= 0 <= row["difference_ci_high"])
    # Most splits by chance are compared, and their intervals hold 0 about as often as they say.
    assert len(held) >= 3 * 8 * 5 * 0.7 and np.mean(held) >= 0.85
    assert len(of_equal) == 3 * 8 * 2 and np.mean(of_equal) >= 0.85


def test_one_user_has_no_interval_and_no_user_no_row(spark: SparkSession) -> None:
    (row, *_) = exposures(log(spark, {("a", "u"): "xy"})).values()
    assert (row["value"], row["ci_low"], row["ci_high"]) == (1.0, None, None)
    assert exposures(log(spark, {})) == {}


def test_numbers_as_items_meet_the_numbers_of_the_catalogue(spark: SparkSession) -> None:
    shown = [{"arm": "a", "who": "u", "movie": movie, "at": at} for at, movie in enumerate((7, 8), start=1)]
    columns = {"experiment": "arm", "user": "who", "item": "movie", "position": "at"}
    catalogue = [{"movie": movie} for movie in (6, 7, 8, 9)]
    rows = exposures(shown, columns=columns, catalogue=catalogue, interactions=catalogue, replicates=0)
    assert (rows["a", "coverage@2"]["value"], rows["a", "novelty@2"]["value"]) == (2 / 4, 2.0)


def test_the_items_of_a_catalogue_have_the_long_or_the_short_name(spark: SparkSession) -> None:
    shown = [{"experiment": "a", "user": "u", "item": item, "position": at} for at, item in enumerate("xy", start=1)]
    # A row without an item is none.
    tables = ([{"item": item, "item_id": "x"} for item in "xyz"], [{"item": item} for item in [*"xyz", None]])
    rows, short = (exposures(shown, catalogue=table, interactions=table, replicates=0) for table in tables)
    # Of the three items x, y and z, two are shown; item_id, which comes first, names x alone.
    assert (short["a", "coverage@2"]["value"], short["a", "coverage@2"]["n_catalogue"]) == (2 / 3, 3)
    assert short["a", "novelty@2"]["value"] == pytest.approx(math.log2(3))
    assert (rows["a", "coverage@2"]["value"], rows["a", "coverage@2"]["n_outside"]) == (1.0, 1)
