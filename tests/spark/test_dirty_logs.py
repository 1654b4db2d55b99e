"""Hundreds of random dirty logs: every value and every row left out is what a brute-force evaluation says.

Each log is one experiment, so that one evaluation checks them all. It is there twice, the second time in another row
order, and both have to give the same bits. Fixed seeds find what was found before, fresh ones look for more: an
experiment is named after its seed, and ``DIRTY_LOGS_SEED=<seed>`` in the environment repeats a fresh one.
"""

import math
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import engines as eng, errors as err, evaluate, metrics as mx, read, run
from tests.helpers.dirty_logs import Case, Judged, Row, dirty_judgements, dirty_log, evaluated, fault, typed
from tests.helpers.logs import assert_close, bits, by_user, config
from tests.helpers.messages import json_cases, slow

FIXED = range(30)
N_FRESH, N_SMALL = 12, 16
AGAIN = " again"
RELEVANT = ["ap", "ap@3", "ndcg", "ndcg@3", "p@3", "r@3", "f1@3", "rr", "hit_rate@2", "rprec", "rbp", "cg@5", "dcg"]
RELEVANT += ["average_rank", "graded_rbp"]
RELEVANT += ["idcg@4", "err@5"]
EVERY = [*RELEVANT, "bpref", "judged@5", "auc", "auc@3", "rbp_residual"]
# The sums of a user's lists take several columns for each metric.
FEW = ["ap@3", "ndcg", "rr", "f1@3", "err@5", "cg@5"]

CASES = [Case(**case) for case in json_cases("evaluations of dirty logs")]


class Logs(NamedTuple):
    """The logs, as rows and as tables."""

    rows: list[Row]
    judged: list[Judged]
    table: DataFrame
    judgements: DataFrame
    hashes: dict[str | None, int]


@pytest.fixture(scope="module")
def logs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Logs]:
    """The logs of all lengths (False) and of short lists (True), each one twice."""
    first = int(os.environ.get("DIRTY_LOGS_SEED") or random.SystemRandom().randrange(1000, 10**9))
    fresh = range(first, first + N_FRESH)
    folder = tmp_path_factory.mktemp("dirty")
    return {
        False: _logs(spark, [*FIXED, *fresh], False, folder),
        True: _logs(spark, [*range(N_SMALL), *fresh[: N_SMALL // 2]], True, folder),
    }


def _logs(spark: SparkSession, seeds: list[int], small: bool, folder: Path) -> Logs:
    rows: list[Row] = []
    judged: list[Judged] = []
    for seed in seeds:
        log = dirty_log(seed, small)
        again = [row._replace(experiment_id=f"{seed}{AGAIN}") if row.experiment_id else row for row in log]
        rows += log + random.Random(seed).sample(again, len(again))
        judged += dirty_judgements(seed, log)
    _write(folder / f"log {small}", rows)
    _write(folder / f"judgements {small}", judged)
    tables = (spark.read.parquet(str(folder / f"{name} {small}")) for name in ("log", "judgements"))
    log, judgements = tables
    items = log.select("item_id", F.xxhash64("item_id").alias("hash")).distinct().collect()
    return Logs(rows, judged, log, judgements, {row["item_id"]: row["hash"] for row in items})


def _write(folder: Path, rows: Sequence[Row] | Sequence[Judged]) -> None:
    folder.mkdir()
    columns = zip(rows[0]._fields, zip(*rows, strict=True), strict=True)
    kinds = dict.fromkeys(("position", "score", "relevance"), pa.float64())
    table = {name: pa.array(values, kinds.get(name, pa.string())) for name, values in columns}
    pq.write_table(pa.table(table), folder / "part-0.parquet")


def result_of(logs: Logs, case: Case, table: DataFrame | None = None, columns: Any = None) -> Any:
    """The evaluation of the logs by the package."""
    return evaluate(
        _shown(case, logs.table if table is None else table) if columns is None else table,
        case.metrics,
        None if case.grades == "shown" else logs.judgements,
        case.rank_by,  # type: ignore[arg-type]
        columns=columns or {"relevance": None if case.grades == "looked up" else "relevance"},
        convention=case.convention,
        list=["session"] if case.session else (),
        layout=case.layout,  # type: ignore[arg-type]
        repeated_items=case.repeated_items,  # type: ignore[arg-type]
    )


def _shown(case: Case, table: DataFrame) -> DataFrame:
    """The log with ranks and grades in the type that the case needs."""
    whole = {
        name: F.expr(f"if(abs({name}) < double('inf') and not isnan({name}), bigint({name}), null)")
        for name in ("position", "relevance")
    }
    return table.withColumns(whole) if case.whole else table


def _with_metrics(case: Case) -> Case:
    if case.rule.ties == "expected":
        return replace(case, metrics=FEW[:3])
    if case.session:
        return replace(case, metrics=FEW)
    return replace(case, metrics=EVERY if case.grades != "shown" and not case.by_position else RELEVANT)


def in_every_run(case: Case) -> bool:
    """Whether make test has the case, beside the slow ones: each layout, both orders, each source of grades, ties."""
    return case.name in {"masks", "relevant of sessions", "own relevance, judged pool", "by score", "all orders"}


@pytest.mark.parametrize(
    "given", [pytest.param(case, marks=() if in_every_run(case) else pytest.mark.slow, id=case.name) for case in CASES]
)
def test_every_value_and_row_left_out_is_that_of_brute_force(logs: dict[bool, Logs], given: Case) -> None:
    some = logs[given.small]
    case = replace(_with_metrics(given), hashes=some.hashes)
    result, expected = result_of(some, case), evaluated(some.rows, some.judged, case)
    actual = by_user(result.user_metrics)
    if case.repeated_items != "all":
        # Repeats that change no value may stay.
        for row in expected.users.values():
            del row["n_shown"]
    assert_close(
        {key: row for key, row in actual.items() if key not in expected.contradicts},
        {key: row for key, row in expected.users.items() if key not in expected.contradicts},
    )
    assert actual.keys() == expected.users.keys()
    _check_ranges(actual, case)
    _check_twins(actual)
    if case.repeated_items == "all":
        left_out = result.quarantine.groupBy("experiment_id", "user_id", "reason").count().collect()
        assert {tuple(row)[:3]: row["count"] for row in left_out} == dict(expected.left_out)


@pytest.mark.parametrize(
    "given", [pytest.param(case, marks=() if in_every_run(case) else pytest.mark.slow, id=case.name) for case in CASES]
)
def test_a_log_with_a_row_per_list_gives_the_bits_of_its_items(logs: dict[bool, Logs], given: Case) -> None:
    case = _with_metrics(given)
    log = _shown(case, logs[given.small].table)
    # Of a list that has a key, some items come in another row.
    keys = ["experiment_id", "user_id", *(["session", F.expr("xxhash64(item_id) % 2")] if case.session else [])]
    item = F.struct("item_id", F.col("position").alias("slot"), "score", F.col("relevance").alias("clicks"))
    rows = log.groupBy(*keys).agg(F.collect_list(item).alias("shown"))
    relevance = None if case.grades == "looked up" else "clicks"
    columns = {"items": "shown", "position": "slot", "relevance": relevance}
    log = log.withColumnsRenamed({"position": "slot", "relevance": "clicks"})
    # A row without a list key is a list of its own.
    one = case if case.session else replace(case, session=True)
    log = log if case.session else log.withColumn("session", F.lit("the only one"))
    flat = result_of(logs[given.small], one, log, {"position": "slot", "relevance": relevance})
    nested = result_of(logs[given.small], case, rows, columns)
    actual, expected = by_user(nested.user_metrics), by_user(flat.user_metrics)
    assert actual.keys() == expected.keys()
    for key, row in expected.items():
        assert {name: bits(actual[key][name]) for name in row} == {name: bits(each) for name, each in row.items()}, key
    left = [
        Counter(map(tuple, r.quarantine.drop(*[] if case.session else ["session"]).collect())) for r in (nested, flat)
    ]
    assert left[0] == left[1]
    assert _counted(nested) == _counted(flat)


def _counted(result: Any) -> Any:
    """What is counted of a log, or why it is refused; digests are of the rows as they lie in the log."""
    try:
        counts = result.check(max_invalid_fraction=1).counts
        return {name: {**each, "digest": None} for name, each in counts.items()}
    except err.QualityError as error:
        return str(error)


def _check_ranges(result: dict[tuple[str, str], dict[str, Any]], case: Case) -> None:
    for key, row in result.items():
        for name in case.metrics:
            low, high = mx.parse(name).definition.range
            value = row[mx.parse(name).column]
            assert value is None or low <= value <= high, f"{key} {name}: {value} is outside of [{low}, {high}]"


def _check_twins(result: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The second copy of a log has its rows in another order; not one bit may differ."""
    for (experiment, user), row in result.items():
        twin = result[experiment.removesuffix(AGAIN), user]
        # Which of equal repeats stays may depend on nothing but the rows.
        different = [name for name, value in row.items() if bits(value) != bits(twin[name])]
        assert not different, f"{experiment}, {user}: {different} depend on the order of the rows"


KEPT = ["masks", "own relevance, judged pool", "relevant of sessions", "ignored repeats", "by score"]


@pytest.mark.parametrize("last", [pytest.param(63, id="ranks up to 63"), slow(math.inf, id="every rank")])
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if i else ()) for i, n in enumerate(KEPT)])
def test_a_job_which_keeps_scored_lists_publishes_the_same_bits(
    spark: SparkSession, logs: dict[bool, Logs], tmp_path: Path, name: str, last: float
) -> None:
    """A job chooses another layout, and on Sail reads flagged lists and faulty rows later."""
    case = replace(_with_metrics(next(case for case in CASES if case.name == name)), layout="auto")
    log = logs[False].table
    if last < math.inf:
        # With many clean lists, the layout is one that flags the others.
        ids = ("'clean' AS experiment_id", "string(id) AS user_id", "'s' AS session", "'i' AS item_id")
        clean = spark.range(2000).selectExpr(*ids, "1D AS position", "0.5D AS score", "1D AS relevance")
        log = log.where(f"position IS NULL OR position <= {last}D").unionByName(clean.select(log.columns))
    result = result_of(logs[False], case, log)
    _shown(case, log).write.parquet(str(tmp_path / "log"))
    judgements = {}
    if case.grades != "shown":
        judgements["judgements"] = {"path": str(tmp_path / "judgements")}
        logs[False].judgements.write.parquet(judgements["judgements"]["path"])
    done = run(
        spark,
        config(
            tmp_path / "log",
            tmp_path / "out",
            source={"list": ["session"] if case.session else []},
            rank_by=case.rank_by,
            metrics=case.metrics,
            convention=case.convention,
            quality={"max_invalid_fraction": 1, "repeated_items": case.repeated_items},
            **judgements,
        ),
    )
    if eng.engine_of(spark) == "sail" and case.by_position:
        assert done.record["layout"] == ("relevant" if last < math.inf else "whole")
    published, computed = by_user(done.user_metrics), by_user(result.user_metrics)
    assert published.keys() == computed.keys()
    for key, row in computed.items():
        assert [*map(bits, row.values())] == [bits(published[key][column]) for column in row], key
    published_rows, computed_rows = read(spark, done.paths["tables"]["quarantine"]), result.quarantine
    assert _left_out(published_rows) == _left_out(computed_rows)


def _left_out(quarantine: DataFrame) -> Counter[tuple[Any, ...]]:
    """How many rows are left out; an experiment without a name is published as that of the null partition."""
    keys = ("experiment_id", "user_id", "reason")
    total: Counter[tuple[Any, ...]] = Counter()
    for name, *key, n in quarantine.groupBy(*keys).count().collect():
        total[(name or None, *key)] += n
    return total


def test_the_logs_hold_every_fault(logs: dict[bool, Logs]) -> None:
    """The oracle would prove nothing about what no log contains."""
    by_rank = Case("by rank", session=True, hashes=logs[False].hashes)
    by_score = replace(by_rank, rank_by="score")
    rows = [row for row in logs[False].rows if row.experiment_id in {None, "", *map(str, FIXED)}]
    reasons = {fault(typed(row, case.whole), case) for row in rows for case in (by_rank, by_score)}
    assert reasons >= {
        *(f"null_{name}" for name in ("experiment", "user", "session", "item", "position", "score", "relevance")),
        *("empty_experiment", "nan_position", "nan_score", "nan_relevance", "infinite_relevance"),
        *("fractional_position", "position_below_1", "position_too_large", None),
    }
    expected = evaluated(rows, [], replace(by_rank, repeated_items="all"))
    assert {reason for _, _, reason in expected.left_out} >= {"duplicate_item", "repeated_position"}
    assert any(math.isinf(row.score) for row in rows if row.score is not None)


@pytest.mark.outcome(
    "an item twice, with a score or grade of 0.0 and of -0.0", "the two are equal: the better rank stays"
)
@pytest.mark.parametrize("signed", ["score", "relevance"])
def test_both_zeros_are_equal_where_a_row_repeats_an_item(spark: SparkSession, signed: str) -> None:
    names = ["experiment_id", "user_id", "item_id", "position", "score", "relevance"]
    rows = [{"position": 1, signed: -0.0}, {"position": 2, signed: 0.0}, {"position": 3, signed: -0.0}]
    same = {"experiment_id": "a", "user_id": "u", "item_id": "x", "score": 1.0, "relevance": 0.0}
    schema = "experiment_id string, user_id string, item_id string, position int, score double, relevance double"
    log = spark.createDataFrame([tuple((same | row)[name] for name in names) for row in rows], schema)
    # Ranks break ties of scores only; ranked by them, the best one stays too.
    rank_by: Any = "score" if signed == "score" else "position"
    convention = {"ties": "position"} if signed == "score" else "standard"
    left = evaluate(log, "ap", rank_by=rank_by, convention=convention, repeated_items="all").quarantine.collect()
    assert sorted((row["position"], row["reason"]) for row in left) == [(n, "duplicate_item") for n in ("2", "3")]
