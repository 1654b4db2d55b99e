"""What of a date belongs together where several runs have published on it: comparisons, and what was counted."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankmetrics_spark import findings as fd, schemas as sch, words
from rankmetrics_spark.pointers import Pointer

#: Comparisons that a sentence names; the others are counted.
MOST_NAMED = 3
#: Names of the checks that compare an experiment with a baseline.
_DROPS = ("max_drop", "max_relative_drop", "trusted")


def record_of(records: Sequence[sch.Row], date: str, run: str | None) -> sch.Row:
    """The record of the run that published the date; the newest run that ended well where no pointer names one."""
    complete = [record for record in records if record.get(sch.DATE) == date and "quarantine_reasons" in record]
    successful = [record for record in complete if record.get("outcome") == "done"]
    of_run = [record for record in complete if record.get(sch.RUN) == run]
    return (of_run or successful or [{}])[-1]


def record_of_date(records: Sequence[sch.Row], date: str, pointer: Pointer | None) -> sch.Row:
    """The record of the newest run of a date, with the counts of each experiment by the run whose rows count.

    >>> from rankmetrics_spark.pointers import Entry
    >>> of_run = {"evaluation_date": "2026-11-20", "quarantine_reasons": {}}
    >>> counts = {"rows": 3, "evaluated": 2, "quarantined": 1}
    >>> records = [of_run | {"run_id": run, "experiments": {"a": counts, name: counts}}
    ...            for run, name in (("1", "b"), ("2", "c"))]
    >>> pointer = Pointer("2026-11-20").with_run(Entry("1", ("a", "b"))).with_run(Entry("2", ("a", "c")))
    >>> record = record_of_date(records, "2026-11-20", pointer)
    >>> record["run_id"], sorted(record["experiments"]), record["rows"]
    ('2', ['a', 'b', 'c'], {'in': 9, 'evaluated': 6, 'quarantined': 3})
    """
    record = record_of(records, date, pointer.entries[0].run_id if pointer else None)
    if pointer is None or len(pointer.entries) == 1 or not record:
        return record
    run_of = {name or sch.NULL_PARTITION: run for name, run in pointer.run_of().items()}
    experiments: dict[str, Mapping[str, Any]] = {}
    reasons: Counter[str] = Counter()
    are_whole = True
    for each in (each for each in records if each.get(sch.DATE) == date and each.get(sch.RUN) in run_of.values()):
        counts = each.get("experiments") or {}
        own = {name: count for name, count in counts.items() if run_of.get(name or sch.NULL_PARTITION) == each[sch.RUN]}
        experiments |= own
        reasons.update(each.get("quarantine_reasons") or {})
        # Reasons are counted over all experiments of a run.
        are_whole = are_whole and len(own) == len(counts)
    names = {"in": "rows", "evaluated": "evaluated", "quarantined": "quarantined"}
    rows = {name: sum(count.get(key, 0) for count in experiments.values()) for name, key in names.items()}
    more = {"rows": rows, "quarantine_reasons": dict(reasons) if are_whole else {}}
    return {**record, "experiments": experiments, **more}


def parted(comparisons: sch.Rows, pointers: Mapping[str, Pointer]) -> tuple[sch.Rows, sch.Rows]:
    """The comparisons whose two experiments are of one run, and those whose baseline a later run has replaced."""
    several = {date: pointer for date, pointer in pointers.items() if len(pointer.entries) > 1}
    runs = {date: {str(name): run for name, run in each.run_of().items()} for date, each in several.items()}
    if not runs:
        return comparisons, []
    current, replaced = list[dict[str, Any]](), list[dict[str, Any]]()
    for row, found in zip(comparisons, fd.findings(comparisons), strict=True):
        run_of = runs.get(str(found.evaluation_date), {})
        is_current = run_of.get(found.baseline) == run_of.get(found.candidate)
        (current if is_current else replaced).append(row)
    return current, replaced


def compared_as_now(pointers: Mapping[str, Pointer], date: str, dates: Iterable[str]) -> bool:
    """Whether the runs of a date have compared the other days of a period as they are published now.

    >>> from rankmetrics_spark.pointers import Compared, Entry
    >>> compared = Compared(("a", "b"), runs={"2026-11-19": ("1",)})
    >>> days = {"2026-11-19": Pointer("2026-11-19").with_run(Entry("1", ("a", "b"))),
    ...         "2026-11-20": Pointer("2026-11-20").with_run(Entry("2", ("a", "b"), compared=compared))}
    >>> again = days | {"2026-11-19": days["2026-11-19"].with_run(Entry("3", ("b",)))}
    >>> [compared_as_now(each, "2026-11-20", [*days]) for each in (days, again)]
    [True, False]
    """
    others = [pointers[other] for other in dates if other != date and other in pointers]
    for entry in pointers[date].entries if date in pointers else ():
        if entry.compared:
            names = {*entry.experiments, *entry.compared.experiments}
            for other in others:
                now = {run.run_id for run in other.entries if names & {*run.experiments}}
                if now != {*entry.compared.runs.get(other.date, ())}:
                    return False
    return True


def checks_of_runs(stored: Sequence[sch.Check], computed: Sequence[sch.Check], replaced: sch.Rows) -> list[sch.Check]:
    """The checks of a date on which several runs count.

    Args:
        stored: Those on record, whose sentences are about all experiments of a run.
        computed: What the tables and the records say now.
        replaced: The comparisons that are left out.
    """
    # What was found in the log of a run is known to that run only.
    anew = [check for check in computed if not stored or check.name != "log"]
    found = fd.findings(replaced)
    candidates, old = dict.fromkeys(each.candidate for each in found), {check.name for check in anew}
    kept = [one for one in stored if one.name not in old and not (one.name in _DROPS and one.experiment in candidates)]
    if not found:
        return [*kept, *anew]
    pairs = sorted({each.pair for each in found})
    named = [f"{candidate} against {baseline}" for candidate, baseline in pairs]
    more = len(named) - MOST_NAMED
    text = ", ".join(named[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
    baselines = [*dict.fromkeys(baseline for _, baseline in pairs)]
    are, date = "is" if len(named) == 1 else "are", str(found[0].evaluation_date)
    sentence = (
        f"{text} {are} left out: a later run of {date} has other {words.UNITS} of {', '.join(baselines[:MOST_NAMED])}. "
        f"rankmetrics compare --baseline {shlex.quote(baselines[0])} --date {date} compares what is published"
    )
    return [*kept, *anew, *(sch.Check("comparisons", sch.WARN, sentence, name) for name in candidates)]
