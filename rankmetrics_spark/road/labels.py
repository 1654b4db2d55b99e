"""Judgements of people, who judged a sample of the users, and of a machine, which judged all of them."""

from typing import TypeAlias

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import config as cfg, engines as eng, schemas as sch, words
from rankmetrics_spark.errors import InputError, unknown
from rankmetrics_spark.road.checking import GRADE, digest_of, pools, sums_of_hashes, typed_judgements
from rankmetrics_spark.road.plan import mapped

#: (grade of people, grade of the machine) -> items that people judged; None where the machine did not judge them.
LabelCounts: TypeAlias = dict[tuple[float, float | None], int]
DRAWN = "_drawn"


def split_labels(judgements: DataFrame, machine: DataFrame | None, options: cfg.Options) -> tuple[DataFrame, DataFrame]:
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
    rated = rated.selectExpr(sch.USER, *(f"{name} AS {own}" for name, own in sch.OF_MACHINE.items()))
    people, drawn = drawn_labels(judgements, options)
    return people, rated if drawn is None else rated.join(drawn, sch.USER, "left")


def drawn_labels(judgements: DataFrame, options: cfg.Options) -> tuple[DataFrame, DataFrame | None]:
    """The judgements of people in drawn users; and these users, with probabilities: None where no column names them."""
    of_people = mapped(options.judgement_columns, sch.MACHINE_ROLES, judgements.columns)
    people = str(of_people[sch.RELEVANCE])
    # pandas has no null of numbers, and text no null at all.
    known = f"coalesce(string({sch.quoted(people)}), '') NOT IN ('', 'NaN', 'nan')"
    conditions, users = [known] * (people in judgements.columns), None
    if options.drawn_by:
        for name in options.drawn_by.values():
            if name not in judgements.columns:
                raise InputError(f"{options.path_of('human_sample')}: {unknown('column', name, judgements.columns)}")
        # Who was drawn is in the sample, also without a label. A probability is read where grades are.
        drawn, chance = options.drawn_by["column"], [*filter(None, [options.drawn_by.get("probability")])]
        conditions.append(f"try_cast({sch.quoted(drawn)} AS boolean)")
        chosen, numbers = judgements.where(conditions[-1]), of_people
        for name in chance:
            numbers = of_people | {sch.RELEVANCE: name}
            chosen = chosen.withColumn(name, F.expr(f"try_cast(string({sch.quoted(name)}) AS double)"))
        of_user = [f"true AS {DRAWN}", *(f"{sch.only_value(GRADE)} AS {sch.CHANCE}" for _ in chance)]
        users = typed_judgements(chosen, numbers, options.text_numbers).groupBy(sch.USER).agg(*map(F.expr, of_user))
    return judgements.where(" AND ".join(conditions) or "true"), users


def of_both(people: DataFrame, rated: DataFrame) -> DataFrame:
    """The pools of people and of the machine; people's are empty of drawn users of whom they judged nothing."""
    both = people.join(rated, sch.USER, "full")
    for name, own in sch.OF_MACHINE.items() if DRAWN in rated.columns else ():
        both = both.withColumn(name, F.expr(f"coalesce({name}, CASE WHEN {DRAWN} THEN slice({own}, 1, 0) END)"))
    return both.drop(DRAWN)


def label_counts(pools: DataFrame, people: DataFrame, options: cfg.Options) -> tuple[LabelCounts, str]:
    """How both judged the same items, and the digest of the machine's labels: a hash per user; starts a job.

    Raises:
        InputError: The machine's prompt was made with users whom people judged.
    """
    if prompt := options.drawn_by.get("prompt"):
        user = mapped(options.judgement_columns, sch.MACHINE_ROLES, people.columns)[sch.USER]
        shaped = people.where(f"try_cast({sch.quoted(prompt)} AS boolean)")
        if n := eng.few_rows(shaped.agg(F.countDistinct(sch.quoted(str(user))).alias("n")))[0]["n"]:
            at = options.path_of("human_sample")
            raise InputError.of("prompt_from_sample", n=n, units=words.UNITS, at=at, prompt=prompt)
    # Also users whom people did not judge, each once.
    hashed = f"xxhash64({sch.USER}, {sch.MACHINE_GRADE}, {sch.MACHINE_HASH}) AS {sch.DIGEST}"
    each = f"posexplode_outer(arrays_zip({sch.POOL_GRADE}, {sch.POOL_HASH})) AS (_n, _judged)"
    judged = pools.selectExpr("*", hashed, each)
    grade = f"get({sch.MACHINE_GRADE}, int(array_position({sch.MACHINE_HASH}, _judged.{sch.POOL_HASH}) - 1))"
    once = f"CASE WHEN coalesce(_n, 0) = 0 AND {sch.MACHINE_HASH} IS NOT NULL THEN {sch.DIGEST} END AS {sch.DIGEST}"
    pairs = judged.selectExpr(f"_judged.{sch.POOL_GRADE} AS people", f"{grade} AS machine", once)
    counts = pairs.groupBy("people", "machine").agg(F.count(F.lit(1)).alias("n"), *sums_of_hashes(sch.DIGEST))
    rows = eng.few_rows(counts)
    known = {(row["people"], row["machine"]): int(row["n"]) for row in rows if row["people"] is not None}
    return known, digest_of(*rows)
