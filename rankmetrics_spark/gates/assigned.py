"""What is counted of a log by its assignments: of each arm, and of what belongs to none."""

from collections.abc import Iterator
from dataclasses import replace

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.config import Quality
from rankmetrics_spark.errors import InputError, QualityError
from rankmetrics_spark.gates.counts import UNRECORDED, Counts, Inspected, row_counts
from rankmetrics_spark.gates.limits import Findings
from rankmetrics_spark.road import AssignmentCounts
from rankmetrics_spark.words import UNIT, UNITS


def with_arms(found: Findings, log: Inspected, allowed: Quality) -> Findings:
    """The findings of a log without experiments, with counts of each arm; refuses what leaves an arm without a result.

    A list counts in each of its tests, and a row that is left out counts once, without an experiment: ``log`` has the
    counts of the log itself. An arm's ``left_out`` are the faulty rows of its users.

    Raises:
        InputError: No assigned user has a list.
        QualityError: Too many rows of an arm are faulty.
    """
    assigned = log.tables.assignment_counts
    assert assigned is not None
    whole = found.counts[sch.EVERYONE]
    known = row_counts(log.tables.outcome_of_arms, log.plan)
    none = {name: 0 for name, n in whole.items() if isinstance(n, int)}
    counts: Counts = {}
    for name in sorted({arm for test in assigned.tests.values() for arm in test["arms"]} | {*known} - {None}, key=str):
        count = {key: n for key, n in known.get(name, none).items() if key not in UNRECORDED}
        counts[name] = count | {"rows": count["evaluated"], "quarantined": 0, "repeated": 0}
        counts[name]["left_out"] = n = count["quarantined"]
        if n > allowed.allowed_fraction * (count["evaluated"] + n):
            share = f"{n / (count['evaluated'] + n):.2%}, allowed {allowed.allowed_fraction:.2%}"
            raise QualityError(f"{n:,} rows of {UNITS} of experiment '{name}' are faulty ({share})")
    if not any(count["lists"] for count in counts.values()):
        raise InputError(
            f"no {UNIT} of the assignments has a list of the impressions from their exposure on; an id has to be the "
            "same text in both, and the times have to be of the same day"
        )
    outside, n_out = known.get(None, none), whole["quarantined"]  # type: ignore[call-overload]
    rows = outside["evaluated"] + n_out
    of_none = {"rows": rows, "no_experiment": rows, "evaluated": outside["evaluated"], "rows_outside": 0}
    counts[None] = none | of_none | {"quarantined": n_out, "repeated": whole["repeated"]}  # type: ignore[index]
    # A check of the whole log has a row in each experiment.
    arms = [name for name in counts if name is not None and counts[name]["lists"]]
    checks = tuple(replace(check, experiment=name) for check in found.checks for name in arms)
    notes = (*found.notes, *_in_words(assigned, counts, outside["lists"], whole["lists"]))
    return replace(found, counts=counts, log=whole, checks=checks, notes=notes, assigned=assigned)


def _in_words(assigned: AssignmentCounts, counts: Counts, outside: int, lists: int) -> Iterator[str]:
    """What readers should know of the assignments, one sentence each."""
    if assigned.repeated:
        yield (
            f"{assigned.repeated:,} of {assigned.rows:,} assignments are of a {UNIT} in an arm once more; the first "
            "exposure counts"
        )
    if assigned.faulty:
        yield f"{assigned.faulty:,} of {assigned.rows:,} assignments lack a test, an arm, a {UNIT} or a time"
    for test, count in assigned.tests.items():
        if count["mixed"]:
            of = "" if test is None else f" of the test '{test}'"
            yield f"{count['mixed']:,} {UNITS} are in several arms{of}, and are left out of it"
    if outside:
        yield f"{outside:,} of {lists:,} lists are of {UNITS} in no test, or from before their exposure to each"
    if silent := [name for name, count in counts.items() if name is not None and not count["lists"]]:
        yield f"no {UNIT} has a list in {', '.join(silent)}, so there is no comparison with it"
