"""A comparison as it is asked for -> the pairs that are formed, and how often users are resampled."""

from __future__ import annotations

from collections.abc import Sequence

from rankmetrics_spark.comparison.totals import Request
from rankmetrics_spark.config import Comparison


def request_of(comparison: Comparison) -> Request:
    """Which pairs are formed, and how often users are resampled."""
    bootstrap, flips, reshuffles = comparison.bootstrap, comparison.randomization, comparison.aa_check
    return Request(
        baseline=comparison.baseline,
        candidates=comparison.candidates,
        all_pairs=comparison.pairs == "all",
        drop_shared=comparison.shared_users == "drop",
        over_lists=comparison.mean_over == "lists",
        clustered=comparison.cluster is not None,
        only_changed=comparison.only_changed,
        bootstrap=bootstrap.replicates if bootstrap else 0,
        bootstrap_seed=bootstrap.seed if bootstrap else 1,
        flips=flips.replicates if flips else 0,
        flip_seed=flips.seed if flips else 1,
        reshuffles=reshuffles.replicates if reshuffles else 0,
        reshuffle_seed=reshuffles.seed if reshuffles else 1,
    )


def refuse_too_many_replicates(comparison: Comparison, experiments: Sequence[str], n_metrics: int) -> None:
    """Refuse more replicates than a process can hold, as soon as the experiments are known.

    Raises:
        ConfigError: Says how many can be had.
    """
    request_of(comparison).refuse_too_many_replicates(len(experiments), n_metrics)
