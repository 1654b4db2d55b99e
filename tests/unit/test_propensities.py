"""Examination propensities from the ranks that a log varies, against loops over its keys and simulated logs."""

import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from math import exp, log, prod

import numpy as np
import pytest
from scipy.optimize import minimize

from rankmetrics_spark.statistics import poisson_weights
from rankmetrics_spark.studies.weighting import Harvest, rows_of_ranks

METHODS = ("adjacent", "pivot", "all_pairs")
NAMES = ("rank", "propensity", "ci_low", "ci_high", "n_keys", "n_impressions", "n_clicks", "note")
Shown = dict[str, dict[int, tuple[int, int]]]
"""Key -> rank -> its impressions and clicks there."""


def table(keys: Shown, method: str, k: int, replicates: int = 99, deepest: int = 0) -> list[dict[str, object]]:
    """The rows of the result, from the sums of all keys at once."""
    shown, clicks = (np.array([[r.get(i + 1, (0, 0))[j] for i in range(k)] for r in keys.values()]) for j in (0, 1))
    harvest = Harvest(method, k, replicates, 1)
    sums = harvest.sums(shown, clicks, np.arange(len(keys), dtype=np.uint64))
    return [dict(zip(NAMES, row, strict=True)) for row in rows_of_ranks(harvest, sums, deepest or k, 0.95)]


def estimated(keys: Shown, method: str, k: int) -> list[object]:
    return [row["propensity"] for row in table(keys, method, k)]


# ---- the definitions, as loops


def rates(keys: Shown, first: int, second: int) -> tuple[int, float, float]:
    """Keys shown at both ranks, and the sums of their click rates at the first and at the second one."""
    both = [ranks for ranks in keys.values() if first in ranks and second in ranks]
    one, other = (sum(ranks[rank][1] / ranks[rank][0] for ranks in both) for rank in (first, second))
    return len(both), one, other


def by_definition(keys: Shown, method: str, k: int) -> list[float]:
    if method == "all_pairs":
        return most_likely(keys, k)

    def ratio(first: int, second: int) -> float:
        _, one, other = rates(keys, first, second)
        return other / one

    if method == "pivot":
        return [1.0, *(ratio(1, rank) for rank in range(2, k + 1))]
    return [prod(ratio(*pair) for pair in pairwise(range(1, rank + 1))) for rank in range(1, k + 1)]


def most_likely(keys: Shown, k: int) -> list[float]:
    """The weighted cross-entropy of the paper, climbed by a general optimiser: p and r as logistic functions."""
    pairs = {pair: rates(keys, *pair) for pair in combinations(range(1, k + 1), 2)}
    pairs = {pair: sums for pair, sums in pairs.items() if sums[0]}

    def loss(free: Sequence[float]) -> float:
        p = dict(zip(range(1, k + 1), free, strict=False))
        r = dict(zip(pairs, free[k:], strict=True))
        total = 0.0
        for pair, (n, *clicked) in pairs.items():
            for rank, c in zip(pair, clicked, strict=True):
                rate = 1 / (1 + exp(-p[rank])) / (1 + exp(-r[pair]))
                total -= c * log(rate) + (n - c) * log(1 - rate)
        return total

    best = minimize(loss, [0.0] * (k + len(pairs)), method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    p = [1 / (1 + exp(-value)) for value in best.x[:k]]
    return [value / p[0] for value in p]


def simulated(rng: np.random.Generator, queries: int, k: int, times: int, eta: float = 1.0) -> Shown:
    """Two rankers, which know the relevance of an item quite well, show each query's k items; p_i = 1 / i**eta."""
    keys: Shown = {}
    for query in range(queries):
        relevance = rng.beta(1, 2, k)
        for _ in range(2):
            order = np.argsort(-(relevance + rng.normal(0, 0.25, k)))
            for rank, item in enumerate(order, start=1):
                n, clicks = keys.setdefault(f"{query} {item}", {}).get(rank, (0, 0))
                new = int(rng.binomial(times, relevance[item] / rank**eta))
                keys[f"{query} {item}"][rank] = n + times, clicks + new
    return keys


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_method_is_its_definition(method: str, seed: int) -> None:
    keys = simulated(np.random.default_rng(seed), 60, 4, 5)
    accuracy = 1e-4 if method == "all_pairs" else 1e-13
    assert estimated(keys, method, 4) == pytest.approx(by_definition(keys, method, 4), rel=accuracy)


def test_the_values_are_those_of_ultr_bias_toolkit() -> None:
    # ultr-bias-toolkit 0.0.5 prints for these impressions: adjacent 1, 5/8, 5/16, 5/32; pivot 1, 5/8, 5/8.
    keys: Shown = {
        "a": {1: (2, 2), 2: (4, 3)},
        "b": {1: (5, 3), 2: (4, 1), 3: (8, 3)},
        "c": {2: (2, 1), 3: (8, 0), 4: (3, 1)},
        "d": {3: (3, 2), 4: (9, 0)},
        "e": {1: (1, 1)},
    }
    assert by_definition(keys, "adjacent", 4) == pytest.approx([1, 5 / 8, 5 / 16, 5 / 32])
    assert estimated(keys, "adjacent", 4) == pytest.approx([1, 5 / 8, 5 / 16, 5 / 32])
    assert estimated(keys, "pivot", 3) == pytest.approx([1, 5 / 8, 5 / 8])


# ---- known propensities


EXACT: Shown = {
    # Relevance 1/2, 1/4 and 1/8, propensities 1, 1/2 and 1/4; the third ranks what is least relevant first.
    "a": {1: (8, 4), 2: (16, 4), 3: (8, 1)},
    "b": {1: (32, 8), 2: (8, 1)},
    "c": {1: (1000, 125), 3: (64, 2)},
    "d": {2: (8, 2), 3: (800, 100)},
    "e": {1: (10, 0)},
}


@pytest.mark.parametrize("method", METHODS)
def test_click_rates_that_follow_the_model_exactly_give_the_propensities_exactly(method: str) -> None:
    assert estimated(EXACT, method, 3) == pytest.approx([1, 1 / 2, 1 / 4], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_intervals_cover_the_truth_as_often_as_they_say(method: str) -> None:
    draws, covered = 300, np.zeros(3)
    for draw in range(draws):
        rows = table(simulated(np.random.default_rng([draw, 5]), 150, 4, 10), method, 4, replicates=400)[1:]
        covered += [float(row["ci_low"]) <= 1 / float(row["rank"]) <= float(row["ci_high"]) for row in rows]  # type: ignore[arg-type]
    # 95 % less what a percentile interval of a few hundred keys loses, with three errors of 300 draws.
    assert (np.abs(covered / draws - 0.94) < 0.045).all(), covered / draws


# ---- which numbers it rests on, and what has no value


def test_the_counts_are_of_keys_shown_at_two_ranks_that_are_compared() -> None:
    result = {method: [tuple(row[n] for n in NAMES[4:7]) for row in table(EXACT, method, 3)] for method in METHODS}
    first, second = (3, 1040, 137), (3, 32, 7)
    assert result == {
        # Key c is at 1 and 3, which are no neighbours.
        "adjacent": [(2, 40, 12), second, (2, 808, 101)],
        # Key d was not shown at 1.
        "pivot": [first, (2, 24, 5), (2, 72, 3)],
        "all_pairs": [first, second, (3, 872, 103)],
    }


def test_a_rank_without_a_connection_to_the_first_has_no_value_and_says_why() -> None:
    keys: Shown = {
        "a": {1: (4, 2), 2: (4, 1)},
        "b": {3: (4, 2), 4: (4, 1)},
        "c": {1: (4, 1), 5: (4, 0)},
        "d": {2: (4, 0), 6: (2, 0)},
    }
    notes = {method: [row["note"] for row in table(keys, method, 6)][2:] for method in METHODS}
    assert notes == {
        "adjacent": [
            "no key was shown at both rank 2 and rank 3",
            "rank 3, which the chain passes, has no propensity",
            "rank 4, which the chain passes, has no propensity",
            "rank 5, which the chain passes, has no propensity",
        ],
        "pivot": [
            "no key was shown at both rank 1 and rank 3",
            "no key was shown at both rank 1 and rank 4",
            "the keys shown at both rank 1 and rank 5 have no click at rank 5",
            "no key was shown at both rank 1 and rank 6",
        ],
        "all_pairs": [
            f"no chain of pairs of ranks with clicks at both connects rank {rank} with rank 1" for rank in (3, 4, 5, 6)
        ],
    }
    for method in METHODS:
        rows = table(keys, method, 6)
        assert [row["propensity"] for row in rows] == [1.0, pytest.approx(1 / 2), None, None, None, None]
        assert {row[name] for row in rows[2:] for name in ("ci_low", "ci_high")} == {None}
    silent: Shown = {"a": {1: (4, 0), 2: (4, 0)}}
    assert [row["note"] for row in table(silent, "adjacent", 2)] == [
        None,
        "the keys shown at both rank 1 and rank 2 have no click at rank 1 or rank 2",
    ]


def test_a_chain_of_pairs_reaches_ranks_that_share_no_key_with_the_first() -> None:
    keys = {name: ranks for name, ranks in EXACT.items() if name in ("b", "d")}
    assert estimated(keys, "all_pairs", 3) == pytest.approx([1, 1 / 2, 1 / 4], rel=1e-9)
    assert estimated(keys, "pivot", 3) == [1.0, pytest.approx(1 / 2), None]


def test_a_row_that_chance_decides_says_so() -> None:
    few: Shown = {f"{i}": {1: (4, 1), 2: (4, 2)} for i in range(29)}
    (_, row) = table(few, "pivot", 2)
    assert (row["propensity"], row["ci_low"], row["ci_high"]) == (2.0, 2.0, 2.0)
    assert row["note"] == (
        "it rests on 29 keys, too few for an interval that can be relied on; "
        "above 1, as chance or a wrong model can make it; off_policy reads it as 1"
    )
    enough = {**few, "29": {1: (4, 1), 2: (4, 1)}}
    (_, row) = table(enough, "pivot", 2)
    assert row["note"] == "above 1, as chance or a wrong model can make it; off_policy reads it as 1"
    # A Poisson weight is 0 in exp(-1) of the replicates: 370 of 1,000, with an error of 15.
    (_, alone) = table({"a": {1: (4, 2), 2: (4, 1)}}, "adjacent", 2, replicates=1_000)
    assert (alone["propensity"], alone["ci_low"], alone["ci_high"]) == (0.5, None, None)
    words = re.fullmatch(
        r"no interval: (\d+) of 1,000 bootstrap replicates have no click at one of the ranks", str(alone["note"])
    )
    assert words and 320 < int(words[1]) < 420


def test_the_interval_is_that_of_replicates_made_one_by_one() -> None:
    keys = simulated(np.random.default_rng(7), 40, 3, 5)
    rows = table(keys, "adjacent", 3, replicates=99)
    weights = poisson_weights(np.arange(len(keys), dtype=np.uint64), 1, 99)
    replicates = []
    for replicate in range(99):
        again = {f"{n} {i}": keys[n] for n, k in zip(keys, weights[:, replicate], strict=True) for i in range(k)}
        replicates.append(by_definition(again, "adjacent", 3))
    low, high = np.quantile(replicates, [0.025, 0.975], axis=0)
    assert [row["ci_low"] for row in rows] == pytest.approx(low.tolist(), rel=1e-6)
    assert [row["ci_high"] for row in rows] == pytest.approx(high.tolist(), rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_items_that_are_always_clicked_have_finite_propensities(method: str) -> None:
    certain: Shown = {f"{i}": {1: (3, 3), 2: (3, 3), 3: (2, 2)} for i in range(40)}
    assert estimated(certain, method, 3) == pytest.approx([1, 1, 1], rel=1e-6)
