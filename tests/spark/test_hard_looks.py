"""Few users, rare hits, unequal arms and heavy users, many draws at once: each metric or segment of a table is one."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import compare, effect_over_time, metrics as mx, report as rep

pytestmark = pytest.mark.slow

Rows = list[dict[str, Any]]


def users_of(a: int, b: int, values: Any, **columns: Any) -> pd.DataFrame:
    """Users of a and of b; each column of ``values`` is one draw, stored as the metric p@1, p@2, ..."""
    names = [f"p_at_{place}" for place in range(1, values.shape[1] + 1)]
    own = {"experiment_id": np.repeat(["a", "b"], [a, b]), "user_id": [f"u{place}" for place in range(a + b)]}
    plain = {"n_lists": 1, "n_relevant": 1} | own | columns
    return pd.concat([pd.DataFrame(plain), pd.DataFrame(values, columns=names)], axis=1)


def called(rows: Rows) -> float:
    """Share of the draws in which a look finds a difference."""
    found: dict[str, bool] = {}
    for row in rows:
        if row["kind"] == "cumulative":
            found[row["metric"]] = found.get(row["metric"], False) or (row["p_value"] or 1.0) < 0.05
    return float(np.mean([*found.values()]))


@pytest.mark.parametrize(
    ("arms", "zeros", "needed"),
    [((20, 180), 0.0, "a hit"), ((40, 360), 0.9, "a hit"), ((40, 360), 0.9, "a value other than 1")],
)
def test_any_number_of_looks_keeps_its_level_with_unequal_arms(
    spark: SparkSession, arms: tuple[int, int], zeros: float, needed: str
) -> None:
    """14 looks at a test without a difference; each user comes on one day."""
    rng, draws = np.random.default_rng(1), 250
    n = sum(arms)
    values = rng.exponential(1.0, (n, draws)) * (rng.random((n, draws)) >= zeros)
    values = values if needed == "a hit" else 1 - values
    days = [f"2026-11-{day:02d}" for day in rng.integers(1, 15, n)]
    table = spark.createDataFrame(users_of(*arms, values, evaluation_date=days))
    rows = [
        row.asDict()
        for row in effect_over_time(table, "a", looks="any", tuning_users=n).where("kind = 'cumulative'").collect()
    ]
    share = called(rows)
    few = f"no test yet: several looks need 10 users with {needed} in each experiment, and "
    untested = [row["note"] for row in rows if row["p_value"] is None]
    assert sum(note.startswith(few) for note in untested) > draws
    assert share <= (0.0 if zeros else 0.05)


@pytest.mark.parametrize("looks", ["any", "obrien_fleming"])
@pytest.mark.parametrize(
    ("zeros", "lift", "least", "most"), [(0.9, 0.0, 0.0, 0.03), (0.9, 2.0, 0.2, 1.0), (0.98, 0.0, 0.0, 0.03)]
)
def test_permutations_over_14_looks_keep_their_level_and_find_effects(
    spark: SparkSession, looks: str, zeros: float, lift: float, least: float, most: float
) -> None:
    rng, draws, arms, days = np.random.default_rng(5), 200, (40, 360), 14
    rates = np.repeat([1 - zeros, (1 - zeros) * (1 + lift)], arms)[:, None]
    values = rng.exponential(1.0, (sum(arms), draws)) * (rng.random((sum(arms), draws)) < rates)
    day, users = rng.integers(1, days + 1, sum(arms)), users_of(*arms, values)
    found: set[str] = set()
    for look in range(1, days + 1):
        rule: Any = "any" if looks == "any" else {"planned": days, "look": look, "spending": looks}
        table = spark.createDataFrame(users[day <= look])
        rows = compare(table, "a", correction="none", looks=rule, tuning_users=sum(arms)).collect()
        assert {row["test"] for row in rows} <= {"permutation", None}
        found |= {row["metric"] for row in rows if row["better"]}
    assert least <= len(found) / draws <= most


@pytest.mark.parametrize(("arms", "rate"), [((300, 300), 0.05), ((100, 900), 0.1)])
def test_relative_intervals_cover_in_95_of_100_draws_with_rare_hits(
    spark: SparkSession, arms: tuple[int, int], rate: float
) -> None:
    rng, draws, lift = np.random.default_rng(2), 1_000, 0.4
    hit = rng.random((sum(arms), draws)) < np.repeat([[rate], [rate * (1 + lift)]], arms, axis=0)
    table = spark.createDataFrame(users_of(*arms, hit * rng.choice([0.2, 0.5, 1.0], hit.shape)))
    rows = compare(table, "a", correction="none").select("relative_ci_low", "relative_ci_high", "ci_low").collect()
    shown = [row for row in rows if row["relative_ci_low"] is not None]
    covered = np.mean([row["relative_ci_low"] <= lift <= row["relative_ci_high"] for row in shown])
    assert len(shown) > 0.9 * draws and 0.94 <= covered <= 0.97


def test_heavy_users_are_said_wherever_the_test_over_lists_finds_too_much(spark: SparkSession) -> None:
    rng, draws, n = np.random.default_rng(4), 120, 150
    lists = np.ceil(rng.pareto(1.1, 2 * n * draws) + 1).clip(max=1e6)
    of_draw = {"n_lists": lists.astype(int), "draw": [f"d{i % draws}" for i in range(2 * n * draws)]}
    users = users_of(n * draws, n * draws, rng.beta(2, 3, (2 * n * draws, 1)), **of_draw)
    rows = compare(spark.createDataFrame(users), "a", segments=["draw"], mean_over="lists", correction="none")
    of_draws = [row.asDict() for row in rows.where("segment <> 'all'").collect()]
    heavy = [row for row in of_draws if "a few users have most of the lists" in (row["note"] or "")]
    found = np.mean([row["p_value"] < 0.05 for row in of_draws])
    assert len(of_draws) == draws and len(heavy) >= 0.9 * draws and found > 0.08
    assert heavy[0]["note"] in rep.sentence(heavy[0], mx.parse("p@1"))
    light = users.assign(n_lists=1 + (np.arange(len(users)) % 3))
    even = compare(spark.createDataFrame(light), "a", segments=["draw"], mean_over="lists").collect()
    assert {row["note"] for row in even} == {None}
