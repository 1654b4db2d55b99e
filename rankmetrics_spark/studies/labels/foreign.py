"""Refuse judgements of other ids than those of the log: every shown item would count as unjudged."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.engines import SUMS, Batches, in_one_step
from rankmetrics_spark.errors import InputError, shape
from rankmetrics_spark.road import Plan, typed_judgements
from rankmetrics_spark.schemas import EXPERIMENT, ITEM, REJECTED, USER
from rankmetrics_spark.studies.refusals import log_rows

_NAME, _ID, _SOUND, _KNOWN = "_name", "_id", "_sound", "_known"
_PAIRS = ", ".join(f"struct('{name}' AS {_NAME}, {name} AS {_ID})" for name in (USER, ITEM))
_EACH = f"inline(array({_PAIRS}))"


def counts_of_known(table: DataFrame, plan: Plan, judged: DataFrame) -> DataFrame:
    """``log_counts``, which fail to be computed if no user or no item of the log is in the judgements.

    Ids are counted before they are shuffled, so the raw rows are not.
    """
    rows, counts = log_rows(table, plan)
    sums = {f"_{at}": sql for at, sql in enumerate((*counts.values(), f"count_if({REJECTED} IS NULL)"))}
    *of_rows, sound = sums
    each = rows.selectExpr("*", _EACH).groupBy(_NAME, _ID).agg(*(F.expr(sql).alias(at) for at, sql in sums.items()))
    typed = typed_judgements(judged, plan.judgement_mapping, text=False)
    ids = typed.selectExpr(_EACH).where(f"{_ID} IS NOT NULL").distinct()
    found = each.join(ids.withColumn(_KNOWN, F.lit(True)), [_NAME, _ID], "left")
    # Each row is counted once, as one of its user.
    once = ", ".join(f"coalesce(sum(CASE WHEN {_NAME} = '{USER}' THEN {at} END), 0L)" for at in of_rows)
    facts = [f"array({once}) AS {SUMS}"]
    for name in (USER, ITEM):
        facts.append(f"sum(CASE WHEN {_NAME} = '{name}' AND {_KNOWN} THEN {sound} END) AS matched_{name}")
        facts.append(f"min(CASE WHEN {_NAME} = '{name}' AND {sound} > 0 THEN {_ID} END) AS shown_{name}")
    of_judged = (f"min(CASE WHEN {_NAME} = '{name}' THEN {_ID} END) AS judged_{name}" for name in (USER, ITEM))
    one = found.agg(*map(F.expr, facts)).crossJoin(ids.agg(*map(F.expr, of_judged)))
    return in_one_step(one, _refuse_foreign, {EXPERIMENT: "string", SUMS: "array<bigint>"})


def _refuse_foreign(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The counts, unless none of the shown ids is judged."""
    for batch in batches:
        for row in batch.to_pylist():
            for name in (USER, ITEM):
                shown, judged = row[f"shown_{name}"], row[f"judged_{name}"]
                if shown is not None and judged is not None and not row[f"matched_{name}"]:
                    raise InputError(
                        f"no {name} of the impressions is in the judgements, so every shown item would be unjudged; "
                        f"shown: {shape(shown)!r}; judged: {shape(judged)!r} (letters shown as a, digits as 9); an id "
                        "has to be the same text in both"
                    )
        none = pa.nulls(batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([none, batch.column(SUMS)], [EXPERIMENT, SUMS])
