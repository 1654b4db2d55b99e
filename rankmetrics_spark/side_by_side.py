"""The same impressions under every convention: one more key on the road of ``pipeline``, one table to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from rankmetrics_spark.config.options import Options
from rankmetrics_spark.metrics import PRESETS, STANDARD, Convention, knobs
from rankmetrics_spark.pipeline import conventions_side_by_side
from rankmetrics_spark.schemas import (
    CONVENTION,
    CONVENTION_HASH,
    EVERYONE,
    EXPERIMENT,
    METRIC,
    N_REPEATED,
    N_ROWS,
    N_USERS,
    N_USERS_WITH_RELEVANT,
    N_USERS_WITHOUT_LIST,
    SEGMENT,
)

_COUNTS = (N_USERS, N_USERS_WITH_RELEVANT, N_USERS_WITHOUT_LIST)
_NOBODY = dict.fromkeys((*_COUNTS, N_REPEATED), 0)
_Cells = dict[tuple[Any, str], dict[str, dict[str, Any]]]


def compare_conventions(
    impressions: DataFrame,
    judgements: DataFrame | None = None,
    options: Options | None = None,
    conventions: Sequence[Convention] | None = None,
) -> list[dict[str, Any]]:
    """The means of every metric under each convention; reads the impressions once.

    Args:
        impressions: As in ``evaluate``.
        judgements: As in ``evaluate``.
        options: As in ``evaluate``; its convention is one of the rows if it is no preset.
        conventions: The rows of the table; by default every preset and, by score, the bounds that ties leave open.

    Returns:
        A row per (experiment, convention): n_users and its like, ``n_faulty_rows``, the mean of each metric (None where
        there is none), and ``differs``: the knobs in which the convention differs from the standard one.

    Raises:
        ConfigError: The options do not fit one another, the columns or the conventions.
        InputError: A column is missing.
    """
    options = replace(options or Options(), judged=judgements is not None, segments=())
    rules = tuple(conventions) if conventions is not None else every_convention(options)
    cells: _Cells = {}
    faulty: dict[Any, int] = {}
    for row in conventions_side_by_side(impressions, judgements, options, rules).toLocalIterator():
        if row[METRIC] is None:
            faulty[row[EXPERIMENT]] = row[N_ROWS]
        elif row[SEGMENT] == EVERYONE:
            cells.setdefault((row[EXPERIMENT], row[CONVENTION_HASH]), {})[row[METRIC]] = row.asDict()
    experiments = sorted({*faulty, *(name for name, _ in cells)}, key=lambda name: (name is not None, name))
    return [
        {EXPERIMENT: name}
        | _row(rule, cells.get((name, rule.digest()), {}), options)
        | {"n_faulty_rows": faulty.get(name, 0)}
        for name in experiments
        for rule in rules
    ]


def every_convention(options: Options) -> tuple[Convention, ...]:
    """Every preset, the convention of the options if it is none of them, and by score what ties leave open.

    >>> [rule.name for rule in every_convention(Options(rank_by="score"))][-2:]
    ['standard(ties=best)', 'standard(ties=worst)']
    """
    own = options.convention
    more = [] if own == PRESETS.get(own.preset) else [own]
    bounds = [replace(STANDARD, ties=ties) for ties in ("best", "worst")] if options.rank_by == "score" else []
    return (*PRESETS.values(), *more, *bounds)


def _row(rule: Convention, cells: Mapping[str, Mapping[str, Any]], options: Options) -> dict[str, Any]:
    counts = max(cells.values(), key=lambda cell: int(cell[N_USERS]), default=_NOBODY)
    refused = counts[N_REPEATED] if rule.duplicates == "refuse" else 0
    note = differences(rule, by_position=options.rank_by == "position", judged=options.judged)
    names = [str(metric) for metric in options.metrics]
    return {
        CONVENTION: rule.name,
        **{name: counts[name] for name in _COUNTS},
        "n_faulty_rows": 0,
        **{name: None if refused or name not in cells else cells[name]["mean"] for name in names},
        "differs": f"refuses {refused} repeated rows; {note}" if refused else note,
    }


_TIES = ("ties", "ap_ties", "ndcg_ties", "score_precision")


def differences(rule: Convention, by_position: bool, judged: bool) -> str:
    """The knobs in which a convention differs from the standard one, as far as they can change a value of this data.

    >>> differences(PRESETS["trec_eval"], by_position=True, judged=False)
    'ap_denominator=m; duplicates=refuse'
    """
    without_effect = {*(_TIES if by_position else ()), *(() if judged else ("population",))}
    if not judged and rule.ideal_pool != "constant_k":
        without_effect.add("ideal_pool")
    changed = [knob.name for knob in knobs() if getattr(rule, knob.name) != getattr(STANDARD, knob.name)]
    return "; ".join(f"{name}={getattr(rule, name)}" for name in changed if name not in without_effect)
