"""What the docs promise of many tests, counted in simulated ones: errors of families, joint coverage, margins, ratios.

Each draw is a log of users that goes through the sums and the rows of ``comparisons``. `make test-slow` runs them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rankmetrics_spark.comparison import STATISTICS, comparison_rows
from rankmetrics_spark.config import Comparison
from tests.helpers.users import METRIC, apart, by_key, compared, question, table, totals_of, user_rows

pytestmark = pytest.mark.slow


NAMES = ("a", "b", "c", "d")
METRICS = ("m1", "m2", "m3", "m4", "m5")
ROLES = {"m1": "primary", "m2": "primary", "m3": "guardrail", "m4": "secondary", "m5": "secondary"}
Row = dict[str, Any]


def log(
    rng: np.random.Generator, paired: bool, n: int = 50, effects: dict[tuple[str, str], float] | None = None
) -> Any:
    """Users of four experiments, and five metrics of the same lists, which go together and are skewed.

    Args:
        rng: Draws them.
        paired: Whether the same users are in all experiments.
        n: Users of an experiment.
        effects: (experiment, metric) -> the true difference from an experiment without one.
    """
    user = rng.exponential(0.3, n if paired else 4 * n)
    user = np.tile(user, 4) if paired else user
    columns = {}
    # Experiments differ in spread, and metrics have a part in common.
    shared, spread = rng.exponential(0.2, 4 * n), np.repeat([0.5, 1.0, 1.5, 1.0], n)
    for metric in METRICS:
        shift = np.repeat([(effects or {}).get((name, metric), 0.0) for name in NAMES], n)
        noise = spread * (shared + rng.exponential(0.2, 4 * n) - 0.4)
        columns[metric] = user + noise + shift
    users = (table if paired else lambda arms: apart(**arms))({name: np.zeros(n) for name in NAMES})
    return users.assign(**columns, country=np.tile(np.arange(n) % 3, 4).astype(str))


def draws(n: int, paired: bool, seed: int, effects: Any = None, users: int = 50, **rules: Any) -> Iterator[list[Row]]:
    """The rows of so many tests; a third of the users are in each segment."""
    rng, request = np.random.default_rng(seed), Comparison(pairs="all")
    segments = ("country",) if rules.pop("segments", True) else ()
    shape = {"roles": ROLES, "design": "paired" if paired else "independent"} | rules
    whole = question(request, METRICS, **shape)
    for _ in range(n):
        totals = totals_of(user_rows(log(rng, paired, users, effects), METRICS, segments), request)
        yield [*by_key(comparison_rows(totals, whole, STATISTICS_HERE)).values()]


STATISTICS_HERE = [STATISTICS[name] for name in ("names", "better", "correction", "adjusted", "against_rest")]
"""What the tests look at: the others take most of the time."""


def at_most(share: float, level: float, n: int) -> bool:
    """Whether a share of n tests is at most the level, within three standard errors of the simulation."""
    return bool(share <= level + 3 * np.sqrt(level * (1 - level) / n))


EFFECTS = {(name, metric): 0.5 for name in "bd" for metric in ("m1", "m3", "m5")}
"""Large ones of some experiments and metrics: a and c are alike, and so are b and d; m2 and m4 differ nowhere."""


def is_null(row: Row, effects: Any) -> bool:
    ends = (effects.get((row[name], row["metric"]), 0.0) for name in ("experiment_id", "baseline"))
    return len({*ends}) == 1


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("correction", ["holm", "bonferroni"])
@pytest.mark.parametrize("effects", [{}, EFFECTS], ids=["no effect", "some effects"])
def test_each_family_finds_something_that_is_not_there_in_at_most_5_of_100_tests(
    paired: bool, correction: str, effects: Any
) -> None:
    n, wrong = 200, dict.fromkeys(["primary metrics", "guardrails", "secondary metrics", "segments of country"], 0)
    for rows in draws(n, paired, 41, effects, 50, correction=correction):
        result = {row["family"] for row in rows if is_null(row, effects) and row["better"] is not None}
        assert {row["family"] for row in rows} == {*wrong}
        for family in result:
            wrong[family] += 1
    assert all(at_most(times / n, 0.05, n) for times in wrong.values()), wrong


@pytest.mark.parametrize("paired", [True, False])
def test_with_a_share_for_the_primary_metrics_all_rows_together_keep_the_level(paired: bool) -> None:
    n = 400
    result = [
        {row["family"] for row in rows if row["better"] is not None}
        for rows in draws(n, paired, 42, users=150, primary_share=0.8)
    ]
    assert at_most(np.mean([bool(families) for families in result]), 0.05, n)
    assert at_most(np.mean(["primary metrics" in families for families in result]), 0.04, n)
    assert at_most(np.mean(["all but primary" in families for families in result]), 0.01, n)


@pytest.mark.parametrize("paired", [True, False])
def test_simultaneous_intervals_cover_all_differences_of_a_family(paired: bool) -> None:
    n, missed = 300, dict.fromkeys(["primary metrics", "guardrails", "secondary metrics", "segments of country"], 0)
    true = {("b", "m1"): 0.1, ("c", "m2"): -0.05, ("d", "m3"): 0.3, ("d", "m5"): 0.6}
    for rows in draws(n, paired, 43, true, 150, correction="bonferroni", simultaneous=True):
        families = set()
        for row in rows:
            truth = true.get((row["experiment_id"], row["metric"]), 0) - true.get((row["baseline"], row["metric"]), 0)
            if not row["adjusted_ci_low"] <= truth <= row["adjusted_ci_high"]:
                families.add(row["family"])
        for family in families:
            missed[family] += 1
    assert all(at_most(times / n, 0.05, n) for times in missed.values()), missed


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("in_shares", [True, False])
def test_at_the_margin_no_worse_is_shown_in_at_most_the_level_of_the_rows(paired: bool, in_shares: bool) -> None:
    n, rng, shown, equivalent = 2_000, np.random.default_rng(45), 0, 0
    margin, users = 0.1, 80
    for _ in range(n):
        base = rng.normal(1.0, 0.3, users)
        other = base + rng.normal(0, 0.2, users) if paired else rng.normal(1.0, 0.3, users)
        # A candidate that is worse by just the margin.
        worse = other * (1 - margin) if in_shares else other - margin
        arms = {"a": base, "b": worse}
        size = f"{100 * margin}%" if in_shares else margin
        rows = compared(table(arms) if paired else apart(**arms), Comparison("a"), margin={METRIC: size})
        (row,) = rows.values()
        shown += row["within_margin"] is not None
        equivalent += row["within_margin"] == "equivalent"
    assert at_most(shown / n, 0.025, n) and at_most(equivalent / n, 0.025, n)
    assert shown / n > 0.015


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_over_lists_cover_in_94_to_96_of_100_tests_with_heavy_users(paired: bool) -> None:
    n, rng, users, truth = 4_000, np.random.default_rng(46), 300, 0.02
    covered = 0
    for _ in range(n):
        lists = np.ceil(rng.gamma(0.5, 8, (2, users)) + 0.01)
        lists[1] = lists[0] if paired else lists[1]
        level = 0.4 + 0.05 * np.log(lists) + rng.normal(0, 0.15, (2, users))
        level[1] = 0.7 * level[0] + 0.3 * level[1] + truth if paired else level[1] + truth
        arms = {"a": level[0], "b": level[1]}
        log_of_users = (table(arms) if paired else apart(**arms)).assign(list_count=lists.ravel())
        (row,) = compared(log_of_users, Comparison("a", mean_over="lists")).values()
        covered += row["ci_low"] <= truth <= row["ci_high"]
    assert 0.94 <= covered / n <= 0.96


def test_segments_against_the_rest_name_one_in_at_most_5_of_100_tests() -> None:
    n, named = 300, 0
    for rows in draws(n, False, 47):
        of_primary = [row["p_rest_adjusted"] for row in rows if row["role"] == "primary" and row["segment"] != "all"]
        named += bool(np.nanmin(of_primary) < 0.05)
    assert at_most(named / n, 0.05, n)
