"""Impression logs of a given size. Spark generates them once and keeps them as Parquet.

Each (experiment, user) has fifty rows, and 8 % of the rows are relevant. The items of a list are distinct. Scores fall
with the rank, so ranking by position and by score gives the same values. ``relevance`` is a click, ``grade`` is 0 to 3,
``gain`` is a real number. All columns are functions of the row number, so the same size always gives the same rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

LIST = 50
FILES = 8
ITEMS = 10_000_019
STRIDE = 2_654_435_761
"""ITEMS and STRIDE are primes. Row i of a scattered log holds impression i * STRIDE mod rows: a permutation."""

LAYOUTS = ("in_order", "scattered")


@dataclass(frozen=True)
class Dataset:
    """The properties of a generated log.

    Attributes:
        rows: Number of impressions.
        layout: Order of the rows: ``in_order`` (the rows of a list are adjacent) or ``scattered`` (over all files).
        variant: ``even``, or one of the skewed variants in ``VARIANTS``.
        experiments: Number of experiments of an even log; all experiments have the same users.
        big: Rows of the one big list in ``hot_user`` and ``giant_list``; 0 = half of the rows, but at most 5 million.
    """

    rows: int
    layout: str = "in_order"
    variant: str = "even"
    experiments: int = 4
    big: int = 0

    @property
    def name(self) -> str:
        big = f"-{self.big}" if self.big else ""
        return f"{self.variant}-{self.layout}-{self.experiments}-{self.rows}{big}"

    @property
    def head(self) -> int:
        return self.big or min(self.rows // 2, 5_000_000)


def ensure(spark: SparkSession, folder: Path, dataset: Dataset) -> str:
    """The path of the log, which is generated if it does not exist."""
    path = folder / "data" / dataset.name
    if not (path / "_SUCCESS").exists():
        frame(spark, dataset).write.mode("overwrite").option("compression", "snappy").parquet(str(path))
    return str(path)


def other_shapes(path: str) -> None:
    """The same log as other shapes beside it, once: a row per list; with its requests; its clicks as events; tests."""
    spark = SparkSession.active()
    rows = spark.read.parquet(path)
    keys = ["experiment", "user"]
    in_order = "array_sort(collect_list(struct(position, item, score, relevance)))"
    items = f"transform({in_order}, x -> struct(x.item, x.score, x.relevance))"
    request = F.xxhash64(*keys).alias("request")
    shapes: dict[str, Callable[[], DataFrame]] = {
        "nested": lambda: rows.groupBy(*keys).agg(F.expr(items).alias("items")),
        "requests": lambda: rows.select(*keys, "item", "position", "relevance", request),
        "events": lambda: rows.where("relevance > 0").select("item", request),
        # A machine rates all, and people every tenth user.
        "labels": lambda: rows.selectExpr(
            "user", "item", "grade AS llm", f"CASE WHEN {_TENTH} THEN grade END AS people"
        ),
        # A user of an experiment is a user of their own, who is in one test, or in ten of a hundred.
        "tested": lambda: rows.selectExpr(f"{TESTED} AS user", "item", "position", "relevance"),
        "one_test": lambda: rows.where("position = 1").selectExpr(f"{TESTED} AS user", "'t' AS test", _arm(0)),
        "tests": lambda: (
            rows.where("position = 1")
            .selectExpr(f"{TESTED} AS user", "explode(sequence(0, 9)) AS tens")
            .selectExpr("user", "concat('t', 10 * tens + pmod(xxhash64(user, tens), 10)) AS test", _arm("tens"))
        ),
    }
    for shape, table in shapes.items():
        if not Path(f"{path}-{shape}", "_SUCCESS").exists():
            table().write.mode("overwrite").parquet(f"{path}-{shape}")


_TENTH = "pmod(xxhash64(user), 10) = 0"
TESTED = "concat(experiment, ' ', user)"


def _arm(seed: int | str) -> str:
    return f"CASE WHEN pmod(xxhash64(user, {seed}, 1), 2) = 0 THEN 'a' ELSE 'b' END AS arm"


def frame(spark: SparkSession, dataset: Dataset) -> DataFrame:
    """The log as a lazy table."""
    number = F.col("id") if dataset.layout == "in_order" else F.expr(f"(id * {STRIDE}) % {dataset.rows}")
    rows = spark.range(0, dataset.rows, 1, FILES).select(number.alias("row"))
    listed = rows.withColumns(VARIANTS[dataset.variant](dataset))
    item = (F.col("list") * 7919 + F.col("position")) % ITEMS
    share = _uniform("row", 1)
    relevant = share < 0.08
    return listed.select(
        F.col("experiment"),
        F.col("user"),
        F.concat(F.lit("item-"), item.cast("string")).alias("item"),
        F.col("position").cast("int").alias("position"),
        (1.0 / (F.col("position") + 0.9 * _uniform("row", 2))).alias("score"),
        relevant.cast("int").alias("relevance"),
        F.when(relevant, 1 + F.floor(share / 0.08 * 3)).otherwise(0).cast("int").alias("grade"),
        F.when(relevant, 0.25 + share / 0.08).otherwise(0.0).alias("gain"),
        F.concat(F.lit("country-"), (F.col("list") % 8).cast("string")).alias("country"),
        F.concat(F.lit("device-"), (F.col("list") % 3).cast("string")).alias("device"),
    )


def _uniform(name: str, seed: int) -> Column:
    """A pseudo-random number in [0, 1) that depends only on the column ``name`` and the seed."""
    return F.pmod(F.xxhash64(F.col(name), F.lit(seed)), F.lit(1 << 20)) / F.lit(float(1 << 20))


def _names(number: Column, experiment: Column) -> dict[str, Column]:
    return {
        "experiment": F.concat(F.lit("exp-"), experiment.cast("string")),
        "user": F.concat(F.lit("user-"), number.cast("string")),
    }


def _plain(row: Column) -> dict[str, Column]:
    return {"list": F.floor(row / LIST), "position": row % LIST + 1}


def _even(dataset: Dataset) -> dict[str, Column]:
    place = _plain(F.col("row"))
    return place | _names(F.floor(place["list"] / dataset.experiments), place["list"] % dataset.experiments)


def _hot_user(dataset: Dataset) -> dict[str, Column]:
    """The first rows form one big list of one user; all other lists have equal size."""
    row, head = F.col("row"), F.lit(dataset.head)
    hot = row < head
    place = _plain(row - head)
    number = F.when(hot, 0).otherwise(place["list"] + 1)
    position = F.when(hot, row + 1).otherwise(place["position"])
    experiment = number % dataset.experiments
    user = F.when(hot, 0).otherwise(F.floor(number / dataset.experiments) + 1)
    return {"list": number, "position": position} | _names(user, experiment)


def _hot_experiment(dataset: Dataset) -> dict[str, Column]:
    """99 % of the lists belong to the first experiment."""
    place = _plain(F.col("row"))
    number = place["list"]
    others = 1 + F.floor(number / 100) % (dataset.experiments - 1)
    return place | _names(number, F.when(number % 100 < 99, 0).otherwise(others))


def _many_experiments(dataset: Dataset) -> dict[str, Column]:
    """Each experiment has exactly one list."""
    place = _plain(F.col("row"))
    return place | _names(place["list"], place["list"])


VARIANTS: dict[str, Callable[[Dataset], dict[str, Column]]] = {
    "even": _even,
    "hot_user": _hot_user,
    "giant_list": _hot_user,
    "hot_experiment": _hot_experiment,
    "many_experiments": _many_experiments,
}
