"""Checks of a log against what no result should be read without, and against earlier days."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date as day_of
from math import sqrt
from statistics import median

import numpy as np

from rankmetrics_spark import config as cfg, errors as err, metrics as mx, road, schemas as sch, statistics as st
from rankmetrics_spark.gates import counts as cn, limits as lm
from rankmetrics_spark.pointers import Pointers
from rankmetrics_spark.words import judged_apart, worded

NO_RELEVANT = "no_relevant_rate"
#: Above this share of the first ranks without a judgement, a person is warned.
MANY_UNJUDGED = 0.2
#: The same of the difference of that share between two experiments.
FAR_APART = 0.1
#: The same of the lists without a value of a segment in an experiment, and of its difference from the lowest share.
NEARLY_ALL, SEGMENTS_APART = 0.99, 0.2
GRADED, AGREEMENT = "graded_rate", "judge_agreement"
#: Where the smaller of two populations has this share of the other, they may be the same users.
ALIKE = 0.95


def log_checks(log: cn.Inspected, settings: cfg.Quality) -> list[sch.Check]:
    """Return what is wrong with the relevance, the segments and the judgements of a log, a row per experiment."""
    seen = {name: count for name, count in log.arms.items() if count["lists"]}
    kinds = [kind(log, seen, settings) for kind in (_nothing_relevant, _grades)]
    kinds += [kind(log, seen) for kind in (_segments, _judged, _population)]
    return [check for kind in kinds for check in kind]


def _nothing_relevant(log: cn.Inspected, counts: cn.Counts, settings: cfg.Quality) -> Iterator[sch.Check]:
    """Fail where no list has a relevant item, unless the user has set a limit of that rate; its own check reads it."""
    lists = log.total["lists"] - log.total["lists_outside"]
    reads_relevance = any(metric.definition.name != "judged" for metric in log.plan.scoring.metrics)
    is_limited = "fail" in settings.gates.get(NO_RELEVANT, {})
    if not lists or log.total["no_relevant"] < lists or is_limited or not reads_relevance:
        return
    options, (rule, *_) = log.plan.options, log.plan.scoring.conventions
    column = log.plan.mapping.get("relevance")
    cause = f"the clicks or grades in '{column}' ({options.path_of('columns')}.relevance)"
    if options.with_events:
        cause = f"{options.path_of('grades')}, and by which columns the events belong to the log"
    if log.plan.scoring.judged:
        cause = "the judgements"
    if rule.relevant_from:
        cause += f", and {options.path_of('convention')}.relevant_from, which is {rule.relevant_from:g}"
    whose = "the only list of the log has no" if lists == 1 else f"none of the {lists:,} lists of the log has a"
    sentence = lm.said("nothing_relevant", whose=whose, cause=cause, gates=settings.path_of("gates"), rate=NO_RELEVANT)
    for name in counts:
        yield sch.Check("nothing_relevant", sch.FAIL, sentence, name, 1.0, 1.0, 0.0)


def _population(log: cn.Inspected, counts: cn.Counts) -> Iterator[sch.Check]:
    """Warn where the population has different shares of the lists of experiments, so that other users are compared.

    Experiments with about as many lists in the population are likely those of the same users, such as judged queries.
    """
    known = {str(name): (count["lists_outside"], count["lists"]) for name, count in counts.items()}
    shares = sorted((1 - out / lists, name) for name, (out, lists) in known.items())
    inside = [lists - out for out, lists in known.values()]
    if len(shares) < 2 or min(inside) >= ALIKE * max(inside) or log.plan.options.list:
        return
    out, lists = ([np.array([known[name][at]], float) for _, name in (shares[0], shares[-1])] for at in (0, 1))
    if st.left_out_p(lists, out, [(each, each) for each in out])[0] >= sch.SMALL_RATIO_P:
        return
    (low, least), (high, most) = shares[0], shares[-1]
    ends, path = {"low": sch.share(low), "high": sch.share(high)}, log.plan.options.path_of("convention")
    sentence = lm.said("population", path=path, least=least, most=most, p=sch.SMALL_RATIO_P, **ends)
    for value, name in shares:
        yield sch.Check("population_difference", sch.WARN, sentence, name, high - value, 0.0)


@dataclass(frozen=True)
class Hits:
    """What is said where nobody has said which of several grades is a hit.

    Attributes:
        sentence: What to set.
        decides: Whether a primary metric asks which items are hits.
    """

    sentence: str
    decides: bool


def about_grades(log: cn.Inspected, limits: cfg.Limits) -> Hits | None:
    """What to say where relevance has several grades, and nobody has said from which on an item is a hit."""
    rule, path = log.plan.scoring.conventions[0], log.plan.options.path_of("convention")
    if rule.relevant_from or GRADED in limits or not log.total["graded_lists"]:
        return None
    readers = [metric for metric in log.plan.scoring.metrics if _reads_hits(metric, rule)]
    if not readers:
        return None
    decides = any(str(metric) in log.primary for metric in readers)
    of_metrics = "" if decides else f" for {', '.join(map(str, readers))}"
    return Hits(lm.said("grades", of_metrics=of_metrics, path=path, rate=GRADED), decides)


def _grades(log: cn.Inspected, counts: cn.Counts, settings: cfg.Quality) -> Iterator[sch.Check]:
    """Warn of such grades where they decide; elsewhere they are a note."""
    hits = about_grades(log, settings.gates)
    if hits and hits.decides:
        for name, count in counts.items():
            yield sch.Check("relevant_from", sch.WARN, hits.sentence, name, count["graded_lists"] / count["lists"], 0.0)


def _reads_hits(metric: mx.Metric, rule: mx.Convention) -> bool:
    """Whether a metric asks which items are hits; the others read their gains alone.

    >>> from rankmetrics_spark.metrics import STANDARD, parse
    >>> [_reads_hits(parse(name), STANDARD) for name in ("ndcg@10", "dcg", "judged@5", "ap@10", "err")]
    [False, False, False, True, True]
    >>> _reads_hits(parse("ndcg"), replace(STANDARD, gain="binary"))
    True
    """
    if metric.needs not in ("relevant", "judged"):
        return True
    stricter = replace(rule, relevant_from=2.0)
    for grades in ([1, 0, 3], [3, 0, 1], [1, 1, 0]):
        batch = mx.one_list(grades).batch
        if not np.array_equal(mx.compute(batch, [metric], rule), mx.compute(batch, [metric], stricter), equal_nan=True):
            return True
    return False


def _segments(log: cn.Inspected, counts: cn.Counts) -> Iterator[sch.Check]:
    """Warn where nearly all lists of an experiment have no value of a segment, or clearly more than those of another.

    Its column, or that of some files, may have gone. As many lists without a value in each experiment are ordinary.
    """
    path = log.plan.options.path_of("segments")
    for segment in log.plan.columns.segments if counts else ():
        shares = {str(name): count["without_segment"][segment] / count["lists"] for name, count in counts.items()}
        (low, _), (high, most) = (end((value, name) for name, value in shares.items()) for end in (min, max))
        limit = min(NEARLY_ALL, low + SEGMENTS_APART)
        if high < limit or high == limit < NEARLY_ALL:
            continue
        of_most = f" of {most}" if sch.share(low) != sch.share(high) else ""
        where = "any list" if low == 1 else f"{sch.share(high)} of the lists{of_most}"
        sentence = f"'{segment}' ({path}) has no value in {where}: check that every part of the log has the column"
        for name, value in shares.items():
            yield sch.Check("segment_rate", sch.WARN, sentence, name, value, limit, limit - value)


def _judged(log: cn.Inspected, counts: cn.Counts) -> Iterator[sch.Check]:
    """Whether the first ranks are judged, and alike in all experiments: an unjudged item counts as not relevant."""
    scoring = log.plan.scoring
    shares = {name: count["judged_top_items"] / count["top_items"] for name, count in counts.items()
              if scoring.looks_up and count["top_items"]}  # fmt: skip
    if not shares or scoring.machine:
        # A machine has judged the rest.
        return
    k, metric = scoring.top, f"judged@{scoring.top}"
    if not log.total["refuted"]:
        for name, value in shares.items():
            text = f"The judgements hold relevant items alone, so nothing says which of the top {k} are judged."
            yield sch.Check("judged_top_rate", sch.NOT_CHECKED, text, name, value, metric=metric)
        return
    (low, least), (high, most) = (end((value, str(name)) for name, value in shares.items()) for end in (min, max))
    spread = sch.share(low) if len(shares) == 1 else f"{sch.share(low)} ({least}) to {sch.share(high)} ({most})"
    text = f"{spread} of the items of the top {k} have a judgement; the others count as not relevant"
    for name, value in shares.items():
        status = sch.WARN if 1 - value > MANY_UNJUDGED else sch.OK
        margin = value - (1 - MANY_UNJUDGED)
        yield sch.Check("judged_top_rate", status, text, name, value, 1 - MANY_UNJUDGED, margin, metric=metric)
    if len(shares) > 1:
        apart = high - low > FAR_APART
        text = judged_apart(k, shares)
        text += f"; unjudged items count as not relevant, so {least} may be better than it looks" if apart else ""
        for name, value in shares.items():
            difference, status = high - value, sch.WARN if apart else sch.OK
            row = ("judged_difference", status, text, name, difference, FAR_APART, FAR_APART - difference)
            yield sch.Check(*row, metric=metric)


# ---- how a machine's labels agree with those of people on the same items


def with_agreement(found: lm.Findings, counts: road.LabelCounts, scaled: bool) -> lm.Findings:
    """The findings with the check of a judge; ``scaled``: whether it is said how grades of the two correspond.

    Raises:
        InputError: People judged an item that the machine did not, or the two have different highest grades.
    """
    n = sum(counts.values())
    if lacking := sum(count for (_, machine), count in counts.items() if machine is None):
        raise err.InputError(lm.said("no_label", lacking=lacking, n=n))
    highest = [max((pair[i] or 0.0 for pair in counts), default=0.0) for i in (0, 1)]
    if highest[0] != highest[1] and not scaled:
        raise err.InputError(lm.said("two_scales", highest=highest))
    check = agreement(counts)
    of_each = [replace(check, experiment=name) for name in found.counts]
    return replace(found, checks=(*found.checks, *of_each), notes=(*found.notes, check.sentence.rstrip(".")))


def agreement(counts: road.LabelCounts) -> sch.Check:
    """Cohen's kappa with a 95 % interval that takes items for independent ones, and the grades of both.

    >>> check = agreement({(0.0, 0.0): 45, (0.0, 1.0): 15, (1.0, 0.0): 25, (1.0, 1.0): 15})
    >>> print(check.sentence.replace(". P", ".\\nP"))
    The machine agrees with people on 60.0% of 100 items (kappa 0.13, -0.08 to 0.34).
    People -> machine: 0 -> 0: 45, 0 -> 1: 15, 1 -> 0: 25, 1 -> 1: 15.
    """
    n, people, machine = sum(counts.values()), Counter[float | None](), Counter[float | None]()
    for (ours, theirs), count in counts.items():
        people[ours] += count
        machine[theirs] += count
    same = sum(count for (ours, theirs), count in counts.items() if ours == theirs) / max(n, 1)
    chance = sum(people[grade] * machine[grade] for grade in people) / max(n, 1) ** 2
    if chance == 1 or not n:
        return sch.Check(AGREEMENT, sch.NOT_CHECKED, f"All of {n:,} items that people judged have one grade")
    kappa, half = (same - chance) / (1 - chance), 1.96 * sqrt(same * (1 - same) / n) / (1 - chance)
    table = ", ".join(f"{ours:g} -> {theirs:g}: {counts[ours, theirs]:,}" for ours, theirs in sorted(counts))
    text = lm.said("agreement", same=same, n=n, kappa=kappa, low=kappa - half, high=kappa + half, table=table)
    return sch.Check(AGREEMENT, sch.OK, text, observed=kappa)


# ---- a log against its own past: its rows, users and experiments beside those of the last published days

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
