"""What is counted of a log, in one pass over its scored lists and groups of faulty rows; and without some users."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import config as cfg, doors, engines as eng, road, schemas as sch, statistics as st
from rankmetrics_spark.gates import limits as lm

#: Experiment -> name of a count -> the count; see ``row_counts``.
Counts = dict[str, dict[str, Any]]
#: Reason -> rows, most frequent first; at most ten.
Reasons = dict[str, int]
REPEATED = "repeated item or rank"
_HASH = "_hash_of_list"
DIGEST_LEAVES_OUT = tuple(doors.data_of(__name__, "digest")["leaves_out"])
#: Counts that a record does not have.
UNRECORDED = ("beyond_sums", "negative_grades", "without_segment")

_SUMS = {
    "repeated": sch.N_REPEATED,
    "tied": sch.N_TIED,
    "judged_items": sch.N_KNOWN,
    "below_first_rank": f"CASE WHEN {sch.REJECTED}.{sch.REASON} LIKE 'position_below%' THEN {sch.N_ROWS} END",
    "no_experiment": f"CASE WHEN {sch.REJECTED}.{sch.REASON} LIKE '%_experiment' THEN {sch.N_ROWS} END",
}


@dataclass(frozen=True)
class Inspected:
    """The scored lists of a log, and the tables that messages of the gates need.

    Attributes:
        tables: The tables of the evaluation. Each gate reads the outcome, so it should be stored.
        primary: The names of the metrics that decide.
        place: The name of the input in messages.
        tags: Whether tags name the experiments, as in TREC runs.
    """

    tables: road.Tables
    primary: Sequence[str]
    place: str = "the impressions"
    tags: bool = False

    @cached_property
    def plan(self) -> road.Plan:
        """The plan."""
        return self.tables.plan

    @cached_property
    def counts(self) -> Counts:
        """What is counted: see ``row_counts``."""
        scoring = self.plan.scoring
        # Values can be too large to be summed under metrics without a maximum, and under two others by the gains.
        definitions = {metric.column: metric.definition for metric in scoring.metrics}
        unbounded = [column for column, own in definitions.items() if own.range[1] == float("inf")]
        unbounded += {
            own.name: each for each, own in definitions.items() if own.name in ("ndcg", "graded_rbp")
        }.values()
        # A preset has its population also where there are no judgements.
        only_judged = scoring.judged and scoring.conventions[0].population in ("judged", "both")
        return row_counts(self.tables.outcome, self.plan, unbounded, only_judged)

    @cached_property
    def total(self) -> Mapping[str, int]:
        """Count -> its sum over all experiments."""
        return totals(self.counts)

    @cached_property
    def arms(self) -> Counts:
        """The counts of experiments."""
        return arms(self.counts)


def row_counts(outcome: DataFrame, plan: road.Plan, summed: Sequence[str] = (), only_judged: bool = False) -> Counts:
    """Count rows, lists and their oddities per experiment.

    Rows: ``rows`` = ``evaluated`` + ``quarantined``; ``repeated``, quarantined rows that repeat an item or a rank;
    ``tied``, rows that share their score with another row of their list; ``below_first_rank``, rows whose rank is too
    small; ``no_experiment``, rows whose fault is in the experiment; ``judged_items``, shown items with a judgement or a
    grade; ``rows_outside``, evaluated rows of ``lists_outside``; ``negative_grades``, rows with a grade below 0.

    Lists: ``lists``; ``lists_outside``, with ``only_judged``, those of users without judgements, who are outside the
    population; ``beyond_judgements``, lists that show more relevant items than the judgements know (their values
    stop at 1); ``judged_lists``, lists whose user has judgements; ``graded_lists``, lists with a grade above 0 that is
    not 1; ``no_relevant``, lists of the population without a relevant item; ``short``, lists with fewer items than
    the largest cut-off; ``gaps``, lists whose last rank exceeds their number of rows; ``mixed_segments``, lists whose
    rows differ in a segment.

    ``digest``: what the run read of the lists and of the faulty rows; ``DIGEST_LEAVES_OUT`` says what not.

    ``beyond_sums``: the columns of ``summed`` with a value that is too large to be summed; ``without_segment``:
    segment -> lists without a value of it.

    Where the judgements say what is relevant: ``top_items``, shown items down to rank ``Scoring.top``;
    ``judged_top_items``, those with a judgement; ``refuted``, judgements of the users of the lists with a grade of 0.
    """
    columns, segments = outcome.columns, dict(zip(plan.columns.segment_columns, plan.columns.segments, strict=True))
    outside = f"NOT {sch.JUDGED}" if only_judged else "false"
    conditions = {
        "lists": "true",
        "called_missing": road.is_called_missing(sch.USER),
        "lists_outside": outside,
        "beyond_judgements": f"{sch.N_UNKNOWN} > 0",
        "judged_lists": sch.JUDGED,
        "graded_lists": f"{sch.N_GRADED} > 0",
        "no_relevant": f"{sch.N_RELEVANT} = 0 AND NOT ({outside}) AND {sch.JUDGED if plan.scoring.machine else 'true'}",
        "short": f"{sch.N_SHOWN} < {longest_cut(plan)}",
        "gaps": f"{sch.TOP} > {sch.N_ROWS}" if sch.TOP in columns else "false",
        "mixed_segments": sch.MIXED if sch.MIXED in columns else "false",
        **{f"_without{key}": f"{key} IS NULL" for key in segments},
        **{f"_{i}": f"abs({name}) > {st.LARGEST_SUMMAND!r}D" for i, name in enumerate(summed)},
    }
    rows_outside = f"CASE WHEN {sch.REJECTED} IS NULL AND {outside} THEN {sch.N_ROWS} - {sch.N_REPEATED} END"
    negative = f"CASE WHEN {sch.REJECTED} IS NULL THEN {sch.N_NEGATIVE} END" if sch.N_NEGATIVE in columns else "0"
    sums_of_rows = _SUMS | {"rows_outside": rows_outside, "negative_grades": negative}
    if plan.scoring.looks_up:
        # Of a null and a number, the number is the least one: faulty rows have no list.
        top = f"CASE WHEN {sch.REJECTED} IS NULL THEN least({sch.N_SHOWN}, {plan.scoring.top}) END"
        tops = {"top_items": top, "judged_top_items": sch.N_KNOWN_TOP}
        sums_of_rows |= tops | {"refuted": sch.N_REFUTED}
    # The keys of a list that are the same in every order of the rows, and what describes its user.
    lists = [name for name, own in zip(plan.columns.list_columns, plan.columns.list, strict=True) if own != sch.ROW]
    counted = [sch.N_ROWS, sch.N_REPEATED, sch.N_TIED, sch.N_NEGATIVE, sch.MIXED, sch.TOP, sch.DIGEST]
    # Lists that are stored without items without relevance do not say which of these are judged.
    counted += [sch.N_KNOWN] * plan.scoring.every_row
    read = (sch.USER, *lists, *(name for name in counted if name in columns))
    of_list = F.expr(road.hash_of(plan.columns.of_user, read))
    faulty = (f"{sch.REJECTED}.{name}" for name in road.rejected_type(plan.columns).names)
    of_faulty = F.expr(road.hash_of([*faulty], [sch.N_ROWS]))
    hashed = outcome.withColumn(_HASH, F.when(F.col(sch.REJECTED).isNull(), of_list).otherwise(of_faulty))
    sums = hashed.groupBy(sch.EXPERIMENT).agg(
        *road.sums_of_hashes(_HASH),
        F.sum(sch.N_ROWS).alias("rows"),
        F.sum(F.when(F.col(sch.REJECTED).isNotNull(), F.col(sch.N_ROWS)).otherwise(0)).alias("faulty"),
        *(F.expr(f"coalesce(sum({sql}), 0) AS {name}") for name, sql in sums_of_rows.items()),
        *(F.expr(f"count_if({sch.REJECTED} IS NULL AND {sql}) AS {name}") for name, sql in conditions.items()),
    )
    counts: Counts = {}
    # An engine gives groups in any order.
    for row in sorted(eng.few_rows(sums), key=lambda row: (row[sch.EXPERIMENT] is not None, row[sch.EXPERIMENT] or "")):
        quarantined = row["faulty"] + row["repeated"]
        counts[row[sch.EXPERIMENT]] = {
            "rows": row["rows"],
            "evaluated": row["rows"] - quarantined,
            "quarantined": quarantined,
            "digest": road.digest_of(row),
            **{name: row[name] for name in (*sums_of_rows, *conditions) if name[0] != "_"},
            "beyond_sums": [name for i, name in enumerate(summed) if row[f"_{i}"]],
            "without_segment": {name: row[f"_without{key}"] for key, name in segments.items()},
        }
    return counts


def reasons(outcome: DataFrame) -> Reasons:
    """Return why rows were left out, and how many."""
    reason = F.coalesce(F.col(f"{sch.REJECTED}.{sch.REASON}"), F.lit(REPEATED))
    n = F.when(F.col(sch.REJECTED).isNotNull(), F.col(sch.N_ROWS)).otherwise(F.col(sch.N_REPEATED))
    counts = outcome.groupBy(reason.alias(sch.REASON)).agg(F.sum(n).alias("n")).where("n > 0")
    return {row[sch.REASON]: row["n"] for row in eng.few_rows(counts.orderBy(F.desc("n"), sch.REASON).limit(10))}


def totals(counts: Counts) -> Mapping[str, int]:
    """Return count -> its sum over all experiments."""
    sums = Counter[str]()
    for count in counts.values():
        sums.update({name: n for name, n in count.items() if isinstance(n, int)})
    return sums


def arms(counts: Counts) -> Counts:
    """Return the counts of experiments; leave out the group of rows without a valid experiment."""
    return {name: count for name, count in counts.items() if count["rows"] > count["no_experiment"]}


def longest_cut(plan: road.Plan) -> int:
    """Return the largest cut-off of the metrics; 0 if none has one."""
    return max((metric.cut or 0 for metric in plan.scoring.metrics), default=0)


# ---- the counts and the rates without some users, from those of the log and what is stored of these users

#: Count -> SQL that is summed over faulty rows.
_OF_FAULTY = {
    "quarantined": "1",
    "repeated": f"int({sch.REASON} IN ('duplicate_item', 'repeated_position'))",
    "below_first_rank": f"int({sch.REASON} LIKE 'position_below%')",
    "no_experiment": f"int({sch.REASON} LIKE '%_experiment')",
}
#: Count of a part -> that of the whole: where they are equal, they stay equal.
_WHOLE = {"judged_items": "evaluated", "judged_top_items": "top_items", "tied": "evaluated"}
_WHOLE |= dict.fromkeys(("judged_lists", "graded_lists", "gaps"), "lists")
#: Counts that users of the tables do not change, and one that follows from others.
_UNCHANGED = ("lists_outside", "rows_outside", "rows")


def _of_users(plan: road.Plan) -> dict[str, str]:
    """Count -> SQL that is summed over the rows of users."""
    of_users = {
        "lists": sch.N_LISTS,
        "evaluated": sch.N_SHOWN,
        "called_missing": f"CASE WHEN {road.is_called_missing(sch.USER)} THEN {sch.N_LISTS} ELSE 0 END",
    }
    if not plan.columns.list:  # a row is a list
        of_users |= {
            "no_relevant": f"CASE WHEN {sch.N_RELEVANT} = 0 AND {sch.HAS_LABELS if plan.scoring.machine else 'true'} "
            f"THEN {sch.N_LISTS} ELSE 0 END",
            "short": f"CASE WHEN {sch.N_SHOWN} < {longest_cut(plan)} THEN {sch.N_LISTS} ELSE 0 END",
            "top_items": f"least({sch.N_SHOWN}, {plan.scoring.top})",
        }
    return of_users


def without_users(counts: Counts, users: DataFrame, faulty: DataFrame, plan: road.Plan) -> tuple[Counts, list[str]]:
    """The counts without some users, and the names of those that stay, since what is stored does not tell them.

    Args:
        counts: What was counted, per experiment.
        users: The rows of ``user_metrics`` of these users.
        faulty: Their rows of ``quarantine``.
        plan: The plan.
    """
    of_users, erased = _of_users(plan), dict[str | None, dict[str, int]]()
    for rows, sums in ((users, of_users), (faulty, _OF_FAULTY)):
        totals = (F.expr(f"sum({sql}) AS {name}") for name, sql in sums.items())
        for row in eng.few_rows(rows.groupBy(sch.EXPERIMENT).agg(*totals)):
            erased.setdefault(row[0], {}).update({name: int(row[name]) for name in sums})
    told, left, stay = {*of_users, *_OF_FAULTY, *_UNCHANGED}, Counts(), dict[str, None]()
    for name, count in counts.items():
        # Rows without an experiment, and of one without a name, are stored as the same.
        less = {} if name == "" and None in counts else erased.get(name or None)
        if less:
            numbers = {key: n - less.get(key, 0) for key, n in count.items() if key != "digest"}
            numbers["rows"] = numbers["evaluated"] + numbers["quarantined"]
            for key in numbers.keys() - told:
                if count[key] == count.get(_WHOLE.get(key, "")):
                    numbers[key] = numbers[_WHOLE[key]]
                elif count[key]:
                    stay[key] = None
        else:
            numbers = dict(count)
        if numbers["rows"]:
            left[name] = numbers
    return left, sorted(stay)


def rates_without_users(quality: Mapping[str, Any], counts: Counts, stay: list[str]) -> dict[str, Any]:
    """The rates on record, as the counts say now; those of counts that stay, and of the whole log alone, stay too."""

    if sch.EVERYONE in quality["rates"]:  # with assignments, all are of the whole log
        return {**quality}

    def now(known: Mapping[str, float], of: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The rates of some counts."""
        return {**known, **lm.rates(of, [name for name in known if not {*lm.counts_of_rate(name)} & {*stay}])}

    per_arm = {name: now(known, [counts[name]]) for name, known in quality["rates"].items() if name in counts}
    return {**quality, "rates": per_arm, "overall": now(quality["overall"], [*arms(counts).values()])}


#: Checks of a log that what is stored does not tell.
CHECKS_OF_LOG = tuple(doors.data_of(__name__, "digest")["checks_of_log"])


def checks_without_users(
    stored: Sequence[sch.Check], quality: dict[str, Any], counts: Counts, limits: cfg.Limits, before: Mapping[str, Any]
) -> list[sch.Check]:
    """The checks of the log: of these rates, and those that stay; the entry of the record gets its warnings.

    Args:
        stored: The checks as they were published.
        quality: The entry ``quality`` of the record, with the rates as they are now.
        counts: The counts without the users.
        limits: The limits of rates.
        before: The quality that earlier runs have recorded.
    """
    checks = lm.rate_checks(found := lm.Findings(counts, quality["rates"], quality["overall"], before), limits)
    if sch.EVERYONE in quality["rates"]:
        checks = [check for check in stored if check.name in cfg.RATES and check.experiment in counts]
    kept = [check for check in stored if check.name in CHECKS_OF_LOG and check.experiment in counts]
    others = {check.sentence for check in stored if check.name not in (*CHECKS_OF_LOG, "log")}
    warnings = [*(text for text in quality["warnings"] if text not in others)]
    warnings += [check.sentence for check in checks if check.status == sch.WARN]
    quality |= {**found.as_record(), "warnings": [*dict.fromkeys(warnings)]}
    return [*checks, *kept]
