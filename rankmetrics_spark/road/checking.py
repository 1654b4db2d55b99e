"""Raw impressions -> typed rows under canonical names, each faulty one with its reason; judgements likewise.

No row is dropped here: a faulty row keeps its values (as text) in the struct column ``_rejected``, which later is part
of the grouping key. Faulty rows pass through the same shuffle as all others, so they are counted and written without
reading the input again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, functions as F, types as T

from rankmetrics_spark import errors as err, schemas as sch
from rankmetrics_spark.engines import REAL, TIMES, as_number, as_text, check_unambiguous, engine_of, few_rows
from rankmetrics_spark.schemas import ColumnMap

NUMBERS = (T.NumericType, T.BooleanType)
_IDS: tuple[type[T.DataType], ...] = (
    *(T.StringType, T.IntegralType, T.FractionalType, T.BooleanType, T.DateType, T.BinaryType),
    *TIMES,
)
#: Start of the reason of a row with an id from a text format in another encoding than the reader's.
UNDECODABLE = "undecodable_"
#: From here on, two whole numbers can be the same double.
_EXACT = 2**53
_EXACT_FLOAT = 2**24
#: Different decimals with up to this many digits are different doubles.
_EXACT_DIGITS = 15
_ELEMENT = '("[^"]*"|[a-zA-Z0-9.+-]+)'
#: What an array of JSON may hold between its brackets; parsers differ in what else they read.
_ELEMENTS = f"^ *({_ELEMENT}( *, *{_ELEMENT})*)? *$"


def checked_rows(
    impressions: DataFrame, mapping: ColumnMap, columns: sch.Columns, text: bool, null_is_unjudged: bool
) -> DataFrame:
    """Type the mapped columns and give every faulty row its reason; lazy, no shuffle, no job."""
    names, mapping = (*columns.keys, *columns.values), dict(mapping)
    intents = [sch.INTENTS] * (columns.intents == "shown")
    of_list = [sch.LIST_FAULT] * (sch.LIST_FAULT in impressions.columns)
    read = (*read_of(columns), *of_list)
    table = renamed(impressions, mapping, read, "impressions", text)
    kinds = kinds_of(impressions, mapping, read)
    found = faults(columns, kinds, mapping, text, null_is_unjudged)
    reason = first_fault([*((None, name) for name in of_list), *((label, sql) for _, label, sql in found)])
    # Unlike the reason, it shows an engine from the statistics of a file which of its rows cannot be faulty.
    any_fault = " OR ".join([*(f"{name} IS NOT NULL" for name in of_list), *(sql for *_, sql in found)])
    as_texts = texts(kinds, engine_of(impressions.sparkSession))
    raw = ", ".join(f"{as_texts[name]} AS {name}" for name in names)
    return table.selectExpr(
        *(f"{typed(name, kinds[name], columns, text) or as_texts[name]} AS {name}" for name in names),
        *described(columns, kinds, as_texts),
        *(f"{micros(name, kinds[name], str(columns.time_zone))} AS {name}" for name in columns.timed),
        *(f"{typed(name, kinds[name], columns, text)} AS {name}" for name in intents),
        f"struct({raw}) AS {sch.RAW}",
        f"CASE WHEN {reason} IS NOT NULL THEN struct({reason} AS {sch.REASON}, {raw}) END AS {sch.REJECTED}",
        f"{any_fault or 'false'} AS {sch.IS_FAULTY}",
    )


def read_of(columns: sch.Columns) -> tuple[str, ...]:
    """Internal names of the columns of a log that are read."""
    shown = [sch.INTENTS] * (columns.intents == "shown")
    return (*columns.keys, *columns.values, *columns.of_user, *columns.timed, *shown)


def faults(
    columns: sch.Columns, kinds: Mapping[str, T.DataType], mapping: ColumnMap, text: bool, null_is_unjudged: bool
) -> list[tuple[str, str, str]]:
    """(column, reason, condition) of each possible fault of a row, in the order of the check."""
    names = (*columns.keys, *columns.values)
    times = [
        (name, f"{label}_{name}", f"{sql} IS NULL")
        for name in columns.timed
        for time in [micros(name, kinds[name], str(columns.time_zone), name=str(mapping.get(name)))]
        for label, sql in (("null", name), ("unreadable", time))
    ]
    return [
        (name, label, condition)
        for name in (*names, *columns.segment_columns)
        # A rank that only breaks ties never makes a row faulty.
        if not (columns.by_score and name == sch.POSITION)
        for label, condition in _faults(name, kinds[name], columns.first_rank, mapping.get(name), text)
        # A segment may be null or NaN.
        if name in names or label.startswith(UNDECODABLE)
        if not (null_is_unjudged and label == "null_relevance")
    ] + times


def first_fault(conditions: Sequence[tuple[str | None, str]]) -> str:
    """SQL: the reason whose condition holds first, or null; without a reason, the condition is a column that has it."""
    cases = " ".join(
        f"WHEN {sql} THEN {literal(label)}" if label is not None else f"WHEN {sql} IS NOT NULL THEN {sql}"
        for label, sql in conditions
    )
    return f"CASE {cases} END" if cases else "string(null)"


def texts(kinds: Mapping[str, T.DataType], engine: str) -> dict[str, str]:
    """Column -> its SQL as a text."""
    return {name: as_text(name, kind, engine) for name, kind in kinds.items() if name != sch.INTENTS}


def described(columns: sch.Columns, kinds: Mapping[str, T.DataType], texts: Mapping[str, str]) -> Iterator[str]:
    """SQL of what describes the user: a covariate is null where it is no number, a trigger counts unless it is set."""
    for name in columns.of_user:
        of = {
            sch.COVARIATE: lambda name: f"nullif({number(name, kinds[name])}, double('NaN'))",
            # Engines count NaN as above 0.
            sch.TRIGGERED: lambda name: f"coalesce(nullif({number(name, kinds[name])}, double('NaN')) > 0, false)",
        }
        yield f"{of.get(name, texts.__getitem__)(name)} AS {name}"


_OFFSET = "([zZ]|[+-][0-9][0-9]:?[0-9][0-9])$"


def micros(column: str, kind: T.DataType, zone: str, what: str = "impressions", name: str = sch.TIME) -> str:
    """SQL: a time in microseconds; a text without an offset, and a time without a zone, are of ``zone``.

    Raises:
        InputError: The type of the column, ``name`` in messages, is none of a time.
    """
    if isinstance(kind, T.TimestampType):
        return f"unix_micros({column})"
    if isinstance(kind, (T.IntegerType, T.LongType)):
        return _since_1970(f"bigint({column})")
    if not isinstance(kind, (T.StringType, *TIMES)):
        raise err.InputError.of("no_time", name=name, what=what, kind=kind.simpleString())
    text = f"trim(string({column}))"
    local = f"try_cast(concat({text}, 'Z') AS timestamp)"
    local = local if zone == "UTC" else f"to_utc_timestamp({local}, {literal(zone)})"
    return (
        f"CASE WHEN {text} RLIKE '^[0-9]{{9,18}}$' THEN {_since_1970(f'try_cast({text} AS bigint)')} "
        f"WHEN {text} RLIKE '{_OFFSET}' THEN unix_micros(try_cast({text} AS timestamp)) ELSE unix_micros({local}) END"
    )


def _since_1970(number: str) -> str:
    """SQL: microseconds of a count since 1970, whose size says its unit; null outside of 1989 to 2033.

    Wider bounds would take 20261120, 2026112010 and 20261120100000 for counts, which are dates.
    """
    units = ((10**6, "* 1000000"), (10**9, "* 1000"), (10**12, ""))
    cases = (f"WHEN {number} BETWEEN {600 * unit} AND {2000 * unit - 1} THEN {number} {scale}" for unit, scale in units)
    return f"CASE {' '.join(cases)} END"


def is_called_missing(name: str) -> str:
    """SQL: whether an id is such a text."""
    return f"coalesce({name} IN ({', '.join(map(literal, sch.MISSING))}), false)"


def literal(text: str) -> str:
    """A text as a literal of SQL, whatever characters it contains."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def renamed(table: DataFrame, mapping: ColumnMap, names: Sequence[str], what: str, text: bool) -> DataFrame:
    """The mapped columns under canonical names, with usable types; a name mapped to null becomes a constant."""
    columns, expressions = [name for name in table.columns if name not in (sch.ROW, sch.LIST_FAULT)], []
    for name in names:
        source = mapping.get(name, name)
        if source is not None and source not in table.columns:
            hint = err.said("requests_as_users") if name == sch.USER and what == "impressions" else ""
            if name == sch.POSITION and what == "impressions":
                score = mapping.get(sch.SCORE)
                by = f"rank_by='score' ranks by the column '{score}'"
                hint = f"; {by}" if score in columns else "; without a rank or a score there is no ranking to evaluate"
            # All columns of a file of CSV that are read as one.
            mark = next((mark for mark in ";\t|" if len(columns) == 1 and columns[0].count(mark) > 1), None)
            if mark:
                hint = f"; the only column looks like several: source.options: {{sep: {mark!r}}} separates them"
            none = f"the {what} have no column for {_spoken(name, source)}"
            raise err.InputError(f"{none}: {err.unknown('column', source, columns)}{hint}")
        if source is not None:
            check_unambiguous(table, source, what)
        expressions.append(f"{source_of(mapping, name)} AS {name}")
    for name, kind in kinds_of(table, mapping, names).items():
        each, allowed, types = kind, _IDS, "a string, number, boolean, date, timestamp or binary"
        if name == sch.INTENTS:
            each = kind.elementType if isinstance(kind, T.ArrayType) else kind
            allowed = (T.StringType, T.IntegralType, T.BooleanType)
            types = "a string, a whole number or a boolean, or an array of these"
        elif name in (sch.POSITION, sch.SCORE, sch.RELEVANCE, sch.COVARIATE, sch.TRIGGERED):
            allowed, types = (*NUMBERS, *[T.StringType] * text), "a number"
        if name == sch.POSITION:
            allowed = tuple(kind for kind in allowed if kind is not T.BooleanType)
        if not isinstance(each, allowed):
            source = mapping.get(name, name)
            found = f"column '{source}' ({_spoken(name, source)}) has type {kind.simpleString()}"
            raise err.InputError(f"{found}; it must be {types}")
    return table.selectExpr(*expressions)


def source_of(mapping: ColumnMap, name: str) -> str:
    """SQL: the column under a canonical name; one that is mapped to null is a constant."""
    source = mapping.get(name, name)
    return f"'{sch.EVERYONE}'" if source is None else sch.quoted(source)


def kinds_of(table: DataFrame, mapping: ColumnMap, names: Sequence[str]) -> dict[str, T.DataType]:
    """The type of each column under its canonical name, without asking the engine once more."""
    kinds = {field.name: field.dataType for field in table.schema.fields}
    sources = {name: mapping.get(name, name) for name in names}
    return {name: T.StringType() if source is None else kinds[source] for name, source in sources.items()}


def _spoken(name: str, source: str | None) -> str:
    """Name of a column in messages: list and segment columns have the user's own name.

    >>> _spoken("user_id", "uid"), _spoken("_list_0", "session")
    ('user_id', 'session')
    """
    own = ("_list_", "_segment_", sch.COVARIATE, sch.CLUSTER_OF_USER, sch.TRIGGERED)
    return str(source) if name.startswith(own) else name


def _hashes(kind: T.DataType, text: bool) -> str:
    """SQL: an array with the hash of each intent of a row; none for null, for an empty text and in an empty array."""
    none, one = "cast(array() AS array<bigint>)", f"string({sch.INTENTS})"

    def each(array: str) -> str:
        """The hashes of the elements that are neither null nor empty."""
        texts = f"filter(transform({array}, x -> string(x)), x -> x IS NOT NULL AND x != '')"
        return f"transform({texts}, x -> xxhash64(x))"

    if isinstance(kind, T.ArrayType):
        return f"coalesce({each(sch.INTENTS)}, {none})"
    hashes = f"CASE WHEN coalesce({one}, '') = '' THEN {none} ELSE array(xxhash64({one})) END"
    if not (text and isinstance(kind, T.StringType)):
        return hashes
    # Formats of text have no arrays, or are read as text.
    trimmed, parsed = f"trim({sch.INTENTS})", each(f"from_json({sch.INTENTS}, 'array<string>')")
    inner = f"substring({trimmed}, 2, greatest(length({trimmed}) - 2, 0))"
    is_array = f"{trimmed} LIKE '[%]' AND {inner} RLIKE '{_ELEMENTS}'"
    return f"CASE WHEN {is_array} THEN coalesce({parsed}, {hashes}) ELSE {hashes} END"


def typed(name: str, kind: T.DataType, columns: sch.Columns, text: bool) -> str | None:
    """SQL: the column in the type that the engine computes with; None = as text."""
    if name == sch.INTENTS:
        return _hashes(kind, text)
    if name == sch.POSITION and columns.by_score:
        return f"double({number(name, kind)})"
    if name == sch.POSITION:
        # A plain cast of NaN to an integer is an error in ANSI mode; such a row is faulty anyway.
        rank = f"try_cast({number(name, kind)} as bigint)"
        return rank if columns.first_rank == 1 else f"try_add({rank}, {1 - columns.first_rank}L)"
    if name == sch.RELEVANCE and is_whole(kind):
        return f"bigint({name})"
    # Two different numbers of these types can be the same double.
    is_wide = isinstance(kind, T.LongType) or (isinstance(kind, T.DecimalType) and kind.precision > _EXACT_DIGITS)
    if name == sch.SCORE and is_wide:
        return name
    return number(name, kind) if name in (sch.SCORE, sch.RELEVANCE) else None


def is_whole(kind: T.DataType) -> bool:
    """Whether a relevance of this type is a whole number."""
    return isinstance(kind, T.IntegralType | T.BooleanType)


def number(name: str, kind: T.DataType) -> str:
    """SQL: a numeric column as double (integers stay exact as they are); text that is no number becomes null."""
    if isinstance(kind, T.IntegralType):
        return name
    if not isinstance(kind, T.StringType):
        return f"double({name})"
    parsed = as_number(name)
    if name not in (sch.RELEVANCE, sch.TRIGGERED):
        return parsed
    # A click, or a flag, may be written as true or false.
    return f"CASE lower(trim({name})) WHEN 'true' THEN 1D WHEN 'false' THEN 0D ELSE {parsed} END"


def _faults(name: str, kind: T.DataType, first_rank: int, source: str | None, text: bool) -> Iterator[tuple[str, str]]:
    """(reason, condition) of each possible fault of this column, in the order of the check."""
    short = {sch.EXPERIMENT: "experiment", sch.USER: "user", sch.ITEM: "item"}.get(name) or _spoken(name, source)
    yield f"null_{short}", f"{name} IS NULL"
    if name not in (sch.POSITION, sch.SCORE, sch.RELEVANCE):
        if isinstance(kind, REAL):
            yield f"nan_{short}", f"isnan({name})"
            # In SQL, NaN is larger than any number.
            yield f"inexact_{short}", f"abs({name}) >= {_EXACT_FLOAT if isinstance(kind, T.FloatType) else _EXACT}"
        if text and isinstance(kind, T.StringType):
            # Readers replace bytes that are not UTF-8 by this character: several ids would become one.
            yield f"{UNDECODABLE}{short}", f"contains({name}, '\ufffd')"
        if name == sch.EXPERIMENT and isinstance(kind, T.StringType):
            # In the name of a partition directory, an empty name and a null are the same.
            yield "empty_experiment", f"{name} = ''"
        return
    value = number(name, kind)
    if isinstance(kind, T.StringType):
        yield f"unreadable_{name}", f"{name} IS NOT NULL AND {value} IS NULL"
    if isinstance(kind, (*REAL, T.StringType)):
        yield f"nan_{name}", f"isnan({value})"
    if name == sch.SCORE and isinstance(kind, T.StringType):
        yield "inexact_score", f"abs({value}) >= {_EXACT} AND trim({name}) RLIKE '^[+-]?[0-9]+$'"
    if name == sch.RELEVANCE and not is_whole(kind):
        yield "infinite_relevance", f"abs({value}) = double('inf')"
    if name == sch.POSITION:
        if not isinstance(kind, T.IntegralType):
            # Not floor: in ANSI mode it is an error for a number that no bigint can hold.
            yield "fractional_position", f"{value} != rint({value})"
        yield f"position_below_{first_rank}", f"{value} < {first_rank}"
        # Ranks are packed and squared in 64 bits.
        yield "position_too_large", f"{value} > {2**31 - 2 + first_rank}"


# ---- the rows left out


def no_rejected(columns: sch.Columns) -> str:
    """SQL: the null of ``_rejected``, in its type."""
    return f"cast(null AS {rejected_type(columns).simpleString()})"


def rejected_type(columns: sch.Columns) -> T.StructType:
    """The type of ``_rejected``."""
    return T.StructType([T.StructField(n, T.StringType()) for n in (sch.REASON, *columns.keys, *columns.values)])


def rejected_rows(groups: DataFrame, columns: sch.Columns) -> DataFrame:
    """Rows with a fault of their own, as text, with the reason."""
    rows = groups.select(sch.REJECTED, F.explode(F.expr(f"array_repeat(0, int({sch.N_ROWS}))")).alias("_copy"))
    names = quarantined(columns).items()
    return rows.select(*(F.col(f"{sch.REJECTED}.{name}").alias(public) for name, public in names))


def as_quarantined(rows: DataFrame, columns: sch.Columns) -> DataFrame:
    """Rows with a ``reason`` as the table ``quarantine`` holds them: as they came."""
    names = {name if name == sch.REASON else f"{sch.RAW}.{name}": own for name, own in quarantined(columns).items()}
    return rows.select(*(F.col(name).alias(public) for name, public in names.items()))


def quarantined(columns: sch.Columns) -> dict[str, str]:
    """Internal name -> name in ``quarantine``, in its order."""
    lists = dict(zip(columns.list_columns, sch.public_names(columns.list, sch.QUARANTINE_COLUMNS), strict=True))
    # The number of a row is another one in another order of the rows.
    shown = (name for name in (*columns.keys, *columns.values, sch.REASON) if lists.get(name) != sch.ROW)
    return {name: lists.get(name, name) for name in shown}


COLUMNS = (sch.USER, sch.ITEM, sch.RELEVANCE)
GRADE, FAULTY = "_grade", "_faulty"


def pools(judgements: DataFrame, mapping: ColumnMap, every_grade: bool, text: bool, intents: bool = False) -> DataFrame:
    """Group sound judgements by user; of a repeated (user, item) the highest grade counts, and so for each intent."""
    sound = typed_judgements(judgements, mapping, text, intents).where(f"{FAULTY} IS NULL")
    hashed = sound.selectExpr(sch.USER, f"xxhash64({sch.ITEM}) AS {sch.HASH}", GRADE)
    best = hashed.groupBy(sch.USER, sch.HASH).agg(F.expr(f"max({GRADE}) AS {GRADE}"))
    in_pool = "true" if every_grade else f"{GRADE} > 0"
    pool = f"sort_array(collect_list(CASE WHEN {in_pool} THEN struct({GRADE}, {sch.HASH}) END), false)"
    grouped = best.groupBy(sch.USER).agg(F.expr(f"{pool} AS _pool"))
    pools = grouped.selectExpr(sch.USER, f"_pool.{GRADE} AS {sch.POOL_GRADE}", f"_pool.{sch.HASH} AS {sch.POOL_HASH}")
    if not intents:
        return pools
    # The intents that the judged items of each user cover, by item id, the highest one first.
    pairs = sound.where(f"{GRADE} > 0").select(sch.USER, sch.ITEM, GRADE, F.explode(sch.INTENTS).alias("_intent"))
    best = pairs.groupBy(sch.USER, sch.ITEM, "_intent").agg(F.max(GRADE).alias(GRADE))
    pair = F.struct(sch.ITEM, "_intent", F.xxhash64(sch.ITEM).alias(sch.HASH), GRADE)
    grouped = best.groupBy(sch.USER).agg(F.sort_array(F.collect_list(pair), asc=False).alias("_pairs"))
    fields = {"_intent": sch.POOL_INTENT, sch.HASH: sch.POOL_INTENT_ITEM, GRADE: sch.POOL_INTENT_GRADE}
    of_intents = grouped.selectExpr(sch.USER, *(f"_pairs.{field} AS {name}" for field, name in fields.items()))
    return pools.join(of_intents, sch.USER, "left")


def typed_judgements(judgements: DataFrame, mapping: ColumnMap, text: bool, intents: bool = False) -> DataFrame:
    """Columns user_id, item_id, ``_grade`` with the engine's types; ``_faulty`` is the reason of a faulty row, or null.

    With ``intents``, also the column ``intents``: the hash of each intent of a row.
    """
    of_list = [sch.LIST_FAULT] * (sch.LIST_FAULT in judgements.columns)
    read = (*COLUMNS, *[sch.INTENTS] * intents, *of_list)
    table = renamed(judgements, mapping, read, "judgements", text)
    kinds = kinds_of(judgements, mapping, read)
    found = [fault for name in COLUMNS for fault in _faults(name, kinds[name], 1, mapping.get(name), text)]
    engine = engine_of(judgements.sparkSession)
    ids = (f"{as_text(name, kinds[name], engine)} AS {name}" for name in (sch.USER, sch.ITEM))
    grade = f"double({number(sch.RELEVANCE, kinds[sch.RELEVANCE])})"
    hashes = [f"{_hashes(kinds[sch.INTENTS], text)} AS {sch.INTENTS}"] if intents else []
    fault = first_fault([*((None, name) for name in of_list), *found])
    return table.selectExpr(*ids, f"{grade} AS {GRADE}", f"{fault} AS {FAULTY}", *hashes)


def hash_of(names: Sequence[str], known: Sequence[str] = ()) -> str:
    """SQL: a hash of columns, and of which of them are null, since a hash passes over nulls; ``known`` never are."""
    return f"xxhash64({', '.join((*known, *names, *(f'{name} IS NULL' for name in names)))})"


def sums_of_hashes(name: str) -> tuple[Column, Column]:
    """The sums of both halves of a column of hashes: halves never overflow, and the order of rows changes no bit."""
    low = f"coalesce(sum({name} & {2**32 - 1}L), 0) AS _low"
    return F.expr(f"coalesce(sum(shiftright({name}, 32)), 0) AS _high"), F.expr(low)


def digest_of(*sums: Row) -> str:
    """Sums of halves as one number modulo 2**64, in hexadecimal digits."""
    return f"{sum((each['_high'] << 32) + each['_low'] for each in sums) % 2**64:016x}"


@dataclass(frozen=True)
class JudgementCounts:
    """What was counted of the judgements.

    Attributes:
        counts: ``rows`` (all judgements), ``invalid`` (faulty ones) and ``repeated`` (a (user, item) once more; with
            intents, a row with other intents is no repeat).
        reasons: Reason -> faulty judgements, most frequent first.
        called_missing: Sound judgements of users or items called like missing values, such as ``nan``.
        digest: The bits of the hashes of sound judgements, added up: user, item, their grades and intents. No two are
            of the same user, item and intents.
    """

    counts: dict[str, int]
    reasons: dict[str, int]
    called_missing: int = 0
    digest: str = ""

    @classmethod
    def of(cls, judgements: DataFrame, mapping: ColumnMap, text: bool, intents: bool = False) -> JudgementCounts:
        """Count all judgements in one job."""
        # Hashes cost less to group, and to hash once more, than text; pools tell items apart by them, too.
        keys = {name: f"xxhash64({name})" for name in (sch.USER, sch.ITEM)}
        if intents:
            keys[sch.INTENTS] = f"xxhash64(sort_array({sch.INTENTS}))"
        odd = f"{is_called_missing(sch.USER)} OR {is_called_missing(sch.ITEM)} AS _odd"
        hashed = (f"{sql} AS {name}" for name, sql in keys.items())
        table = typed_judgements(judgements, mapping, text, intents).selectExpr(FAULTY, odd, GRADE, *hashed)
        # Sums of 32 bits never overflow, and a pair is hashed once.
        grades = F.expr(f"sum(hash({GRADE} + 0D)) AS {GRADE}")
        pairs = table.groupBy(FAULTY, "_odd", *keys).agg(F.count(F.lit(1)).alias("n"), grades)
        pairs = pairs.withColumn(sch.DIGEST, F.xxhash64(*keys, GRADE))
        n_odd = F.expr("sum(CASE WHEN _odd THEN n ELSE 0 END) AS missing")
        aggregates = (F.sum("n").alias("rows"), F.count(F.lit(1)).alias("pairs"), n_odd)
        sums = pairs.groupBy(FAULTY).agg(*aggregates, F.expr(f"bit_xor({sch.DIGEST}) AS {sch.DIGEST}"))
        groups = {row[FAULTY]: row for row in few_rows(sums)}
        reasons = {reason: int(row["rows"]) for reason, row in groups.items() if reason is not None}
        n_sound, n_pairs = (groups[None]["rows"], groups[None]["pairs"]) if None in groups else (0, 0)
        invalid = sum(reasons.values())
        counts = {"rows": n_sound + invalid, "invalid": invalid, "repeated": n_sound - n_pairs}
        n_missing = int(groups[None]["missing"]) if None in groups else 0
        digest = f"{groups[None][sch.DIGEST] % 2**64:016x}" if None in groups else ""
        return cls(counts, dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))), n_missing, digest)
