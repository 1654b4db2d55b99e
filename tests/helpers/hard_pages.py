"""Figures of pages that are hard to read: paired users with everything computed, all pairs, a large run."""

from itertools import combinations
from typing import Any

from rankmetrics_spark.report import Figures
from tests.helpers import figures

PAIRED = {
    "design": "paired", "test": "paired t", "n_users_both": 400, "wins": 230, "ties": 80, "losses": 90,
    "p_wilcoxon": 0.0004, "p_randomization": 0.0002, "bootstrap_ci_low": 0.02, "bootstrap_ci_high": 0.09,
    "aa_share": 0.049, "effect_size": 0.31, "cuped_difference": 0.05, "cuped_ci_low": 0.03, "cuped_ci_high": 0.07,
    "cuped_variance_reduction": 0.4,
}  # fmt: skip


def mean(experiment: str, metric: str, value: float) -> dict[str, Any]:
    bounds = {"n_users": 50, "n_users_with_relevant": 50, "ci_low": value - 0.02, "ci_high": value + 0.02}
    return figures.mean(experiment, metric, value) | bounds


def compared(baseline: str, candidate: str, metric: str, change: float, **more: Any) -> dict[str, Any]:
    """A change of a mean of 0.5, with an interval of 0.02 to either side; it is shown where the interval excludes 0."""
    better = None if abs(change) <= 0.02 else "candidate" if change > 0 else "baseline"
    of_users = {"p_adjusted": 0.4 if better is None else 0.001, "n_users": 50, "design": "paired"}
    return figures.compared(candidate, better, change, baseline, metric=metric, **(of_users | more))


def systems(n: int = 12) -> Figures:
    """All pairs of systems, each 0.015 better than the one before: neighbours do not differ clearly."""
    names = [f"system_{i:02}" for i in range(n)]
    pairs = list(combinations(range(n), 2))
    metrics = ["ap", "rr"]
    rows = [compared(names[a], names[b], metric, 0.015 * (b - a)) for metric in metrics for a, b in pairs]
    means = [mean(name, metric, 0.5 + 0.015 * i) for metric in metrics for i, name in enumerate(names)]
    return Figures(means, rows, order=metrics)


def wide(experiments: int = 50, metrics: int = 30, segments: int = 200) -> Figures:
    """A large run: the deciding metric in every segment, others in a few."""
    names = ["control", *(f"ranker-{i:02}" for i in range(1, experiments))]
    all_metrics = [f"dcg@{cut}" for cut in range(1, metrics + 1)]
    places = [f"country=C{i:03} & device=web" for i in range(segments)]
    means = [mean(name, metric, 0.5 + 0.002 * i) for metric in all_metrics for i, name in enumerate(names)]
    rows = []
    for metric in all_metrics:
        decides = metric == all_metrics[-1]
        for i, name in enumerate(names[1:], 1):
            for at, segment in enumerate(["all", *(places if decides else places[:4])]):
                size = {"segment": segment, "n_users": 1_000_000 if not at else 9_000 - at, "role": "secondary"}
                rows.append(
                    compared(
                        "control",
                        name,
                        metric,
                        0.002 * i - 0.0001 * at,
                        **size | ({"role": "primary"} if decides else {}),
                    )
                )
    n = (experiments - 1) * metrics * (segments + 1)
    users = [
        {"experiment_id": name, "metric": metric, "step": step, "low": 0.0, "high": 1.0, "users": 1000 + step}
        for name in names for metric in all_metrics for step in range(20)
    ]  # fmt: skip
    return Figures(means, rows, users, n_comparisons=n, order=all_metrics)
