"""What an evaluation is asked to do, checked against what the input has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from rankmetrics_spark import ranking
from rankmetrics_spark.conventions import PRESETS, STANDARD, Convention
from rankmetrics_spark.errors import ConfigError, unknown
from rankmetrics_spark.metrics import Metric, check
from rankmetrics_spark.schemas import EXPERIMENT, ITEM, POSITION, RELEVANCE, SCORE, USER, Columns
from rankmetrics_spark.scoring import Scoring

_CANONICAL = {
    "experiment": EXPERIMENT,
    "user": USER,
    "item": ITEM,
    "position": POSITION,
    "score": SCORE,
    "relevance": RELEVANCE,
}
REPEATED_ITEMS = ("relevant", "all", "ignore")
TIE_KNOBS = ("ties", "ap_ties", "ndcg_ties")
OF_TIES = ("expected", "best", "worst", "threshold")


@dataclass(frozen=True)
class Options:
    """How to evaluate; every field has a default.

    Attributes:
        metrics: Metric names.
        convention: A preset, or a mapping with ``preset`` and overrides, or a ``Convention``.
        rank_by: ``position`` or ``score``.
        columns: Canonical name (experiment, user, item, position, score, relevance) to column name.
        judgement_columns: The same for the judgements (user, item, relevance).
        list: Columns that tell a user's lists apart; metrics are averaged per user.
        segments: Columns whose values split the averages.
        confidence: Of the intervals.
        repeated_items: ``relevant`` finds every repeated item that could change a value, ``all`` every one, ``ignore``
            trusts the log and does not read the item column.
        form: ``auto``, ``masks``, ``relevant`` or ``rows``; same values, different cost (see ``ranking``).
        text: Numbers come as text (CSV and the like).
    """

    metrics: Sequence[str | Metric] = ("ap@5", "ap@10", "ndcg@5", "ndcg@10")
    convention: str | Mapping[str, object] | Convention = "standard"
    rank_by: str = POSITION
    columns: Mapping[str, str | None] | None = None
    judgement_columns: Mapping[str, str | None] | None = None
    list: Sequence[str] = ()
    segments: Sequence[str] = ()
    confidence: float = 0.95
    repeated_items: str = "relevant"
    form: str = "auto"
    text: bool = False


def resolved_columns(
    impressions: DataFrame, judged: bool, options: Options, metrics: Sequence[Metric], rule: Convention
) -> tuple[Columns, dict[str, str | None]]:
    """Which canonical columns there are, and the input column behind each."""
    given = dict(options.columns or {})
    for name in given:
        if name not in _CANONICAL and name not in _CANONICAL.values():
            raise ConfigError(f"columns: {unknown('column role', name, _CANONICAL)}")
    mapping = renamed(impressions.columns, given, tuple(_CANONICAL.values()))
    relevance = (
        _explicit(given).get(RELEVANCE) is not None
        or (RELEVANCE not in _explicit(given) and mapping[RELEVANCE] in impressions.columns)
        or not judged
    )
    by_score = options.rank_by == SCORE
    position = not by_score or (rule.ties == "position" and mapping[POSITION] in impressions.columns)
    score = by_score or any(m.needs == "scores" for m in metrics)
    item = mapping[ITEM] is not None
    if not item and (by_score or not relevance):
        raise ConfigError("columns.item is null; an item column is needed to rank by score or to look up judgements")
    _check_scores(impressions.columns, mapping[SCORE], metrics)
    columns = Columns(tuple(options.list), tuple(options.segments), item, position, score, relevance)
    return columns, mapping


def _explicit(given: Mapping[str, str | None]) -> dict[str, str | None]:
    return {_CANONICAL.get(name, name): column for name, column in given.items()}


def renamed(there: Sequence[str], given: Mapping[str, str | None], wanted: Sequence[str]) -> dict[str, str | None]:
    """Canonical name to input column: as given, else the column of the same short or long name."""
    mapping: dict[str, str | None] = {}
    for short, name in _CANONICAL.items():
        if name in wanted:
            default = name if name in there else short
            mapping[name] = given[short] if short in given else given.get(name, default)
    return mapping


def check_choices(options: Options, metrics: Sequence[Metric], rule: Convention) -> None:
    """Refuse what cannot be, before any job starts."""
    choices = {"rank_by": (POSITION, SCORE), "repeated_items": REPEATED_ITEMS, "form": ("auto", *ranking.FORMS)}
    for name, allowed in choices.items():
        if getattr(options, name) not in allowed:
            raise ConfigError(unknown(name, getattr(options, name), allowed))
    if not metrics:
        raise ConfigError("metrics is empty; name at least one, such as ap@10")
    if not 0 < options.confidence < 1:
        raise ConfigError(f"confidence is {options.confidence}; it must lie between 0 and 1")
    if options.rank_by == POSITION:
        _check_no_ties(options.convention, rule)
    check(metrics, rule)


def _check_no_ties(given: object, rule: Convention) -> None:
    """Refuse a rule for ties that was asked for on purpose; a preset may bring one that ranks leave idle."""
    usual = PRESETS.get(rule.preset, STANDARD)
    for knob in TIE_KNOBS:
        value = getattr(rule, knob)
        asked = value != getattr(usual, knob) or (isinstance(given, Mapping) and knob in given)
        if asked and value in OF_TIES:
            raise ConfigError(
                f"convention.{knob} is '{value}', but rank_by is 'position' and ranks have no ties; "
                "allowed: rank_by 'score', or another order such as item_desc"
            )


def _check_scores(there: Sequence[str], source: str | None, metrics: Sequence[Metric]) -> None:
    for metric in metrics:
        if metric.needs == "scores" and source not in there:
            raise ConfigError(
                f"metric '{metric}' needs scores: {unknown('score column', source, there)} (set columns.score)"
            )


def _reads_length(work: Scoring) -> bool:
    """Whether a value depends on how long the list is without repeats, which only whole rows tell."""
    rule, uncut = work.convention, any(m.cut is None for m in work.metrics)
    return rule.ap_denominator == "min(L,k)" or (
        uncut and (rule.ap_denominator == "k" or rule.ideal_pool == "constant_k")
    )


def chosen_form(options: Options, columns: Columns, work: Scoring, kind: T.DataType | None) -> str:
    """The cheapest form that can compute what is asked; a wish is granted where it can be."""
    every_row = (
        not work.by_position
        or not columns.relevance
        or options.repeated_items == "all"
        or any(m.needs != "relevant" for m in work.metrics)
        or work.convention.duplicates in ("best_rank", "refuse")
        # How often a judged item was shown is known of relevant rows only in the other forms.
        or (work.judged and work.convention.duplicates == "count")
        or _reads_length(work)
    )
    if every_row:
        return "rows"
    whole = isinstance(kind, T.IntegralType | T.BooleanType)
    # The smallest text of a list's rows leaves generated code anyway, and with it goes what masks are good for.
    fits = whole and not columns.segments
    wish = options.form if options.form != "auto" else "masks"
    return "relevant" if wish == "masks" and not fits else wish
