"""Conventions through Spark: side by side, refused repeats, ties in the record, a notebook's own metric."""

import csv
import json
import math
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import Convention, Options, compare_conventions, config as cfg, conventions, evaluate, tools
from rankmetrics_spark.errors import ConfigError, QualityError, QualityWarning
from rankmetrics_spark.job import run
from rankmetrics_spark.metrics import PRESETS, resolve
from rankmetrics_spark.report import accounting, checks, figures_of, local_tables
from rankmetrics_spark.road import Tables
from rankmetrics_spark.tools.golden import populations
from tests.helpers import logs, messages
from tests.helpers.commands import ROOT, Call, ok, ran

ROWS = [
    ("a", "u1", "i1", 1, 2.0, 1),
    ("a", "u1", "i2", 2, 2.0, 0),
    ("a", "u2", "i3", 1, 1.0, 0),
    ("b", "u1", "i2", 1, 5.0, 0),
    ("b", "u1", "i1", 2, 4.0, 1),
]
SCHEMA = "experiment_id string, user_id string, item_id string, position int, score double, relevance int"
JUDGED = [("u1", "i1", 1.0), ("u1", "i9", 2.0), ("u3", "i1", 1.0), ("u4", "i1", 0.0)]
METRICS = ("ap@10", "ndcg@10", "rr")
BY_SCORE = Options(metrics=METRICS, rank_by="score")


def log(spark: SparkSession, rows: Sequence[Any] = ROWS) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def judged(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(JUDGED, "user_id string, item_id string, relevance double")


@pytest.mark.parametrize(
    ("rank_by", "with_judgements"),
    [("score", True), ("position", False), *(messages.slow(*each) for each in (("score", False), ("position", True)))],
)
def test_side_by_side_gives_the_values_of_evaluate(spark: SparkSession, rank_by: str, with_judgements: bool) -> None:
    pools = judged(spark) if with_judgements else None
    rows = compare_conventions(log(spark), pools, Options(metrics=METRICS, rank_by=rank_by))
    assert len(rows) == 2 * (len(PRESETS) + 2 * (rank_by == "score"))
    for preset in ("standard", "trec_eval", "recommenders", "tfma", "rectools"):
        if rank_by == "score" and PRESETS[preset].ties == "position" and preset != "recommenders":
            continue
        result = evaluate(log(spark), METRICS, pools, rank_by=rank_by, convention=preset)
        for row in result.experiment_metrics.toLocalIterator():
            matching = [r for r in rows if (r["experiment_id"], r["convention"]) == (row["experiment_id"], preset)]
            values = [matching[0][name] for name in (row["metric"], "n_users", "n_users_with_relevant")]
            assert values == [row["mean"], row["n_users"], row["n_users_with_relevant"]], (preset, row)


def test_side_by_side_counts_the_faulty_rows_of_every_experiment(spark: SparkSession) -> None:
    faulty = [("a", "u1", "i7", 3, None, 0), ("a", "u1", "i8", 4, math.nan, 0), ("c", "u1", None, 1, 1.0, 1)]
    rows = compare_conventions(log(spark, [*ROWS, *faulty]), None, BY_SCORE)
    assert {(row["experiment_id"], row["n_faulty_rows"]) for row in rows} == {("a", 2), ("b", 0), ("c", 1)}
    only_faulty = [row for row in rows if row["experiment_id"] == "c"]
    assert all(row["n_users"] == 0 and row["ap@10"] is None for row in only_faulty)
    without_faults = compare_conventions(log(spark), None, BY_SCORE)
    assert [r for r in rows if r["experiment_id"] == "b"] == [r for r in without_faults if r["experiment_id"] == "b"]


def test_side_by_side_counts_the_faulty_judgements(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    lost = [("u1", "i1", None), ("u1", None, 2.0), (None, "i1", 1.0)]
    truth = spark.createDataFrame([*JUDGED, *lost], "user_id string, item_id string, relevance double")
    own = {"metrics": "ap@10", "columns": {"relevance": None}}
    counted, sound = compare_conventions(log(spark), truth, own), compare_conventions(log(spark), judged(spark), own)
    assert {row["n_faulty_judgements"] for row in counted} == {3}
    assert counted == [row | {"n_faulty_judgements": 3} for row in sound]
    assert "n_faulty_judgements" not in compare_conventions(log(spark), None, BY_SCORE)[0]
    log(spark).write.parquet(f"{tmp_path}/log")
    truth.write.parquet(f"{tmp_path}/truth")
    more = {"source": {"columns": own["columns"]}, "judgements": {"path": f"{tmp_path}/truth"}, "metrics": "ap@10"}
    file = logs.config_file(tmp_path / "log", tmp_path / "out", **more)
    out, _ = ok(call, "conventions", "--config", file, "--format", "csv")
    header, *lines = csv.reader(out.splitlines())
    assert {line[header.index("n_faulty_judgements")] for line in lines} == {"3"}


@pytest.mark.parametrize("metrics", [["ap@10"], ["softmax_loss"]])
def test_side_by_side_a_refused_repeat_is_counted_for_users_without_a_value_too(
    spark: SparkSession, metrics: list[str]
) -> None:
    rows = [("a", "u1", "i1", 1, 2.0, 0), ("a", "u1", "i1", 2, 1.0, 0), ("a", "u2", "i2", 1, 1.0, 1)]
    rule = Convention(duplicates="refuse", zero_relevant="skip")
    (row,) = compare_conventions(log(spark, rows), None, {"metrics": metrics, "rank_by": "score"}, [rule])
    assert row["differs"].startswith("refuses 1 repeated rows; ")
    assert all(row[name] is None for name in row if name.startswith(("ap", "softmax")))


def test_side_by_side_takes_the_keywords_of_evaluate(spark: SparkSession) -> None:
    keywords = {"metrics": "ap@10", "columns": {"relevance": None}, "convention": {"population": "judged"}}
    rows = compare_conventions(log(spark), judged(spark), keywords)
    result = evaluate(log(spark), judgements=judged(spark), **keywords)  # type: ignore[arg-type]
    expected = {row["experiment_id"]: row["mean"] for row in result.experiment_metrics.collect()}
    own = {row["experiment_id"]: row["ap@10"] for row in rows if row["convention"] == "standard(population=judged)"}
    assert own == expected


def test_side_by_side_takes_conventions_by_name_and_as_mappings(spark: SparkSession) -> None:
    options = {"metrics": METRICS, "convention": {"relevant_from": 2}}
    mapping = {"preset": "trec_eval", "gain": "binary"}
    rows = compare_conventions(log(spark), None, options, ["standard", mapping, Convention(gain="binary")])
    own = [Convention(relevant_from=2), resolve(mapping), Convention(gain="binary")]
    assert rows == compare_conventions(log(spark), None, options, own)
    assert compare_conventions(log(spark), None, options, "standard") == [rows[0], rows[3]]
    nothing: Any = 3
    for wrong, message in (
        (["trec"], "unknown convention 'trec'; did you mean 'trec_eval'?"),
        ([nothing], "convention is 3; it must be a preset or a mapping of knobs"),
        (nothing, "conventions is 3; allowed: a list of presets or conventions, or None for every preset"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            compare_conventions(log(spark), None, None, wrong)


@pytest.mark.outcome("a convention that cannot have an effect on the input", "exit 2: the knob and what it needs")
def test_side_by_side_refuses_a_convention_that_cannot_have_an_effect(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"convention\.ties is 'expected', but rank_by is 'position'"):
        compare_conventions(log(spark), None, None, [Convention(ties="expected")])
    with pytest.raises(ConfigError, match="conventions is empty; allowed: at least one convention"):
        compare_conventions(log(spark), None, None, [])


@pytest.mark.classic
def test_side_by_side_reads_and_shuffles_the_rows_once(spark: SparkSession) -> None:
    options = Options(metrics=METRICS, rank_by="score", judged=True)
    means = conventions._means(Tables.of(log(spark), judged(spark), options, conventions.every_convention(options)))
    means.collect()
    plan = means._jdf.queryExecution().executedPlan().toString().split("== Initial Plan ==")[0]
    scans = [line for line in plan.splitlines() if "score#" in line and "Scan ExistingRDD" in line]
    assert len(scans) == 1


@pytest.mark.both_engines
def test_the_golden_values_hold_on_the_executors(spark: SparkSession) -> None:
    assert all(check.ok for check in tools.golden_checks(tools.by_spark(spark)))


# ---- the users that each system counts: the rows of tools/golden/population.csv

POPULATIONS: dict[str, dict[str, Any]] = dict(messages.json_cases("populations of other systems"))
ZERO_DEFECTS = {"recommenders.py", "RePlay pandas", "RePlay polars", "RecTools"}
"""Here a row of the ground truth counts as relevant even with grade 0."""

COVERAGE = [("perfect", 1.0), ("unjudged", None), ("unseen", 1.0), ("zero", 0.0)]
"""User -> the grade of the only item; None: it is not judged. ``unseen`` has no list."""


@pytest.mark.parametrize("zero", [False, True], ids=["three users", "with a user of grade 0"])
def test_the_populations_of_the_systems_hold_in_spark(spark: SparkSession, zero: bool) -> None:
    users = COVERAGE if zero else COVERAGE[:-1]
    shown = log(spark, [("all", user, "a", 1, 1.0, None) for user, _ in users if user != "unseen"])
    truth = [(user, "a", grade) for user, grade in users if grade is not None]
    expected = {
        (resolve(settings.get(column, settings["map"])), metric): float(row[f"{column}{'_with_grade0_user' * zero}"])
        for row in populations()
        for column, metric in (("map", "ap@1"), ("ndcg", "ndcg@1"))
        if not (zero and row["system"] in ZERO_DEFECTS)
        for settings in [POPULATIONS[row["system"]]]
    }
    rules = {rule.name: rule for rule, _ in expected}
    request = {"metrics": ["ap@1", "ndcg@1"], "columns": {"relevance": None}, "rank_by": "score"}
    judgements = spark.createDataFrame(truth, "user_id string, item_id string, relevance double")
    rows = compare_conventions(shown, judgements, request, list(rules.values()))
    result = {row["convention"]: row for row in rows}
    assert {(rule.name, metric): result[rule.name][metric] for rule, metric in expected} == {
        (rule.name, metric): pytest.approx(mean, abs=5e-4) for (rule, metric), mean in expected.items()
    }
    assert {row["system"] for row in populations()} - ZERO_DEFECTS == {
        "ir_measures",
        "ranx make_comparable",
        "pytrec_eval mean of returned",
    }


def config(tmp_path: Path, spark: SparkSession, rows: Sequence[Any], **changes: Any) -> Any:
    log(spark, rows).coalesce(1).write.mode("overwrite").parquet(str(tmp_path / "log"))
    source = {"path": str(tmp_path / "log"), "columns": {"score": "score"}}
    return cfg.from_mapping(
        {"source": source, "sink": {"path": str(tmp_path / "out")}, "metrics": ["ap@10", "rr"]}
        | {"quality": {"max_invalid_fraction": 0.9}}
        | changes
    )


GRADES = (
    "the relevance has grades other than 0 and 1, and every grade above 0 is a hit{}, of ratings one star too, which "
    "can turn the answer round: set convention.relevant_from to the smallest grade that is a hit, or quality.gates: "
    "{{graded_rate: {{warn: 1}}}} if every grade above 0 is one"
)


@pytest.mark.outcome(
    "relevance with several grades, and no `relevant_from`", "ok: a warning says that every grade above 0 is a hit"
)
def test_several_grades_without_a_smallest_hit_are_warned_of(spark: SparkSession, tmp_path: Path) -> None:
    stars = [("a", "u1", "i1", 1, 2.0, 3), ("a", "u1", "i2", 2, 1.0, 5), ("b", "u1", "i1", 1, 2.0, 4)]
    cases: dict[str, dict[str, Any]] = {
        "clicks": {"rows": ROWS},
        "stars": {},
        "chosen": {"convention": {"relevant_from": 4}},
        "gains": {"metrics": ["ndcg@10", "dcg"]},  # asks for no hit
        "binary": {"metrics": ["ndcg@10"], "convention": {"gain": "binary"}},
        "secondary": {"metrics": ["ndcg@10", "rr"]},  # what decides asks for none
        "primary": {"metrics": ["ndcg@10", "rr"], "comparison": {"baseline": "a", "primary": ["rr"]}},
        "accepted": {"quality": {"gates": {"graded_rate": {"warn": 1}}}},
        "limited": {"quality": {"gates": {"graded_rate": {"warn": 0.9}}}},
    }
    for name, case in cases.items():
        made = config(tmp_path, spark, case.pop("rows", stars), sink={"path": str(tmp_path / name)}, **case)
        done, warned = run(spark, made), name in ("stars", "binary", "primary")
        beyond = "100 % of the lists have grades other than 0 and 1 (warning above 90 %: quality.gates.graded_rate."
        of_rates = [f"{arm}: {beyond}warn)" for arm in "ab"] if name == "limited" else []
        assert done.record["quality"]["warnings"] == [GRADES.format("")] * warned + of_rates, name
        notes = [note for note in done.record["notes"] if "is a hit" in note]
        assert notes == [GRADES.format(" for rr")] * (name == "secondary")
        rows = [row for row in done.checks.collect() if row["name"] == "relevant_from"]
        assert [(row["experiment_id"], row["status"], row["observed"]) for row in rows] == [
            ("a", "warn", 1.0), ("b", "warn", 1.0),
        ] * warned, name  # fmt: skip
        assert (f"warning: {GRADES.format('')}" in accounting(done.record)) == warned
    tables = local_tables(str(tmp_path / "stars"))
    assert tables is not None
    assert [check.level for check in checks(figures_of(tables)) if check.topic == "Grades"] == ["warn"]
    with pytest.warns(QualityWarning, match="smallest grade that is a hit"):
        evaluate(log(spark, stars), METRICS, convention="standard").check()


def test_a_run_says_how_many_unjudged_items_it_removed_and_where_most(spark: SparkSession, tmp_path: Path) -> None:
    shown = [("a", "u1", f"i{rank}", rank, -float(rank), 0) for rank in (1, 2, 3, 4)]
    shown += [("b", "u1", f"i{rank}", rank, -float(rank), 0) for rank in (1, 2)]
    judged(spark).where("user_id = 'u1'").write.parquet(str(tmp_path / "judged"))
    truth = {"path": str(tmp_path / "judged")}
    columns = {"source": {"path": str(tmp_path / "log"), "columns": {"relevance": None}}, "judgements": truth}
    removed = run(spark, config(tmp_path, spark, shown, convention={"unjudged": "removed"}, **columns))
    kept = run(spark, config(tmp_path, spark, shown, **columns, sink={"path": str(tmp_path / "b")}))
    # Of all items only i1 is judged: 3 of 4 are removed from a, 1 of 2 from b.
    sentence = (
        "4 shown items have no judgement and are removed from their lists (convention.unjudged): "
        "75.0% of 'a', 50.0% of 'b'"
    )
    assert [note for note in removed.record["notes"] if "judgement" in note] == [sentence]
    assert not any("judgement" in note for note in kept.record["notes"])


@pytest.mark.parametrize("rank_by", ["position", "score"])
def test_condensed_lists_move_up_by_the_items_without_a_judgement(spark: SparkSession, rank_by: str) -> None:
    # Grades by rank: -, 0, (a gap), -, 2, 1; by score there is no gap.
    shown = [("a", "u", f"i{rank}", rank, -float(rank), 0) for rank in (1, 2, 4, 5, 6)]
    truth = [("u", "i2", 0.0), ("u", "i5", 2.0), ("u", "i6", 1.0), ("u", "i9", 1.0)]
    judgements = spark.createDataFrame(truth, "user_id string, item_id string, relevance double")
    rule: dict[str, Any] = {"columns": {"relevance": None}, "rank_by": rank_by, "convention": {"unjudged": "removed"}}
    (row,) = evaluate(log(spark, shown), ["rr", "average_rank", "p@2"], judgements, **rule).user_metrics.collect()
    first = 2 if rank_by == "score" else 3
    expected = [1 / first, first + 1 / 2, (rank_by == "score") / 2]
    assert [row[name] for name in ("rr", "average_rank", "p_at_2")] == expected
    assert row["n_shown"] == 5


@pytest.mark.outcome(
    "an item twice in a list under `duplicates: refuse`, ranked by {rank_by}",
    "exit 4: how many rows, and what else `duplicates` can be",
)
@pytest.mark.parametrize("rank_by", ["score", "position"])
def test_a_repeated_item_is_refused_if_the_convention_says_so(
    spark: SparkSession, tmp_path: Path, rank_by: str
) -> None:
    rows = [*ROWS, ("b", "u1", "i2", 3, 1.0, 0)]
    with pytest.raises(QualityError, match=r"1 of 6 rows repeat an item of their list.*'trec_eval' refuses") as caught:
        # Before the share of faulty rows, which is above 1 % too.
        run(spark, config(tmp_path, spark, rows, convention="trec_eval", rank_by=rank_by, quality={}))
    assert caught.value.exit_code == 4
    assert not (tmp_path / "out" / "user_metrics").exists()


def test_the_record_and_the_terminal_say_how_many_scores_are_tied(spark: SparkSession, tmp_path: Path) -> None:
    outcome = run(spark, config(tmp_path, spark, ROWS, rank_by="score"))
    record = json.loads(Path(outcome.record_path).read_text())
    assert {name: counts["tied"] for name, counts in record["experiments"].items()} == {"a": 2, "b": 0}
    # Two of the three rows of experiment 'a' have the same score: 2 / 3.
    assert accounting(record)[1].startswith("rows with tied scores: a 67 % (")


def test_the_best_and_the_worst_order_of_ties_are_shown_side_by_side(spark: SparkSession) -> None:
    rows = compare_conventions(log(spark), None, BY_SCORE)
    result = {row["convention"]: row["rr"] for row in rows if row["experiment_id"] == "a"}
    # The relevant item of u1 is at rank 1 or at rank 2, depending on the tie; u2 has no relevant item.
    assert result["standard(ties=best)"] == (1 + 0) / 2
    assert result["standard(ties=worst)"] == (1 / 2 + 0) / 2


def test_a_metric_of_scores_needs_their_column(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="did you mean 'score'"):
        evaluate(log(spark), ["softmax_loss"], columns={"score": "scoer"})


SCRIPT = """
import numpy as np
from rankmetrics_spark import Convention, evaluate, metric
from rankmetrics_spark.engines.spark import local_session

scale = 2.0

@metric
def top_gain(lists, k: int):
    best = np.zeros(lists.batch.size)
    np.maximum.at(best, lists.found.list, lists.gains * (lists.found.rank <= k))
    return scale * best

spark = local_session("local[2]", "notebook", {"spark.sql.shuffle.partitions": "2"})
rows = [("u", f"i{r}", r, g) for r, g in enumerate([1, 0, 3], start=1)]
log = spark.createDataFrame(rows, "user_id string, item_id string, position int, relevance int")
mine = Convention(preset="mine", gain="exponential")
users = evaluate(log, ["top_gain@3", "ap@10"], columns={"experiment": None}, convention=mine).user_metrics
print("VALUE", users.first()["top_gain_at_3"])
spark.stop()
"""


@pytest.mark.classic
@pytest.mark.program
def test_a_metric_of_a_script_reaches_executors_that_cannot_import_it(tmp_path: Path) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = ran([sys.executable, script], tmp_path, environment)
    assert "VALUE 14.0" in done.stdout, done.stderr[-3000:]
