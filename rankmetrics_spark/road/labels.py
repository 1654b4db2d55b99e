"""Judgements of people, who judged a sample of the users, and of a machine, which judged all of them."""

from typing import TypeAlias

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.config import Options
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.errors import InputError, unknown
from rankmetrics_spark.road.checking import pools, typed_judgements
from rankmetrics_spark.road.plan import mapped

#: (grade of people, grade of the machine) -> items that people judged; None where the machine did not judge them.
LabelCounts: TypeAlias = dict[tuple[float, float | None], int]
_OF_MACHINE = {sch.POOL_GRADE: sch.MACHINE_GRADE, sch.POOL_HASH: sch.MACHINE_HASH}
_DRAWN = "_drawn"


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
    rated = rated.selectExpr(sch.USER, *(f"{name} AS {own}" for name, own in _OF_MACHINE.items()))
    of_people = mapped(own, sch.MACHINE_ROLES, judgements.columns)
    people = str(of_people[sch.RELEVANCE])
    # pandas has no null of numbers, and text no null at all.
    known = f"coalesce(string({sch.quoted(people)}), '') NOT IN ('', 'NaN', 'nan')"
    conditions = [known] * (people in judgements.columns)
    for name in options.drawn_by:
        if name not in judgements.columns:
            raise InputError(f"{options.path_of('human_sample')}: {unknown('column', name, judgements.columns)}")
        conditions.append(drawn := f"try_cast({sch.quoted(name)} AS boolean)")
        # Who was drawn is in the sample, also without a label.
        chosen = typed_judgements(judgements.where(drawn), of_people, options.text_numbers)
        rated = rated.join(chosen.selectExpr(sch.USER, f"true AS {_DRAWN}").distinct(), sch.USER, "left")
    return judgements.where(" AND ".join(conditions) or "true"), rated


def of_both(people: DataFrame, rated: DataFrame) -> DataFrame:
    """The pools of people and of the machine; people's are empty of drawn users of whom they judged nothing."""
    both = people.join(rated, sch.USER, "full")
    for name, own in _OF_MACHINE.items() if _DRAWN in rated.columns else ():
        both = both.withColumn(name, F.expr(f"coalesce({name}, CASE WHEN {_DRAWN} THEN slice({own}, 1, 0) END)"))
    return both.drop(_DRAWN)


def label_counts(pools: DataFrame) -> LabelCounts:
    """How both judged the same items; starts a job."""
    judged = pools.selectExpr("*", f"explode(arrays_zip({sch.POOL_GRADE}, {sch.POOL_HASH})) AS _judged")
    grade = f"get({sch.MACHINE_GRADE}, int(array_position({sch.MACHINE_HASH}, _judged.{sch.POOL_HASH}) - 1))"
    pairs = judged.selectExpr(f"_judged.{sch.POOL_GRADE} AS people", f"{grade} AS machine")
    rows = few_rows(pairs.groupBy("people", "machine").agg(F.count(F.lit(1)).alias("n")))
    return {(row["people"], row["machine"]): int(row["n"]) for row in rows}
