"""Figures of made means and differences: what reports of any size are tested with."""

from typing import Any

from rankmetrics_spark.report import Figures


def mean(experiment: str, metric: str = "ap@10", value: float = 0.5, segment: str = "all") -> dict[str, Any]:
    counts = {"n_users": 1000, "n_users_with_relevant": 600, "confidence": 0.95, "convention": "standard"}
    bounds = {"mean": value, "ci_low": value - 0.01, "ci_high": value + 0.01}
    return {"experiment_id": experiment, "segment": segment, "metric": metric, **counts, **bounds}


def compared(
    candidate: str, better: str | None, change: float, baseline: str = "control", **more: Any
) -> dict[str, Any]:
    """A difference of ``change`` to a mean of 0.5, with an interval of 0.02 to either side."""
    names = {"experiment_id": candidate, "baseline": baseline, "segment": "all", "metric": "ap@10"}
    bounds = {"difference": change, "ci_low": change - 0.02, "ci_high": change + 0.02}
    relative = {"relative_difference": 2 * change, "relative_ci_low": 2 * change - 0.04}
    words = {"better": better, "note": None, "correction": "holm", "n_comparisons": 3, "confidence": 0.95}
    more = {"relative_ci_high": 2 * change + 0.04, "mean_baseline": 0.5, "mean_candidate": 0.5 + change, **more}
    return {**names, **bounds, **relative, **words, "p_adjusted": 0.0001, "n_users": 2000, **more}


def ranked(*means: float, **more: Any) -> Figures:
    """Experiments a, b, ... with these means, all pairs compared; a difference of 0.05 or more is shown."""
    names = "abcdefgh"[: len(means)]
    rows = [
        compared(
            names[j],
            None if abs(d := means[j] - means[i]) < 0.05 else "candidate" if d > 0 else "baseline",
            d,
            baseline=names[i],
            mean_baseline=means[i],
            mean_candidate=means[j],
            **more,
        )
        for i in range(len(means))
        for j in range(i + 1, len(means))
    ]
    return Figures([mean(name, value=value) for name, value in zip(names, means, strict=True)], rows)


def large(candidates: int, metrics: int, winners: int = 8) -> Figures:
    """An experiment per candidate; the last ones by name win on all metrics, the others lose; two segments each."""
    names = [f"dcg@{cut}" for cut in range(1, metrics + 1)]
    experiments = ["control", *(f"c{i:04}" for i in range(candidates))]
    segments = {"all": 1000, "s=small": 10, "s=large": 500}
    shared = {"n_users_baseline": 1000, "n_users_candidate": 1000, "n_users_both": 1000, "design": "paired"}
    means, rows = [], []
    for place, name in enumerate(experiments):
        wins = place > candidates - winners
        for segment, users in segments.items():
            for metric in names:
                value = 0.5 + (0.1 if wins else -0.1) * (place > 0)
                means.append(mean(name, metric, value, segment) | {"n_users": users, "n_users_with_relevant": users})
                if place:
                    row = compared(name, "candidate" if wins else "baseline", value - 0.5, **shared)
                    rows.append(row | {"metric": metric, "segment": segment, "p_adjusted": 0.001 if wins else 0.0001})
    users = [
        {"experiment_id": name, "metric": metric, "step": step, "low": 0.0, "high": 1.0, "users": 50}
        for name in sorted(experiments)
        for metric in names
        for step in range(20)
    ]
    trend = [row | {"evaluation_date": day} for day in ("2026-11-19", "2026-11-20") for row in means[: 3 * metrics]]
    return Figures(means, rows, users, trend=trend, n_comparisons=len(rows) + 7)
