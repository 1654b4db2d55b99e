"""The counts and the rates of a log without some users, from those of the log and what is stored of these users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.config import Limits
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.gates.counts import Counts, longest_cut
from rankmetrics_spark.gates.limits import Findings, counts_of_rate, rate_checks, rates
from rankmetrics_spark.road import Plan, is_called_missing

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


def _of_users(plan: Plan) -> dict[str, str]:
    """Count -> SQL that is summed over the rows of users."""
    of_users = {
        "lists": sch.N_LISTS,
        "evaluated": sch.N_SHOWN,
        "called_missing": f"CASE WHEN {is_called_missing(sch.USER)} THEN {sch.N_LISTS} ELSE 0 END",
    }
    if not plan.columns.list:  # a row is a list
        of_users |= {
            "no_relevant": f"CASE WHEN {sch.N_RELEVANT} = 0 THEN {sch.N_LISTS} ELSE 0 END",
            "short": f"CASE WHEN {sch.N_SHOWN} < {longest_cut(plan)} THEN {sch.N_LISTS} ELSE 0 END",
            "top_items": f"least({sch.N_SHOWN}, {plan.scoring.top})",
        }
    return of_users


def without_users(counts: Counts, users: DataFrame, faulty: DataFrame, plan: Plan) -> tuple[Counts, list[str]]:
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
        for row in few_rows(rows.groupBy(sch.EXPERIMENT).agg(*totals)):
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

    def now(known: Mapping[str, float], of: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The rates of some counts."""
        return {**known, **rates(of, [name for name in known if not {*counts_of_rate(name)} & {*stay}])}

    per_arm = {name: now(known, [counts[name]]) for name, known in quality["rates"].items() if name in counts}
    arms = [count for count in counts.values() if count["rows"] > count["no_experiment"]]
    return {**quality, "rates": per_arm, "overall": now(quality["overall"], arms)}


#: Checks of a log that what is stored does not tell.
_OF_LOG = ("nothing_relevant", "population_difference", "relevant_from", "segment_rate", "judged_top_rate",
           "judged_difference")  # fmt: skip


def checks_without_users(
    stored: Sequence[sch.Check], quality: dict[str, Any], counts: Counts, limits: Limits, before: Mapping[str, Any]
) -> list[sch.Check]:
    """The checks of the log: of these rates, and those that stay; the entry of the record gets its warnings.

    Args:
        stored: The checks as they were published.
        quality: The entry ``quality`` of the record, with the rates as they are now.
        counts: The counts without the users.
        limits: The limits of rates.
        before: The quality that earlier runs have recorded.
    """
    checks = rate_checks(found := Findings(counts, quality["rates"], quality["overall"], before), limits)
    kept = [check for check in stored if check.name in _OF_LOG and check.experiment in counts]
    others = {check.sentence for check in stored if check.name not in (*_OF_LOG, "log")}
    warnings = [*(text for text in quality["warnings"] if text not in others)]
    warnings += [check.sentence for check in checks if check.status == sch.WARN]
    quality |= {**found.as_record(), "warnings": [*dict.fromkeys(warnings)]}
    return [*checks, *kept]
