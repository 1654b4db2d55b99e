"""Options and schemas -> one frozen plan: which columns, which layout, what to compute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from pyspark.sql import types as T

from rankmetrics_spark import errors as err, layouts as lay, metrics as mx, schemas as sch
from rankmetrics_spark.config import Options, of_single_lists
from rankmetrics_spark.road.checking import is_whole
from rankmetrics_spark.schemas import ColumnMap

#: Types of grades that fit into 32 bits.
_SMALL = (T.ByteType, T.ShortType, T.IntegerType, T.BooleanType)
#: Canonical name -> column of a table, and its schema; None where there is no table.
_Mapped: TypeAlias = tuple[ColumnMap, T.StructType | None]


@dataclass(frozen=True)
class Plan:
    """A planned evaluation; it holds no table.

    Attributes:
        options: Those of the request.
        columns: What the impressions hold.
        mapping: Canonical or internal name -> column of the impressions; ``None`` = a constant.
        judgement_mapping: Canonical name -> column of the judgements; empty without judgements.
        scoring: What is computed for each list.
        layout: How lists travel.
        engine: What computes it: ``spark`` or ``sail``.
    """

    options: Options
    columns: sch.Columns
    mapping: ColumnMap
    judgement_mapping: ColumnMap
    scoring: lay.Scoring
    layout: lay.Layout
    engine: str = "spark"

    @property
    def public_segments(self) -> dict[str, str]:
        """The user's name of each segment -> its column in ``user_metrics``."""
        return dict(zip(self.columns.segments, self.public_names, strict=False))

    @property
    def public_covariate(self) -> str | None:
        """The column of the covariate in ``user_metrics``."""
        return self._described.get(sch.COVARIATE)

    @property
    def public_cluster(self) -> str | None:
        """The column of the cluster in ``user_metrics``."""
        return self._described.get(sch.CLUSTER_OF_USER) or self.public_segments.get(self.options.cluster or "")

    @property
    def public_trigger(self) -> str | None:
        """The column of the trigger in ``user_metrics``."""
        return self._described.get(sch.TRIGGERED)

    @property
    def _described(self) -> dict[str, str]:
        return dict(zip(self.columns.of_user, self.public_names, strict=True))

    @cached_property
    def public_names(self) -> tuple[str, ...]:
        """The names in ``user_metrics`` of the columns that describe the user."""
        metrics = [metric.column for metric in self.scoring.metrics]
        reserved = (*sch.USER_COLUMNS, sch.CONVENTION_INDEX, *metrics, *map(sch.lists_with_value, metrics))
        reserved += (*filter(None, [self.columns.list_hash]), *self.scoring.machine_columns)
        described = filter(None, (self.columns.covariate, self.columns.cluster, self.columns.trigger))
        return sch.public_names((*self.columns.segments, *described), reserved)

    @property
    def lists_are_users(self) -> bool:
        """Whether each user has one list per experiment, and every user who counts has one."""
        everyone = all(rule.population == "shown" for rule in self.scoring.conventions)
        return not self.columns.list and (everyone or not self.scoring.judged)

    @property
    def over_lists(self) -> bool:
        """Whether means are over lists instead of users."""
        return self.options.mean_over == "lists"

    def on(self, engine: str, impressions: T.StructType, of_lists: bool = False) -> "Plan":
        """The same plan for an engine.

        Sail computes twice what two branches of a query share. Unless the options name a layout, it therefore gets one
        that flags no list.
        """
        layout = self.layout
        if of_lists:
            # Its rows are read once, so whatever needs a second look is looked at in the first one.
            layout = layout if layout.name == "rows" else lay.recheck_of(layout)
        elif engine == "sail" and self.options.layout == "auto" and layout.name != "rows":
            judged, hashed = self.scoring.judged, self.columns.item and self.scoring.repeats
            small = isinstance(_kind(impressions, self.mapping[sch.RELEVANCE]), _SMALL) and not judged
            layout = lay.Numbers(small, hashed, judged=judged)
        return replace(self, engine=engine, layout=layout)


def make_plan(
    options: Options,
    impressions: T.StructType,
    judgements: T.StructType | None = None,
    conventions: Sequence[mx.Convention] = (),
    timed: bool = False,
) -> Plan:
    """Plan an evaluation from the schemas of its inputs."""
    rules = tuple(conventions) or (options.convention,)
    mapping = mapped(options.columns, sch.ROLES, impressions.names)
    of_judgements = mapped(options.judgement_columns, sch.JUDGEMENT_ROLES, judgements.names) if judgements else {}
    names = (impressions.names, judgements.names) if judgements else ([], [])
    if events := of_single_lists(*names, options.list, of_judgements.values()):
        raise err.InputError(events)
    columns = replace(_columns(options, rules, mapping, impressions), time_zone=options.time_zone if timed else None)
    columns = _with_intents(columns, options, rules, (mapping, impressions), (of_judgements, judgements))
    for rule in rules:
        mx.check(options.metrics, rule)
    scoring = lay.Scoring(
        options.metrics,
        rules,
        by_position=options.rank_by == sch.POSITION,
        repeats=columns.item and options.repeated_items != "ignore",
        judged=judgements is not None,
        list_hash=columns.list_hash or "",
        looks_up=judgements is not None and not columns.relevance,
        machine=options.machine,
        chance=options.machine and "probability" in options.drawn_by,
        reads=options.reads,
        looks_up_intents=columns.intents == "judged",
    )
    layout = _layout(options, columns, scoring, _kind(impressions, mapping[sch.RELEVANCE]))
    reads_item = scoring.repeats or columns.item_text or columns.intents == "judged" or scoring.list_hash
    if scoring.by_position and columns.relevance and not reads_item:
        columns = replace(columns, item=False)
    mapping |= zip(columns.list_columns, options.list, strict=True)
    mapping |= zip(columns.segment_columns, options.segments, strict=True)
    mapping |= {sch.COVARIATE: options.covariate} if options.covariate else {}
    mapping |= {sch.CLUSTER_OF_USER: columns.cluster} if columns.cluster else {}
    mapping |= {sch.TRIGGERED: options.trigger} if options.trigger else {}
    mapping |= {name: options.columns[name] for name in columns.timed}
    return Plan(options, columns, mapping, of_judgements, scoring, layout)


def mapped(option: ColumnMap, roles: Mapping[str, str], columns: Sequence[str]) -> dict[str, str | None]:
    """Canonical name -> input column: that of the option, else the column of the same long or short name."""
    return {name: option.get(role, name if name in columns else role) for role, name in roles.items()}


def _columns(options: Options, rules: Sequence[mx.Convention], mapping: ColumnMap, schema: T.StructType) -> sch.Columns:
    """The columns that the evaluation reads."""
    by_score = options.rank_by == sch.SCORE
    is_mapped = "relevance" in options.columns
    source = options.columns.get("relevance") if is_mapped else mapping[sch.RELEVANCE]
    if options.machine and options.columns.get("relevance"):
        raise err.ConfigError.of("two_relevances", columns=options.path_of("columns"), source=source)
    has_relevance = source is not None and (is_mapped or source in schema.names)
    relevance = not options.machine and (not options.judged or has_relevance)
    breaks_ties = any(rule.ties == "position" for rule in rules) and mapping[sch.POSITION] in schema.names
    score = by_score or any(needs == "scores" for _, needs in options.readers)
    item = mapping[sch.ITEM] is not None
    cuts = [metric.cut for metric in options.metrics]
    hashed = mx.list_hash(None if None in cuts else max(filter(None, cuts))) if options.only_changed else None
    if not item and not relevance:
        raise err.ConfigError("columns.item is null; an item column is needed to look up relevance in the judgements")
    for reader, needs in options.readers:
        if needs == "scores" and mapping[sch.SCORE] not in schema.names:
            known = err.unknown("score column", mapping[sch.SCORE], schema.names)
            raise err.ConfigError(f"{reader} needs scores: {known} (set columns.score)")
    same = ("list", "segments", "first_rank", "covariate", "trigger")
    return sch.Columns(
        **{name: getattr(options, name) for name in same},
        item=item,
        position=not by_score or breaks_ties,
        score=score,
        relevance=relevance,
        by_score=by_score,
        cluster=None if options.cluster in options.segments else options.cluster,
        list_hash=hashed,
    )


def _with_intents(
    columns: sch.Columns, options: Options, rules: Sequence[mx.Convention], shown: _Mapped, judged: _Mapped
) -> sch.Columns:
    """The columns with where the intents of shown items come from, if a metric reads them.

    They are those of the impressions if these have some, as it is with relevance; else those of the judgements.
    """
    own = _has(shown, sch.INTENTS)
    for reader, needs in options.readers:
        if own and reader.startswith("sink."):
            continue
        if needs == "shown_intents" or (needs == "intents" and not options.judged):
            _check_has_intents(reader, shown, options.path_of("columns"), "shown items")
        elif needs == "intents":
            _check_has_intents(reader, judged, options.path_of("judgement_columns"), "judged items")
            if not own and not columns.item:
                raise err.ConfigError.of("intents_without_items", reader=reader, columns=options.path_of("columns"))
    all_needs = {needs for _, needs in options.readers}
    if not all_needs & {"intents", "shown_intents"}:
        return columns
    shown_ideal = not options.judged or any(rule.ideal_pool == "shown" for rule in rules)
    reads_text = "intents" in all_needs and columns.item and (shown_ideal or "intents" in options.reads)
    return replace(columns, intents="shown" if own else "judged", item_text=reads_text)


def _has(table: _Mapped, name: str) -> bool:
    mapping, schema = table
    return schema is not None and mapping.get(name) in schema.names


def _check_has_intents(reader: str, table: _Mapped, path: str, whose: str) -> None:
    mapping, schema = table
    if schema is not None and not _has(table, sch.INTENTS):
        source = mapping.get(sch.INTENTS)
        problem = f"{path}.intents is null" if source is None else err.unknown("column", source, schema.names)
        raise err.ConfigError(f"{reader} needs the intents of {whose}: {problem} (set {path}.intents)")


def _kind(schema: T.StructType, source: str | None) -> T.DataType | None:
    return next((field.dataType for field in schema.fields if field.name == source), None)


def _layout(options: Options, columns: sch.Columns, scoring: lay.Scoring, relevance: T.DataType | None) -> lay.Layout:
    """The cheapest layout that can compute the metrics; the option ``layout`` counts where it can."""
    every_row = not scoring.by_position or not columns.relevance or options.repeated_items == "all"
    every_row |= options.only_changed or scoring.every_row
    uncut = any(metric.cut is None for metric in scoring.metrics)
    for rule in scoring.conventions:
        every_row |= rule.duplicates in ("best_rank", "refuse") or rule.unjudged == "removed"
        # The other layouts know only of relevant rows how often a judged item was shown.
        every_row |= scoring.judged and rule.duplicates == "count"
        # Nor do they know the length of a list without its repeated rows.
        every_row |= rule.ap_denominator == "min(L,k)"
        every_row |= uncut and (rule.ap_denominator == "k" or rule.ideal_pool == "constant_k")
    if every_row:
        return lay.LAYOUTS["rows"]
    # The smallest segment value of a list is a text, and an aggregate of texts leaves generated code anyway.
    fits_masks = relevance is not None and is_whole(relevance) and not (columns.segments or columns.cluster)
    wish = options.layout if options.layout != "auto" else "masks"
    return lay.LAYOUTS["relevant" if wish == "masks" and not fits_masks else wish]
