"""Lines of JSON -> rows, with nothing lost: a line that is not exactly one value is a row of its own, without values.

Spark's own reader takes the first value of a line and drops the others: of ``{"a": 1}{"a": 2}`` it reads half. Here
each line is parsed as a field of an object, where a second value is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

UNREADABLE = "_unreadable_line"
"""Internal column: the text of a line that is not JSON; null for all others."""
_LINE = "value"
_OTHER_ENCODING = ("encoding", "charset")


def read(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str], fields: Sequence[T.StructField]
) -> DataFrame:
    """The objects of JSON files as rows with these columns, the partition columns of their folders, and ``UNREADABLE``.

    Args:
        spark: The session to read with.
        paths: Files or folders.
        options: Of Spark's reader. A ``mode`` is not used: no line is dropped.
        fields: The columns; a column of the folders has its value from there.
    """
    given = {name: value for name, value in complete(options).items() if name != "mode"}
    if any(name in given for name in _OTHER_ENCODING):
        # Spark reads text as UTF-8 only.
        schema = T.StructType([*fields, T.StructField(UNREADABLE, T.StringType())])
        reader = spark.read.options(**given, columnnameofcorruptrecord=UNREADABLE)
        return reader.schema(schema).json(list(paths))
    lines = _lines(spark, paths, given, fields)
    folders = [name for name in lines.columns if name != _LINE]
    own = T.StructType([field for field in fields if field.name not in folders])
    objects = lines.select(_LINE, *folders, F.explode_outer(_objects(own, given)).alias("_object"))
    unreadable = F.when(F.col("_object").isNull(), F.col(_LINE)).alias(UNREADABLE)
    return objects.select(*(F.col("_object").getField(name).alias(name) for name in own.names), *folders, unreadable)


def complete(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case; with an encoding, Spark wants to know how lines end.

    >>> complete({"Encoding": "UTF-16"}), complete({"encoding": "UTF-16", "multiLine": "true"}), complete({})
    ({'linesep': '\\n', 'encoding': 'UTF-16'}, {'encoding': 'UTF-16', 'multiline': 'true'}, {})
    """
    given = {name.lower(): value for name, value in options.items()}
    lines = any(name in given for name in _OTHER_ENCODING) and given.get("multiline", "").lower() != "true"
    return ({"linesep": "\n"} if lines else {}) | given


def _lines(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str], fields: Sequence[T.StructField]
) -> DataFrame:
    """The lines that are not blank as ``value``, and the columns of the folders in the types of ``fields``."""
    reader, whole = spark.read.options(**options), options.get("multiline", "").lower() == "true"
    lines = reader.text(list(paths), wholetext=whole)
    if len(lines.columns) > 1:
        kinds = {field.name: field for field in fields}
        known = [kinds.get(field.name, field) for field in lines.schema.fields if field.name != _LINE]
        lines = reader.schema(T.StructType([T.StructField(_LINE, T.StringType()), *known])).text(
            list(paths), wholetext=whole
        )
    # The first line of a file may start with a byte order mark.
    marked = F.col(_LINE).startswith("\ufeff")
    text = F.when(marked, F.expr(f"substring({_LINE}, 2)")).otherwise(F.col(_LINE))
    return lines.withColumn(_LINE, text).where(F.col(_LINE).rlike(r"\S"))


def _objects(schema: T.StructType, options: Mapping[str, str]) -> Column:
    """Array of the objects of a line: of its only value, or of an array; it holds null where the line is no object.

    ``_end`` is read only if the line is one whole value: otherwise the parser stops before it.
    """
    # The line break ends a comment, where comments are allowed.
    wrapped = F.concat(F.lit('{"_line": '), F.col(_LINE), F.lit('\n, "_end": 1}'))

    def parsed(kind: T.DataType) -> Column:
        envelope = T.StructType([T.StructField("_line", kind), T.StructField("_end", T.IntegerType())])
        # Over Connect, a map without entries has no type.
        found = F.from_json(wrapped, envelope, dict(options) or None)
        return F.when(found["_end"] == 1, found["_line"])

    is_array = F.ltrim(F.col(_LINE)).startswith("[")
    several = parsed(T.ArrayType(schema))
    # Of an array that holds anything else than objects, engines read different parts.
    objects_only = ~F.exists(several, lambda value: value.isNull())
    return F.when(is_array, F.when(objects_only, several)).otherwise(F.array(parsed(schema)))
