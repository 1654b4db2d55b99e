"""Clicks in rows of their own: which impression an event belongs to, and the grade that it gives.

An event has the time of the impression that it belongs to: of its list, or the latest one of its user and item, which
windows over the few rows of items with events find. The best grade of each item is then joined to the rows of the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from pyspark.sql import DataFrame, functions as F, types as T

from rankmetrics_spark import errors as err, schemas as sch
from rankmetrics_spark.config import Options, microseconds
from rankmetrics_spark.engines import AnyTable, as_text, engine_of, few_rows, table_of
from rankmetrics_spark.road.checking import digest_of, hash_of, literal, micros, sums_of_hashes
from rankmetrics_spark.road.nested import Nested, flat_judgements, flat_log

_EVENT, _AT, _ITEM, _KIND, _FAULTY = "_event", "_at", "_item_of_both", "_grade_of_kind", "_no_event"
_SHOWN_AT, _IS_SHOWN, _BEST, _PART = "_shown_at", "_is_shown", "_best", "_part"
#: Parts of the items of a list, so that lists of a million items do not take a million times as long as one.
PARTS = 1_000


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
        is_open = F.expr(f"CASE WHEN {_AT} + {self.within}L > {newest[0]}L THEN 1D ELSE 0D END")
        share = self.shown.where(f"{_AT} IS NOT NULL").agg(F.avg(is_open)).first()
        return None if share is None or share[0] is None else float(share[0])


def with_grades(
    shown: DataFrame, events: DataFrame, options: Options, day: str | None = None
) -> tuple[DataFrame, Options, Timed | None, DataFrame]:
    """The impressions with the grades that their events give, and the status of each event, as ``reason``.

    Args:
        shown: A row per shown item.
        events: A row per event.
        options: What is asked for.
        day: The day of the log, YYYY-MM-DD; events up to its start plus the window may belong to the day before,
            and those after its end to the day after.

    Raises:
        ConfigError: The columns of lists do not match, or both or neither say what is relevant.
        InputError: A column is missing, or a time is none.
    """
    sides = _Sides.of(shown, events, options)
    path = options.path_of("columns")
    if "relevance" not in options.columns and (own := first_of(shown, [sch.RELEVANCE])):
        raise err.InputError.of("two_grades", own=own, path=path)
    state, of_item = _state(options, day, sides.is_timed), [*sides.keys, _ITEM]
    events, seen = sides.events, sides.shown.join(sides.events.select(*of_item), of_item, "left_semi")
    if sides.by_list:
        if sides.is_timed:
            events = events.join(sides.shown.groupBy(*sides.keys).agg(F.min(_AT).alias(_SHOWN_AT)), sides.keys, "left")
        found = seen.select(*of_item).distinct().selectExpr("*", f"1 AS {_IS_SHOWN}")
        events, states = events.selectExpr("*", f"1 AS {_IS_SHOWN}"), events.join(found, of_item, "left")
    else:
        both, item = seen.unionByName(events, allowMissingColumns=True), f"PARTITION BY {', '.join(of_item)}"
        # One order for both, else Sail sorts all rows twice, and cannot after the window that has no order.
        over = f"OVER ({item} ORDER BY {_AT}, {_EVENT} ROWS BETWEEN UNBOUNDED PRECEDING AND {{}})"
        latest = f"last(CASE WHEN NOT {_EVENT} THEN {_AT} END, true) {over.format('CURRENT ROW')} AS {_SHOWN_AT}"
        is_shown = f"max(CASE WHEN NOT {_EVENT} THEN 1 END) {over.format('UNBOUNDED FOLLOWING')} AS {_IS_SHOWN}"
        events = states = both.selectExpr("*", is_shown, latest).where(_EVENT)
        of_item = [*of_item, _SHOWN_AT]
    is_spark, grade = engine_of(shown.sparkSession) == "spark", _BEST
    matched = events.where(f"{state} = '{sch.MATCHED}'")
    # On Spark, the events and the rows of a list meet in one shuffle, and are not sorted.
    matched = matched.repartition(*sides.keys) if is_spark else matched
    best = matched.groupBy(*of_item).agg(F.max(_KIND).alias(_BEST))
    if is_spark and sides.by_list:
        # A look-up in a map passes over its keys, so the items of a list are in parts.
        part = f"pmod(hash({{}}), {PARTS})"
        of_parts = best.groupBy(*sides.keys, F.expr(f"{part.format(_ITEM)} AS {_PART}"))
        parts = of_parts.agg(F.expr(f"map_from_entries(collect_list(struct({_ITEM}, {_BEST}))) AS {_BEST}"))
        of_lists = F.expr(f"map_from_entries(collect_list(struct({_PART}, {_BEST}))) AS {_BEST}")
        best = parts.groupBy(*sides.keys).agg(of_lists)
        of_item, item = sides.keys, sides.sql[-2]
        grade = f"try_element_at(try_element_at({_BEST}, {part.format(item)}), {item})"
    best = best.hint("shuffle_hash") if is_spark else best
    same = F.expr(" AND ".join(map(" = ".join, zip(sides.sql, of_item, strict=False))))
    kind = "bigint" if all(grade.is_integer() for grade in options.grades.values()) else "double"
    relevance = f"{kind}(coalesce({grade}, 0D)) AS {sch.GRADE_OF_EVENTS}"
    rows = shown.join(best, same, "left").selectExpr(*map(sch.quoted, shown.columns), relevance)
    options = replace(options, columns={**options.columns, "relevance": sch.GRADE_OF_EVENTS})
    timed = Timed(sides.shown, sides.events, microseconds(options.within)) if options.within else None
    read = f"{hash_of((*sides.keys, _ITEM, _AT, _KIND))} AS {sch.DIGEST}"
    return rows, options, timed, states.selectExpr(f"{state} AS {sch.REASON}", read)


def flattened(
    shown: DataFrame, judgements: DataFrame | None, events: AnyTable | None, options: Options, day: str | None = None
) -> tuple[DataFrame, DataFrame | None, Options, Nested | None, Timed | None, DataFrame | None]:
    """Impressions and judgements with a row per item, and the options that fit them; the lists as they came.

    Events give the impressions their grades; their lists are then read as items. Last, see ``with_grades``.
    """
    if events is not None:
        named, usual = options.event_columns, (name for names in sch.EVENT_NAMES.values() for name in names)
        of_events = (*named.get("list", ()), *(name for role, name in named.items() if role != "list"))
        events = table_of(events, "events", of_events, usual, shown)
    shown, options, lists = flat_log(shown, options)
    if judgements is not None:
        judgements, options = flat_judgements(judgements, options)
    if events is None:
        return shown, judgements, options, lists, None, None
    shown, options, timed, states = with_grades(shown, events, options, day)
    return shown, judgements, options, None, timed, states


@dataclass(frozen=True)
class _Sides:
    """Impressions and events with the columns that both have: keys, item, time, and whether a row is an event.

    ``sql`` are keys, item and time of an impression, as SQL.
    """

    shown: DataFrame
    events: DataFrame
    keys: list[str]
    sql: Sequence[str]
    by_list: bool
    is_timed: bool

    @classmethod
    def of(cls, shown: DataFrame, events: DataFrame, options: Options) -> "_Sides":
        """By the columns of lists, if the events have them; else by the user and the time."""
        path, of_events = options.path_of("columns"), options.path_of("event_columns")
        lists, shown_at = options.event_columns.get("list", ()), options.columns.get(sch.TIME)
        given = options.event_columns
        role = {name: given.get(name) or first_of(events, usual) for name, usual in sch.EVENT_NAMES.items()}
        if lists and len(lists) != len(options.list):
            raise err.ConfigError.of(
                "other_lists_of_events", at=of_events, lists=lists, of=options.path_of("list"), columns=options.list
            )
        if not shown_at and (options.within or not lists):
            needs = options.path_of("within") if options.within else f"events without {of_events}.list"
            raise err.ConfigError.of("times_missing", path=path, needs=needs, of_events=of_events)
        pairs = dict(zip(options.list, lists, strict=False))
        if not lists or role["user"]:
            user = options.columns.get("user") or first_of(shown, (sch.USER, "user")) or sch.USER
            pairs[user] = role["user"] or sch.USER
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
        for i, (ours, theirs) in enumerate([*pairs.items(), (item, event_item)]):
            kind = shown.schema[ours].dataType
            if isinstance(kind, T.IntegralType) and kind == events.schema[theirs].dataType:
                # Equal numbers are equal texts, and quicker to compare.
                left[i], right[i] = sch.quoted(ours), sch.quoted(theirs)
        is_faulty = " OR ".join(f"{sql} IS NULL" for sql in (right if is_timed else right[:-1]))
        names = [*keys, _ITEM, _AT]
        grade = _grade(events, role["kind"], options)
        of_event = (f"true AS {_EVENT}", f"{grade} AS {_KIND}", f"{is_faulty} AS {_FAULTY}")
        shown = shown.selectExpr("*", *map(" AS ".join, zip(left, names, strict=True)), f"false AS {_EVENT}")
        events = events.selectExpr(*map(" AS ".join, zip(right, names, strict=True)), *of_event)
        return cls(shown, events, keys, left, bool(lists), is_timed)


def first_of(table: DataFrame, names: Sequence[str]) -> str | None:
    """The first of these columns that a table has."""
    return next((name for name in names if name in table.columns), None)


def aligned(table: DataFrame, names: Sequence[str], at: str | None, zone: str, what: str) -> list[str]:
    """SQL of the columns that identify the rows of a table, as texts, and of its time; null without one."""
    kinds = {field.name: field.dataType for field in table.schema.fields}
    for name in (*names, *([at] if at else [])):
        if name not in kinds:
            raise err.InputError(f"the {what} have no column '{name}': {err.unknown('column', name, kinds)}")
    engine = engine_of(table.sparkSession)
    time = micros(sch.quoted(at), kinds[at], zone, what, at) if at else "cast(null AS bigint)"
    return [*(as_text(sch.quoted(name), kinds[name], engine) for name in names), time]


def _grade(events: DataFrame, kind: str | None, options: Options) -> str:
    """SQL: the grade of an event; null for a kind that has none."""
    path = options.path_of("grades")
    if kind not in events.columns:
        if options.grades or kind:
            problem = err.unknown("column", kind or sch.EVENT_NAMES["kind"][0], events.columns)
            raise err.InputError(f"the events have no column for their kind: {problem}")
        return "1D"
    if not options.grades:
        raise err.ConfigError.of("kinds_without_grades", path=path, kind=kind)
    cases = (f"WHEN {literal(name)} THEN {float(grade)!r}D" for name, grade in options.grades.items())
    return f"CASE string({sch.quoted(str(kind))}) {' '.join(cases)} END"


def _state(options: Options, day: str | None, is_timed: bool) -> str:
    """SQL: what becomes of an event. The first that applies counts."""
    within = microseconds(options.within) if options.within else None
    others = ""
    if day and within is not None:
        first = date.fromisoformat(day)
        start, end = (
            f"unix_micros(to_utc_timestamp(try_cast('{each}T00:00:00Z' AS timestamp), '{options.time_zone}'))"
            for each in (first, first + timedelta(days=1))
        )
        others = f"WHEN {_AT} < {start} + {within}L THEN 'event_of_earlier_day' "
        others += f"WHEN {_AT} >= {end} THEN 'event_of_later_day' "
    unmatched = (f"'event_{place}_impression'" for place in ("without", "before"))
    none, before = (f"CASE {others}ELSE {state} END" if others else state for state in unmatched)
    timed = f"WHEN {_SHOWN_AT} IS NULL OR {_AT} < {_SHOWN_AT} THEN {before} " if is_timed else ""
    late = f"WHEN {_AT} > {_SHOWN_AT} + {within}L THEN 'event_after_window' " if within is not None else ""
    return (
        f"CASE WHEN {_KIND} IS NULL THEN 'kind_without_grade' WHEN {_FAULTY} THEN "
        f"'faulty_event' WHEN {_IS_SHOWN} IS NULL THEN {none} {timed}{late}ELSE '{sch.MATCHED}' END"
    )


def event_counts(states: DataFrame) -> tuple[dict[str, int], str]:
    """Status of events -> how many, in the order in which they are looked for; and the digest of all."""
    counted = states.groupBy(sch.REASON).agg(F.count(F.lit(1)).alias("n"), *sums_of_hashes(sch.DIGEST))
    found = {row[sch.REASON]: row for row in few_rows(counted)}
    return {state: int(found[state]["n"]) for state in sch.EVENT_STATES if state in found}, digest_of(*found.values())


def unmatched_rate(counts: Mapping[str, int]) -> float | None:
    """Share of the graded events that have no impression; None without graded events."""
    graded = sum(counts.get(state, 0) for state in sch.EVENT_STATES[:4])
    return counts.get("event_without_impression", 0) / graded if graded else None


def shown_rows(log: DataFrame, options: Options, events: AnyTable | None = None) -> tuple[DataFrame, Options]:
    """A row per shown item with the relevance that its events give, and the options that fit them.

    It is for what reads rows and no tables of an evaluation.
    """
    rows, _, options, *_ = flattened(log, None, events, options)
    return rows, options
