"""Sums of doubles that no order can change, against Python's exact arithmetic."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
from pyspark.sql import SparkSession

from rankmetrics_spark.sums import EXPONENTS, exact_mean, exact_sums, limbs_of, mean_of


def test_sums_are_exact_and_means_have_one_value_in_every_order(spark: SparkSession) -> None:
    rng = random.Random(1)
    # Multiples of 2**-60, which is what the sums resolve, of very different sizes and both signs.
    values = [math.ldexp(rng.randint(-(2**52), 2**52), rng.randint(-60, -20)) for _ in range(500)]
    wanted = sum(map(Fraction, values))
    means = set()
    for pieces in (1, 5):
        rng.shuffle(values)
        table = spark.createDataFrame([(value,) for value in [*values, None]], "v double").repartition(pieces)
        row = table.agg(*exact_sums("v"), exact_mean("v").alias("mean")).first()
        assert row is not None
        assert sum(Fraction(2) ** exponent * row[i] for i, exponent in enumerate(EXPONENTS)) == wanted
        assert mean_of(row[: len(EXPONENTS)], len(values)) == float(wanted / len(values))
        means.add(row["mean"])
        assert [int(part.sum()) for part in limbs_of(np.array(values))] == [row[i] for i in range(len(EXPONENTS))]
    (mean,) = means
    assert math.isclose(mean, float(wanted / len(values)), rel_tol=1e-12)


def test_the_mean_of_nothing_is_null(spark: SparkSession) -> None:
    table = spark.createDataFrame([(None,)], "v double")
    assert table.agg(exact_mean("v")).first()[0] is None
