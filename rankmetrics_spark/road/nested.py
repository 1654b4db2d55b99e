"""Logs whose rows are lists: their items as rows, and as arrays that are scored without a shuffle of items.

Both say the same. ``Nested.rows`` is what every reader of a log understands; ``packed`` is what an evaluation reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.config import Options, Packed
from rankmetrics_spark.engines import engine_of, field_of, steps_to
from rankmetrics_spark.errors import InputError, unknown
from rankmetrics_spark.layouts import LONGEST, MASK_RANKS
from rankmetrics_spark.road import checking
from rankmetrics_spark.road.plan import Plan
from rankmetrics_spark.road.ranking import described

_ELEMENT, _PLACE, _ITEMS = "_element", "_place", "_items"
_SOUND, _REJECTS = "_sound", "_rejects"
_OF_ROW = "_fault_of_row"


@dataclass(frozen=True)
class Nested:
    """A table with a row per list.

    Attributes:
        table: The table, with ``_row``, the number of each row, if rows are lists of their own.
        array: SQL of an array with an element per item; null where the list is.
        fault: SQL: why a list is faulty as a whole, or null.
        values: Column of ``rows`` -> its SQL, from an ``_element`` and its ``_place`` from 0.
        roles: Role -> column of ``rows``.
    """

    table: DataFrame
    array: str
    fault: str
    values: Mapping[str, str]
    roles: Mapping[str, str | None]

    @cached_property
    def rows(self) -> DataFrame:
        """One row per item, with the other columns of its list; of a list that is faulty as a whole, one row."""
        arrays = {f.name for f in self.table.schema.fields if isinstance(f.dataType, T.ArrayType)}
        faults = self.table.selectExpr("*", f"{self.fault} AS {sch.LIST_FAULT}")
        items = f"posexplode_outer(CASE WHEN {sch.LIST_FAULT} IS NULL THEN {self.array} END)"
        exploded = faults.selectExpr("*", f"{items} AS ({_PLACE}, {_ELEMENT})")
        exploded = exploded.where(f"{_PLACE} IS NOT NULL OR {sch.LIST_FAULT} IS NOT NULL")
        kept = [sch.quoted(name) for name in self.table.columns if name not in self.values and name not in arrays]
        values = (f"{sql} AS {sch.quoted(name)}" for name, sql in self.values.items())
        return exploded.selectExpr(*kept, *values, sch.LIST_FAULT)


def nested(
    table: DataFrame,
    columns: Mapping[str, str | None],
    packed: Packed | None,
    place: str | None,
    what: str = "impressions",
) -> Nested | None:
    """The table as one of lists; None if each of its rows is an item.

    Args:
        table: Impressions or judgements.
        columns: Role -> column.
        packed: How cells of text hold their items.
        place: SQL of the rank of an item that has none of its own; None = items have no rank.
        what: What messages call the table.

    Raises:
        InputError: The column of lists is missing or holds none, or its structs lack a field.
    """
    kinds = {field.name: field.dataType for field in table.schema.fields}
    lists = columns.get(sch.ITEMS)
    roles = {role: name for role, name in sch.ROLES.items() if name in sch.OF_ITEM}
    if lists is not None and lists not in kinds:
        raise InputError(f"the {what} have no column for items: {unknown('column', lists, kinds)}")
    array, element = _elements(lists, kinds[lists], packed, what) if lists is not None else (None, None)
    fields = {f.name: f.dataType for f in element.fields} if isinstance(element, T.StructType) else {}
    values: dict[str, str] = {}
    arrays = [] if lists is None else [sch.quoted(lists)]
    named: dict[str, str | None] = dict(columns)
    for role, canonical in roles.items():
        chosen = columns.get(role, canonical if canonical in {*fields, *kinds} else role)
        if chosen is None:
            continue
        steps = [*map(sch.quoted, steps_to(element, chosen))] if isinstance(element, T.StructType) else []
        name = chosen if lists is None else f"{lists}.{chosen}"
        if steps:
            values[name] = field_of([_ELEMENT, *steps])
        elif lists is not None and role == "item" and not fields and role not in columns:
            name = lists
            values[name] = _ELEMENT
        elif isinstance(kinds.get(chosen), T.ArrayType) and (role != "intents" or arrays):
            name = chosen
            arrays.append(sch.quoted(chosen))
            values[name] = f"get({sch.quoted(chosen)}, {_PLACE})"
        elif lists is not None and role in columns:
            known = unknown("field", chosen, fields) if fields else f"'{lists}' holds items without fields"
            raise InputError(f"the {what} have no {canonical} of an item: {known}; allowed: a field of '{lists}' or a "
                             "column with one value per item")  # fmt: skip
        else:
            continue
        named[role] = name
    if not arrays:
        return None
    # Columns with one value per list.
    single = {
        role: name
        for role in roles
        for name in [columns[role] if role in columns else roles[role] if roles[role] in kinds else role]
        if name in kinds and name not in values
    }
    by_default = single.keys() - columns.keys()
    if lists is None and ("item" in single or by_default & {"position", "relevance"}):
        return None  # a row per item, with an array in another column
    read = [role for role in single if role == "relevance" or (role in columns and role in ("position", "score"))]
    if read and what == "impressions":
        raise InputError(
            f"column '{single[read[0]]}' ({roles[read[0]]}) of the {what} has one value per list; allowed: a column "
            "with one value per item (an array), a field of columns.items, or null"
        )
    if sch.POSITION not in {sch.ROLES[role] for role in roles if named.get(role) in values} and place is not None:
        values[sch.POSITION], named["position"] = place, sch.POSITION
    first = array or arrays[0]
    lengths = [f"size({other}) != size({arrays[0]})" for other in arrays[1:]]
    null = " OR ".join([f"{first} IS NULL", *(f"{other} IS NULL" for other in arrays[1:])])
    uneven = f" WHEN {' OR '.join(lengths)} THEN 'uneven_list'" if lengths else ""
    named.pop(sch.ITEMS, None)
    return Nested(table, first, f"CASE WHEN {null} THEN 'null_list'{uneven} END", values, named)


def _elements(lists: str, kind: T.DataType, packed: Packed | None, what: str) -> tuple[str, T.DataType]:
    """SQL of the array that a column holds, and the type of its elements."""
    column = sch.quoted(lists)
    if isinstance(kind, T.ArrayType):
        return column, kind.elementType
    if not isinstance(kind, T.StringType) or packed is None:
        found = f"column '{lists}' (items) of the {what} has type {kind.simpleString()}"
        raise InputError(f"{found}; it must be an array, or a text that source.packed describes")
    cells = f"split({column}, {checking.literal(re.escape(packed.separator))})"
    cells = f"filter({cells}, x -> x != '')"
    if packed.between is None:
        return cells, T.StringType()
    mark, n = checking.literal(re.escape(packed.between)), len(packed.parts)
    parts = f"split(x, {mark})"
    others = [f"get({parts}, size({parts}) - {n - i})" for i in range(1, n)]
    # The first part, such as an id, may hold the mark too.
    taken = " + ".join(f"length({part})" for part in others)
    first = f"substring(x, 1, length(x) - ({taken}) - {(n - 1) * len(packed.between)})"
    is_whole = f"size({parts}) >= {n}"
    sql = [f"CASE WHEN {is_whole} THEN {first} ELSE x END", *(f"CASE WHEN {is_whole} THEN {p} END" for p in others)]
    struct = ", ".join(f"{each} AS {part}" for each, part in zip(sql, packed.parts, strict=True))
    element = T.StructType([T.StructField(part, T.StringType()) for part in packed.parts])
    return f"transform({cells}, x -> struct({struct}))", element


def flat_log(table: DataFrame, options: Options) -> tuple[DataFrame, Options, Nested | None]:
    """The log with a row per item, and the options that fit it; a log of items as it is.

    Where nothing tells the lists of a user apart, each row of a nested log is one: it has a number, ``_row``.
    """
    place = f"bigint({_PLACE}) + {options.first_rank}L" if options.rank_by == sch.POSITION else None
    found = nested(table, options.columns, options.packed, place)
    if found is None:
        return table, options, None
    if not options.list:
        found = replace(found, table=table.withColumn(sch.ROW, F.expr("monotonically_increasing_id()")))
    options = replace(options, columns=found.roles, list=options.list or (sch.ROW,))
    return found.rows, options, found


def flat_judgements(table: DataFrame, options: Options) -> tuple[DataFrame, Options]:
    """The judgements with a row per item; an item of a list without grades is relevant."""
    found = nested(table, options.judgement_columns, options.judgement_packed, None, "judgements")
    if found is None:
        return table, options
    rows, roles = found.rows, {role: name for role, name in found.roles.items() if name is not None}
    if roles.get("relevance", sch.RELEVANCE) not in rows.columns:
        rows, roles["relevance"] = rows.withColumn(sch.RELEVANCE, F.lit(1)), sch.RELEVANCE
    return rows, replace(options, judgement_columns=roles)


def packed(lists: Nested, plan: Plan, kinds: Mapping[str, T.DataType]) -> DataFrame:
    """One row per list, as ``ranking.packed`` has them, with its faulty items in ``_rejected_items``.

    Items do not leave their row, unless the lists of a user are told apart by columns: then rows of one list meet. A
    row that is no list, since it or all of its items are faulty, has ``_is_list`` false.

    Args:
        lists: The log.
        plan: Its plan, in a layout whose rows travel one by one.
        kinds: Type of each column of ``lists.rows`` that is read, under its internal name.
    """
    columns, mapping, engine = plan.columns, plan.mapping, engine_of(lists.table.sparkSession)
    text = plan.options.text_numbers
    shown = [sch.INTENTS] * (columns.intents == "shown")
    of_item = [name for name in (*columns.values, *shown) if mapping.get(name) in lists.values]
    texts = checking.texts(kinds, engine)
    faults = checking.faults(plan.columns, kinds, mapping, text, plan.scoring.judged)
    are_places = _PLACE in lists.values.get(sch.POSITION, "") and mapping.get(sch.POSITION) == sch.POSITION
    of_keys, of_values, of_segments = (
        # The place of an item is a rank.
        [(label, sql) for name, label, sql in faults if name in names and not (name == sch.POSITION and are_places)]
        for names in ((*columns.keys, *columns.timed), columns.values, columns.segment_columns)
    )
    names = (*columns.keys, *columns.of_user, *columns.timed)
    row = {name: checking.source_of(mapping, name) for name in names}
    items = ", ".join(f"{lists.values[str(mapping[name])]} AS {name}" for name in of_item)
    empty = f"cast(array() AS array<struct<{', '.join(f'{name}: {kinds[name].simpleString()}' for name in of_item)}>>)"
    raw = lists.table.selectExpr(
        *(f"{sql} AS {name}" for name, sql in row.items()),
        f"{lists.fault} AS {sch.LIST_FAULT}",
        f"coalesce(transform({lists.array}, ({_ELEMENT}, {_PLACE}) -> struct({items})), {empty}) AS {_ITEMS}",
    )
    per_item = _PerItem({name: checking.typed(name, kinds[name], columns, text) or texts[name] for name in of_item})
    is_faulty = " OR ".join(f"coalesce({sql}, false)" for _, sql in of_values) or "false"
    of_row = checking.first_fault([(None, sch.LIST_FAULT), *of_keys])
    some = f"exists({_ITEMS}, {_ELEMENT} -> {per_item.raw(is_faulty)}) AS _some"
    raw = raw.selectExpr("*", f"{of_row} AS {_OF_ROW}", f"{checking.first_fault(of_segments)} AS _of_segment", some)
    whole = f"{_OF_ROW} IS NULL AND _of_segment IS NULL"
    reason = f"coalesce({_OF_ROW}, {per_item.raw(checking.first_fault(of_values))}, _of_segment)"
    keys = ", ".join(f"{texts[name]} AS {name}" for name in columns.keys)
    values = ", ".join(f"{per_item.raw(texts[name])} AS {name}" for name in columns.values)
    none = ", ".join(f"string(null) AS {name}" for name in columns.values)
    each = f"struct({reason} AS {sch.REASON}, {keys}, {values})"
    faulty = f"filter({_ITEMS}, {_ELEMENT} -> NOT ({whole}) OR {per_item.raw(is_faulty)})"
    nothing = f"array(struct({_OF_ROW} AS {sch.REASON}, {keys}, {none}))"
    parted = raw.selectExpr(
        *(f"{texts[name]} AS {name}" for name in (*columns.keys, *columns.of_user) if name != sch.COVARIATE),
        *([checking.covariate(kinds)] if columns.covariate else []),
        *(f"{checking.micros(name, kinds[name], str(columns.time_zone))} AS {name}" for name in columns.timed),
        f"{whole} AS {sch.IS_LIST}",
        f"CASE WHEN NOT ({whole}) THEN filter({_ITEMS}, x -> false) WHEN _some THEN "
        f"filter({_ITEMS}, {_ELEMENT} -> NOT ({per_item.raw(is_faulty)})) ELSE {_ITEMS} END AS {_SOUND}",
        f"CASE WHEN {_OF_ROW} IS NOT NULL AND ({sch.LIST_FAULT} IS NOT NULL OR size({_ITEMS}) = 0) THEN {nothing} "
        f"WHEN NOT ({whole}) OR _some THEN transform({faulty}, {_ELEMENT} -> {each}) END AS {_REJECTS}",
    )
    if sch.ROW not in plan.options.list:
        merged = (f"flatten(collect_list({name})) AS {name}" for name in (_SOUND, _REJECTS))
        aggregates = (f"{sql} AS {name}" for name, sql in described(columns).items())
        parted = parted.groupBy(*columns.keys, sch.IS_LIST).agg(*map(F.expr, (*merged, *aggregates)))
    elif columns.segments:
        parted = parted.withColumn(sch.MIXED, F.lit(False))
    return _entries(parted, plan, per_item, are_places and sch.ROW in plan.options.list)


def _entries(lists: DataFrame, plan: Plan, per_item: _PerItem, are_distinct: bool) -> DataFrame:
    """The lists with the arrays that their layout reads, and their counts; ``are_distinct`` = no rank repeats."""
    columns, packing = plan.columns, plan.layout.pack(plan.columns, plan.scoring.repeats)
    size = f"size({_SOUND})"
    counts = {sch.N_ROWS: f"bigint({size})"}
    if columns.relevance:
        negative = per_item.typed(f"{sch.RELEVANCE} < 0")
        counts[sch.N_NEGATIVE] = f"bigint(size(filter({_SOUND}, {_ELEMENT} -> coalesce({negative}, false))))"
    ranks = f"transform({_SOUND}, {_ELEMENT} -> {per_item.typed(sch.POSITION)})"
    if not columns.by_score:
        counts[sch.TOP] = f"array_max({ranks})"
    row = ", ".join(f"{per_item.typed(sql, packing.item_hash)} AS {name}" for name, sql in packing.entry.items())
    entries = f"transform({_SOUND}, {_ELEMENT} -> struct({row}))"
    if packing.condition:
        # The layout of relevant rows: all rows of a list in which a rank may repeat.
        top = f"array_max({ranks})"
        plain = f"{top} <= {MASK_RANKS} OR ({top} = {size} AND {size} <= {LONGEST})"
        distinct = "true" if are_distinct else f"size(array_distinct({ranks})) = {size}"
        counts[sch.RANK_MAY_REPEAT] = f"{size} > 0 AND NOT (({plain}) AND {distinct})"
        relevant = per_item.typed(f"{sch.RELEVANCE} > 0")
        chosen = f"transform(filter({_SOUND}, {_ELEMENT} -> {relevant}), {_ELEMENT} -> struct({row}))"
        lists = lists.selectExpr("*", f"{counts[sch.RANK_MAY_REPEAT]} AS {sch.RANK_MAY_REPEAT}")
        counts[sch.RANK_MAY_REPEAT] = sch.RANK_MAY_REPEAT
        entries = f"CASE WHEN {sch.RANK_MAY_REPEAT} THEN {entries} ELSE {chosen} END"
    described_by = [*columns.of_user, *[sch.MIXED] * bool(columns.segments), *columns.timed]
    rejects = f"CASE WHEN size({_REJECTS}) > 0 THEN {_REJECTS} END"
    return lists.selectExpr(
        *columns.keys,
        *described_by,
        *(f"{sql} AS {name}" for name, sql in counts.items()),
        f"{entries} AS {sch.ENTRIES}",
        f"{sch.IS_LIST} AND ({size} > 0 OR coalesce(size({_REJECTS}), 0) <= 0) AS {sch.IS_LIST}",
        f"{rejects} AS {sch.REJECTED_ITEMS}",
    )


@dataclass(frozen=True)
class _PerItem:
    """SQL over the columns of a row of the log -> SQL over an element of ``_items``.

    Attributes:
        types: Column -> its SQL with the type that the engine computes with.
    """

    types: Mapping[str, str]

    def raw(self, sql: str) -> str:
        """With the values as they came."""
        return self._with(sql, {name: f"{_ELEMENT}.{name}" for name in self.types})

    def typed(self, sql: str, item_hash: str = "") -> str:
        """With typed values; ``_hash`` is that of the item."""
        values = {name: self.raw(typed) for name, typed in self.types.items()}
        if item_hash:
            values[sch.HASH] = self._with(item_hash, values)
        return self._with(sql, values)

    def _with(self, sql: str, values: Mapping[str, str]) -> str:
        names = "|".join(map(re.escape, values))
        return re.sub(rf"(?<![\w.])({names})\b(?!')", lambda match: f"({values[match[0]]})", sql) if names else sql
