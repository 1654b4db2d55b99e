"""Missing labels and judgements from clicks on both engines: values, bits, faulty rows, errors, and their use."""

import itertools
import math
import random
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F
from scipy import stats

from rankmetrics_spark import coec_judgements, evaluate, propensities, unjudged
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.metrics import Convention, parse
from rankmetrics_spark.studies.labels import MEANS, PAIRS, TO_JUDGE, USERS, Labels, bounds
from rankmetrics_spark.studies.weighting import COEC_COLUMNS
from tests.helpers.logs import by_user, exact
from tests.helpers.messages import refusal, slow
from tests.unit.test_labels import METRICS, RATIOS, User, arms_of, assignments, users_at_random, value

LOG = "experiment_id string, user_id string, item_id string, position int, score double"
QRELS = "user_id string, item_id string, relevance double"
TABLES = {"users": USERS, "means": MEANS, "pairs": PAIRS, "to_judge": TO_JUDGE}


def log_of(users: list[User]) -> list[tuple[Any, ...]]:
    return [
        (name, f"u{at:02}", item, rank, -float(rank))
        for at, user in enumerate(users)
        for name, items in user.lists.items()
        for rank, item in enumerate(items, start=1)
    ]


def qrels_of(users: list[User]) -> list[tuple[Any, ...]]:
    return [(f"u{at:02}", item, grade) for at, user in enumerate(users) for item, grade in user.judged.items()]


def tables(spark: SparkSession, users: list[User]) -> tuple[DataFrame, DataFrame]:
    return spark.createDataFrame(log_of(users), LOG), spark.createDataFrame(qrels_of(users), QRELS)


@pytest.mark.both_engines
def test_each_user_has_the_bounds_of_their_lists_bit_for_bit(spark: SparkSession) -> None:
    users = users_at_random(random.Random(5), 40, 2)
    metrics = [*METRICS, *RATIOS]
    result = unjudged(*tables(spark, users), metrics, max_grade=2).users.collect()
    arms = arms_of(users)
    expected = set()
    for metric in metrics:
        each = bounds(arms.shown, parse(metric), Labels(Convention(), 2))
        n = np.bincount(arms.shown.list[each.at][each.unjudged], minlength=len(each.value))
        for at, (user, arm) in enumerate(zip(arms.shown.user, arms.experiment, strict=True)):
            numbers = (int(n[at]), *(float(values[at]) for values in (each.value, each.low, each.high)))
            expected.add((arms.names[arm], f"u{user:02}", str(parse(metric)), *numbers))
    assert {tuple(row) for row in result} == expected and len(result) == len(expected)


def test_means_and_pairs_are_those_of_all_assignments_of_all_users(spark: SparkSession) -> None:
    users = [User({"a": "xyz", "b": "zwx"}, {"x": 1.0, "y": 0.0}), User({"a": "xy", "b": "yv"}, {"x": 0.0})]
    users.append(User({"b": "rq"}, {"r": 1.0}))
    result = unjudged(*tables(spark, users), ["dcg@2", "rr@2", "p@2"], baseline="a")
    for metric in ("dcg@2", "rr@2", "p@2"):
        every = [[*assignments(user, 2, 1)] for user in users]
        of_b, of_pair = [], []
        for chosen in itertools.product(*every):
            a, b = (
                np.array([value(*of, metric, Convention()) for of in zip(users[:n], name * n, chosen, strict=False)])
                for name, n in (("a", 2), ("b", 3))
            )
            of_b.append(b.mean())
            of_pair.append((b[:2] - a).mean())
        (mean,) = result.means.where(f"experiment_id = 'b' AND metric = '{metric}'").collect()
        assert (mean["low"], mean["high"]) == pytest.approx((min(of_b), max(of_b)))
        # Unjudged in the top 2 of b: z and w, y and v, q.
        assert (mean["n_users"], mean["n_unjudged"]) == (3, 5)
        (pair,) = result.pairs.where(f"metric = '{metric}'").collect()
        assert (pair["low"], pair["high"]) == pytest.approx((min(of_pair), max(of_pair)))
        assert (pair["baseline"], pair["experiment_id"], pair["n_users"], pair["n_unjudged"]) == ("a", "b", 2, 4)
        assert pair["sentence"].startswith("The judgements do not say who is ahead on") and pair["bounds"] == "exact"
    assert {row["n_users_open"] for row in result.means.where("experiment_id = 'b'").collect()} == {2, 3}
    # A higher grade could say more, unless any relevant one says the same.
    graded, more = tables(spark, [User({"a": "v", "b": "x"}, {"x": 3.0})]), "whatever the label of the unjudged item is"
    found = (unjudged(*graded, m, convention={"relevant_from": n}) for m, n in (("cg@1", 1), ("p@1", 1), ("p@1", 2)))
    ends = [row["sentence"].partition(more)[2] for each in found for row in each.pairs.collect()]
    assert ends == [" (grades 0 to 1): by 2 to 3", ": ahead by up to 1", " (grades 0 to 1): by 1"]


def test_the_item_that_can_move_a_difference_most_is_judged_first(spark: SparkSession) -> None:
    users = [User({"a": "xyzw", "b": "wzyx", "c": "y"}, {"x": 1.0, "y": 0.0}), User({"a": "v"}, {})]
    users.append(User({"c": "tv"}, {}))
    rows = [tuple(row) for row in unjudged(*tables(spark, users), "dcg@4", max_grade=2).to_judge.collect()]
    weight = [2 / math.log2(rank + 1) for rank in range(1, 5)]
    assert rows == [
        # Rank 1 of b: against c, which does not show it.
        ("u00", "w", ["b", "a"], [1, 4], weight[0], "b", "c", 1, None),
        # Users of one experiment are in no pair: what the label adds to the value itself.
        ("u01", "v", ["a"], [1], 2.0, None, "a", None, 1),
        ("u02", "t", ["c"], [1], 2.0, None, "c", None, 1),
        ("u00", "z", ["b", "a"], [2, 3], pytest.approx(weight[1]), "b", "c", 2, None),
        ("u02", "v", ["c"], [2], pytest.approx(weight[1]), None, "c", None, 2),
    ]
    against_a = unjudged(*tables(spark, users), "dcg@4", max_grade=2, baseline="a").to_judge.collect()
    result = {(row["user_id"], row["item_id"]): tuple(row)[4:] for row in against_a}
    assert result["u00", "w"] == (pytest.approx(weight[0] - weight[3]), "a", "b", 4, 1)
    assert result["u00", "z"] == (pytest.approx(weight[2]), "a", "c", 3, None)
    assert result["u02", "t"] == (2.0, None, "c", None, 1)
    assert [row["weight"] for row in against_a] == sorted((row["weight"] for row in against_a), reverse=True)


def test_of_a_deep_precision_each_label_moves_a_hundredth_and_is_to_judge(spark: SparkSession) -> None:
    users = [User({"a": "xyz", "b": "zx"}, {"x": 1.0})]
    rows = unjudged(*tables(spark, users), "p@100").to_judge.collect()
    # y is in one of both lists; z is in both, so its label moves no difference.
    assert [(row["item_id"], row["weight"]) for row in rows] == [("y", pytest.approx(1 / 100))]


def test_what_to_judge_is_the_largest_move_of_any_pair(spark: SparkSession) -> None:
    users = users_at_random(random.Random(12), 30, 1)
    for metric in ("ndcg@3", "ap@3", "rr"):
        rows = unjudged(*tables(spark, users), metric).to_judge.collect()
        result = {(row["user_id"], row["item_id"]): row["weight"] for row in rows}
        expected = {}
        for at, user in enumerate(users):
            for item in {*"".join(shown[: parse(metric).cut] for shown in user.lists.values())} - {*user.judged}:
                both = [[value(user, name, label, metric, Convention()) for name in user.lists]
                        for label in ({}, {item: 1.0})]  # fmt: skip
                change = dict(zip(user.lists, np.subtract(*both[::-1]), strict=True))
                shows = {name for name in user.lists if item in user.lists[name][: parse(metric).cut]}
                pairs = [(a, b) for a, b in itertools.combinations(user.lists, 2) if {a, b} & shows]
                moves = [abs(change[a] - change[b]) for a, b in pairs] or [abs(each) for each in change.values()]
                if max(moves) > 1e-12:
                    expected[f"u{at:02}", item] = pytest.approx(max(moves))
        assert {key: weight for key, weight in result.items() if weight > 1e-12} == expected


def test_row_order_partitions_and_faulty_rows_change_no_bit(spark: SparkSession) -> None:
    users = users_at_random(random.Random(8), 60, 2)
    rows, labels = log_of(users), qrels_of(users)
    faulty = [("a", "u00", None, 1, 0.0), ("a", "u00", "x", None, 0.0)]
    faulty += [(None, "u00", "x", 1, 0.0), ("a", None, "x", 1, 0.0)]
    no_labels = [("u00", None, 1.0), (None, "a", 1.0), ("u00", "b", None), ("u00", "b", math.nan)]
    # A repeated item counts at its best rank, a repeated judgement with its highest grade.
    repeats = [(name, user, item, rank + 40, score) for name, user, item, rank, score in rows[:30]]
    lower = [(user, item, -2.0) for user, item, _ in labels[:30]]
    metrics = ["dcg@3", "ap@3", "ndcg@3", "rr@3", "rbp(p=0.8)@3"]
    clean = unjudged(*tables(spark, users), metrics, max_grade=2)
    mixed, mixed_labels = rows + faulty + repeats, labels + no_labels + lower
    random.Random(1).shuffle(mixed)
    random.Random(2).shuffle(mixed_labels)
    log = spark.createDataFrame(mixed, LOG).repartition(5)
    other = unjudged(log, spark.createDataFrame(mixed_labels, QRELS).repartition(3), metrics, max_grade=2)
    for name, columns in TABLES.items():
        one, two = getattr(clean, name), getattr(other, name)
        assert one.columns == two.columns == [*columns]
        assert exact(one.collect()) == exact(two.collect())


def test_by_score_the_lists_are_those_of_the_ranks_and_tied_items_are_in_descending_order(spark: SparkSession) -> None:
    users = users_at_random(random.Random(9), 30, 1)
    log, qrels = tables(spark, users)
    by_rank, by_score = unjudged(log, qrels), unjudged(log.drop("position"), qrels, rank_by="score")
    assert exact(by_rank.users.collect()) == exact(by_score.users.collect())
    tied = spark.createDataFrame([("a", "u", item, 1, 0.0) for item in "xy"], LOG)
    judged = spark.createDataFrame([("u", "y", 1.0)], QRELS)
    (row,) = unjudged(tied, judged, "p@1", rank_by="score").users.collect()
    assert (row["low"], row["high"], row["n_unjudged"]) == (1.0, 1.0, 0)


def test_ids_are_texts_and_other_names_and_tables_of_python_are_read(spark: SparkSession) -> None:
    log = [{"arm": "007", "query": 2**53 + 1, "doc": "é/=", "slot": 0, "clicked": 1}]
    qrels = [{"topic": 2**53 + 1, "document": "other", "grade": 1}, {"topic": 2**53, "document": "é/=", "grade": 1}]
    names = {"experiment": "arm", "user": "query", "item": "doc", "position": "slot", "relevance": "clicked"}
    of_qrels = {"user": "topic", "item": "document", "relevance": "grade"}
    result = unjudged(log, qrels, "p@1", columns=names, judgement_columns=of_qrels, first_rank=0)
    (row,) = result.to_judge.collect()
    assert (row["user_id"], row["item_id"], row["experiments"]) == (str(2**53 + 1), "é/=", ["007"])
    (bound,) = result.users.collect()
    # The click of the log is not read: nobody has judged the item.
    assert (bound["experiment_id"], bound["value"], bound["high"]) == ("007", 0.0, 1.0)


def test_a_log_without_rows_judgements_or_pairs_has_empty_tables(spark: SparkSession) -> None:
    users = [User({"a": "xy"}, {"x": 1.0})]
    log, qrels = tables(spark, users)
    nothing = unjudged(log.where("false"), qrels)
    assert [getattr(nothing, name).collect() for name in TABLES] == [[], [], [], []]
    assert unjudged(log, qrels).pairs.collect() == []
    (row,) = unjudged(log, qrels.where("false"), "p@10", convention={"max_grade": 2}).users.collect()
    assert (row["n_unjudged"], row["low"], row["high"]) == (2, 0.0, 0.2)
    everything = unjudged(log, spark.createDataFrame([("u00", item, 1.0) for item in "xy"], QRELS), "ap@2")
    assert everything.to_judge.collect() == []
    (mean,) = everything.means.collect()
    assert (mean["n_users_open"], mean["low"], mean["mean"], mean["high"]) == (0, 1.0, 1.0, 1.0)


def test_a_missing_column_and_an_unknown_baseline_are_named(spark: SparkSession) -> None:
    log, qrels = tables(spark, [User({"a": "xy"}, {"x": 1.0})])
    with pytest.raises(InputError, match="the judgements have no column for relevance"):
        unjudged(log, qrels.drop("relevance"))
    with pytest.raises(InputError, match="item"):
        unjudged(log.drop("item_id"), qrels)
    with pytest.raises(Exception, match="unknown experiment 'control'") as error:
        unjudged(log, qrels, baseline="control").pairs.collect()
    assert "a" in str(error.value)


@pytest.mark.parametrize("name", ["users", *(slow(name) for name in ("means", "pairs", "to_judge"))])
def test_each_table_refuses_ranks_from_0_and_an_unknown_baseline(spark: SparkSession, name: str) -> None:
    users = users_at_random(random.Random(12), 30, 1)
    log, qrels = tables(spark, users)
    from_0 = log.withColumn("position", F.expr("position - 1"))
    n_first, n_second = (log.where(f"position = {rank}").count() for rank in (1, 2))
    seem = f"{n_first} rows have a rank below 1, and there are {n_second} lists: the ranks seem to start at 0; "
    for result, kind, message in (
        (unjudged(from_0, qrels), InputError, f"{seem}set first_rank to 0"),
        (unjudged(log, qrels, baseline="zz"), ConfigError, "unknown experiment 'zz'; known: a, b"),
    ):
        error = refusal(getattr(result, name).collect)
        assert type(error) is kind and str(error).startswith(message)
    read, plain = unjudged(from_0, qrels, first_rank=0), unjudged(log, qrels)
    assert exact(getattr(read, name).collect()) == exact(getattr(plain, name).collect())


@pytest.mark.outcome(
    "judgements of no item or no user of the log, for `unjudged`", "`InputError` with the shapes of an id of each"
)
# Of numbers that pandas has read as real ones, the text has a point.
@pytest.mark.parametrize(("moved", "table", "judged"), [("item_id", "pairs", "a"), ("user_id", "to_judge", "a99")])
def test_judgements_of_other_ids_are_refused(spark: SparkSession, moved: str, table: str, judged: str) -> None:
    log, qrels = tables(spark, [User({"a": "xy", "b": "yz"}, {"x": 1.0, "q": 0.0})])
    result = unjudged(log.withColumn(moved, F.expr(f"concat({moved}, '.0')")), qrels, "p@1")
    error = refusal(getattr(result, table).collect)
    assert type(error) is InputError and str(error) == (
        f"no {moved} of the impressions is in the judgements, so every shown item would be unjudged; "
        f"shown: '{judged}.9'; judged: '{judged}' (letters shown as a, digits as 9); "
        "an id has to be the same text in both"
    )


def test_a_judged_item_below_the_cut_off_or_of_another_user_is_known(spark: SparkSession) -> None:
    users = [User({"a": "xyz", "b": "yzx"}, {"z": 1.0}), User({"a": "uv", "b": "vu"}, {"x": 1.0})]
    (row,) = unjudged(*tables(spark, users), "p@1").pairs.collect()
    # Rank 1 of the two lists of both users: x and y, u and v.
    assert (row["n_users"], row["n_unjudged"]) == (2, 4)


def test_several_requests_of_a_user_and_faulty_rows_are_refused(spark: SparkSession) -> None:
    users = users_at_random(random.Random(13), 30, 1)
    log, qrels = tables(spark, users)
    more = log.withColumn("item_id", F.expr("concat(item_id, 'z')"))
    several = refusal(unjudged(log.unionAll(more), qrels, "p@3").pairs.collect)
    assert "name the column of the request as the user (columns.user)" in str(several)
    n = log.count()
    faulty = log.unionAll(log.limit(n // 50).withColumn("item_id", F.lit(None).cast("string")))
    assert f"{n // 50} of {n + n // 50} rows are faulty (" in str(refusal(unjudged(faulty, qrels, "p@3").means.collect))
    allowed = unjudged(faulty, qrels, "p@3", max_invalid_fraction=0.03)
    assert exact(allowed.means.collect()) == exact(unjudged(log, qrels, "p@3").means.collect())


# ---- judgements from clicks

CLICKS = "query string, item string, position int, relevance int"
ROLES = {"user": "query", "item": "item", "position": "position", "relevance": "relevance"}


def clicked(rng: np.random.Generator, n: int, quality: dict[str, float], seen: list[float]) -> list[tuple[Any, ...]]:
    """Impressions of a query in random order: a click is an examination of an attractive item."""
    rows = []
    for at in range(n):
        for rank, item in enumerate(rng.permutation([*quality]).tolist(), start=1):
            chance = seen[rank - 1] * quality[item]
            rows.append((f"q{at % 2}", item, rank, int(rng.random() < chance)))
    return rows


def by_item(table: DataFrame) -> dict[tuple[str, str], Any]:
    return {(row["user_id"], row["item_id"]): row for row in table.collect()}


def test_grades_are_clicks_over_the_clicks_that_the_ranks_alone_bring(spark: SparkSession) -> None:
    rows = clicked(np.random.default_rng(2), 60, {"a": 0.9, "b": 0.5, "c": 0.3, "d": 0.1}, [0.9, 0.6, 0.4, 0.2])
    table = coec_judgements(spark.createDataFrame(rows, CLICKS).repartition(3), k=3, columns=ROLES, confidence=0.9)
    assert table.columns == [*COEC_COLUMNS]
    judgements = by_item(table)
    shown, clicks = Counter(), Counter()
    for _, _, rank, click in rows:
        shown[rank] += 1
        clicks[rank] += click
    of_item: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for query, item, rank, click in rows:
        if rank <= 3:
            of_item[query, item].append((rank, click))
    assert {*judgements} == {key for key, each in of_item.items() if len(each) >= 10}
    for key, each in of_item.items():
        n, expected = sum(click for _, click in each), sum(clicks[rank] / shown[rank] for rank, _ in each)
        row = judgements[key]
        assert (row["n_shown"], row["n_clicks"], row["expected"]) == (len(each), n, pytest.approx(expected))
        assert row["relevance"] == pytest.approx(n / expected)
        low, high = stats.chi2.ppf(0.05, 2 * n) / 2 if n else 0.0, stats.chi2.ppf(0.95, 2 * n + 2) / 2
        assert (row["ci_low"], row["ci_high"]) == pytest.approx((low / expected, high / expected))
    assert all("favour the ranker" in row["note"] for row in judgements.values())


def test_the_order_of_the_log_changes_no_bit_and_faulty_rows_are_left_out(spark: SparkSession) -> None:
    rows = clicked(np.random.default_rng(4), 40, {"a": 0.9, "b": 0.5, "c": 0.3}, [0.9, 0.5, 0.1])
    one = coec_judgements(spark.createDataFrame(rows, CLICKS), columns=ROLES)
    faulty = [(None, "a", 1, 1), ("q0", None, 1, 1), ("q0", "a", None, 1)]
    faulty += [("q0", "a", 0, 1), ("q0", "a", 1, None), ("q0", "a", 99, 1)]
    shuffled = spark.createDataFrame([*rows[::-1], *faulty], CLICKS).repartition(4, "position")
    with pytest.raises(
        InputError, match=r"5 of 126 rows are faulty \(3.97%, allowed 1.00%: max_invalid_fraction is 0.01"
    ):
        coec_judgements(shuffled, columns=ROLES)
    other = coec_judgements(shuffled, columns=ROLES, max_invalid_fraction=0.05)
    assert exact(one.collect()) == exact(other.collect())


def test_with_propensities_a_good_item_keeps_its_grade_at_the_ranks_of_good_items(spark: SparkSession) -> None:
    quality, seen = {"a": 0.8, "b": 0.4, "c": 0.2}, [1.0, 0.5, 0.25]
    rng, rows = np.random.default_rng(3), []
    for at in range(3_000):
        # The ranker puts a first in most cases.
        order = ("cab", "bca")[at % 2] if at % 5 < 2 else "abc"
        clicks = (rng.random() < chance * quality[item] for item, chance in zip(order, seen, strict=True))
        rows += [("q", item, rank, int(click)) for rank, (item, click) in enumerate(zip(order, clicks, strict=True), 1)]
    log = spark.createDataFrame(rows, CLICKS)
    plain = by_item(coec_judgements(log, columns=ROLES))
    weighted = by_item(coec_judgements(log, columns=ROLES, propensities=propensities(log, replicates=99)))
    true = [{"rank": 1 + at, "propensity": p} for at, p in enumerate(seen)]
    known = by_item(coec_judgements(log, columns=ROLES, propensities=true))
    for item, attractive in quality.items():
        error = 1 / math.sqrt(known["q", item]["n_clicks"])
        assert known["q", item]["relevance"] == pytest.approx(attractive, rel=4 * error)
        assert weighted["q", item]["relevance"] == pytest.approx(attractive, rel=0.1 + 4 * error)
    ratio = plain["q", "a"]["relevance"] / plain["q", "b"]["relevance"]
    assert abs(known["q", "a"]["relevance"] / known["q", "b"]["relevance"] - 2) < 0.15 < 2 - ratio
    only_first = by_item(coec_judgements(log, columns=ROLES, propensities=[{"rank": 1, "propensity": 1.0}]))
    assert {item: row["n_shown"] for (_, item), row in only_first.items()} == {"a": 1_800, "b": 600, "c": 600}


def test_the_table_serves_as_judgements(spark: SparkSession) -> None:
    rows = clicked(np.random.default_rng(5), 200, {"a": 0.9, "b": 0.5, "c": 0.1}, [0.9, 0.6, 0.4])
    judgements = coec_judgements(spark.createDataFrame(rows, CLICKS), columns=ROLES)
    grades = {key: row["relevance"] for key, row in by_item(judgements).items()}
    lists = [(name, query, item, rank, 0.0) for name, items in (("good", "abc"), ("bad", "cba"))
             for query in ("q0", "q1") for rank, item in enumerate(items, start=1)]  # fmt: skip
    result = evaluate(
        spark.createDataFrame(lists, LOG), metrics=["dcg@1", "p@2"], judgements=judgements,
        columns={"relevance": None}, convention={"relevant_from": 1},
    )  # fmt: skip
    values = {key: (row["dcg_at_1"], row["p_at_2"]) for key, row in by_user(result.user_metrics).items()}
    for query in ("q0", "q1"):
        relevant = {item for item in "abc" if grades[query, item] >= 1}
        assert values["good", query] == (pytest.approx(grades[query, "a"]), len(relevant & {*"ab"}) / 2)
        assert values["bad", query] == (pytest.approx(grades[query, "c"]), len(relevant & {*"bc"}) / 2)


def test_few_impressions_and_ranks_without_clicks_have_no_row_and_grades_are_refused(spark: SparkSession) -> None:
    rows = [("q", "a", 1, 1), ("q", "a", 1, 0), ("q", "b", 1, 1), ("q", "c", 2, 0), ("q", "c", 2, 0)]
    log = spark.createDataFrame(rows, CLICKS)
    assert {*by_item(coec_judgements(log, columns=ROLES, min_impressions=2))} == {("q", "a")}
    assert {*by_item(coec_judgements(log, columns=ROLES, min_impressions=1))} == {("q", "a"), ("q", "b")}
    assert coec_judgements(log, columns=ROLES).collect() == []
    assert coec_judgements(log.where("false"), columns=ROLES).collect() == []
    with pytest.raises(InputError, match="the relevance of 1 rows is neither 0 nor 1, such as 3; allowed: clicks"):
        coec_judgements(spark.createDataFrame([*rows, ("q", "a", 1, 3)], CLICKS), columns=ROLES)
    with pytest.raises(InputError, match=r"the relevance of 2 rows is neither 0 nor 1, such as 0\.5; allowed"):
        clicks = [{"query": "q", "item": "a", "position": 1, "relevance": click} for click in (0.5, 0.25, 1.0, 0.0)]
        coec_judgements(clicks, columns=ROLES)
