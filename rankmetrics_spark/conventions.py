"""``compare_conventions``: the means of the same impressions under every convention."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import engines as eng, errors as err, road, schemas as sch
from rankmetrics_spark.config import Options, refuse
from rankmetrics_spark.metrics import PRESETS, STANDARD, Convention, knobs, resolve

_COUNTS = (sch.N_USERS, sch.N_USERS_WITH_RELEVANT, sch.N_USERS_WITHOUT_LIST)
_NOBODY = dict.fromkeys((*_COUNTS, sch.N_REPEATED), 0)


def compare_conventions(
    impressions: eng.AnyTable,
    judgements: eng.AnyTable | None = None,
    options: Options | Mapping[str, object] | None = None,
    conventions: Sequence[str | Mapping[str, object] | Convention] | None = None,
    events: eng.AnyTable | None = None,
) -> list[dict[str, Any]]:
    """The means of every metric under each convention; reads the impressions once.

    Args:
        impressions: As in ``evaluate``.
        judgements: As in ``evaluate``.
        options: The keywords of ``evaluate`` as a mapping, such as ``{"metrics": "ap@10", "rank_by": "score"}``, or
            ``Options``. A convention among them that is no preset is one more row.
        conventions: The rows of the table: each a preset, a mapping or a ``Convention``, as in ``evaluate``. By
            default: every preset, and, by score, the convention of the options under the best and the worst order of
            tied items. Presets have the ``relevant_from`` of the options, since that belongs to the data.
        events: As in ``evaluate``.

    Returns:
        A row per (experiment, convention): n_users, n_users_with_relevant, n_users_without_list, n_faulty_rows,
        with judgements n_faulty_judgements (of all; the same in each row), the mean of each metric (None where there
        is none), and ``differs``: the knobs in which the convention differs from the standard one.

    Raises:
        ConfigError: The options do not fit one another, the columns or the conventions.
        InputError: A column is missing.
    """
    judged = judgements is not None
    given = {"judged": judged, "with_events": events is not None}
    base = options if isinstance(options, Options) else Options.read({**(options or {}), **given})
    request = replace(base, judged=judged, with_events=events is not None, segments=(), segment_combinations=())
    rules = every_convention(request) if conventions is None else _chosen(conventions, request)
    for rule in rules:
        # Refuse rules for ties or judgements that have no effect on this input.
        replace(request, convention=rule)
    return side_by_side(road.Tables.of(impressions, judgements, request, rules, events=events))


def side_by_side(tables: road.Tables, untold: Sequence[tuple[Convention, str]] = ()) -> list[dict[str, Any]]:
    """The rows of ``compare_conventions``, from tables under several conventions; ``untold`` ones with the reason."""
    request, rules = tables.plan.options, tables.plan.scoring.conventions
    # (experiment, digest of the convention) -> metric -> row, and experiment -> faulty rows.
    cells: dict[tuple[Any, str], dict[str, dict[str, Any]]] = {}
    faulty: dict[Any, int] = {}
    judgement_counts = tables.judgement_counts
    more = {"n_faulty_judgements": judgement_counts.counts["invalid"]} if judgement_counts else {}
    for row in eng.few_rows(_means(tables)):
        if row[sch.METRIC] is None:
            faulty[row[sch.EXPERIMENT]] = row[sch.N_ROWS]
        elif row[sch.SEGMENT] == sch.EVERYONE:
            cells.setdefault((row[sch.EXPERIMENT], row[sch.CONVENTION_HASH]), {})[row[sch.METRIC]] = row.asDict()
    experiments = sorted({*faulty, *(name for name, _ in cells)}, key=lambda name: (name is not None, name))
    metrics = [*map(str, request.metrics)]
    lines = []
    for name in experiments:
        for rule in rules:
            means = cells.get((name, rule.digest()), {})
            counts = max(means.values(), key=lambda cell: int(cell[sch.N_USERS]), default=_NOBODY)
            refused = counts[sch.N_REPEATED] if rule.duplicates == "refuse" else 0
            note = differences(rule, request)
            line = {
                sch.EXPERIMENT: name,
                sch.CONVENTION: rule.name,
                **{count: counts[count] for count in _COUNTS},
                "n_faulty_rows": faulty.get(name, 0),
                **more,
                **{each: None if refused or each not in means else means[each]["mean"] for each in metrics},
                "differs": f"refuses {refused} repeated rows; {note}" if refused else note,
            }
            lines.append(line)
        none = dict.fromkeys(lines[-1]) | {sch.EXPERIMENT: name}
        lines += [none | {sch.CONVENTION: rule.name, "differs": why} for rule, why in untold]
    return lines


def _chosen(conventions: Sequence[str | Mapping[str, object] | Convention], options: Options) -> tuple[Convention, ...]:
    """The conventions that a caller names; one alone needs no list."""
    given = [conventions] if isinstance(conventions, (str, Mapping, Convention)) else conventions
    if not isinstance(given, Iterable):
        raise refuse("conventions", conventions, "a list of presets or conventions, or None for every preset")
    own = options.convention.relevant_from
    rules = [replace(resolve(each), relevant_from=own) if isinstance(each, str) else resolve(each) for each in given]
    if not rules:
        raise err.ConfigError("conventions is empty; allowed: at least one convention, or None for every preset")
    return tuple(rules)


def _means(tables: road.Tables) -> DataFrame:
    """Return ``experiment_metrics`` under each convention; a row without a metric counts the faulty rows.

    All in one table, so that one query reads the impressions once.
    """
    faulty = tables.faulty.groupBy(sch.EXPERIMENT).agg(F.sum(sch.N_ROWS).alias(sch.N_ROWS))
    return tables.experiment_metrics.unionByName(faulty, allowMissingColumns=True)


def every_convention(options: Options) -> tuple[Convention, ...]:
    """Every preset, the convention of the options if it is none of them, and by score the bounds of its ties.

    Which grades are relevant belongs to the data, so all have the ``relevant_from`` of the options.

    >>> [rule.name for rule in every_convention(Options(rank_by="score"))][-2:]
    ['standard(ties=best)', 'standard(ties=worst)']
    >>> {rule.relevant_from for rule in every_convention(Options(convention={"preset": "ranx", "relevant_from": 4}))}
    {4.0}
    """
    own = options.convention
    presets = {name: replace(rule, relevant_from=own.relevant_from) for name, rule in PRESETS.items()}
    more = [] if own == presets.get(own.preset) else [own]
    return (*presets.values(), *more, *(tie_bounds(own) if options.rank_by == "score" else ()))


def tie_bounds(convention: Convention) -> tuple[Convention, Convention]:
    """The convention under the best and under the worst order of tied items."""
    best, worst = (replace(convention, ties=order, ap_ties="same", ndcg_ties="same") for order in ("best", "worst"))
    return best, worst


_TIES = ("ties", "ap_ties", "ndcg_ties", "score_precision")


def differences(rule: Convention, options: Options) -> str:
    """The knobs in which a convention differs from the standard one, as far as they can change a value of this data.

    The standard one has the ``relevant_from`` of the options, as all rows have.

    >>> differences(PRESETS["trec_eval"], Options())
    'ap_denominator=m; duplicates=refuse'
    """
    by_position, judged = options.rank_by == "position", options.judged
    without_effect = {*(_TIES if by_position else ()), *(() if judged else ("population", "unjudged"))}
    if not judged and rule.ideal_pool != "constant_k":
        without_effect |= {"ideal_pool", "relevant_pool"}
    standard = replace(STANDARD, relevant_from=options.convention.relevant_from)
    changed = [knob.name for knob in knobs() if getattr(rule, knob.name) != getattr(standard, knob.name)]
    return "; ".join(f"{name}={getattr(rule, name)}" for name in changed if name not in without_effect)
