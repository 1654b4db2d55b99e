"""Experiment against experiment on Spark: reference files, bits, jobs, the job and the command."""

import io
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F
from scipy import stats
from statsmodels.stats.multitest import multipletests

from rankmetrics_spark import compare
from rankmetrics_spark.comparison import STATISTICS, types_of
from rankmetrics_spark.errors import ConfigError, InputError, raised_by_python
from rankmetrics_spark.sinks import read
from tests.helpers.commands import Call, ok
from tests.helpers.logs import DATE, SCHEMA, a_list, config_file, exact, impressions, only_records, parquet
from tests.helpers.messages import messages

# ---- the reference files


def per_query(spark: SparkSession, folder: Path, columns: dict[str, str]) -> DataFrame:
    """The reference's values of every query as ``user_metrics``; a query without an answer counts 0."""
    result = pd.read_csv(folder / "ref.perquery.csv.gz", float_precision="round_trip", dtype={"query": str})
    every = pd.MultiIndex.from_product([result["run"].unique(), result["query"].unique()], names=["run", "query"])
    table = result.set_index(["run", "query"])[[*columns]].reindex(every).fillna(0.0).reset_index()
    names = {"run": "experiment_id", "query": "user_id", **columns}
    return spark.createDataFrame(table.rename(columns=names).assign(n_relevant=1))


def by_pair(rows: list[Any], expected: pd.DataFrame, columns: dict[str, str]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each row beside the line of the reference that it is about."""
    names = {column.replace("_at_", "@"): measure for measure, column in columns.items()}
    lines = {(line.measure, line.run_a, line.run_b): line for line in expected.itertuples()}
    for row in rows:
        line = lines.pop((names[row["metric"]], row["baseline"], row["experiment_id"]), None)
        if line is not None:
            yield row.asDict(), line
    assert not lines


@pytest.mark.parametrize(
    ("name", "columns", "pairs"),
    [
        ("clef_tar2017", {"ap": "ap", "ndcg10_lin": "ndcg_at_10"}, 120),
        pytest.param(
            "lightgbm_rank",
            {"ap": "ap", "ndcg10_lin": "ndcg_at_10", "ndcg10_exp": "ndcg_at_20"},
            15,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_all_pairs_have_the_numbers_of_the_reference(
    spark: SparkSession, shared_data: Path, name: str, columns: dict[str, str], pairs: int
) -> None:
    users = per_query(spark, shared_data / name, columns)
    expected = pd.read_csv(shared_data / name / "ref.significance.csv")
    for seed in (1, 2):
        rows = compare(
            users,
            pairs="all",
            families="one",
            wilcoxon=seed == 1,
            randomization={"replicates": 1_999, "seed": seed},
            bootstrap={"replicates": 1_000, "seed": seed},
        ).collect()
        assert len(rows) == pairs * len(columns)
        chances, errors = [], []
        for row, line in by_pair(rows, expected, columns):
            assert row["design"] == "paired" and row["n_users"] == line.n
            assert row["difference"] == pytest.approx(line.diff, abs=1e-12)
            assert row["p_value"] == pytest.approx(line.p_t, abs=1e-10)
            if seed == 1:
                assert row["p_wilcoxon"] == pytest.approx(line.p_wilcoxon, abs=1e-10)
            chances.append(chance(row["p_randomization"], 1_999, line.p_randomization, 99_999))
            bounds = (row["bootstrap_ci_low"] - line.ci_lo, row["bootstrap_ci_high"] - line.ci_hi)
            errors += [bound / row["standard_error"] for bound in bounds]
        # No p-value is too far from the reference's, for as many as there are.
        assert min(chances) > 0.05 / (2 * 280) and np.mean(chances) > 0.3
        # The 2.5 % quantile of 1,000 normal replicates has an error of sqrt(0.025 * 0.975 / 1000) / 0.0584 = 0.085.
        assert np.max(np.abs(errors)) < 5 * 0.085 and np.sqrt(np.mean(np.square(errors))) < 1.5 * 0.085
        p = [row["p_value"] for row in rows]
        assert [row["p_adjusted"] for row in rows] == pytest.approx(list(multipletests(p, method="holm")[1]), rel=1e-12)
        assert {row["n_comparisons"] for row in rows} == {pairs * len(columns)}


def chance(ours: float, n_ours: int, theirs: float, n_theirs: int) -> float:
    """How likely two counts of replicates are at least so far apart if both have the same true share."""
    counts = [round(p * (n + 1) - 1) for p, n in ((ours, n_ours), (theirs, n_theirs))]
    share = stats.binom(sum(counts), n_ours / (n_ours + n_theirs))
    return float(2 * min(share.cdf(counts[0]), share.sf(counts[0] - 1)))


# ---- bits and jobs


def users_of(spark: SparkSession, experiments: int, users: int = 12) -> DataFrame:
    """Values of all users in all experiments, with a segment; some users lack a value."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        [(f"e{e:02}", f"u{u}", "de" if u % 3 else None) for e in range(experiments) for u in range(users)],
        columns=["experiment_id", "user_id", "country"],
    )
    table["n_relevant"] = 1
    table["ap_at_10"], table["ndcg_at_10"] = rng.random(len(table)), rng.random(len(table)) * 1e6
    return spark.createDataFrame(table)


@pytest.fixture
def partitions(spark: SparkSession) -> Iterator[Any]:
    """Set the number of partitions of every shuffle; Spark would otherwise put small ones together."""
    names = ("spark.sql.shuffle.partitions", "spark.sql.adaptive.coalescePartitions.enabled")
    old = [spark.conf.get(name) for name in names]

    def set_to(n: int) -> None:
        spark.conf.set(names[0], str(n))
        spark.conf.set(names[1], "false")

    yield set_to
    for name, value in zip(names, old, strict=True):
        spark.conf.set(name, value)


def test_partitions_and_the_order_of_rows_change_no_bit(spark: SparkSession, partitions: Any) -> None:
    users = users_of(spark, 3)
    before = users.where("experiment_id < 'e02'").withColumn("ap_at_10", users.ap_at_10 / 3)
    drawn = {"replicates": 99, "seed": 3}

    def compared(n: int, table: DataFrame, **more: Any) -> Any:
        partitions(n)
        rows = compare(
            table.repartition(n),
            "e01",
            pairs="all",
            segments="country",
            bootstrap=drawn,
            randomization=drawn,
            aa_check=drawn,
            ranks=True,
            shares={"e00": 1, "e01": 1, "e02": 1},
            margin={"ap@10": "1%", "ndcg@10": 1000},
            **more,
        )
        rows = rows.collect()
        # CUPED is a test of its own, and some columns follow it.
        of_margins = ("worst_case", "relative_worst_case", "p_no_worse", "p_equivalent", "within_margin")
        of_tests = ("p_wilcoxon", "cuped", "sparse", "test", "p_adjusted", "better", "note", "adjusted")
        left_out = (*of_margins, *of_tests, "minimum", "users_needed")
        return exact(rows), exact(rows, [name for name in types_of(STATISTICS.values()) if name.startswith(left_out)])

    alone = compared(1, users, wilcoxon=True, before=before)
    assert len(alone[0]) == 3 * 3 * 2
    shuffled = users.orderBy("user_id", "experiment_id")
    assert compared(7, shuffled, wilcoxon=True, before=before.repartition(7)) == alone
    # Hundreds of tasks take long; signed ranks and earlier values would triple them.
    assert compared(200, users.orderBy("ap_at_10"))[1] == alone[1]


@pytest.mark.slow
@pytest.mark.classic
def test_32_experiments_start_as_many_jobs_as_3(spark: SparkSession) -> None:
    counts = []
    for experiments in (3, 32):
        group = uuid.uuid4().hex
        table = users_of(spark, experiments).cache()
        table.count()
        spark.sparkContext.setJobGroup(group, "counted")
        try:
            rows = compare(table, pairs="all", bootstrap={"replicates": 99}, metrics="ap@10").collect()
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        table.unpersist()
        assert len(rows) == experiments * (experiments - 1) / 2
        counts.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
    assert counts[0] == counts[1]


# ---- what compare refuses


NO_COLUMNS = ({"user_metrics": pd.DataFrame()}, "user_metrics is a table without columns; allowed: one column per role")


@pytest.mark.parametrize(("arguments", "message"), [*messages("arguments of compare"), NO_COLUMNS])
def test_a_wrong_argument_is_refused_before_anything_runs(
    spark: SparkSession, arguments: dict[str, Any], message: str
) -> None:
    users = spark.createDataFrame([], "experiment_id string, user_id string, country string, n_relevant long, "
                                      "ap_at_10 double, ndcg_at_10 double")  # fmt: skip
    with pytest.raises((ConfigError, InputError), match=message):
        compare(**{"user_metrics": users, **arguments})


def test_names_and_types_are_taken_as_users_write_them(spark: SparkSession) -> None:
    # Read back without a schema, the folders of the experiments 1 and 2 are numbers.
    values = [(e, f"u{u}", 1, float(u + e * (u % 2))) for e in (1, 2, 3) for u in range(4)]
    users = spark.createDataFrame(values, "experiment_id long, user_id string, n_relevant int, ap_at_10 double")
    rows = compare(users, "1", candidates="2", metrics=["ap@10", "map@10"]).collect()
    assert [(row["baseline"], row["experiment_id"], row["metric"]) for row in rows] == [("1", "2", "ap@10")]
    # Users 1 and 3 gain 1, users 0 and 2 nothing.
    assert (rows[0]["difference"], rows[0]["wins"], rows[0]["ties"]) == (0.5, 2, 2)


def test_a_mistake_that_only_the_users_show_is_named_where_the_rows_are_read(spark: SparkSession) -> None:
    users = users_of(spark, 2)
    for wrong, message in (
        (compare(users, "e09"), "unknown experiment 'e09'; did you mean 'e0"),
        (compare(users.union(users), "e00"), "a user has two rows of one experiment in user_metrics; allowed: one"),
    ):
        with pytest.raises(Exception, match=message):
            wrong.collect()


def test_users_without_a_name_are_not_one_person(spark: SparkSession) -> None:
    users = users_of(spark, 2)
    nameless = users.withColumn("user_id", F.expr("nullif(user_id, 'u0')"))
    assert nameless.where("user_id IS NULL").count() == 2, "one row of each experiment"
    sentence = "user_metrics has rows whose user_id is null; allowed: rows that"
    for rows, more in ((nameless, {}), (nameless.withColumn("house", F.lit("h")), {"cluster": "house"})):
        with pytest.raises(InputError, match=sentence):
            compare(rows, "e00", **more).collect()
        # Of a DataFrame made from it, the engine raises the error; a notebook and the command say the sentence.
        with pytest.raises(Exception, match=sentence) as raised:
            compare(rows, "e00", **more).limit(1).collect()
        assert isinstance(raised_by_python(raised.value), InputError)


def test_the_table_of_a_notebook_has_all_users_of_many_segments(spark: SparkSession) -> None:
    # 60 candidates, all users and 16 segments: 1,020 rows. Only the last candidate is better.
    names = ["a", *(f"c{k:02d}" for k in range(60))]
    rows = [
        (name, f"u{u}", f"s{u % 16:02d}", 1, (u % 7) / 10 + (0.2 + (u % 3) / 100) * (name == "c59"))
        for name in names
        for u in range(32)
    ]
    users = spark.createDataFrame(
        rows, "experiment_id string, user_id string, country string, n_relevant int, ap_at_10 double"
    )
    shown = compare(users, "a", segments="country")._repr_html_()
    assert "c59 beats a on MAP@10" in shown
    assert "48 more, in the table comparisons" in shown, "of 60 comparisons, 12 have a sentence"
    assert shown.count("<tr>") == 1 + 1000 and "20 more rows are in the table" in shown


# ---- the job and the command


def document(folder: Path, **sections: Any) -> Path:
    """A config over a log of 12 users in three experiments: b puts the relevant item first, c is a."""
    log = folder / "log"
    if not log.exists():
        rows = []
        for u in range(12):
            worse = [0] * (1 + u % 3) + [1]
            for name, grades in (("a", worse), ("b", worse[::-1]), ("c", worse)):
                rows += a_list(grades, f"u{u}", name)
        parquet(log, rows)
    return config_file(log, folder / "out", **{"metrics": ["ap@5"], **sections})


def last_line(err: str) -> str:
    assert "Traceback" not in err and "org.apache" not in err
    return [line for line in err.splitlines() if line.startswith("rankmetrics: ")][-1]


def test_a_run_writes_comparisons_and_says_the_verdict(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    request = {"baseline": "a", "wilcoxon": True, "bootstrap": {"replicates": 99}}
    gates = [{"metric": "ap@5", "max_drop": 0.0}, {"metric": "ap@5", "min": 0.25}]
    file = document(tmp_path, comparison=request, gates=gates)
    out, _ = ok(call, "evaluate", "--config", file, "--date", DATE, "--format", "table")
    verdict = [line for line in out.splitlines() if " on MAP@5: " in line]
    assert verdict[0].startswith("b beats a on MAP@5: 0.") and "p < 0.001 after Holm (2 comparisons)" in verdict[0]
    assert verdict[1].startswith("c against a on MAP@5: no difference shown, ")
    (record,) = (tmp_path / "out" / "runs").glob("*.json")
    *recorded, last = json.loads(record.read_text())["verdict"]
    assert recorded == verdict and last.startswith("Intervals are corrected like the p-values")
    folders = sorted(path.parent.name for path in (tmp_path / "out" / "comparisons").glob("*/evaluation_date=*"))
    assert folders == ["experiment_id=b", "experiment_id=c"]
    rows = {row["experiment_id"]: row for row in read(spark, str(tmp_path / "out" / "comparisons")).collect()}
    before = [1 / (2 + u % 3) for u in range(12)]
    assert rows["b"]["p_value"] == pytest.approx(stats.ttest_rel([1] * 12, before).pvalue, rel=1e-10)
    assert rows["b"]["difference"] == pytest.approx(1 - np.mean(before), rel=1e-12)
    assert (rows["b"]["evaluation_date"], rows["b"]["better"], rows["c"]["better"]) == (DATE, "candidate", None)
    means = read(spark, str(tmp_path / "out" / "experiment_metrics")).where("experiment_id = 'a'").first()
    assert means is not None and means["bootstrap_ci_low"] < means["mean"] < means["bootstrap_ci_high"]

    # The command on what was written gives the same rows, and adds what was asked for.
    options = ("--baseline", "a", "--set", "wilcoxon=true", "--set", "bootstrap.replicates=99", "--format", "json")
    out, err = ok(call, "compare", "--input", tmp_path / "out", *options, "--losses", 2)
    result = json.loads(out)
    assert result["losses"] == [] and result["evaluation_date"] == DATE
    assert [text.partition(" on ")[0] for text in result["verdict"][:2]] == ["b beats a", "c against a"]
    assert f"users of {DATE}\n" in err
    for row in result["comparisons"]:
        written = rows[row["experiment_id"]].asDict()
        assert row == {name: written[name] for name in row}
    code, out, _ = call("compare", "--input", tmp_path / "out", "--baseline", "b", "--candidate", "c", "--losses", 2,
                        "--decompose", "n_shown", "--format", "json")  # fmt: skip
    result = json.loads(out)
    # Users 2, 5, 8 and 11 have 1/4 instead of 1.
    assert [(row["user_id"], row["loss"]) for row in result["losses"]] == [("u11", 0.75), ("u2", 0.75)]
    parts = sum(row["mix"] + row["within"] for row in result["decomposition"])
    assert parts == pytest.approx(np.mean(before) - 1, rel=1e-12)
    assert parts == pytest.approx(result["comparisons"][0]["difference"], rel=1e-12)
    assert [row["segment"] for row in result["decomposition"]] == ["n_shown=2", "n_shown=3", "n_shown=4"]

    # CSV is one table: the one that was asked for beside the comparisons, where there is one.
    in_csv = ("compare", "--input", tmp_path / "out", "--baseline", "b", "--format", "csv")
    compared, losses = (pd.read_csv(io.StringIO(call(*in_csv, *more)[1])) for more in ((), ("--losses", 1)))
    keys = compared[["evaluation_date", "baseline", "experiment_id"]]
    assert keys.to_numpy().tolist() == [[DATE, "b", "a"], [DATE, "b", "c"]]
    assert losses[["experiment_id", "user_id"]].to_numpy().tolist() == [["a", "u11"], ["c", "u11"]]

    # Another baseline replaces the comparisons, and a run without one removes them.
    for comparison, left in (({"baseline": "b"}, {("b", "a"), ("b", "c")}), ({}, set())):
        assert call("evaluate", "--config", document(tmp_path, comparison=comparison), "--date", DATE)[0] == 0
        folder = tmp_path / "out" / "comparisons"
        pairs = read(spark, str(folder)).select("baseline", "experiment_id").collect() if left else []
        assert {tuple(pair) for pair in pairs} == left
        assert bool([*folder.rglob("*.parquet")]) == bool(left)

    # Mistakes end with one sentence.
    for (arguments, status), message in messages("mistakes of compare"):
        code, out, err = call("compare", "--input", tmp_path / "out", *arguments)
        assert (code, out) == (status, ""), err
        assert message in last_line(err)
    code, _, err = call("compare", "--input", tmp_path / "log", "--baseline", "a")
    assert code == 3 and "holds no user_metrics; allowed: the output folder of an earlier run" in last_line(err)


def test_cuped_takes_the_values_of_an_earlier_date(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    request = {"baseline": "a", "design": "independent", "cuped": {"date": "2026-11-19"}}
    code, _, err = call("evaluate", "--config", document(tmp_path, comparison=request), "--date", DATE)
    assert code == 3
    assert "comparison.cuped.date is 2026-11-19, but" in last_line(err)
    assert not (tmp_path / "out" / "user_metrics").exists()
    assert call("evaluate", "--config", document(tmp_path), "--date", "2026-11-19")[0] == 0
    # Less what was there before, nothing is left of what differs between users of c, which is a: so there is no bound.
    gates = [{"metric": "ap@5", "max_drop": 0.01, "on": "point", "experiment": "c"}]
    out, _ = ok(call, "evaluate", "--config", document(tmp_path, comparison=request, gates=gates), "--date", DATE)
    assert " with CUPED, p = 1.000" in out
    assert "no interval, since earlier values explain all that differs between users" in out
    rows = {row["experiment_id"]: row for row in read(spark, str(tmp_path / "out" / "comparisons")).collect()}
    assert rows["c"]["ci_low"] < -0.01 and rows["c"]["cuped_ci_low"] is None
    assert {row["test"] for row in rows.values()} == {"cuped"}
    assert rows["b"]["better"] == "candidate" and rows["b"]["p_adjusted"] == 2 * rows["b"]["cuped_p_value"]
    # The mean of a user's three earlier values grows with the user's value in a and c.
    assert rows["c"]["cuped_variance_reduction"] == pytest.approx(1)
    assert rows["c"]["cuped_difference"] == 0
    before = np.array([1 / (2 + u % 3) for u in range(12)])
    x = np.tile((2 * before + 1) / 3, 2)
    y, arm = np.concatenate([before, np.ones(12)]), np.repeat([0, 1], 12)
    fitted = np.linalg.lstsq(np.column_stack([np.ones(24), arm, x]), y, rcond=None)[0]
    assert rows["b"]["cuped_difference"] == pytest.approx(fitted[1], rel=1e-9)

    # Of several dates, the newest is taken, and said.
    for date, message in ((None, DATE), ("2026-11-19", "2026-11-19")):
        asked_date = () if date is None else ("--date", date)
        code, _, err = call("compare", "--input", tmp_path / "out", "--baseline", "a", *asked_date)
        assert code == 0 and f"users of {message}, one of 2 evaluation dates\n" in err


def test_cuped_takes_a_column_of_the_log(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    users = [(experiment, u) for experiment in "ab" for u in range(9)]
    value = {who: 1 / (2 + u % 3) if experiment == "a" else 1 / (1 + u % 2) for who in users for experiment, u in [who]}
    before = {(experiment, u): 0.1 * u + value[experiment, u] for experiment, u in users}
    # The earlier number of one user is not there, and the rows of another one disagree about it.
    unknown = {("a", 0), ("b", 1)}
    lines = ["experiment,user,item,position,relevance,earlier"]
    for experiment, u in users:
        for rank in range(1, round(1 / value[experiment, u]) + 1):
            hit = int(rank == round(1 / value[experiment, u]))
            earlier = before[experiment, u] if (experiment, u) not in unknown else rank if experiment == "b" else ""
            lines.append(f"{experiment},{experiment}{u},i{rank},{rank},{hit},{earlier}")
    (tmp_path / "log.csv").write_text("\n".join(lines))
    request = {"baseline": "a", "cuped": {"column": "earlier"}}
    config = document(tmp_path, source={"format": "csv", "path": str(tmp_path / "log.csv")}, comparison=request)
    ok(call, "evaluate", "--config", config, "--date", DATE)
    (row,) = read(spark, str(tmp_path / "out" / "comparisons")).collect()
    # A user without an earlier number counts as the mean of the others.
    mean = np.mean([number for who, number in before.items() if who not in unknown])
    x = np.array([mean if who in unknown else before[who] for who in users])
    y, arm = np.array([value[who] for who in users]), np.repeat([0, 1], 9)
    fitted = np.linalg.lstsq(np.column_stack([np.ones(18), arm, x]), y, rcond=None)[0]
    assert row["cuped_difference"] == pytest.approx(fitted[1], rel=1e-9)
    assert row["difference"] == pytest.approx(y[arm == 1].mean() - y[arm == 0].mean(), rel=1e-12)

    # The column is in user_metrics, so that the numbers can be had from there.
    written = read(spark, str(tmp_path / "out" / "user_metrics"))
    (again,) = compare(written, baseline="a", before="earlier").collect()
    # Only the output knows of earlier dates.
    assert again.asDict() == {name: row[name] for name in types_of(STATISTICS.values())} | {"look": None}
    assert row["look"] == 1
    for column, message in (("earlyer", "did you mean 'earlier'?"), ("user_id", "of type string; allowed: numbers")):
        with pytest.raises(InputError, match=re.escape(message)):
            compare(written, baseline="a", before=column)


def test_a_list_is_compared_within_its_own_segment(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    # Every user has a list on the web and one in the app; only the lists on the web are better in b.
    ranks = {("a", "web"): [2, 3, 4, 2], ("b", "web"): [1, 1, 3, 1]}
    ranks |= {("a", "app"): [1, 2, 1, 4], ("b", "app"): [2, 2, 2, 5]}
    rows = []
    for (experiment, device), first in ranks.items():
        for u, rank in enumerate(first):
            grades = [0] * (rank - 1) + [1]
            rows += [(*shown, device) for shown in a_list(grades, f"u{u}", experiment)]
    log = impressions(spark, rows, f"{SCHEMA}, device string")
    config = {
        "source": {"path": str(tmp_path / "log"), "list": "device_list", "segments": "device"},
        "comparison": {"baseline": "a", "wilcoxon": True, "bootstrap": {"replicates": 99}},
        "gates": [{"metric": "ap@5", "max_drop": 0.3, "segment": "device=app"}],
    }
    log.withColumn("device_list", F.col("device")).write.parquet(str(tmp_path / "log"))
    ok(call, "evaluate", "--config", document(tmp_path, **config), "--date", DATE)
    result = {row["segment"]: row for row in read(spark, str(tmp_path / "out" / "comparisons")).collect()}
    assert sorted(result) == ["all", "device=app", "device=web"]
    values = {key: 1 / np.array(first) for key, first in ranks.items()}
    everyone = {name: (values[name, "web"] + values[name, "app"]) / 2 for name in "ab"}
    for segment, a, b in (
        ("all", everyone["a"], everyone["b"]),
        *((f"device={name}", values["a", name], values["b", name]) for name in ("app", "web")),
    ):
        row = result[segment]
        assert (row["design"], row["n_users"]) == ("paired", 4)
        assert row["difference"] == pytest.approx(np.mean(b - a), rel=1e-12)
        assert row["p_value"] == pytest.approx(stats.ttest_rel(b, a).pvalue, rel=1e-10)
        assert row["p_wilcoxon"] == pytest.approx(stats.wilcoxon(b - a, method="approx").pvalue, rel=1e-10)
        assert row["bootstrap_ci_low"] <= row["difference"] <= row["bootstrap_ci_high"]
        # Each user is in both segments, so no other users are the rest.
        assert row["p_rest"] is None and row["rest_difference"] is None
    means = read(spark, str(tmp_path / "out" / "experiment_metrics"))
    assert means.where("bootstrap_ci_low IS NULL").isEmpty() and means.count() == 6

    gates = [{"metric": "ap@5", "max_drop": 0.05, "segment": "device=app"}]
    code, _, err = call("evaluate", "--config", document(tmp_path, **config | {"gates": gates}), "--date", DATE)
    assert code == 5
    assert "the gate allows 0.05" in last_line(err)


def test_a_gate_limits_a_segment_too_small_to_be_published(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    # First relevant ranks of the users: on the web b is far better, in the app it is worse, by 1/4 and 1/6.
    ranks = {
        "a": {"web": [2, 4, 5, 2, 3], "app": [2, 2]},
        "b": {"web": [1, 2, 2, 1, 1], "app": [4, 3]},
        "c": {"web": [3, 3, 5, 1, 4], "app": [2, 2]},
    }
    rows = []
    for experiment, devices in ranks.items():
        for device, first in devices.items():
            for u, rank in enumerate(first):
                rows += [(*row, device) for row in a_list([0] * (rank - 1) + [1], f"{device}{u}", experiment)]
    impressions(spark, rows, f"{SCHEMA}, device string").write.parquet(str(tmp_path / "log"))
    source = {"path": str(tmp_path / "log"), "segments": "device"}
    request = {"baseline": "a", "min_users": 3}
    # (1/4 + 1/6) / 2 = 5/24 = 0.2083
    of_app = {"metric": "ap@5", "max_drop": 0.21, "segment": "device=app"}
    of_all = {"metric": "ap@5", "max_drop": 0.4, "on": "clear"}

    def evaluated(**gate: Any) -> tuple[int, Any, str]:
        gates = [of_app | gate, of_all]
        file = document(tmp_path, source=source, comparison=request, gates=gates)
        code, out, err = call("evaluate", "--config", file, "--date", DATE, "--format", "json")
        return code, json.loads(out or "null"), last_line(err) if code else ""

    for more in ({}, {"pairs": "all"}, {"families": "one"}):
        request = {"baseline": "a", "min_users": 3, **more}
        code, result, err = evaluated()
        assert code == 0, err
        table = read(spark, str(tmp_path / "out" / "comparisons")).where("baseline = 'a'").collect()
        assert {row["segment"] for row in table} == {"all", "device=web"}
        drops = {(row["experiment_id"], row["segment"]): row["observed"] for row in result["checks"]
                 if row["name"] == "max_drop"}  # fmt: skip
        assert (drops["b", "device=app"], drops["c", "device=app"]) == (pytest.approx(5 / 24), 0)
        # The interval of the verdict, although the small segment was tested beside it.
        high = {row["experiment_id"]: row["adjusted_ci_high"] for row in table if row["segment"] == "all"}
        assert [drops[name, "all"] for name in "bc"] == [pytest.approx(-high[name], abs=1e-15) for name in "bc"]
        code, _, err = evaluated(max_drop=0.2)
        assert code == 5 and "MAP@5 in device=app of b fell by 0.2083 (0.500 → 0.292) against a" in err
    code, _, err = evaluated(segment="device=tv")
    assert code == 5 and "the gate on ap@5 cannot be checked: no row of segment 'device=tv'" in err


def test_gates_that_fail_end_with_5_and_publish_nothing(call: Call, tmp_path: Path) -> None:
    limits = [
        {"max_drop": 0.5},
        {"max_relative_drop": 0.5, "experiment": "c"},
        {"min": 0.5, "on": "bound"},
        {"min": 0.1, "segment": "country=de"},
        {"max_drop": 0.65, "min": 0.1},
    ]
    gates = [{"metric": "ap@5", **limit} for limit in limits]
    code, out, err = call("evaluate", "--config", document(tmp_path, comparison={"baseline": "b"}, gates=gates))
    assert (code, out) == (5, ""), err
    # The mean of a and c is (1/2 + 1/3 + 1/4) / 3 = 13/36.
    for message in (
        "MAP@5 of a fell by 0.6389 (1.000 → 0.361) against b; the gate allows 0.5; MAP@5 of c fell ",
        "MAP@5 of c fell by 63.89 % (1.000 → 0.361) against b; the gate allows 50.00 %; the lower bound of ",
        "the gate on ap@5 cannot be checked: no row of segment 'country=de' (gates; nothing was published)",
    ):
        assert message in last_line(err)
    assert "0.65" not in last_line(err)
    assert only_records(tmp_path / "out")


@pytest.mark.outcome("more replicates of all pairs and metrics than a process can hold", "exit 2: how many are allowed")
def test_too_many_replicates_end_with_2_before_anything_is_resampled(call: Call, tmp_path: Path) -> None:
    rows = [shown for e in range(12) for u in "uvw" for shown in a_list([e % 2, 1], u, f"e{e:02}")]
    source = {"path": str(parquet(tmp_path / "many", rows))}
    assert call("evaluate", "--config", document(tmp_path, source=source), "--date", DATE)[0] == 0
    drawn = {"replicates": 100_000}
    request = {"pairs": "all", "bootstrap": drawn, "randomization": drawn}
    settings = ("--set", "bootstrap.replicates=100000", "--set", "randomization.replicates=100000")
    before = sorted(tmp_path.rglob("user_metrics/**/*.parquet"))
    for arguments in (
        ("evaluate", "--config", document(tmp_path, source=source, comparison=request), "--date", DATE),
        ("compare", "--input", tmp_path / "out", "--pairs", "all", *settings),
    ):
        code, out, err = call(*arguments)
        assert (code, out) == (2, ""), err
        # 3 limbs x (100,000 x (2 x 12 + 3 x 66) + 100,001 x 2 x 66)
        message = (
            "100,000 replicates of 66 pairs and 1 metrics are 106,200,396 numbers; allowed: 100,000,000, so at most"
        )
        assert f"comparison: {message} 94,161 replicates, or fewer pairs or metrics" in last_line(err)
    assert sorted(tmp_path.rglob("user_metrics/**/*.parquet")) == before


@pytest.mark.outcome(
    "a baseline that is published on other days, whose rows are late or all faulty on this one", "exit 3, so try again"
)
def test_a_baseline_whose_rows_are_late_is_worth_another_try(call: Call, tmp_path: Path) -> None:
    config = document(tmp_path, comparison={"baseline": "a"}, quality={"max_invalid_fraction": 1})

    def refusal(*options: str) -> tuple[int, str]:
        code, out, err = call("evaluate", "--config", config, "--date", "2026-11-22", *options)
        assert out == ""
        return code, last_line(err).removeprefix("rankmetrics: ")

    without = ("--set", "source.where=experiment_id != 'a'")
    # Nobody has seen it yet: a wrong name.
    assert refusal(*without) == (2, "comparison.baseline: unknown experiment 'a'; known: b, c")
    assert call("evaluate", "--config", config, "--date", "2026-11-21")[0] == 0
    late = (3, "the log has no valid row of a, the baseline; run this again when it has")
    assert refusal(*without) == late
    assert refusal(*without, "--set", "comparison.candidates=[bb]")[1].startswith("comparison.candidates: unknown exp")
    faulty = [row._replace(position=None) for row in a_list([0, 1, 0])]
    parquet(tmp_path / "log", [*faulty, *a_list([0, 1], "u", "b")])
    assert refusal() == late
    parquet(tmp_path / "log", faulty)
    assert refusal() == (4, "all 3 rows are faulty, so no experiment has a result to compare")


def test_thousands_of_users_who_share_a_difference_are_tied(spark: SparkSession) -> None:
    # 4,000**3, the term of ties, has two parts.
    changes = np.repeat([0.5, -0.5], [2_050, 1_950])
    values = {"a": 0.5 + 0 * changes, "b": 0.5 + changes}
    parts = [pd.DataFrame({"experiment_id": name, "user_id": map(str, range(4_000)), "ap": each, "n_relevant": 1})
             for name, each in values.items()]  # fmt: skip
    (row,) = compare(spark.createDataFrame(pd.concat(parts)), "a", wilcoxon=True).collect()
    assert row["p_wilcoxon"] == pytest.approx(stats.wilcoxon(changes, method="approx").pvalue, rel=1e-10)


def test_intervals_that_cover_jointly_are_decided_by_bonferroni(spark: SparkSession) -> None:
    rng = np.random.default_rng(3)
    parts = [pd.DataFrame({"experiment_id": name, "user_id": map(str, range(40)), "ap": rng.random(40) + by})
             for name, by in (("a", 0), ("b", 0.2), ("c", 0.25), ("d", 0))]  # fmt: skip
    rows = compare(spark.createDataFrame(pd.concat(parts).assign(n_relevant=1)), "a", simultaneous=True).collect()
    _, expected, *_ = multipletests([row["p_value"] for row in rows], method="bonferroni")
    assert [row["p_adjusted"] for row in rows] == pytest.approx(expected, rel=1e-12)
    assert multipletests([row["p_value"] for row in rows], method="holm")[1].tolist() != pytest.approx(expected)
