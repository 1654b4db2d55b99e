"""Judgements of people, who judged a sample of the users, and of a machine, which judged all of them."""

from typing import TypeAlias

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.config import Options
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.errors import InputError, unknown
from rankmetrics_spark.road.checking import pools
from rankmetrics_spark.road.plan import mapped

#: (grade of people, grade of the machine) -> items that people judged; None where the machine did not judge them.
LabelCounts: TypeAlias = dict[tuple[float, float | None], int]


def split_labels(judgements: DataFrame, machine: DataFrame | None, options: Options) -> tuple[DataFrame, DataFrame]:
    """The judgements of people in drawn users, and pools of those of the machine; a null is nobody's judgement.

    Args:
        judgements: Of people, or of both.
        machine: Of the machine, if they are in a table of their own.
        options: How both are read.
    """
    own, table = options.judgement_columns, judgements if machine is None else machine
    columns = {**own, "relevance": own["machine"]} if machine is None else options.machine_columns
    mapping = mapped(columns, sch.MACHINE_ROLES, table.columns)
    grade = str(mapping[sch.RELEVANCE])
    if options.machine_grades and grade in table.columns:
        cases = " ".join(f"WHEN {ours}D THEN {theirs}D" for ours, theirs in options.machine_grades.items())
        table = table.withColumn(grade, F.expr(f"CASE double({sch.quoted(grade)}) {cases} END"))
    rated = pools(table, mapping, True, options.text_numbers)
    fields = {sch.POOL_GRADE: sch.MACHINE_GRADE, sch.POOL_HASH: sch.MACHINE_HASH}
    rated = rated.selectExpr(sch.USER, *(f"{name} AS {own}" for name, own in fields.items()))
    people = str(mapped(own, sch.MACHINE_ROLES, judgements.columns)[sch.RELEVANCE])
    # pandas has no null of numbers, and text no null at all.
    known = f"coalesce(string({sch.quoted(people)}), '') NOT IN ('', 'NaN', 'nan')"
    conditions = [known] * (people in judgements.columns)
    for name in options.drawn_by:
        if name not in judgements.columns:
            raise InputError(f"{options.path_of('human_sample')}: {unknown('column', name, judgements.columns)}")
        conditions.append(f"try_cast({sch.quoted(name)} AS boolean)")
    return judgements.where(" AND ".join(conditions) or "true"), rated


def label_counts(pools: DataFrame) -> LabelCounts:
    """How both judged the same items; starts a job."""
    judged = pools.selectExpr("*", f"explode(arrays_zip({sch.POOL_GRADE}, {sch.POOL_HASH})) AS _judged")
    grade = f"get({sch.MACHINE_GRADE}, int(array_position({sch.MACHINE_HASH}, _judged.{sch.POOL_HASH}) - 1))"
    pairs = judged.selectExpr(f"_judged.{sch.POOL_GRADE} AS people", f"{grade} AS machine")
    rows = few_rows(pairs.groupBy("people", "machine").agg(F.count(F.lit(1)).alias("n")))
    return {(row["people"], row["machine"]): int(row["n"]) for row in rows}
