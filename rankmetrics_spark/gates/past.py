"""A log against its own past: its rows, its users and its experiments beside those of the last published days.

Pure arithmetic on what the pointers of the days hold. No engine is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date as day_of
from statistics import median

from rankmetrics_spark import config as cfg, schemas as sch
from rankmetrics_spark.gates import counts as cn, limits as lm
from rankmetrics_spark.pointers import Pointers
from rankmetrics_spark.words import worded

#: Days that a median needs; days that it is of; the same where enough of them have the weekday of the log.
ENOUGH, WEEK, WEEKDAYS = 3, 7, 4
#: Experiments that a sentence names.
MOST_NAMED = 3
#: Name of a check -> its key in ``quality.gates``.
PAST_CHECKS = {"rows_change": "rows", "users_change": "users", "experiments_missing": "experiments"}
_ORDER = (sch.NOT_CHECKED, sch.OK, sch.WARN, sch.FAIL)

#: Experiment -> its rows and its users.
Log = Mapping[str | None, tuple[int, int]]
#: Experiment -> its users.
Users = Mapping[str | None, int]
#: Test -> what it has of its own; None where the experiments are no arms of tests.
Tests = Mapping[str, cfg.OfTest] | None
#: What earlier days are called in a sentence, and these days.
Like = tuple[str, list[Log]]


def past_checks(
    counts: cn.Counts, users: Users, date: str, published: Pointers, settings: cfg.Quality, tests: Tests = None
) -> list[sch.Check]:
    """Hold a log against the days before it, a row per experiment; no row where too few days are published.

    Only days with one of its experiments count, and only runs with one of them: several jobs may share an output.

    Args:
        counts: What was counted in the log, per experiment.
        users: Experiment -> its users.
        date: Its date.
        published: Date -> its pointer.
        settings: The limits.
        tests: Where the experiments are arms of tests, which share their rows and users, what each test has of its own:
            one that is over on the date is not missing.
    """
    log = log_of(counts, users)
    arms = [*cn.arms(counts)]
    names = {name or None for name in arms} - {None}
    days: list[tuple[str, Log]] = []
    for day in sorted((day for day in published if day < date), reverse=True):
        of_day = [entry for entry in published[day].entries if names & {*entry.experiments}]
        if logs := {name: entry.log[name] for entry in of_day for name in entry.experiments if name in entry.log}:
            days.append((day, logs))
    here = {*names, *(published[date].run_of() if date in published else ())}
    over = {name for name, own in (tests or {}).items() if not own.is_on(date)}
    here |= {name for _, logs in days for name in logs if name and name.partition(sch.NAME_OF_ARM)[0] in over}
    checks: list[sch.Check] = []
    for key, levels in settings.past.items():
        if len(days) < ENOUGH:
            if key in settings.gates:
                text = f"{key} are held against {ENOUGH} earlier days or more, and {len(days)} are published"
                name = next(name for name in PAST_CHECKS if PAST_CHECKS[name] == key)
                checks += [sch.Check(name, sch.NOT_CHECKED, text, experiment) for experiment in arms]
        elif key == "experiments":
            checks += _missing([logs for _, logs in days[:ENOUGH]], here, levels["missing"], arms)
        else:
            checks += _changes(key, log, _like(date, days), levels, arms, tests is not None)
    return checks


def log_of(counts: cn.Counts, users: Users) -> Log:
    """The rows and users of each experiment, as a pointer keeps them; rows without an experiment are one of them."""
    rows: dict[str | None, int] = {}
    for name, count in counts.items():
        rows[name or None] = rows.get(name or None, 0) + count["rows"]
    return {name: (n, users.get(name, 0)) for name, n in rows.items()}


def _like(date: str, days: Sequence[tuple[str, Log]]) -> Like:
    """The days that a date is held against, in words and as they are: those of its weekday, where there are enough."""
    weekday = day_of.fromisoformat(date)
    alike = [logs for day, logs in days if day_of.fromisoformat(day).weekday() == weekday.weekday()][:WEEKDAYS]
    if len(alike) >= ENOUGH:
        return f"{len(alike)} published {weekday:%A}s", alike
    logs_of_days = [logs for _, logs in days[:WEEK]]
    return f"{len(logs_of_days)} published days", logs_of_days


def _changes(key: str, log: Log, like: Like, levels: lm.Levels, names: Sequence[str], of_tests: bool) -> lm.Checks:
    """How far rows or users are from the median: of the log in both directions, of an experiment where it falls."""
    which, (words, days) = ("rows", "users").index(key), like

    def held(now: int, numbers: Sequence[int], whose: str, experiment: str | None, falls: bool) -> sch.Check:
        """A number against the median of others."""
        usual = median(numbers)
        change = (now - usual) / usual if usual else 0.0
        than = f"{lm.in_percent(abs(change))} {'fewer' if change < 0 else 'more'} than" if change else "as many as"
        fact = f"{now:,} {worded(key)} of {whose}, {than} the median of the last {words} ({usual:,.0f})"
        size = max(0.0, -change) if falls else abs(change)
        limits = [(status, levels.get(f"{status}_change")) for status in (sch.FAIL, sch.WARN)]
        for status, limit in limits:
            if limit is not None and size >= limit and size:
                text = f"{fact} ({lm.SAID[status]} from {lm.in_percent(limit)} on: quality.gates.{key}.{status}_change)"
                return sch.Check(f"{key}_change", status, text, experiment, size, limit, limit - size)
        least = min(limit for _, limit in limits if limit is not None)
        return sch.Check(f"{key}_change", sch.OK, fact, experiment, size, least, least - size)

    # A list counts in each of its tests, so the log with one more test would have grown.
    shared = set(log).intersection(*days) if of_tests else set(log).union(*days)
    if not shared:
        text = f"no arm of the log is in all of the last {words}"
        yield from (sch.Check(f"{key}_change", sch.NOT_CHECKED, text, name) for name in names)
        return
    totals = [sum(each[which] for name, each in logs.items() if name in shared) for logs in (log, *days)]
    whole = held(totals[0], totals[1:], "the arms of all these days" if of_tests else "the log", None, False)
    for name in names:
        known = [logs[name or None][which] for logs in days if (name or None) in logs]
        own = held(log[name or None][which], known, name, name, True) if len(known) >= ENOUGH else whole
        yield own if _ORDER.index(own.status) > _ORDER.index(whole.status) else replace(whole, experiment=name)


def _missing(days: Sequence[Log], here: set[str | None], level: sch.Status, names: Sequence[str]) -> lm.Checks:
    """Which experiments of most of the last days are not in the log, and not published on its date either."""
    known = {name for logs in days for name in logs if name is not None and name not in here}
    gone = sorted(str(name) for name in known if 2 * sum(name in logs for logs in days) > len(days))
    text = f"every experiment of the last {len(days)} published days is in the log"
    if gone:
        more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
        names_of_gone, are = ", ".join(gone[:MOST_NAMED]) + more, "is" if len(gone) == 1 else "are"
        text = lm.said("missing_experiments", names=names_of_gone, n=len(days), are=are, level=lm.SAID[level])
    status, n = level if gone else sch.OK, float(len(gone))
    yield from (sch.Check("experiments_missing", status, text, name, n, 0.0, 0.0 - n) for name in names)
