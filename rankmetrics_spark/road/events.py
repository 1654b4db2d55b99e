"""Clicks in rows of their own: which impression an event belongs to, and the grade that it gives.

Impressions and events are rows of one table, grouped by the columns that both have: one shuffle. Windows over the rows
of an item find the impression of each event; an event then leaves the log with its status as its fault, so that it is
counted in the same pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, functions as F, types as T

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.config import Options, microseconds
from rankmetrics_spark.engines import AnyTable, as_text, engine_of, few_rows, table_of
from rankmetrics_spark.errors import ConfigError, InputError, unknown
from rankmetrics_spark.road.checking import literal, micros
from rankmetrics_spark.road.nested import Nested, flat_judgements, flat_log

_EVENT, _AT, _ITEM, _KIND, _FAULTY = "_event", "_at", "_item_of_both", "_grade_of_kind", "_no_event"
_SHOWN_AT, _N_SHOWN, _STATE = "_shown_at", "_n_shown", "_state"
IS_EVENT = f"coalesce({sch.REJECTED}.{sch.REASON} IN ({', '.join(map(repr, sch.EVENT_STATES))}), false)"
"""SQL: whether a group of faulty rows holds events, and not rows of the log."""


@dataclass(frozen=True)
class Timed:
    """The times of a log and of its events, in microseconds.

    Attributes:
        shown: Column ``_at`` of the impressions.
        events: The same of the events.
        within: How long an event counts after its impression.
    """

    shown: DataFrame
    events: DataFrame
    within: int

    def open_share(self) -> float | None:
        """Share of the impressions whose window ends after the newest event; two small jobs."""
        newest = self.events.agg(F.max(_AT)).first()
        if newest is None or newest[0] is None:
            return None
        is_open = F.expr(f"CASE WHEN {_AT} + {self.within}L > {newest[0]}L THEN 1.0 ELSE 0.0 END")
        share = self.shown.where(f"{_AT} IS NOT NULL").agg(F.avg(is_open)).first()
        return None if share is None or share[0] is None else float(share[0])


def with_grades(
    shown: DataFrame, events: DataFrame, options: Options, day: str | None = None
) -> tuple[DataFrame, Options, Timed | None]:
    """The impressions with the grades that their events give, and the events beside them, each with its status.

    Args:
        shown: A row per shown item.
        events: A row per event.
        options: What is asked for.
        day: The day of the log, YYYY-MM-DD; events up to its start plus the window may belong to the day before.

    Raises:
        ConfigError: The columns of lists do not match, or both or neither say what is relevant.
        InputError: A column is missing, or a time is none.
    """
    sides = _Sides.of(shown, events, options)
    path = options.path_of("columns")
    if "relevance" not in options.columns and (own := first_of(shown, [sch.RELEVANCE])):
        one = f"allowed: one of the two, such as {path}.relevance: null with the events"
        raise InputError(f"the impressions have a column '{own}', and events are given; {one}")
    # Impressions and events with the same keys are in one partition, and so are the rows of a list.
    both = sides.shown.unionByName(sides.events, allowMissingColumns=True).repartition(*sides.keys)
    of_list = ", ".join(sides.keys)
    of_item, at = f"{of_list}, {_ITEM}", f"CASE WHEN NOT {_EVENT} THEN {_AT} END"
    in_order = f"PARTITION BY {of_item} ORDER BY {_AT}, {_EVENT} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    first, latest = f"min({at}) OVER (PARTITION BY {of_list})", f"last({at}, true) OVER ({in_order})"
    n_shown = f"count(CASE WHEN NOT {_EVENT} THEN 1 END) OVER (PARTITION BY {of_item}) AS {_N_SHOWN}"
    found = both.selectExpr("*", n_shown).selectExpr("*", f"{first if sides.by_list else latest} AS {_SHOWN_AT}")
    states = found.selectExpr("*", f"{_state(options, day, sides.is_timed)} AS {_STATE}")
    best = f"max(CASE WHEN {_STATE} = '{sch.MATCHED}' THEN {_KIND} END)"
    receives = of_item if sides.by_list else f"{of_item}, {_SHOWN_AT}"
    graded = states.selectExpr("*", f"{best} OVER (PARTITION BY {receives}) AS _best")
    kind = "bigint" if all(grade.is_integer() for grade in options.grades.values()) else "double"
    relevance = f"CASE WHEN NOT {_EVENT} THEN {kind}(coalesce(_best, 0D)) END AS {sch.GRADE_OF_EVENTS}"
    kept = [sch.quoted(name) for name in shown.columns if name != sch.LIST_FAULT]
    fault = f"coalesce({sch.LIST_FAULT}, {_STATE})" if sch.LIST_FAULT in shown.columns else _STATE
    rows = graded.selectExpr(*kept, relevance, f"{fault} AS {sch.LIST_FAULT}")
    options = replace(options, columns={**options.columns, "relevance": sch.GRADE_OF_EVENTS})
    within = microseconds(options.within) if options.within else None
    return rows, options, None if within is None else Timed(sides.shown, sides.events, within)


def flattened(
    impressions: DataFrame,
    judgements: DataFrame | None,
    events: AnyTable | None,
    options: Options,
    day: str | None = None,
) -> tuple[DataFrame, DataFrame | None, Options, Nested | None, Timed | None]:
    """Impressions and judgements with a row per item, and the options that fit them; the lists as they came.

    Events give the impressions their grades; their lists are then read as items.
    """
    if events is not None:
        named, usual = options.event_columns, (name for names in sch.EVENT_NAMES.values() for name in names)
        of_events = (*named.get("list", ()), *(name for role, name in named.items() if role != "list"))
        events = table_of(events, "events", of_events, usual, impressions)
    impressions, options, lists = flat_log(impressions, options)
    if judgements is not None:
        judgements, options = flat_judgements(judgements, options)
    if events is None:
        return impressions, judgements, options, lists, None
    impressions, options, timed = with_grades(impressions, events, options, day)
    return impressions, judgements, options, None, timed


@dataclass(frozen=True)
class _Sides:
    """Impressions and events with the columns that both have: keys, item, time, and whether a row is an event."""

    shown: DataFrame
    events: DataFrame
    keys: Sequence[str]
    by_list: bool
    is_timed: bool

    @classmethod
    def of(cls, shown: DataFrame, events: DataFrame, options: Options) -> _Sides:
        """By the columns of lists, if the events have them; else by the user and the time."""
        path, of_events = options.path_of("columns"), options.path_of("event_columns")
        lists, shown_at = options.event_columns.get("list", ()), options.columns.get(sch.TIME)
        role = {
            name: options.event_columns.get(name) or first_of(events, sch.EVENT_NAMES[name]) for name in sch.EVENT_NAMES
        }
        if lists and len(lists) != len(options.list):
            raise ConfigError(
                f"{of_events}.list is {', '.join(lists)}, and {options.path_of('list')} {', '.join(options.list)}; "
                "allowed: as many columns, of the same lists in the same order"
            )
        if not shown_at and (options.within or not lists):
            needs = options.path_of("within") if options.within else f"events without {of_events}.list"
            raise ConfigError(
                f"{path}.time is missing, for {needs}; allowed: the times of both tables, as {path}.time and "
                f"{of_events}.time, or the columns of lists in both"
            )
        pairs = dict(zip(options.list, lists, strict=False))
        if not lists or role["user"]:
            pairs[options.columns.get("user") or first_of(shown, (sch.USER, "user")) or sch.USER] = (
                role["user"] or sch.USER
            )
        item = options.columns.get("item") or first_of(shown, (sch.ITEM, "item")) or sch.ITEM
        is_timed = bool(shown_at and (role[sch.TIME] or options.within or not lists))
        keys = [f"_key_{i}" for i in range(len(pairs))]
        timed = (shown_at, role[sch.TIME] or sch.TIME) if is_timed else (None, None)
        left = aligned(shown, [*pairs, item], timed[0], options.time_zone, "impressions")
        event_item = role["item"] or sch.ITEM
        if event_item in events.columns and isinstance(events.schema[event_item].dataType, T.ArrayType):
            # One event of several items, as GA4 has them.
            events = events.withColumn(event_item, F.explode_outer(sch.quoted(event_item)))
        right = aligned(events, [*pairs.values(), event_item], timed[1], options.time_zone, "events")
        is_faulty = " OR ".join(f"{sql} IS NULL" for sql in (right if is_timed else right[:-1]))
        names = [*keys, _ITEM, _AT]
        return cls(
            shown.selectExpr("*", *map(" AS ".join, zip(left, names, strict=True)), f"false AS {_EVENT}"),
            events.selectExpr(
                *map(" AS ".join, zip(right, names, strict=True)),
                *(
                    f"true AS {_EVENT}",
                    f"{_grade(events, role['kind'], options)} AS {_KIND}",
                    f"{is_faulty} AS {_FAULTY}",
                ),
            ),
            keys,
            bool(lists),
            is_timed,
        )


def first_of(table: DataFrame, names: Sequence[str]) -> str | None:
    """The first of these columns that a table has."""
    return next((name for name in names if name in table.columns), None)


def aligned(table: DataFrame, names: Sequence[str], at: str | None, zone: str, what: str) -> list[str]:
    """SQL of the columns that identify the rows of a table, as texts, and of its time; null without one."""
    kinds = {field.name: field.dataType for field in table.schema.fields}
    for name in (*names, *([at] if at else [])):
        if name not in kinds:
            raise InputError(f"the {what} have no column '{name}': {unknown('column', name, kinds)}")
    engine = engine_of(table.sparkSession)
    time = micros(sch.quoted(at), kinds[at], zone, what, at) if at else "cast(null AS bigint)"
    return [*(as_text(sch.quoted(name), kinds[name], engine) for name in names), time]


def _grade(events: DataFrame, kind: str | None, options: Options) -> str:
    """SQL: the grade of an event; null for a kind that has none."""
    path = options.path_of("grades")
    if kind not in events.columns:
        if options.grades or kind:
            problem = unknown("column", kind or sch.EVENT_NAMES["kind"][0], events.columns)
            raise InputError(f"the events have no column for their kind: {problem}")
        return "1D"
    if not options.grades:
        raise ConfigError(
            f"{path} is missing, and the events have the column '{kind}'; allowed: the grade of each kind that counts, "
            f"such as {path}: {{click: 1}}"
        )
    cases = (f"WHEN {literal(name)} THEN {float(grade)!r}D" for name, grade in options.grades.items())
    return f"CASE string({sch.quoted(str(kind))}) {' '.join(cases)} END"


def _state(options: Options, day: str | None, is_timed: bool) -> str:
    """SQL: what becomes of an event; null for an impression. The first that applies counts."""
    within = microseconds(options.within) if options.within else None
    earlier = ""
    if day and within is not None:
        start = f"unix_micros(to_utc_timestamp(try_cast('{day}T00:00:00Z' AS timestamp), '{options.time_zone}'))"
        earlier = f"WHEN {_AT} < {start} + {within}L THEN 'event_of_earlier_day' "
    none = f"CASE {earlier}ELSE 'event_without_impression' END" if earlier else "'event_without_impression'"
    before = f"CASE {earlier}ELSE 'event_before_impression' END" if earlier else "'event_before_impression'"
    timed = f"WHEN {_SHOWN_AT} IS NULL OR {_AT} < {_SHOWN_AT} THEN {before} " if is_timed else ""
    late = f"WHEN {_AT} > {_SHOWN_AT} + {within}L THEN 'event_after_window' " if within is not None else ""
    return (
        f"CASE WHEN NOT {_EVENT} THEN NULL WHEN {_KIND} IS NULL THEN 'kind_without_grade' WHEN {_FAULTY} THEN "
        f"'faulty_event' WHEN {_N_SHOWN} = 0 THEN {none} {timed}{late}ELSE '{sch.MATCHED}' END"
    )


def event_counts(groups: DataFrame) -> dict[str, int]:
    """Status of events -> how many, in the order in which they are looked for; from groups of faulty rows."""
    events = groups.where(IS_EVENT).groupBy(F.col(f"{sch.REJECTED}.{sch.REASON}").alias("state"))
    found = {row["state"]: int(row["n"]) for row in few_rows(events.agg(F.sum(sch.N_ROWS).alias("n")))}
    return {state: found[state] for state in sch.EVENT_STATES if state in found}


def unmatched_rate(counts: Mapping[str, int]) -> float | None:
    """Share of the graded events that have no impression; None without graded events."""
    graded = sum(counts.get(state, 0) for state in sch.EVENT_STATES[:4])
    return counts.get("event_without_impression", 0) / graded if graded else None


def shown_rows(log: DataFrame, options: Options, events: AnyTable | None = None) -> tuple[DataFrame, Options]:
    """A row per shown item with the relevance that its events give, and the options that fit them.

    It is for what reads rows and no tables of an evaluation: rows of events, and why they do not count, are left out.
    """
    rows, _, options, *_ = flattened(log, None, events, options)
    states = ", ".join(map(repr, sch.EVENT_STATES))
    return rows if events is None else rows.where(f"NOT coalesce({sch.LIST_FAULT} IN ({states}), false)"), options
