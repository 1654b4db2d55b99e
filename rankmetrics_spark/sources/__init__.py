"""Readers of input tables: one decorated function per format. Schemas are read at once, rows only when needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.config import Input, Token, tokens
from rankmetrics_spark.engines import engine_of, own_or_field, text_fields, with_fields
from rankmetrics_spark.errors import (
    ConfigError,
    InputError,
    RankmetricsError,
    first_sentence,
    no_file_system,
    root_cause,
    unknown,
    without_values,
)
from rankmetrics_spark.schemas import EXPERIMENT, ITEM, POSITION, RELEVANCE, SCORE, USER, quoted
from rankmetrics_spark.sources import filters_on_sail, on_sail
from rankmetrics_spark.sources.files import (
    UNREADABLE,
    json_options,
    load_folders,
    read_json_lines,
    readable_columns,
    typed_on_sail,
    unreadable_column,
)

if TYPE_CHECKING:
    from pyspark.sql.readwriter import DataFrameReader


Reader = Callable[[SparkSession, Input, Iterable[str]], DataFrame]
_READERS: dict[str, Reader] = {}


def source(*formats: str) -> Callable[[Reader], Reader]:
    """Register the decorated function as the reader of some formats."""

    def register(reader: Reader) -> Reader:
        _READERS.update(dict.fromkeys(formats, reader))
        return reader

    return register


def read(spark: SparkSession, section: Input, columns: Iterable[str] = ()) -> DataFrame:
    """The rows of an input, filtered by its ``where``.

    Args:
        spark: The session to read with.
        section: The ``source`` or ``judgements`` section of a config: format, path or table, filter, reader options.
        columns: The columns that the caller needs, where they exist. Struct fields among them become columns, and JSON
            needs the names because its files have no schema.

    Raises:
        ConfigError: There is no reader for the format.
        InputError: The path or table is missing or cannot be read, or the filter does not fit its columns.
    """
    if section.format not in _READERS:
        raise ConfigError(unknown("source format", section.format, sorted(_READERS)))
    if engine_of(spark) == "sail":
        on_sail.check(section)
        section = on_sail.with_plain_paths(section)
    whole = None
    try:
        whole = _READERS[section.format](spark, section, columns)
        rows = with_fields(_filtered(whole, section), columns)
        # Spark Connect reports a missing path or a broken filter only when the server is asked for a schema; its client
        # answers for a filtered table itself.
        rows.select("*").schema  # noqa: B018
    except RankmetricsError:
        raise
    except Exception as error:  # a broken file raises a class of py4j, which a client without a JVM does not have
        raise _refusal(error, spark, section, whole) from error
    return rows


def _refusal(error: Exception, spark: SparkSession, section: Input, whole: DataFrame | None) -> InputError:
    """The sentence for an input that cannot be read, or for a filter that does not fit its columns."""
    engine = engine_of(spark)
    if whole is not None and section.where and (name := _unknown_column(error)):
        odd = unreadable_column(section, engine, name)
        known = [column for column in whole.columns if column != UNREADABLE]
        return InputError(f"{section.path_of('where')} '{section.where}': {odd or unknown('column', name, known)}")
    found = (on_sail.broken_file(section) or on_sail.failed_line(error, [section])) if engine == "sail" else None
    place = section.table or ", ".join(_paths(section))
    cause = no_file_system(place, error) or first_sentence(error)
    return found or InputError(f"cannot read {section.format} from '{place}': {cause}")


_UNKNOWN_COLUMN = re.compile(
    r"\[UNRESOLVED_COLUMN[^]]*\] .*? with name (?P<spark>`.*?`) cannot be resolved|"
    r"ObjectName\(\[(?P<sail>.*?)\]\) is missing from the schema"
)


def _unknown_column(error: Exception) -> str | None:
    """The name of the column that an engine does not find; None if the error is about something else.

    >>> _unknown_column(ValueError("[UNRESOLVED_COLUMN] A column with name `a`.`b` cannot be resolved."))
    'a.b'
    >>> _unknown_column(ValueError('attribute ObjectName([Identifier("a b")]) is missing from the schema'))
    'a b'
    """
    found = _UNKNOWN_COLUMN.search(str(error))
    if found is None:
        return None
    parts, pattern = (found["spark"], r"`((?:[^`]|``)*)`") if found["spark"] else (found["sail"], r'"(.*?)"\)')
    return ".".join(re.findall(pattern, parts))


def _paths(section: Input) -> list[str]:
    return list(section.path or ())


@source("parquet", "orc", "delta", "iceberg")
def _files(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    if section.table:
        return spark.read.options(**section.options).table(section.table)
    paths = _paths(section)

    def files(reader: DataFrameReader) -> DataFrame:
        """The files, with what the reader knows of their schema."""
        return reader.format(section.format).options(**section.options).load(paths if len(paths) > 1 else paths[0])

    if section.format in ("delta", "iceberg"):
        return files(spark.read)
    try:
        return load_folders(spark, section, files)
    except Exception as error:  # Spark Connect has classes of its own
        own = readable_columns(section, engine_of(spark), error)
        if own is None:
            raise
        return load_folders(spark, section, files, own)


@source("table")
def _table(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    return spark.read.options(**section.options).table(section.table or _paths(section)[0])


@source("csv")
def _csv(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    # No type inference: it would read the file twice and turn "007" into 7. Spark names the columns of every file after
    # the header of one of them; without enforceSchema it fails at a file with another header (see ``failed_file``).
    options = {"header": "true", "enforceSchema": "false"} | dict(section.options)
    return load_folders(spark, section, lambda reader: reader.options(**options).csv(_paths(section)))


# Spark 3.5 names the file in another way for each format.
_FAILED_FILE = re.compile(
    r"(?:error while reading file |CSV file: )(?P<file>\S+?)\.?(?=\s|$)|(?P<other>\w+:/\S+) is not a Parquet file",
    re.IGNORECASE,
)


def failed_file(error: Exception) -> InputError | None:
    """The sentence for a file that Spark could not read while a job was running; None for any other error.

    >>> print(failed_file(ValueError("Encountered error while reading file file:///b.orc. ")))
    cannot read 'file:///b.orc': it is broken, or its columns differ from those of the other files
    >>> print(failed_file(ValueError("file:/b.parquet is not a Parquet file. Expected magic number at tail")))
    cannot read 'file:/b.parquet': it is broken, or its columns differ from those of the other files
    """
    found = _FAILED_FILE.search(str(error))
    if found is None:
        return None
    header = "its header differs from that of the other files; all CSV files need the same columns in the same order"
    broken = "it is broken, or its columns differ from those of the other files"
    name = found["file"] or found["other"]
    return InputError(f"cannot read '{name}': {header if 'CSV header' in str(error) else broken}")


def failed_read(error: Exception, inputs: Iterable[Input]) -> InputError | None:
    """The sentence for an input that could not be read while a job was running; None for any other error."""
    return failed_file(error) or on_sail.failed_line(error, inputs) or failed_filter(error, inputs)


_FAILED_VALUE = re.compile(
    r"\[(?P<name>\w*(?:DIVIDE_BY_ZERO|BY_ZERO|CAST_\w+|OVERFLOW|OUT_OF_RANGE|INVALID_(?:ARRAY|DATE|INDEX|PARAMETER|URL)\w*|"
    r"CANNOT_PARSE_\w+|USER_RAISED_EXCEPTION)[\w.]*)\] |(?P<of_sail>(?:Division|Remainder) by zero|Cast error: |"
    r"Regular expression |invalid (?:timestamp|date): )|SQLSTATE: (?:22|P0)\w{3}|PatternSyntaxException"
)
_FRAGMENT = re.compile(r"== SQL ?\(line \d+, position \d+\) ==\n(?P<sql>.*?)\n\s*\^", re.DOTALL)


def failed_filter(error: Exception, inputs: Iterable[Input]) -> InputError | None:
    """The sentence for a filter that fails on a row, such as a division by zero; None for any other error.

    >>> section = Input(path="logs", where="1 / n > 0")
    >>> print(failed_filter(ValueError("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"), [section]))
    cannot filter by where '1 / n > 0': [DIVIDE_BY_ZERO] Division by zero; allowed: a condition that has a value for \
every row, such as one with try_divide or try_cast
    >>> wrapped = "An exception was thrown from the Python worker.\\nArrow: Cast error: Cannot cast 'u'\\n  at x"
    >>> str(failed_filter(ValueError(wrapped), [section])).split("; ")[0]
    "cannot filter by where '1 / n > 0': Cast error: Cannot cast (hidden)"
    """
    filters = {section.path_of("where"): section.where for section in inputs if section.where}
    failure = _FAILED_VALUE.search(str(error))
    if not filters or not failure:
        return None
    found = _FRAGMENT.search(str(error))
    guilty = {path: sql for path, sql in filters.items() if found and found["sql"] in sql} or filters
    named = " or ".join(f"{path} '{sql}'" for path, sql in guilty.items())
    # Sail wraps the failure in one of the Python worker that has read the row.
    begins = failure["name"] or failure["of_sail"]
    cause = str(error)[failure.start() :].splitlines()[0] if begins else root_cause(error)
    cause = without_values(cause, " ".join(guilty.values()))
    return InputError(
        f"cannot filter by {named}: {cause.split(' SQLSTATE')[0].rstrip('.')}; allowed: a condition that has a value "
        "for every row, such as one with try_divide or try_cast"
    )


@source("json")
def _json(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    # As strings, ids stay as they are written. A line that is not JSON has only nulls and is quarantined as such.
    wanted = {name: T.StructField(name, T.StringType()) for name in columns}
    if not section.where:
        # Without a filter, Spark does not have to read the files to infer a schema.
        nested = [name for name in wanted if "." in name and all(name.split("."))]
        schema = wanted | {field.name: field for field in text_fields(nested)}
        rows = read_json_lines(spark, _paths(section), section.options, [*schema.values()]).drop(UNREADABLE)
        rows = own_or_field(rows, nested).drop(*schema.keys() - wanted.keys())
        rows = typed_on_sail(rows, section) if engine_of(spark) == "sail" else rows
        return rows.drop(*_absent(rows, section, list(wanted)))
    # The filter may name any column, so Spark has to infer the other columns, and from every row.
    ours = {"columnnameofcorruptrecord": UNREADABLE, "samplingratio": "1.0"}
    given = {"primitivesasstring": "true"} | json_options(section.options)
    inferred = spark.read.options(**given, **ours).json(_paths(section)).drop(UNREADABLE).schema.fields
    fields = [wanted.get(field.name, field) for field in inferred]
    return own_or_field(read_json_lines(spark, _paths(section), given, fields), wanted)


def _filtered(rows: DataFrame, section: Input) -> DataFrame:
    """The rows that the filter keeps, and every unreadable line: it is a faulty row, and faulty rows are counted."""
    where = section.where
    if not where:
        return rows
    if engine_of(rows.sparkSession) == "sail":
        types = {field.name.lower(): field.dataType.simpleString() for field in rows.schema.fields}
        where = filters_on_sail.on_sail(section.path_of("where"), where, types)
    if UNREADABLE not in rows.columns:
        return rows.where(where)
    return rows.where(F.expr(where) | F.col(UNREADABLE).isNotNull()).drop(UNREADABLE)


def _absent(rows: DataFrame, section: Input, columns: list[str]) -> list[str]:
    """The columns without a value in any row; none if there are no rows.

    The first 1000 rows answer for most columns. Only for the others, all rows are read.
    """
    filled, total = _filled(rows.limit(1000), columns)
    unseen = [name for name in columns if name not in filled and name not in _unused(section, filled)]
    if unseen and total:
        filled |= _filled(rows, unseen)[0]
    return [name for name in columns if total and name not in filled]


def _unused(section: Input, filled: Container[str]) -> set[str]:
    """Short names of roles that nothing reads, because the column with the long name exists."""
    named = {*section.columns.values(), *getattr(section, "list", ()), *getattr(section, "segments", ())}
    return {role for role, name in section.roles.items() if name in filled and role not in section.columns} - named


def _filled(rows: DataFrame, columns: list[str]) -> tuple[set[str], int]:
    """The columns that have a value in these rows, and the number of rows."""
    counts = [F.count(F.col(quoted(name))) for name in columns]
    *values, total = rows.agg(*counts, F.count(F.lit(1))).first() or (0,)
    return {name for name, count in zip(columns, values, strict=False) if count}, total


@source("trec_run")
def _trec_run(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    # query Q0 item rank score tag. Like trec_eval, the package orders by score: ranks in such files can be wrong.
    rows = _fields(spark, section, {USER: 0, ITEM: 2, POSITION: 3, SCORE: 4, EXPERIMENT: 5}, 6)
    if getattr(section, "experiment_from", "tag") == "file":
        rows = rows.withColumn(EXPERIMENT, F.col(_FILE))
    return rows.drop(_FILE)


@source("trec_qrels")
def _trec_qrels(spark: SparkSession, section: Input, columns: Iterable[str]) -> DataFrame:
    # query iteration item grade
    return _fields(spark, section, {USER: 0, ITEM: 2, RELEVANCE: 3}, 4).drop(_FILE)


_FILE = "_file"
"""Internal column: the name of the file of a row."""


def _fields(spark: SparkSession, section: Input, fields: Mapping[str, int], width: int) -> DataFrame:
    """Columns separated by white space; a line with too few has only nulls and is quarantined like any faulty row."""
    words = F.split(F.trim(F.regexp_replace("value", r"\s+", " ")), " ")
    lines = spark.read.options(**section.options).text(_paths(section)).where(F.trim("value") != "")
    # Spark gives the name as in an address, in which a + stands for itself.
    named = getattr(section, "experiment_from", "tag") == "file"
    file = F.expr("url_decode(replace(_metadata.file_name, '+', '%2B'))" if named else "string(null)").alias(_FILE)
    complete = lines.select(F.when(F.size(words) >= width, words).alias("w"), file)
    return complete.select(*(F.expr(f"get(w, {index})").alias(name) for name, index in fields.items()), _FILE)


NAMES = frozenset({"date", "day", "ds", "dt", "event_date", "event_day"})
"""Names of columns that hold the day of a row, also as text."""
_TIMES = (T.TimestampType, T.TimestampNTZType)
_DAY = re.compile(r"['\"]\d{4}-\d{2}-\d{2}['\"]")
_AT_MIDNIGHT = ("=", "==", "<=", ">", "<>", "!=", "between", "in")
"""Comparisons of a time with a day that are about its first moment; < and >= part the log where the day begins."""


def whole_log(section: Input, schema: T.StructType, date: str) -> list[str]:
    """A sentence if the log has dates and nothing selects those of the evaluation date; empty otherwise."""
    selects = section.where or any(date in path for path in section.path or ())
    column = None if selects else _day_column(schema.fields, set(section.columns.values()))
    if column is None:
        return []
    value = f"to_date({quoted(column.name)})" if isinstance(column.dataType, _TIMES) else quoted(column.name)
    return [
        f"no filter selects a day: every row of the log counts as {date}, whatever its '{column.name}' is; one day: "
        f'{section.path_of("where")}: "{value} = \'{{date}}\'"; all on purpose: {section.path_of("where")}: "true"'
    ]


def _day_column(fields: Iterable[T.StructField], mapped: set[str | None]) -> T.StructField | None:
    """The column that tells the day of a row: a date, then a text with such a name, then a time."""
    free = [field for field in fields if field.name not in mapped]
    dates = [field for field in free if isinstance(field.dataType, T.DateType)]
    texts = [f for f in free if f.name.lower() in NAMES and isinstance(f.dataType, (T.StringType, T.IntegerType))]
    times = [field for field in free if isinstance(field.dataType, _TIMES)]
    return next(iter(dates + texts + times), None)


def at_midnight(section: Input, schema: T.StructType) -> list[str]:
    """A sentence for each time that the filter compares with a day, where only the first moment of the day counts."""
    where = section.where or ""
    path = section.path_of("where")
    times = {field.name.lower(): field.name for field in schema.fields if isinstance(field.dataType, _TIMES)}
    words = list(tokens(path, where))
    notes = []
    for at, word in enumerate(words):
        if word.kind not in ("word", "quoted") or word.text not in times:
            continue
        operator, day = _compared_day(words, at + 1)
        if operator in _AT_MIDNIGHT and day:
            column = quoted(times[word.text])
            notes.append(
                f"{path} compares the time {column} with {day} by {operator.upper()}, which is about midnight alone; "
                f"for the whole day compare to_date({column})"
            )
    return notes


def _compared_day(words: Sequence[Token], at: int) -> tuple[str, str]:
    """The operator at a place and the last day that stands right of it; empty texts if there is none."""
    end = at
    while end < len(words) and words[end].kind == "symbol" and words[end].text in "<>=!":
        end += 1
    operator = "".join(word.text for word in words[at:end])
    if end == at and end < len(words):
        end += words[end].text == "not" and end + 1 < len(words)
        operator = words[end].text
        end += 1
    right = [word for word in words[end:] if word.text not in ("(", "date")]
    if operator == "between":
        right = [word for last, word in pairwise(right) if last.text == "and"]
    day = right[0].text if right and right[0].kind == "string" else ""
    return operator, day if _DAY.fullmatch(day) else ""
