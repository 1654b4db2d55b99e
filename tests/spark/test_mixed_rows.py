"""Rows of ``user_metrics`` that no comparison may put together: conventions, dates, days that are there twice."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import compare, effect_over_time, engines as eng, errors as err, evaluate, plan
from tests.helpers.commands import ROOT, ran
from tests.helpers.logs import exact
from tests.helpers.messages import messages

DAYS = ("2026-11-08", "2026-11-09")


def users_of(spark: SparkSession, *dates: str) -> DataFrame:
    """A row of each of four users on each of these dates, two users in each experiment."""
    rows = [("ab"[n % 2], f"u{n}", date, 1, 1, n / 4) for n in range(4) for date in dates]
    schema = "experiment_id string, user_id string, evaluation_date string, n_lists int, n_relevant int, ap double"
    return spark.createDataFrame(rows, schema)


def test_rows_of_several_conventions_or_dates_have_no_verdict(spark: SparkSession) -> None:
    users, names = users_of(spark, DAYS[0]), F.col("experiment_id")
    hashed = users.withColumn("convention_hash", F.lit("f6792186"))
    mixed = users.withColumn("convention_hash", names)
    dated = hashed.withColumn("evaluation_date", F.when(names == "a", DAYS[0]).otherwise(DAYS[1]))
    conventions = "the rows of user_metrics follow different conventions, and their values cannot be compared; allowed:"
    dates = "user_metrics has rows of several dates; allowed: rows of one evaluation_date, or a period, such as dates="
    for refused, sentence in (
        (compare(mixed, "a"), conventions),
        (effect_over_time(mixed, "a"), conventions),
        (compare(dated, "a"), dates),
    ):
        with pytest.raises(Exception, match=sentence):
            refused.collect()
    # b has 1/4 and 3/4, a has 0 and 2/4.
    (row,) = compare(hashed, "a").collect()
    assert row["difference"] == 0.25
    assert exact([row]) == exact(compare(users.drop("evaluation_date"), "a").collect())


def test_the_rows_of_a_folder_that_a_filter_chooses_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    """The filter leaves one value in the columns that all rows of a comparison have to share."""
    users = users_of(spark, *DAYS).withColumn("convention_hash", F.lit("f6792186"))
    users.write.partitionBy("evaluation_date", "convention_hash").parquet(str(tmp_path / "users"))
    stored = spark.read.parquet(str(tmp_path / "users"))
    chosen = stored.where(f"evaluation_date = '{DAYS[0]}' and convention_hash = 'f6792186'")
    for rows in (chosen, chosen.orderBy("user_id"), chosen.coalesce(1)):
        (row,) = compare(rows, "a").collect()
        assert (row["n_users_baseline"], row["n_users_candidate"], row["difference"]) == (2, 2, 0.25)


ON_ONE_CORE = """
from pyspark.sql import functions as F
from rankmetrics_spark import compare, laptop_session

spark = laptop_session(threads=1)
rows = [("ab"[n % 2], f"u{n}", 1, 1, n / 4) for n in range(4)]
users = spark.createDataFrame(rows, "experiment_id string, user_id string, n_lists int, n_relevant int, ap double")
sorted_users = users.withColumn("convention_hash", F.lit("f6792186")).orderBy(F.rand(3))
print([row["difference"] for row in compare(sorted_users, "a").collect()])
spark.stop()
"""


@pytest.mark.slow
def test_sorted_users_of_one_convention_are_compared_on_one_core(spark: SparkSession, tmp_path: Path) -> None:
    """With one thread of Sail, nothing stands between a value that is constant and what is computed from it."""
    hashed = users_of(spark, DAYS[0]).withColumn("convention_hash", F.lit("f6792186"))
    assert [row["difference"] for row in compare(hashed.orderBy(F.rand(3)), "a").collect()] == [0.25]
    if eng.engine_of(spark) == "sail":
        (tmp_path / "program.py").write_text(ON_ONE_CORE)
        done = ran([sys.executable, "program.py"], tmp_path, {"PYTHONPATH": str(ROOT), "PATH": "/nothing"})
        assert (done.returncode, done.stdout) == (0, "[0.25]\n"), done.stderr


def test_users_of_two_evaluations_are_compared_under_one_convention_only(spark: SparkSession) -> None:
    log = pd.DataFrame([("a", f"u{n}", f"i{i}", i, n % i == 0) for n in range(6) for i in (1, 2, 3)],
                       columns=["experiment", "user", "item", "position", "relevance"])  # fmt: skip
    ours = evaluate(spark.createDataFrame(log), "ap@2").user_metrics
    theirs = spark.createDataFrame(log.assign(experiment="b"))
    row = compare(ours.unionByName(evaluate(theirs, "ap@2").user_metrics), "a").first()
    assert row is not None and row["difference"] == 0
    other = evaluate(theirs, "ap@2", convention="trec_eval").user_metrics
    with pytest.raises(Exception, match="the rows of user_metrics follow different conventions"):
        compare(ours.unionByName(other), "a").collect()


@pytest.mark.parametrize(("value", "sentence"), messages("dates of user_metrics"))
def test_what_is_no_date_is_not_left_out(spark: SparkSession, value: str, sentence: str) -> None:
    wrong = users_of(spark, DAYS[1]).withColumn("evaluation_date", F.expr(value))
    users = wrong if "type" in sentence else wrong.unionByName(users_of(spark, DAYS[0]))
    for refused in (
        lambda: compare(users, "a", dates=DAYS),
        lambda: effect_over_time(users, "a", dates=DAYS),
        lambda: effect_over_time(users, "a").collect(),
        lambda: plan(users, "ap"),
    ):
        with pytest.raises(Exception, match=sentence) as raised:
            refused()
        assert isinstance(raised.value, err.InputError) or "InputError" in str(raised.value)


@pytest.mark.parametrize("dates", [DAYS, (DAYS[0], "2027-02-14")])
def test_a_day_that_is_there_twice_is_refused(spark: SparkSession, dates: tuple[str, str]) -> None:
    once = users_of(spark, *dates)
    (row,) = compare(once, "a", dates=dates).collect()
    assert (row["n_users"], row["n_days"], row["difference"]) == (4, 2, 0.25)
    twice = once.unionByName(users_of(spark, dates[1]).where("user_id = 'u3'"))
    for refused in (lambda: compare(twice, "a", dates=dates).collect(), lambda: plan(twice, "ap")):
        with pytest.raises(Exception, match="a user has two rows of one experiment and date in user_metrics; allowed:"):
            refused()
