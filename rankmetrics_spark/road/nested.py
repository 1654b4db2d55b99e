"""Logs whose rows are lists: their items as rows, and as arrays that are scored without a shuffle of items.

Both say the same. ``Nested.rows`` is what every reader of a log understands; ``packed`` is what an evaluation reads.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, functions as F, types as T

from rankmetrics_spark import config as cfg, engines as eng, errors as err, layouts as lay, schemas as sch
from rankmetrics_spark.road import checking, ranking
from rankmetrics_spark.road.plan import Plan

_ELEMENT, _PLACE, _ITEMS = "_element", "_place", "_items"
_LOOK = f"({_ELEMENT}, {_PLACE}) ->"
_SOUND, _REJECTS, _PLAIN, _SIZE, _IS_ODD = "_sound", "_rejects", "_plain", "_size", "_is_odd"
_RELEVANT, _NEGATIVE = f"{sch.RELEVANCE} > 0", f"{sch.RELEVANCE} < 0"
_OF_ROW, _OF_KEYS, _OF_SEGMENT = "_fault_of_row", "_fault_of_keys", "_fault_of_segment"


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
    roles: sch.ColumnMap

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
    table: DataFrame, columns: sch.ColumnMap, packed: cfg.Packed | None, place: str | None, what: str = "impressions"
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
        raise err.InputError(f"the {what} have no column for items: {err.unknown('column', lists, kinds)}")
    array, element = _elements(lists, kinds[lists], packed, what) if lists is not None else (None, None)
    fields = {f.name: f.dataType for f in element.fields} if isinstance(element, T.StructType) else {}
    values: dict[str, str] = {}
    arrays = [] if lists is None else [sch.quoted(lists)]
    named: dict[str, str | None] = dict(columns)
    for role, canonical in roles.items():
        chosen = columns.get(role, canonical if canonical in {*fields, *kinds} else role)
        if chosen is None:
            continue
        steps = [*map(sch.quoted, eng.steps_to(element, chosen))] if isinstance(element, T.StructType) else []
        name = chosen if lists is None else f"{lists}.{chosen}"
        if steps:
            values[name] = eng.field_of([_ELEMENT, *steps])
        elif lists is not None and role == "item" and not fields and role not in columns:
            name = lists
            values[name] = _ELEMENT
        elif isinstance(kinds.get(chosen), T.ArrayType) and (role != "intents" or arrays):
            name = chosen
            arrays.append(sch.quoted(chosen))
            values[name] = f"get({sch.quoted(chosen)}, {_PLACE})"
        elif lists is not None and role in columns:
            known = err.unknown("field", chosen, fields) if fields else f"'{lists}' holds items without fields"
            raise err.InputError.of("no_part_of_item", what=what, canonical=canonical, known=known, lists=lists)
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
        raise err.InputError.of("one_value_per_list", column=single[read[0]], role=roles[read[0]], what=what)
    if sch.POSITION not in {sch.ROLES[role] for role in roles if named.get(role) in values} and place is not None:
        values[sch.POSITION], named["position"] = place, sch.POSITION
    first = array or arrays[0]
    lengths = [f"size({other}) != size({arrays[0]})" for other in arrays[1:]]
    null = " OR ".join([f"{first} IS NULL", *(f"{other} IS NULL" for other in arrays[1:])])
    uneven = f" WHEN {' OR '.join(lengths)} THEN 'uneven_list'" if lengths else ""
    named.pop(sch.ITEMS, None)
    return Nested(table, first, f"CASE WHEN {null} THEN 'null_list'{uneven} END", values, named)


def _elements(lists: str, kind: T.DataType, packed: cfg.Packed | None, what: str) -> tuple[str, T.DataType]:
    """SQL of the array that a column holds, and the type of its elements."""
    column = sch.quoted(lists)
    if isinstance(kind, T.ArrayType):
        return column, kind.elementType
    if not isinstance(kind, T.StringType) or packed is None:
        raise err.InputError.of("no_lists", lists=lists, what=what, kind=kind.simpleString())
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


def flat_log(table: DataFrame, options: cfg.Options) -> tuple[DataFrame, cfg.Options, Nested | None]:
    """The log with a row per item, and the options that fit it; a log of items as it is.

    Where nothing tells the lists of a user apart, each row of a nested log is one: it has a number, ``_row``.
    """
    # It may be null for Sail, which fails on a filter of structs of which one has a field that may not.
    place = f"nullif(bigint({_PLACE}) + {options.first_rank}L, -1L)" if options.rank_by == sch.POSITION else None
    found = nested(table, options.columns, options.packed, place)
    if found is None:
        return table, options, None
    if not options.list:
        found = replace(found, table=table.withColumn(sch.ROW, F.expr("monotonically_increasing_id()")))
    options = replace(options, columns=found.roles, list=options.list or (sch.ROW,))
    return found.rows, options, found


def flat_judgements(table: DataFrame, options: cfg.Options) -> tuple[DataFrame, cfg.Options]:
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
    columns, reading = plan.columns, _Reading(lists, plan, kinds)
    parted = reading.parted(reading.looked_at())
    if sch.ROW not in plan.options.list:
        merged = (f"flatten(collect_list({name})) AS {name}" for name in (_SOUND, _REJECTS))
        aggregates = (f"{sql} AS {name}" for name, sql in ranking.described(columns).items())
        parted = parted.groupBy(*columns.keys, sch.IS_LIST).agg(*map(F.expr, (*merged, *aggregates)))
    elif columns.segments:
        parted = parted.withColumn(sch.MIXED, F.lit(False))
    return reading.entries(parted)


@dataclass(frozen=True)
class _Reading:
    """How the rows of a log of lists are read, as SQL.

    Spark interprets what is done with each item. So most lists, without a faulty item and with their places as ranks,
    are packed in one look at their items; the others are taken apart first.
    """

    lists: Nested
    plan: Plan
    kinds: Mapping[str, T.DataType]

    @cached_property
    def texts(self) -> dict[str, str]:
        """Column -> its SQL as a text."""
        return checking.texts(self.kinds, self.engine)

    @cached_property
    def engine(self) -> str:
        """What computes it."""
        return eng.engine_of(self.lists.table.sparkSession)

    def each(self, array: str, sql: str) -> str:
        """``transform`` of an array by the SQL of an ``_element``, in a step that Spark compiles apart.

        It compiles other steps into one method, which Java leaves to its interpreter if it is large: the look at each
        item would take five times as long.
        """
        if self.engine == "sail":
            return f"transform({array}, {_ELEMENT} -> {sql})"
        return f"zip_with({array}, {array}, ({_ELEMENT}, _again) -> {sql})"

    @cached_property
    def given(self) -> "_PerItem":
        """SQL over an ``_element`` of the log and its ``_place``."""
        plan, of_rows = self.plan, self.lists.values
        names = (*plan.columns.values, *[sch.INTENTS] * (plan.columns.intents == "shown"))
        sources = {name: str(plan.mapping.get(name)) for name in names}
        values = {name: of_rows[source] for name, source in sources.items() if source in of_rows}
        text = plan.options.text_numbers
        types = {n: checking.typed(n, self.kinds[n], plan.columns, text) or self.texts[n] for n in values}
        return _PerItem(types, values)

    @cached_property
    def own(self) -> "_PerItem":
        """SQL over an element of ``_items``."""
        return replace(self.given, values={name: f"{_ELEMENT}.{name}" for name in self.given.values})

    @cached_property
    def are_places(self) -> bool:
        """Whether the rank of an item is its place."""
        is_place = _PLACE in self.lists.values.get(sch.POSITION, "")
        return is_place and self.plan.mapping.get(sch.POSITION) == sch.POSITION

    @cached_property
    def at_once(self) -> bool:
        """Whether lists are packed in one look."""
        return sch.ROW in self.plan.options.list and (self.are_places or self.plan.columns.by_score)

    @cached_property
    def packing(self) -> lay.Packing:
        """What the layout reads."""
        return self.plan.layout.pack(self.plan.columns, self.plan.scoring.repeats)

    def faults(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """(reason, condition) of each possible fault of these columns; a place is a rank."""
        plan, text = self.plan, self.plan.options.text_numbers
        found = checking.faults(plan.columns, self.kinds, plan.mapping, text, plan.scoring.judged)
        placed = [sch.POSITION] * self.are_places
        return [(label, sql) for name, label, sql in found if name in names and name not in placed]

    def entry(self, item: "_PerItem", is_odd: str = "false") -> str:
        """What the layout reads of an item; ``is_odd`` = its list is taken apart."""
        hashed = _with(self.packing.item_hash, {sch.RANK_MAY_REPEAT: "false"} if item is self.given else {})
        row = {name: item.typed(sql, hashed) for name, sql in self.packing.entry.items()}
        row |= {_IS_ODD: is_odd} if self.at_once else {}
        return f"struct({', '.join(f'{sql} AS {name}' for name, sql in row.items())})"

    def looked_at(self) -> DataFrame:
        """The lists: internal names, faults of rows, and ``_plain`` entries, or else ``_items`` as they came."""
        columns, given, table, array = self.plan.columns, self.given, self.lists.table, self.lists.array
        row = {n: checking.source_of(self.plan.mapping, n) for n in (*columns.keys, *columns.of_user, *columns.timed)}
        faults = {
            name: checking.first_fault([(label, _with(sql, row)) for label, sql in self.faults(names)])
            for name, names in ((_OF_KEYS, (*columns.keys, *columns.timed)), (_OF_SEGMENT, columns.segment_columns))
        }
        found = {sch.LIST_FAULT: self.lists.fault, **faults, _SIZE: f"bigint(size({array}))"}
        if self.at_once:
            # What is below 0 is counted. A condition of null does not hold.
            odd = [given.raw(sql) for _, sql in self.faults(columns.values)]
            is_odd = " OR ".join([*odd, *[given.typed(_NEGATIVE)] * columns.relevance]) or "false"
            entry = self.entry(given, f"coalesce({is_odd}, false)")
            chosen = f"CASE WHEN {is_odd} OR {given.typed(_RELEVANT)} THEN {entry} END"
            entries = f"transform({array}, {_LOOK} {chosen if self.packing.condition else entry})"
            found[_PLAIN] = f"filter({entries}, x -> x IS NOT NULL)" if self.packing.condition else entries
        looked = table.selectExpr("*", *(f"{sql} AS {name}" for name, sql in found.items()))
        is_plain = f"coalesce({sch.LIST_FAULT}, {_OF_KEYS}, {_OF_SEGMENT}) IS NULL AND {_SIZE} <= {lay.LONGEST}"
        is_plain = f"{is_plain} AND NOT exists({_PLAIN}, x -> x.{_IS_ODD})" if self.at_once else "false"
        values = ", ".join(f"{sql} AS {name}" for name, sql in given.values.items())
        types = ", ".join(f"{name}: {self.kinds[name].simpleString()}" for name in given.values)
        items = f"coalesce(transform({array}, {_LOOK} struct({values})), cast(array() AS array<struct<{types}>>))"
        of_row = f"coalesce({sch.LIST_FAULT}, {_OF_KEYS}) AS {_OF_ROW}"
        names = (sch.LIST_FAULT, _OF_SEGMENT, _SIZE, *[_PLAIN] * self.at_once)
        items = f"CASE WHEN NOT ({is_plain}) THEN {items} END AS {_ITEMS}"
        return looked.selectExpr(*(f"{sql} AS {name}" for name, sql in row.items()), of_row, *names, items)

    def parted(self, looked: DataFrame) -> DataFrame:
        """The lists with their ids as texts; of ``_items``, those without a fault, and the others with theirs."""
        columns, item, texts = self.plan.columns, self.own, self.texts
        faults = self.faults(columns.values)
        is_faulty = " OR ".join(f"coalesce({sql}, false)" for _, sql in faults) or "false"
        whole = f"{_OF_ROW} IS NULL AND {_OF_SEGMENT} IS NULL"
        reason = f"coalesce({_OF_ROW}, {item.raw(checking.first_fault(faults))}, {_OF_SEGMENT})"
        keys = ", ".join(f"{texts[name]} AS {name}" for name in columns.keys)
        values = ", ".join(f"{item.raw(texts[name])} AS {name}" for name in columns.values)
        none = ", ".join(f"string(null) AS {name}" for name in columns.values)
        each = f"struct({reason} AS {sch.REASON}, {keys}, {values})"
        faulty = f"filter({_ITEMS}, {_ELEMENT} -> NOT ({whole}) OR {item.raw(is_faulty)})"
        nothing = f"array(struct({_OF_ROW} AS {sch.REASON}, {keys}, {none}))"
        looked = looked.selectExpr("*", f"array_contains({self.each(_ITEMS, item.raw(is_faulty))}, true) AS _some")
        return looked.selectExpr(
            *(f"{texts[name]} AS {name}" for name in columns.keys),
            *checking.described(columns, self.kinds, texts),
            *(f"{checking.micros(n, self.kinds[n], str(columns.time_zone))} AS {n}" for n in columns.timed),
            *[_SIZE, _PLAIN] * self.at_once,
            f"{whole} AS {sch.IS_LIST}",
            f"CASE WHEN NOT ({whole}) THEN filter({_ITEMS}, x -> false) WHEN _some THEN "
            f"filter({_ITEMS}, {_ELEMENT} -> NOT ({item.raw(is_faulty)})) ELSE {_ITEMS} END AS {_SOUND}",
            f"CASE WHEN {_OF_ROW} IS NOT NULL AND ({sch.LIST_FAULT} IS NOT NULL OR size({_ITEMS}) = 0) THEN {nothing} "
            f"WHEN NOT ({whole}) OR _some THEN {self.each(faulty, each)} END AS {_REJECTS}",
        )

    def entries(self, lists: DataFrame) -> DataFrame:
        """The lists with the arrays that their layout reads, and their counts: ``_plain`` where ``_sound`` is null."""
        columns, item, condition = self.plan.columns, self.own, self.packing.condition
        size, ranks = f"size({_SOUND})", self.each(_SOUND, item.typed(sch.POSITION))
        plain, counts = {sch.N_ROWS: _SIZE}, {sch.N_ROWS: f"bigint({size})"}
        if columns.relevance:
            negative = f"coalesce({item.typed(_NEGATIVE)}, false)"
            counts[sch.N_NEGATIVE] = f"bigint(size(filter({_SOUND}, {_ELEMENT} -> {negative})))"
            plain[sch.N_NEGATIVE] = "0L"
        if not columns.by_score:
            plain[sch.TOP], counts[sch.TOP] = f"nullif({_SIZE}, 0)", f"array_max({ranks})"
        plain[sch.ENTRIES] = _PLAIN
        counts[sch.ENTRIES] = self.each(_SOUND, self.entry(item))
        if condition:
            # The layout of relevant rows: all rows of a list in which a rank may repeat.
            top = f"array_max({ranks})"
            few = f"{top} <= {lay.MASK_RANKS} OR ({top} = {size} AND {size} <= {lay.LONGEST})"
            distinct = "true" if self.at_once else f"size(array_distinct({ranks})) = {size}"
            may_repeat = f"coalesce({size} > 0 AND NOT (({few}) AND {distinct}), false)"
            lists = lists.selectExpr("*", f"{may_repeat} AS {sch.RANK_MAY_REPEAT}")
            chosen = self.each(f"filter({_SOUND}, {_ELEMENT} -> {item.typed(_RELEVANT)})", self.entry(item))
            counts[sch.ENTRIES] = f"CASE WHEN {sch.RANK_MAY_REPEAT} THEN {counts[sch.ENTRIES]} ELSE {chosen} END"
        described_by = [*columns.of_user, *[sch.MIXED] * bool(columns.segments), *columns.timed]
        for name in counts if self.at_once else ():
            counts[name] = f"CASE WHEN {_SOUND} IS NULL THEN {plain[name]} ELSE {counts[name]} END"
        return lists.selectExpr(
            *(*columns.keys, *described_by, *[sch.RANK_MAY_REPEAT] * bool(condition)),
            *(f"{sql} AS {name}" for name, sql in counts.items()),
            f"{sch.IS_LIST} AND ({size} > 0 OR coalesce(size({_REJECTS}), 0) <= 0) AS {sch.IS_LIST}",
            f"CASE WHEN size({_REJECTS}) > 0 THEN {_REJECTS} END AS {sch.REJECTED_ITEMS}",
        )


def _with(sql: str, values: Mapping[str, str]) -> str:
    """The SQL with values in the place of names."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"(?<![\w.])({names})\b(?!')", lambda match: f"({values[match[0]]})", sql) if names else sql


@dataclass(frozen=True)
class _PerItem:
    """SQL over the columns of a row of the log -> SQL over an item of a list.

    Attributes:
        types: Column -> its SQL with the type that the engine computes with.
        values: Column -> its SQL as it came.
    """

    types: Mapping[str, str]
    values: Mapping[str, str]

    def raw(self, sql: str) -> str:
        """With the values as they came."""
        return _with(sql, self.values)

    def typed(self, sql: str, item_hash: str = "") -> str:
        """With typed values; ``_hash`` is that of the item."""
        values = {name: self.raw(typed) for name, typed in self.types.items()}
        if item_hash:
            values[sch.HASH] = _with(item_hash, values)
        return _with(sql, values)
