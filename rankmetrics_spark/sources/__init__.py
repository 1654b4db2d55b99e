"""Readers of input tables: one decorated function per format. Schemas are read at once, rows lazily."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from itertools import pairwise
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession, functions as F, types as T

from rankmetrics_spark import config as cfg, doors, engines as eng, errors as err
from rankmetrics_spark.schemas import EXPERIMENT, INTENTS, ITEM, ITEMS, POSITION, RELEVANCE, SCORE, USER, quoted
from rankmetrics_spark.sources import files, on_sail

Reader = Callable[[SparkSession, cfg.Input, Iterable[str]], DataFrame]
_READERS: dict[str, Reader] = {}


def source(*formats: str) -> Callable[[Reader], Reader]:
    """Register the decorated function as the reader of some formats."""

    def register(reader: Reader) -> Reader:
        _READERS.update(dict.fromkeys(formats, reader))
        return reader

    return register


def read(spark: SparkSession, section: cfg.Input, columns: Iterable[str] = ()) -> DataFrame:
    """Read the rows of an input, filtered by its ``where``.

    Args:
        spark: The session to read with.
        section: The ``source`` or ``judgements`` section of a config: format, path or table, filter, reader options.
        columns: The columns that the caller needs, where they exist. Struct fields among them become columns, and JSON
            needs the names because its files have no schema.

    Raises:
        ConfigError: There is no reader for the format.
        InputError: The path or table is missing or cannot be read, or the filter does not fit its columns.
    """
    if isinstance(section, cfg.Source):
        parts = section.by_experiment() or (files.split_by_folders(section) if eng.engine_of(spark) == "spark" else {})
        if parts:
            return _union({name: read(spark, part, columns) for name, part in parts.items()})
    if section.format not in _READERS:
        raise err.ConfigError(err.unknown("source format", section.format, sorted(_READERS)))
    if eng.engine_of(spark) == "sail":
        on_sail.check(section)
        section = on_sail.expand_paths(section)
    files.refuse_lines(section)
    unfiltered = None
    try:
        place = on_sail.by_experiment(section) if eng.engine_of(spark) == "sail" else files.folders_of_files(section)
        place = section if _READERS[section.format] is _parsed else place
        unfiltered = _READERS[section.format](spark, place, columns)
        rows = eng.with_fields(_filter(unfiltered, section), columns)
        # Spark Connect reports a missing path or a broken filter only when the server analyses a plan. The client knows
        # the schema of a filtered table itself, so select all columns.
        rows = eng.with_typed_nulls(rows, rows.select("*").schema)
    except err.RankmetricsError:
        raise
    except Exception as error:  # a broken file raises a class of py4j, which a client without a JVM does not have
        raise _read_error(error, eng.engine_of(spark), section, unfiltered) from error
    kind = getattr(section, "rows", None) or getattr(section, "others", {})
    if not kind:
        return rows
    if kind["column"] not in rows.columns:
        problem = err.unknown("column", kind["column"], rows.columns)
        raise err.InputError(f"{section.path_of('rows')}.column: {problem}")
    is_shown = F.coalesce(F.col(quoted(kind["column"])).cast("string") == kind["shown"], F.lit(False))
    return rows.where(is_shown if isinstance(section, cfg.Source) else ~is_shown)


def check_ready(spark: SparkSession, section: cfg.Source) -> None:
    """Refuse a log that is not complete yet; Spark looks where this process sees no disk."""
    if section.ready is None:
        return
    if eng.engine_of(spark) == "sail" and (path := cfg.local_path(section.ready)) is not None:
        if not path.exists():
            raise cfg.unready(section)
        return
    try:
        # Named twice: of one path, Spark logs a stack trace where there is no such file.
        spark.read.text([eng.spark_path(section.ready)] * 2).schema  # noqa: B018
    except AnalysisException:
        raise cfg.unready(section) from None


def inputs(spark: SparkSession, config: cfg.Config) -> tuple[DataFrame, DataFrame | None]:
    """Return impressions and judgements of a config; only schemas are read."""
    described = filter(None, (config.options.covariate, config.options.cluster, config.options.trigger))
    impressions = read(spark, config.source, (*config.source.required_columns(), *described))
    return impressions, judgements(spark, config)


def judgements(spark: SparkSession, config: cfg.Config) -> DataFrame | None:
    """Return the judgements of a config, if it has some; see ``inputs``."""
    if (judged := config.judgements) is None:
        return None
    # Judgements with the column of lists are clicks, which the plan refuses.
    return read(spark, judged, (*judged.required_columns(), *config.source.list, *config.options.drawn_by.values()))


def read_events(spark: SparkSession, section: cfg.Input | None) -> DataFrame | None:
    """Read the events, or the assignments, of a config, if it has some; see ``read``."""
    return None if section is None else read(spark, section, section.required_columns())


def all_inputs(spark: SparkSession, config: cfg.Config) -> dict[str, DataFrame | None]:
    """Section of a config -> its table; None without it."""
    impressions, judged = inputs(spark, config)
    beside = ("machine_judgements", "events", "assignments")
    others = {name: read_events(spark, getattr(config, name)) for name in beside}
    return {"source": impressions, "judgements": judged, **others}


def without_users(tables: Mapping[str, DataFrame | None], ids: DataFrame, asked: cfg.Options) -> dict[str, Any]:
    """The inputs without the rows of these users; see ``all_inputs``."""
    columns: dict[str, Mapping[str, Any]] = {"source": asked.columns, "judgements": asked.judgement_columns}
    columns |= {"machine_judgements": asked.machine_columns, "events": asked.event_columns}
    columns |= {"assignments": asked.assignment_columns}
    there = {name: rows for name, rows in tables.items() if rows is not None}
    return {**tables, **{name: _without(rows, ids, columns[name]) for name, rows in there.items()}}


def _without(rows: DataFrame, ids: DataFrame, columns: Mapping[str, Any]) -> DataFrame:
    """The rows of an input whose user, as text, is none of these; all rows of one that names no users."""
    user = columns.get("user") or next((name for name in (USER, "user") if name in rows.columns), None)
    if user not in rows.columns:
        return rows
    text = eng.as_text(quoted(user), rows.schema[user].dataType, eng.engine_of(rows.sparkSession))
    return rows.join(F.broadcast(ids), F.expr(f"{text} = {ids.columns[0]}"), "left_anti")


def ids_in(spark: SparkSession, option: str, file: str) -> DataFrame:
    """The ids of a text file, one a line, with and without the blanks around them, and which ``_line`` has them.

    Raises:
        InputError: It cannot be read, or has no id.
    """
    place, on_sail = cfg.local_path(file), eng.engine_of(spark) == "sail"
    try:
        # Where there is no file, Sail reads none.
        if on_sail and place is not None and not place.exists():
            raise AnalysisException("no such file")
        lines = spark.read.text(eng.sail_path(file) if on_sail else eng.spark_path(file))
        lines = lines.selectExpr(r"regexp_replace(value, '^\\uFEFF|\\r$', '') AS value")
        lines = lines.selectExpr("value", "trim(value) AS _line").where("_line != ''")
        ids = lines.selectExpr("explode(array(value, _line)) AS _id", "_line").distinct()
        problem = "" if eng.few_rows(ids.limit(1)) else "has no id"
    except AnalysisException:
        problem = "cannot be read"
    if problem:
        raise err.InputError(f"{option} '{file}' {problem}; allowed: a text file with an id per line")
    return ids


def _union(parts: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of several experiments, with their names; a column with other types in other parts becomes text."""
    kinds: dict[str, set[T.DataType]] = {}
    for field in (field for rows in parts.values() for field in rows.schema.fields):
        kinds.setdefault(field.name, set()).add(field.dataType)
    texts = [name for name, types in kinds.items() if len(types) > 1 and T.StringType() in types]
    named = [
        rows.withColumns({name: F.col(quoted(name)).cast("string") for name in texts if name in rows.columns}
                         | {EXPERIMENT: F.lit(experiment)})
        for experiment, rows in parts.items()
    ]  # fmt: skip
    return reduce(lambda rows, more: rows.unionByName(more, allowMissingColumns=True), named)


def _read_error(error: Exception, engine: str, section: cfg.Input, rows: DataFrame | None) -> err.InputError:
    """Return the error for an input that cannot be read, or for a filter of its rows with an unknown column."""
    if rows is not None and section.where and (name := _unknown_column(error)):
        columns = [column for column in rows.columns if column != files.UNREADABLE]
        problem = files.unreadable_column(section, engine, name) or err.unknown("column", name, columns)
        return err.InputError(f"{section.path_of('where')} '{section.where}': {problem}")
    sentence = None
    if engine == "sail":
        of_file = on_sail.broken_file(section) or on_sail.failed_line(error, [section])
        odd = files.odd_file(section) if "merge schema" in str(error) else None
        sentence = of_file or odd or failed_filter(error, [section])
    location = section.table or ", ".join(section.paths)
    cause = err.no_file_system(location, error) or err.first_sentence(error)
    sentence = sentence or on_sail.failed_file(error, [section])
    return sentence or err.InputError(f"cannot read {section.format} from '{location}': {cause}")


#: What an engine says of an unknown column, of a file, or of a value on which a filter fails -> its patterns. Spark 3.5
#: words the error of a file differently for each format.
_FAILURES = {what: re.compile("|".join(patterns)) for what, patterns in doors.data_of(__name__, "failures").items()}


def _unknown_column(error: Exception) -> str | None:
    """Return the name of the column that an engine does not know; None for other errors.

    >>> _unknown_column(ValueError("[UNRESOLVED_COLUMN] A column with name `a`.`b` cannot be resolved."))
    'a.b'
    >>> _unknown_column(ValueError('attribute ObjectName([Identifier("a b")]) is missing from the schema'))
    'a b'
    """
    match = _FAILURES["column"].search(str(error))
    if match is None:
        return None
    parts, pattern = (match["spark"], r"`((?:[^`]|``)*)`") if match["spark"] else (match["sail"], r'"(.*?)"\)')
    return ".".join(re.findall(pattern, parts))


@source("parquet", "orc", "delta", "iceberg", "table")
def _files(spark: SparkSession, section: cfg.Input, columns: Iterable[str]) -> DataFrame:
    if section.table:
        return spark.read.options(**section.options).table(section.table)
    paths = [*section.paths]

    def loaded(reader: DataFrameReader) -> DataFrame:
        """Read the files with this reader, which may have a schema."""
        return reader.format(section.format).options(**section.options).load(paths if len(paths) > 1 else paths[0])

    if section.format in ("delta", "iceberg"):
        return loaded(spark.read)
    try:
        return files.load_folders(spark, section, loaded)
    except Exception as error:  # Spark Connect has classes of its own
        own = files.readable_columns(section, eng.engine_of(spark), error)
        if own is None:
            raise
        return files.load_folders(spark, section, loaded, own)


@source("csv")
def _csv(spark: SparkSession, section: cfg.Input, columns: Iterable[str]) -> DataFrame:
    # No type inference: it would read the file twice and turn "007" into 7. Spark applies one file's header to all;
    # with enforceSchema=false it fails at a file with another header (see ``failed_file``).
    options = {"header": "true", "enforceschema": "false"} | {name.lower(): v for name, v in section.options.items()}
    separator = options.get("sep", options.get("delimiter", ","))
    if len(separator) > 1 and eng.engine_of(spark) == "sail":
        return files.split_lines(spark, section, separator)
    rows = files.load_folders(spark, section, lambda reader: reader.options(**options).csv([*section.paths]))
    own = [name for name in rows.columns if name not in {EXPERIMENT, *files.folder_values(section.paths)}]
    is_named = options["header"].lower() == "true"
    if is_named and cfg.values_as_names(own, [name for name in own if name in section.numbers()]):
        raise err.InputError.of("no_names", place=section.place, values=own[:4])
    rows = files.without_nameless(rows, section) if is_named else rows
    # A file may start with a byte order mark, which only Spark drops.
    if own and own[0].startswith("\ufeff"):
        return rows.withColumnRenamed(own[0], own[0][1:])
    if own and not is_named and eng.engine_of(spark) == "sail":
        return rows.withColumn(own[0], F.regexp_replace(quoted(own[0]), "^\ufeff", ""))
    return rows


def failed_file(error: Exception) -> err.InputError | None:
    """Return an error for a file that Spark could not read during a job; None for other errors.

    >>> print(failed_file(ValueError("Encountered error while reading file file:///b.orc. ")))
    cannot read 'file:///b.orc': it is broken, or its columns differ from those of the other files
    >>> print(failed_file(ValueError("file:/b.parquet is not a Parquet file. Expected magic number at tail")))
    cannot read 'file:/b.parquet': it is broken, or its columns differ from those of the other files
    """
    match = _FAILURES["file"].search(str(error))
    if match is None:
        return None
    if "CSV header" in str(error):
        return err.InputError.of("header_of_file", file=match["file"] or match["other"])
    return err.InputError.of("broken_file", file=match["file"] or match["other"])


def failed_read(error: Exception, inputs: Iterable[cfg.Input]) -> err.InputError | None:
    """Return an error for an input that could not be read during a job; None for other errors."""
    of_sail = on_sail.failed_line(error, inputs) or on_sail.failed_file(error, inputs) or on_sail.failed_number(error)
    of_file = failed_file(error)
    odd = next(filter(None, map(files.odd_file, inputs)), None) if of_file and "header" not in str(of_file) else None
    return odd or of_file or of_sail or failed_filter(error, inputs)


_FRAGMENT = re.compile(r"== SQL ?\(line \d+, position \d+\) ==\n(?P<sql>.*?)\n\s*\^", re.DOTALL)


def _without_values(message: str, known: str) -> str:
    """The message of an engine without the values of the log that it quotes.

    >>> _without_values("The value 'O'Neil' of a text", "n = 1"), _without_values("near '('", "x rlike '('")
    ('The value (hidden) of a text', "near '('")
    >>> _without_values("invalid timestamp: Anna 7", "to_timestamp(user) > now()")
    'invalid timestamp: (hidden)'
    >>> _without_values("Cannot cast 'the first line of a value", "int(user) = 1")
    'Cannot cast (hidden)'
    """
    # Sail quotes no text that is no time.
    message = re.sub(r"(invalid (?:timestamp|date): ).*", rf"\1{err.HIDDEN}", message)
    if message.count("'") == 1:
        return re.sub(r"'.*", err.HIDDEN, message)
    # A value may hold quotes itself, so what lies between the first and the last one goes.
    if all(part in known for part in re.findall(r"'[^']*'", message)):
        return message
    return re.sub(r"'.*'", err.HIDDEN, message)


def failed_filter(error: Exception, inputs: Iterable[cfg.Input]) -> err.InputError | None:
    """Return an error for a filter that fails on a row, such as a division by zero; None for other errors.

    >>> section = cfg.Input(path="logs", where="1 / n > 0")
    >>> print(failed_filter(ValueError("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"), [section]))
    cannot filter by where '1 / n > 0': [DIVIDE_BY_ZERO] Division by zero; allowed: a condition that has a value for \
every row, such as one with try_divide or try_cast
    >>> wrapped = "An exception was thrown from the Python worker.\\nArrow: Cast error: Cannot cast 'u'\\n  at x"
    >>> str(failed_filter(ValueError(wrapped), [section])).split("; ")[0]
    "cannot filter by where '1 / n > 0': Cast error: Cannot cast (hidden)"
    """
    filters = {section.path_of("where"): section.where for section in inputs if section.where}
    failure = _FAILURES["value"].search(str(error))
    if not filters or not failure:
        return None
    fragment = _FRAGMENT.search(str(error))
    failing = {path: sql for path, sql in filters.items() if fragment and fragment["sql"] in sql} or filters
    broken = " or ".join(f"{path} '{sql}'" for path, sql in failing.items())
    # Sail wraps this failure in an error of the Python worker.
    has_start = failure["name"] or failure["of_sail"]
    cause = str(error)[failure.start() :].splitlines()[0] if has_start else err.root_cause(error)
    cause = _without_values(cause, " ".join(failing.values()))
    allowed = "a condition that has a value for every row, such as one with try_divide or try_cast"
    if failure["types"]:
        allowed = "values of one type, such as clicked = 'true' for a column of text, and a condition that is a boolean"
    return err.InputError(f"cannot filter by {broken}: {cause.split(' SQLSTATE')[0].rstrip('.')}; allowed: {allowed}")


@source("json")
def _json(spark: SparkSession, section: cfg.Input, columns: Iterable[str]) -> DataFrame:
    # Read as text, so that ids stay as written. A line that is not JSON has only nulls and is quarantined.
    requested = {name: T.StructField(name, T.StringType()) for name in columns}
    if section.where:
        # The filter may name any column, so Spark has to infer the other columns, and from every row.
        inference = {"columnnameofcorruptrecord": files.UNREADABLE, "samplingratio": "1.0"}
        options = {"primitivesasstring": "true"} | files.json_options(section.options)
        reader = spark.read.options(**options, **inference)
        inferred = reader.json([*section.paths]).drop(files.UNREADABLE).schema.fields
        # A list stays one.
        fields = [f if isinstance(f.dataType, T.ArrayType) else requested.get(f.name, f) for f in inferred]
        return eng.own_or_field(files.read_json_lines(spark, section, options, fields), requested)
    # Without a filter, Spark does not have to read the files to infer a schema.
    nested = [name for name in requested if "." in name and all(name.split("."))]
    schema = requested | {field.name: field for field in eng.text_fields(nested)}
    rows = files.read_json_lines(spark, section, section.options, [*schema.values()]).drop(files.UNREADABLE)
    rows = eng.own_or_field(rows, nested).drop(*schema.keys() - requested.keys())
    rows = files.typed_on_sail(rows, section) if eng.engine_of(spark) == "sail" else rows
    # Columns without a value go. Most have one in the first 1000 rows; all rows are read for the others only.
    found, total = _found(rows.limit(1000), _values(requested) | _signs_of_lists(section, rows.columns))
    filled = {name for kind, name in found if kind == "value"}
    # A role is not used where the column with its long name exists.
    configured = {*section.columns.values(), *getattr(section, "list", ()), *getattr(section, "segments", ())}
    roles = {role for role, name in section.roles.items() if name in filled and role not in section.columns}
    candidates = [name for name in requested if name not in filled and name not in roles - configured]
    if candidates and total:
        filled |= {name for _, name in _found(rows, _values(candidates))[0]}
    rows = rows.drop(*(name for name in requested if total and name not in filled))
    ids = {role: name for role, name in section.roles.items() if role in ("experiment", "user", "item")}
    if not all(role in section.columns or {role, name} & filled for role, name in ids.items()):
        rows = _with_other_names(spark, rows, section)
    return _with_lists(rows, section, found)


def _with_other_names(spark: SparkSession, rows: DataFrame, section: cfg.Input) -> DataFrame:
    """The rows with a column for each key of the first line, so that a missing column is refused with their names."""
    first = spark.read.text([*section.paths]).first()
    with suppress(ValueError, TypeError, AttributeError):
        others = [key for key in {**json.loads(first[0] if first else "")} if key not in rows.columns]
        for key in others:
            rows = rows if "." in key else rows.withColumn(key, F.lit(None).cast("string"))
    return rows


#: What is looked for in the rows of JSON: a "value" or a "list" in a column, or a "field" of the objects of a list.
_Sign: TypeAlias = tuple[str, str]


def _signs_of_lists(section: cfg.Input, columns: Collection[str]) -> dict[_Sign, str]:
    """The signs of lists in the columns of items, and of fields, with their SQL."""
    lists = section.columns.get(ITEMS)
    # Each row may have several intents; some may be texts.
    roles = [role for role in section.roles if role not in ("user", "experiment", INTENTS)]
    names = {lists, *(section.columns.get(role) or role for role in roles), *(section.roles[role] for role in roles)}
    of_item = sorted({*filter(None, names)} & {*columns})
    signs = {("list", name): f"ltrim({quoted(name)}) LIKE '[%'" for name in of_item}
    # Objects have no schema: a field is one that has been seen.
    for name in section.required_columns() if lists in of_item else ():
        step = name.partition(".")[0].replace("\\", "").replace("'", "")
        signs["field", name] = f"""contains({quoted(str(lists))}, '"{step}"')"""
    return signs


def _with_lists(rows: DataFrame, section: cfg.Input, found: Collection[_Sign]) -> DataFrame:
    """The rows of JSON, whose values are texts, with the lists among the columns of items as arrays.

    A text that is no list becomes null, which is a list that is faulty.
    """
    lists = section.columns.get(ITEMS)
    arrays = sorted(name for kind, name in found if kind == "list")
    seen = [name for kind, name in found if kind == "field" and name not in rows.columns]
    kinds: dict[str, T.ArrayType] = dict.fromkeys(arrays, T.ArrayType(T.StringType()))
    if lists in arrays and seen:
        kinds[str(lists)] = T.ArrayType(T.StructType(eng.text_fields(seen)))
    return rows.withColumns({name: F.from_json(quoted(name), kind) for name, kind in kinds.items()}) if kinds else rows


def _filter(rows: DataFrame, section: cfg.Input) -> DataFrame:
    """Apply the filter; keep unreadable lines, because faulty rows are counted."""
    where = section.where
    if not where:
        return rows
    if eng.engine_of(rows.sparkSession) == "sail":
        types = {field.name.lower(): field.dataType.simpleString() for field in rows.schema.fields}
        where = on_sail.filter_on_sail(section.path_of("where"), where, types)
    if files.UNREADABLE not in rows.columns:
        return rows.where(where)
    return rows.where(F.expr(where) | F.col(files.UNREADABLE).isNotNull()).drop(files.UNREADABLE)


def _found(rows: DataFrame, signs: Mapping[_Sign, str]) -> tuple[set[_Sign], int]:
    """Return the signs whose SQL holds for some of these rows, and the number of rows; one job."""
    *counts, total = rows.selectExpr(*(f"count_if({sql})" for sql in signs.values()), "count(1)").first() or (0,)
    return {sign for sign, count in zip(signs, counts, strict=False) if count}, total


def _values(names: Iterable[str]) -> dict[_Sign, str]:
    """The signs of columns that have a value."""
    return {("value", name): f"{quoted(name)} IS NOT NULL" for name in names}


#: Format of TREC -> the places of its fields.
_TREC = {
    # query Q0 item rank score tag. Like trec_eval, the package orders by score: ranks in such files can be wrong.
    "trec_run": {USER: 0, ITEM: 2, POSITION: 3, SCORE: 4, EXPERIMENT: 5},
    # query iteration item grade; qrels of diversity tracks have the intent (subtopic) in place of the iteration.
    "trec_qrels": {USER: 0, INTENTS: 1, ITEM: 2, RELEVANCE: 3},
}


@source(*_TREC)
def _trec(spark: SparkSession, section: cfg.Input, columns: Iterable[str]) -> DataFrame:
    """Split lines at white space; a line with too few fields has only nulls and is quarantined."""
    fields = _TREC[section.format]
    words = F.split(F.trim(F.regexp_replace("value", r"[\s\ufeff]+", " ")), " ")
    lines = spark.read.options(**section.options).text([*section.paths]).where(F.trim("value") != "")
    experiment = files.experiment_column(spark, section)
    named = [] if experiment is None else [experiment.alias(EXPERIMENT)]
    if named and EXPERIMENT in fields:  # the last field, the tag, has no use
        fields = {name: at for name, at in fields.items() if name != EXPERIMENT}
    is_comment = f"startswith(get(w, 0), '#') AND try_cast(get(w, {cfg.NUMBER_AT[section.format]}) AS double) IS NULL"
    heads = {at: ", ".join(f"'{name}'" for name in names) for at, names in cfg.HEADS[section.format].items()}
    plain = "coalesce(regexp_replace(lower(get(w, {})), '[^a-z0-9]', ''), '') IN ({})"
    is_head = " AND ".join(plain.format(*head) for head in heads.items())
    lines = lines.select(words.alias("w"), *named).where(f"NOT ({is_comment}) AND NOT ({is_head})")
    complete = lines.withColumn("w", F.when(F.size("w") > max(fields.values()), F.col("w")))
    cells = {name: F.expr(f"get(w, {index})") for name, index in fields.items()}
    cells |= {EXPERIMENT: F.col(EXPERIMENT)} if named else {}
    return complete.select(*(cell.alias(name) for name, cell in cells.items()))


@source("json_document", "letor")
def _parsed(spark: SparkSession, section: cfg.Input, columns: Iterable[str]) -> DataFrame:
    """Parse local files here; the values are texts, as in the files."""
    return eng.arrow_in(spark, files.parsed_rows(section))


#: Column names that mean the day of a row, also if it is text.
NAMES = frozenset({"date", "day", "ds", "dt", "event_date", "event_day"})
_DAY = re.compile(r"['\"]\d{4}-\d{2}-\d{2}['\"]")
#: Operators that compare a time with midnight of a day; < and >= are right, because they split at the day's start.
_AT_MIDNIGHT = ("=", "==", "<=", ">", "<>", "!=", "between", "in")


def whole_log(section: cfg.Input, schema: T.StructType, date: str) -> list[str]:
    """Return a note if the log has dates and neither path nor filter selects a day; else an empty list."""
    selects = section.where or any(date in path for path in section.paths)
    mapped = set(section.columns.values())
    candidates = [] if selects else [field for field in schema.fields if field.name not in mapped]
    # The day of a row is a date, else a text with a telling name, else a time.
    days = [field for field in candidates if isinstance(field.dataType, T.DateType)]
    texts = [field for field in candidates if isinstance(field.dataType, (T.StringType, T.IntegerType))]
    days += [field for field in texts if field.name.lower() in NAMES]
    days += [field for field in candidates if isinstance(field.dataType, eng.TIMES)]
    parts = [field for name in ("year", "month", "day") for field in texts if field.name.lower() == name]
    by_parts = len(parts) == 3 and days[:1] in ([], parts[-1:])
    if not (days or by_parts):
        return []
    column = (days or parts)[-1 if by_parts else 0]
    value = f"to_date({quoted(column.name)})" if isinstance(column.dataType, eng.TIMES) else quoted(column.name)
    of_day = "replace('{date}', '-', '')" if isinstance(column.dataType, T.IntegerType) else "'{date}'"  # dt=20261120
    of_parts = [f"{quoted(part.name)} = {part.name.lower()}('{{date}}')" for part in parts if by_parts]
    where = " AND ".join(of_parts) or f"{value} = {of_day}"
    return [err.said("no_filter_of_day", date=date, column=column.name, at=section.path_of("where"), where=where)]


def at_midnight(section: cfg.Input, schema: T.StructType) -> list[str]:
    """Return a note for each time that the filter compares with a day, which means midnight."""
    where = section.where or ""
    path = section.path_of("where")
    times = {field.name.lower(): field.name for field in schema.fields if isinstance(field.dataType, eng.TIMES)}
    words = list(cfg.tokens(path, where))
    notes = []
    for at, word in enumerate(words):
        if word.kind not in ("word", "quoted") or word.text not in times:
            continue
        operator, day = _compared_day(words, at + 1)
        if operator in _AT_MIDNIGHT and day:
            column = quoted(times[word.text])
            notes.append(err.said("at_midnight", path=path, column=column, day=day, operator=operator.upper()))
    return notes


def _compared_day(words: Sequence[cfg.Token], at: int) -> tuple[str, str]:
    """Return the operator at this index and the last day to its right; empty texts if there is none."""
    end = at
    while end < len(words) and words[end].kind == "symbol" and words[end].text in "<>=!":
        end += 1
    operator = "".join(word.text for word in words[at:end])
    if end == at and end < len(words):
        end += words[end].text == "not" and end + 1 < len(words)
        operator = words[end].text
        end += 1
    operands = [word for word in words[end:] if word.text not in ("(", "date")]
    if operator == "between":
        operands = [word for previous, word in pairwise(operands) if previous.text == "and"]
    day = operands[0].text if operands and operands[0].kind == "string" else ""
    return operator, day if _DAY.fullmatch(day) else ""
