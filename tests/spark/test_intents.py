"""Alpha-NDCG, ERR-IA and distinct intents, from columns of the impressions and of the judgements, on both engines."""

import json
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import evaluate, metric_udf, report as rep, run
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.metrics import parse, resolve
from tests.helpers.commands import Call, ok
from tests.helpers.logs import averages, by_user, config, config_file, exact
from tests.helpers.messages import json_cases, messages, slow
from tests.oracles import Graded, One, by_definition

OF_RANKS = ("alpha_ndcg@3", "alpha_ndcg@20", "alpha_ndcg(alpha=0.3)@5", "err_ia@1", "err_ia@10")
METRICS = (*OF_RANKS, "distinct@2", "distinct@9")
LOG = "experiment_id string, user_id string, item_id string, position int, score double, relevance double, "
TRUTH = "user_id string, item_id string, relevance double, "


class Row(NamedTuple):
    """One impression."""

    experiment_id: str
    user_id: str
    item_id: str
    position: int
    score: float
    relevance: float | None
    category: Any


class Judged(NamedTuple):
    """One judgement."""

    user_id: str
    item_id: str
    relevance: float
    subtopic: Any


def log_of(spark: SparkSession, rows: Sequence[Row], kind: str = "array<string>") -> DataFrame:
    typed = [row._replace(relevance=None if row.relevance is None else float(row.relevance)) for row in rows]
    return spark.createDataFrame(typed, LOG + f"category {kind}")


def truth_of(spark: SparkSession, rows: Sequence[Judged], kind: str = "string") -> DataFrame:
    typed = [row._replace(relevance=float(row.relevance)) for row in rows]
    return spark.createDataFrame(typed, TRUTH + f"subtopic {kind}")


def a_list(*items: tuple[str, float | None, Any], user: str = "u", experiment: str = "a") -> list[Row]:
    """A list of (item, grade, intents), at the ranks 1, 2, ..."""
    return [Row(experiment, user, item, at, -float(at), *rest) for at, (item, *rest) in enumerate(items, start=1)]


def values(table: DataFrame, *names: str) -> dict[str, list[Any]]:
    return {user: [row[parse(name).column] for name in names] for (_, user), row in by_user(table).items()}


COLUMNS: dict[str, str | None] = {"intents": "category"}


# ---- by hand


@pytest.mark.both_engines
@pytest.mark.outcome("intents that are null, an empty text or an empty array", "the item has none; the row counts")
def test_null_and_empty_intents_are_none(spark: SparkSession) -> None:
    rows = a_list(("a", 1, None), ("b", 1, []), ("c", 1, ["", None]), ("d", 1, ["x", None, "x", ""]))
    rows += a_list(("a", 1, None), user="without")
    names = ["alpha_ndcg@9", "err_ia@9", "distinct@9", "n_shown"]
    result = evaluate(log_of(spark, rows), names[:3], columns=COLUMNS)
    actual = by_user(result.user_metrics)
    most = sum(0.5 ** (i - 1) / i for i in range(1, 10))
    assert values(result.user_metrics, *names[:3]) == {
        "u": [pytest.approx(1 / log2(5)), pytest.approx(1 / 4 / most), 1.0],
        "without": [0.0, 0.0, 0.0],
    }
    assert actual["a", "u"]["n_shown"] == 4
    skipped = evaluate(log_of(spark, rows), ["alpha_ndcg@9"], columns=COLUMNS, convention={"zero_relevant": "skip"})
    assert values(skipped.user_metrics, "alpha_ndcg@9")["without"] == [None]


@pytest.mark.parametrize(("kind", "intents"), json_cases("intents of each type"))
def test_an_intent_is_a_text_a_whole_number_or_an_array(spark: SparkSession, kind: str, intents: list[Any]) -> None:
    rows = a_list(*(("abc"[i], 1, each) for i, each in enumerate(intents)))
    result = evaluate(log_of(spark, rows, kind), ["distinct@3", "alpha_ndcg@3"], columns=COLUMNS)
    ideal = 1 + 1 / log2(3) + 1 / 2 / 2
    assert values(result.user_metrics, "distinct@3", "alpha_ndcg@3") == {"u": [2, pytest.approx(ideal / ideal)]}


def test_of_items_with_equal_gain_the_highest_id_is_first_in_the_ideal_list(spark: SparkSession) -> None:
    # Each gains 2 at first; after xz, each of the others gains 1 1/2, and after xy the item zw still gains 2.
    rows = [
        row
        for user, ids in (("greedy", "cab"), ("best", "acb"))
        for row in a_list(*((i, 1, [*names]) for i, names in zip(ids, ("xz", "xy", "zw"), strict=True)), user=user)
    ]
    judged = [Judged(row.user_id, row.item_id, 1, row.category) for row in rows]
    expected = {"greedy": [1.0], "best": [pytest.approx((2 + 3 / 2 / log2(3)) / (2 + 2 / log2(3)))]}
    options: Any = {"columns": COLUMNS, "judgement_columns": {"intents": "subtopic"}}
    result = evaluate(log_of(spark, rows), ["alpha_ndcg@2"], truth_of(spark, judged, "array<string>"), **options)
    assert values(result.user_metrics, "alpha_ndcg@2") == expected


# ---- judgements


def test_judgements_have_a_row_for_each_intent_of_an_item_as_diversity_qrels(spark: SparkSession) -> None:
    rows = a_list(("a", None, None), ("b", None, None), ("c", None, None))
    judged = [
        Judged("u", "a", 1, "1"),
        Judged("u", "a", 0, "2"),  # not relevant for this intent
        Judged("u", "b", 1, "1"),
        Judged("u", "b", 2, "2"),
        Judged("u", "never", 1, "3"),
        Judged("u", "never", 1, "1"),
    ]
    log = log_of(spark, rows).drop("category", "relevance")
    result = evaluate(
        log, ["alpha_ndcg@2", "err_ia@2", "ap"], truth_of(spark, judged), judgement_columns={"intents": "subtopic"}
    )
    # never is first in the ideal list, by its id; then b has 1/2 + 1.
    ideal = 2 + (1 / 2 + 1) / log2(3)
    expected = [(1 + (1 / 2 + 1) / log2(3)) / ideal, (1 + (1 / 2 + 1) / 2) / 3 / (1 + 1 / 4), 2 / 3]
    assert values(result.user_metrics, "alpha_ndcg@2", "err_ia@2", "ap") == {"u": [pytest.approx(w) for w in expected]}


def test_clicks_of_impressions_decide_whether_an_item_covers_the_intents_of_its_judgements(spark: SparkSession) -> None:
    rows = a_list(("a", 0, None), ("b", 1, None))
    judged = [Judged("u", "a", 1, "1"), Judged("u", "b", 1, "2")]
    log, truth = log_of(spark, rows).drop("category"), truth_of(spark, judged)
    result = evaluate(log, ["err_ia@2"], truth, judgement_columns={"intents": "subtopic"})
    assert values(result.user_metrics, "err_ia@2") == {"u": [pytest.approx(1 / 2 / 2 / (1 + 1 / 4))]}


@pytest.mark.outcome(
    "judgements of an item for several intents", "each counts; only a row with the same intents is counted as repeated"
)
def test_rows_of_an_item_for_other_intents_are_no_repeats(spark: SparkSession, tmp_path: Path) -> None:
    lines = ["q 1 a 1", "q 2 a 1", "q 2 a 0", "q 1 b 1"]
    (tmp_path / "qrels").write_text("\n".join(lines))
    (tmp_path / "run").write_text("q Q0 a 1 2.0 mine\nq Q0 b 2 1.0 mine\n")
    counts = {}
    for metric in ("ap", "err_ia@2"):
        truth = {"format": "trec_qrels", "path": str(tmp_path / "qrels")}
        more = {"rank_by": "score", "source": {"format": "trec_run"}, "judgements": truth}
        done = run(spark, config(tmp_path / "run", tmp_path / metric, metrics=[metric], **more))
        counts[metric] = done.record["judgements"]["repeated"]
    assert counts == {"ap": 2, "err_ia@2": 1}
    expected = ((1 + 1) + 1 / 2 / 2) / 2 / (1 + 1 / 4)
    assert averages(done.experiment_metrics)["mine", "all", "err_ia@2"] == pytest.approx(expected)


# ---- random logs


def random_rows(seed: int) -> tuple[list[Row], list[Judged]]:
    """Lists with ties, unjudged items and items of no, one or several intents; judgements per intent."""
    rng = random.Random(seed)
    rows: list[Row] = []
    judged: list[Judged] = []
    for user in (f"user {n}" for n in range(40)):
        items = [f"i{n}" for n in range(30)]
        intents = {item: rng.choice([None, [], ["x"], rng.choices("vwxyz", k=rng.randint(1, 4))]) for item in items}
        grades = {item: rng.choice([0.0, 0.0, 1.0, 2.0, -1.0]) for item in items}
        for experiment in ("a", "b"):
            for at, item in enumerate(rng.sample(items, rng.choice([1, 4, 20])), start=1):
                score = rng.choice([0.0, 0.5, 1.0, rng.random()])
                rows.append(Row(experiment, user, item, at, score, grades[item], intents[item]))
        for item in rng.sample(items, rng.choice([1, 12, 25])):
            for name in intents[item] or [None]:
                judged.append(Judged(user, item, rng.choice([0.0, 1.0, 2.0]), name))
    rng.shuffle(rows)
    rng.shuffle(judged)
    return rows, judged


def obvious(
    rows: Sequence[Row], metric: str, c: Any, judged: Sequence[Judged] = (), own: bool = True
) -> dict[Any, float]:
    """Each user's value in each experiment, by the definition; the lists of one experiment are keyed by user alone."""
    several = len({row.experiment_id for row in rows}) > 1
    lists: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        lists[(row.experiment_id, row.user_id) if several else row.user_id].append(row)
    truth: dict[str, dict[str, dict[Any, float]]] = defaultdict(lambda: defaultdict(dict))
    for each in judged:
        known = truth[each.user_id][each.item_id]
        known[each.subtopic] = max(each.relevance, known.get(each.subtopic, -math.inf))
    result = {}
    for key, shown in lists.items():
        shown = sorted(shown, key=lambda row: row.position)
        pool = truth[shown[0].user_id] if judged else {row.item_id: {None: row.relevance} for row in shown}
        grades = tuple(max(pool[row.item_id].values()) if row.item_id in pool else math.nan for row in shown)
        pairs = [_pairs(row, grade, pool, own) for row, grade in zip(shown, grades, strict=True)]
        items = tuple(row.item_id for row in shown)
        own_pool = tuple(zip(items, pairs, strict=True))
        of_pool = tuple((item, _without_none(known)) for item, known in pool.items())
        best = tuple(max(known.values()) for known in pool.values())
        one = One(grades, best, items=items, intents=tuple(pairs), judged=of_pool if judged else own_pool)
        value = by_definition(parse(metric).name, one, c, **parse(metric).arguments)
        result[key] = 0.0 if math.isnan(value) else value
    return result


def _pairs(row: Row, grade: float, pool: Mapping[str, Mapping[Any, float]], own: bool) -> Graded:
    if own:
        return tuple((name, grade) for name in sorted(set(row.category or [])))
    return _without_none(pool[row.item_id]) if row.item_id in pool else ()


def _without_none(known: Mapping[Any, float]) -> Graded:
    return tuple((name, grade) for name, grade in known.items() if name is not None)


CONVENTIONS = ["standard", {"relevant_from": 2}, {"ideal_pool": "shown"}]


@pytest.mark.parametrize("convention", [CONVENTIONS[0], *(slow(each) for each in CONVENTIONS[1:])], ids=str)
@pytest.mark.parametrize("grades", ["shown", "own intents", "looked up"])
def test_the_values_are_those_of_the_definitions(spark: SparkSession, convention: Any, grades: str) -> None:
    rows, judged = random_rows(seed=5)
    log, truth, options = log_of(spark, rows), None, {"columns": COLUMNS}
    names = METRICS if grades != "looked up" else OF_RANKS
    if grades != "shown":
        truth, log = truth_of(spark, judged), log.drop("relevance")
        options["judgement_columns"] = {"intents": "subtopic"}  # type: ignore[dict-item]
    if grades == "looked up":
        log, options["columns"] = log.drop("category"), {}
    result = evaluate(log, names, truth, convention=convention, **options)  # type: ignore[arg-type]
    actual = by_user(result.user_metrics)
    for name in names:
        rule = resolve(convention)
        expected = obvious(rows, name, rule, judged if truth is not None else (), own=grades != "looked up")
        assert {key: row[parse(name).column] for key, row in actual.items()} == pytest.approx(expected, abs=1e-12), name


def test_lists_by_score_and_with_removed_items_have_the_values_of_the_definitions(spark: SparkSession) -> None:
    rows, judged = random_rows(seed=6)
    # Ties by the rank, so that the order is that of the ranks.
    rows = [row._replace(score=1.0) for row in rows]
    rule = {"ties": "position", "unjudged": "removed"}
    options: Any = {"rank_by": "score", "convention": rule, "judgement_columns": {"intents": "subtopic"}}
    log = log_of(spark, rows).drop("relevance", "category")
    result = evaluate(log, ["alpha_ndcg@5", "err_ia@5"], truth_of(spark, judged), **options)
    actual = by_user(result.user_metrics)
    for name in ("alpha_ndcg@5", "err_ia@5"):
        expected = obvious(rows, name, resolve(rule), judged, own=False)
        assert {key: row[parse(name).column] for key, row in actual.items()} == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_row_order_partitions_and_the_order_of_intents_never_change_a_bit(spark: SparkSession) -> None:
    rows, judged = random_rows(seed=7)
    # One item twice, once with other intents; one rank twice.
    rows += [row._replace(category=["q"]) for row in rows[:40]] + [row._replace(item_id="j") for row in rows[40:60]]
    results = []
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        random.Random(seed).shuffle(judged)
        turned = [row._replace(category=row.category and row.category[:: 1 - 2 * (seed % 2)]) for row in rows]
        log, truth = log_of(spark, turned).repartition(seed + 1), truth_of(spark, judged).repartition(3 - seed)
        every = []
        for by, repeats, ties in (("position", "relevant", "item_desc"), ("score", "ignore", "best")):
            options: Any = {"rank_by": by, "repeated_items": repeats, "columns": COLUMNS, "convention": {"ties": ties}}
            every += exact(evaluate(log, METRICS, **options).user_metrics.collect())
            options["judgement_columns"] = {"intents": "subtopic"}
            every += exact(evaluate(log, METRICS, truth, **options).user_metrics.collect())
        results.append(every)
    assert results[0] == results[1] == results[2]


def test_a_log_without_items_has_intents_too(spark: SparkSession) -> None:
    rows = a_list(("", 1, ["x"]), ("", 1, ["x"]), ("", 1, ["y"]))
    result = evaluate(log_of(spark, rows), ["alpha_ndcg@3", "distinct@3"], columns=COLUMNS | {"item": None})
    # In the ideal list, the rank decides: ranks 1, 3, 2.
    expected = (1 + 1 / 2 / log2(3) + 1 / 2) / (1 + 1 / log2(3) + 1 / 4)
    assert values(result.user_metrics, "alpha_ndcg@3", "distinct@3") == {"u": [pytest.approx(expected), 2]}


def test_users_who_were_shown_nothing_count_zero(spark: SparkSession) -> None:
    rows = a_list(("a", None, ["1"]))
    judged = [Judged("u", "a", 1, "1"), Judged("unseen", "a", 1, "1"), Judged("none", "a", 0, "1")]
    names = ["alpha_ndcg@3", "err_ia@3", "distinct@3"]
    options: Any = {"columns": COLUMNS, "judgement_columns": {"intents": "subtopic"}}
    options["convention"] = {"population": "judged", "zero_relevant": "one"}
    result = evaluate(log_of(spark, rows).drop("relevance"), names, truth_of(spark, judged), **options)
    most = sum(0.5 ** (i - 1) / i for i in range(1, 4))
    assert values(result.user_metrics, *names) == {
        "u": [1.0, pytest.approx(1 / most), 1],
        "unseen": [0.0, 0.0, 0],
        "none": [1.0, 1.0, 0],
    }


# ---- files


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_text_that_is_a_json_array_is_an_array(spark: SparkSession, tmp_path: Path, format: str) -> None:
    arrays = ['["x", "y"]', " [1,2.5, true , null] ", "[]"]
    # Texts that some parsers take for arrays.
    texts = ["x", "[broken", '["x"] y', "['x']", '{"x": 1}', '["x"]["y"]', '["x",]', "[x, y]", ""]
    cells = [*arrays, *texts]
    rows = [
        {"experiment": "a", "user": "u", "item": f"i{at}", "position": at, "relevance": 1, "category": cell}
        for at, cell in enumerate(cells, start=1)
    ]
    path = tmp_path / f"log.{format}"
    if format == "json":
        rows[0]["category"] = ["x", "y"]
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        path.write_text("\n".join([";".join(rows[0]), *(";".join(map(str, row.values())) for row in rows)]))
    source = {"columns": COLUMNS, "options": {"sep": ";"} if format == "csv" else {}}
    settings = config(path, tmp_path / "out", metrics=["distinct@2", "distinct@20"], source=source)
    means = averages(run(spark, settings).experiment_metrics)
    # x and y; then 1, 2.5 and true; then each other text: x was there before, and the last one is empty.
    assert (means["a", "all", "distinct@2"], means["a", "all", "distinct@20"]) == (2 + 3, 2 + 3 + len(texts) - 2)


# ---- like any other metric


def test_experiments_are_compared_and_gated_by_intents(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    lists = {"control": ["x", "x", "y"], "varied": ["x", "y", "x"]}
    rows = [
        row
        for experiment, intents in lists.items()
        for user in "uvw"
        for row in a_list(*((i, 1, [n]) for i, n in zip("abc", intents, strict=True)), user=user, experiment=experiment)
    ]
    log_of(spark, rows).write.parquet(str(tmp_path / "log"))
    more: dict[str, Any] = {"report": str(tmp_path / "report.html")} if rep.has_page_libraries() else {}
    more |= {"metrics": ["distinct@2", "alpha_ndcg@2"], "comparison": {"baseline": "control"}}
    gates = [{"metric": "distinct@2", "max_drop": 0.1}]
    file = config_file(tmp_path / "log", tmp_path / "out", source={"columns": COLUMNS}, gates=gates, **more)
    out, _ = ok(call, "evaluate", "--config", file, "--format", "json")
    result = {row["metric"]: row for row in json.loads(out)["comparisons"]}
    assert [result["distinct@2"][name] for name in ("mean_baseline", "mean_candidate", "wins")] == [1, 2, 3]
    gain = 1 - (1 + 1 / 2 / log2(3)) / (1 + 1 / log2(3))
    assert result["alpha_ndcg(alpha=0.5)@2"]["difference"] == pytest.approx(gain)
    if rep.has_page_libraries():
        assert "distinct intents@2 of varied rose by 1.0000" in (tmp_path / "report.html").read_text()


# ---- what is refused


@pytest.mark.outcome("{metric}, {what}", "`ConfigError`: {message} ...")
@pytest.mark.parametrize(
    ("metric", "what", "columns", "judged", "message"), [(*given, message) for given, message in messages("intents")]
)
def test_a_metric_without_its_intents_is_refused(
    spark: SparkSession, metric: str, what: str, columns: dict[str, Any], judged: dict[str, str] | None, message: str
) -> None:
    log = log_of(spark, a_list(("a", 1, ["x"])))
    truth = None if judged is None else truth_of(spark, [Judged("u", "a", 1, "1")])
    with pytest.raises(ConfigError) as caught:
        evaluate(log, [metric], truth, columns=columns, judgement_columns=judged)
    assert message in str(caught.value)
    assert "set " in str(caught.value)


@pytest.mark.outcome("intents of type {kind}", "exit 3: a string, a whole number or a boolean, or an array of these")
@pytest.mark.parametrize(
    ("kind", "cell"), [("double", 1.5), ("array<double>", [1.5]), ("array<array<string>>", [["x"]])]
)
def test_other_types_are_refused(spark: SparkSession, kind: str, cell: Any) -> None:
    with pytest.raises(InputError, match=r"column 'category' \(intents\) has type .*; it must be a string, a whole"):
        evaluate(log_of(spark, a_list(("a", 1, cell)), kind), ["distinct@1"], columns=COLUMNS)


def test_no_column_is_read_where_no_metric_needs_intents(spark: SparkSession) -> None:
    log = log_of(spark, a_list(("a", 1, 1.5)), "double")
    assert evaluate(log, ["ap"], columns=COLUMNS).user_metrics.count() == 1


def test_an_empty_log_has_no_rows(spark: SparkSession) -> None:
    assert evaluate(log_of(spark, []), METRICS, columns=COLUMNS).user_metrics.collect() == []


@pytest.mark.parametrize("metric", ["alpha_ndcg@5", "distinct@5"])
def test_a_udf_reads_no_intents(metric: str) -> None:
    with pytest.raises(ConfigError, match=r"needs intents, which a UDF does not read; allowed: evaluate"):
        metric_udf(metric)
