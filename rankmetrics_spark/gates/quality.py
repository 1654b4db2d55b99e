"""Quality gates of a log: count its lists and faulty rows, refuse it before anything is written, or warn of it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias
from unicodedata import normalize

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import config as cfg, engines as eng, errors as err, road, schemas as sch, statistics as st
from rankmetrics_spark.gates import built_in, counts as cn, limits as lm
from rankmetrics_spark.words import UNIT, UNITS, counted

#: Returns what earlier runs have recorded of the quality of these experiments: see ``Findings.previous``.
Previous: TypeAlias = Callable[[Iterable[str]], Mapping[str, Any]]
#: A message names at most this many experiments or ids.
MOST_NAMED = 3


# ---- rates, warnings and notes


def findings(log: cn.Inspected, limits: cfg.Limits, previous: Previous | None) -> lm.Findings:
    """Return counts, rates, warnings and notes of a log, compared with no limit yet."""
    scoring = log.plan.scoring
    names = ["duplicate_rate", "gap_rate" if scoring.by_position else "tie_rate"]
    names += ["short_rate"] if cn.longest_cut(log.plan) else []
    # Where people judged a sample and a machine all, their labels say nothing about the other lists.
    names += [] if scoring.machine else ["no_relevant_rate", *(["unjudged_rate"] if scoring.judged else [])]
    names += [built_in.GRADED] if built_in.GRADED in limits else []
    hits = built_in.about_grades(log, limits)
    notes = (*_notes_about(log), *([hits.sentence] if hits and not hits.decides else []))
    counts = {name: {key: n for key, n in c.items() if key not in cn.UNRECORDED} for name, c in log.counts.items()}
    per_arm = {name: lm.rates([count], names) for name, count in log.arms.items() if count["lists"]}
    overall = lm.rates(log.arms.values(), names)
    assigned = log.tables.assignment_counts
    if assigned and assigned.mixed_rate is not None:
        overall[lm.MIXED] = assigned.mixed_rate
    if lm.SHARED in limits and assigned is None:
        # Shuffles ids only.
        pairs = log.tables.outcome.where(F.col(sch.REJECTED).isNull()).select(sch.EXPERIMENT, sch.USER).distinct()
        users = pairs.groupBy(sch.USER).agg(F.count(F.lit(1)).alias("n"))
        share = users.agg(F.avg(F.when(F.col("n") > 1, 1.0).otherwise(0.0))).first()
        overall[lm.SHARED] = float(share[0]) if share and share[0] is not None else 0.0
    if (events := log.tables.event_counts) is not None:
        open_share = log.tables.open_share
        of_events = {lm.UNMATCHED: road.unmatched_rate(events), lm.OPEN: open_share}
        overall |= {name: share for name, share in of_events.items() if share is not None}
        notes += (*lm.events_in_words(events, open_share),)
    before = previous(per_arm) if previous else {}
    return lm.Findings(counts, per_arm, overall, before, tuple(_warnings_about(log)), notes, events=events)


def _warnings_about(log: cn.Inspected) -> Iterator[str]:
    """Warn of what has no limit, one sentence each."""
    for name, count in log.arms.items():
        if not count["lists"]:
            yield f"experiment '{name}' has no result: all {count['rows']:,} of its rows are faulty"
    alike: dict[str, list[str]] = {}
    for name in sorted(map(str, log.arms)):
        letters = (c for c in normalize("NFC", name).casefold() if c.isprintable() and not c.isspace())
        alike.setdefault("".join(letters), []).append(repr(name) if normalize("NFC", name) == name else ascii(name))
    for names in (names for names in alike.values() if len(names) > 1):
        yield f"the experiments {' and '.join(names)} look alike; are they one?"
    if ranks_seem_to_start_at_0(log):
        n, setting = log.total["below_first_rank"], log.plan.options.path_of("first_rank")
        yield lm.said("below_1", n=n, setting=setting)
    lists = log.total["lists"]
    if log.plan.columns.first_rank == 0 and 0 < lists <= log.total["gaps"]:
        yield lm.said("gaps", lists=lists, setting=log.plan.options.path_of("first_rank"))
    if mixed := log.total["mixed_segments"]:
        path = log.plan.options.path_of("segments")
        yield f"{mixed:,} lists have rows in different segments ({path}); each counts for the smallest of their values"
    if (judged := log.tables.judgement_counts) and judged.reasons:
        n, rows, why = judged.counts["invalid"], judged.counts["rows"], _spoken(judged.reasons)
        yield f"{n:,} of {rows:,} judgements ({n / rows:.2%}) are faulty and left out; reasons: {why}"
    columns = log.plan.columns
    if columns.list and columns.segments:
        # Shuffles ids and segments.
        conditions = {name: f"count({name}) > 0 AND {sch.only_value(name)} IS NULL" for name in columns.segment_columns}
        users = log.tables.outcome.where(F.col(sch.REJECTED).isNull()).groupBy(sch.EXPERIMENT, sch.USER)
        conflicts = users.agg(*(F.expr(f"{sql} AS {name}") for name, sql in conditions.items()))
        found = conflicts.agg(*(F.expr(f"count_if({name}) AS {name}") for name in conditions)).first()
        for name, segment in zip(conditions, columns.segments, strict=True):
            if found and found[name]:
                yield lm.said("several_segments", n=found[name], segment=segment)


def _notes_about(log: cn.Inspected) -> Iterator[str]:
    """Return what readers of the numbers should know, one sentence each."""
    (rule, *_), path = log.plan.scoring.conventions, log.plan.options.path_of("convention")
    if negative := log.total["negative_grades"]:
        yield f"{negative:,} rows have a grade below 0, which is not relevant; leave them out if it stands for no label"
    if lists := log.total["lists_outside"]:
        every, rows = (log.total[name] for name in ("lists", "rows_outside"))
        yield lm.said("outside_population", lists=lists, every=every, rows=rows, path=path, rule=rule)
    judged = log.tables.judgement_counts
    yield from lm.notes_about_ids(log.counts, judged.called_missing if judged else 0)
    if rule.unjudged == "removed":
        shares = [(count["judged_items"] / (count["evaluated"] or 1), name) for name, count in log.arms.items()]
        (low, least), (high, most) = min(shares, default=(1.0, "")), max(shares, default=(1.0, ""))
        if low < 1:
            n = log.total["evaluated"] - log.total["judged_items"]
            spread = f": {1 - low:.1%} of '{least}', {1 - high:.1%} of '{most}'" if low < high else f" ({1 - low:.1%})"
            yield f"{n:,} shown items have no judgement and are removed from their lists ({path}.unjudged){spread}"


def within_limits(findings: lm.Findings, limits: cfg.Limits, others: Sequence[sch.Check] = ()) -> lm.Findings:
    """Raise an error for rates beyond ``fail``; add a warning for each rate beyond ``warn``, and the rows of all.

    ``others`` are checks that have no limit of the user.
    """
    checks = [*others, *lm.rate_checks(findings, limits)]
    # A rate of the whole log has a row in each experiment.
    said = {each: [*dict.fromkeys(c.sentence for c in checks if c.status == each)] for each in (sch.FAIL, sch.WARN)}
    failures, warnings = said[sch.FAIL], said[sch.WARN]
    if failures:
        more = f"; and {len(failures) - MOST_NAMED} more" if len(failures) > MOST_NAMED else ""
        error = err.QualityError("; ".join(failures[:MOST_NAMED]) + more)
        error.checks = tuple(checks)
        raise error
    return replace(findings, warnings=(*findings.warnings, *warnings), checks=tuple(checks))


def faulty_checks(arms: cn.Counts, allowed: float) -> list[sch.Check]:
    """Return the share of faulty rows of each experiment against what is allowed."""
    checks = []
    for name, count in arms.items():
        n, rows = count["quarantined"], count["rows"]
        share, sentence = n / rows, f"{n:,} of {rows:,} rows of experiment '{name}' are faulty ({n / rows:.2%})"
        status = sch.FAIL if share > allowed else sch.OK
        checks.append(sch.Check("faulty_rate", status, sentence, name, share, allowed, allowed - share))
    return checks


def ranks_seem_to_start_at_0(log: cn.Inspected) -> bool:
    """Whether there is at least one row with a rank below 1 for each list."""
    below = log.total["below_first_rank"]
    return log.plan.columns.first_rank == 1 and 0 < log.total["lists"] <= below


# ---- what a run refuses


def check_quality(log: cn.Inspected, settings: cfg.Quality, previous: Previous | None = None) -> lm.Findings:
    """Count the rows and lists of a log; raise an error if its result would be wrong."""
    if not log.total["rows"]:
        raise err.InputError(f"the input is empty: no rows in {log.place}")
    try:
        # As trec_eval does.
        rule = log.plan.scoring.conventions[0]
        if rule.duplicates == "refuse" and log.total["repeated"] and log.plan.columns.item:
            repeats = log.tables.repeated.where(F.col(sch.REASON) == "duplicate_item").count()
            if repeats:
                n_rows, hint = log.total["rows"], _several_lists(log)
                raise err.QualityError(lm.said("repeats_refused", n=repeats, n_rows=n_rows, rule=rule, hint=hint))
        _refuse_faulty(log, settings)
        # The items of faulty judgements would count as not judged.
        judged = log.tables.judgement_counts
        if judged and judged.counts["invalid"] > settings.allowed_fraction * judged.counts["rows"]:
            n, rows = judged.counts["invalid"], judged.counts["rows"]
            share, reasons = f"{n / rows:.2%}, {_allowed(settings)}", _spoken(judged.reasons)
            raise err.QualityError(lm.said("faulty_judgements", n=n, rows=rows, share=share, reasons=reasons))
        if (assigned := log.tables.assignment_counts) and assigned.faulty > settings.allowed_fraction * assigned.rows:
            share = f"{assigned.faulty / assigned.rows:.2%}, {_allowed(settings)}"
            raise err.QualityError(lm.said("faulty_assignments", assigned=assigned, share=share))
        _refuse_large_values(log)
    except err.QualityError as error:
        checks = faulty_checks(log.arms, settings.allowed_fraction)
        whole = [] if any(check.status == sch.FAIL for check in checks) else [sch.Check("log", sch.FAIL, str(error))]
        error.checks = (*checks, *whole)
        raise
    _refuse_foreign_judgements(log)
    found = findings(log, settings.rates, previous)
    return within_limits(found, settings.rates, built_in.log_checks(log, settings))


def _refuse_faulty(log: cn.Inspected, settings: cfg.Quality) -> None:
    """Refuse too many faulty rows, over all and in each experiment."""
    allowed = settings.allowed_fraction
    rows, n_faulty = log.total["rows"], log.total["quarantined"]
    from_rank = log.plan.options.path_of("first_rank")
    affected = {name: c for name, c in log.arms.items() if c["quarantined"] / c["rows"] > allowed}
    if n_faulty / rows > allowed:
        sentence, faulty = f"{n_faulty} of {rows} rows are faulty ({n_faulty / rows:.2%}", log.tables.outcome
    elif affected:
        n_faulty, rows = (sum(count[name] for count in affected.values()) for name in ("quarantined", "rows"))
        sentence = f"{n_faulty} of {rows} rows of {_experiment_names(affected)} are faulty ({n_faulty / rows:.2%}"
        faulty = log.tables.outcome.where(F.col(sch.EXPERIMENT).isin([*affected]))
    else:
        if ranks_seem_to_start_at_0(log) and allowed < 1:
            # Without the faulty rows, the other ranks would be off by one.
            below, lists = (log.total[name] for name in ("below_first_rank", "lists"))
            raise err.QualityError(lm.said("ranks_from_0", below=below, lists=lists, setting=from_rank))
        return
    emptied = {name: c for name, c in log.arms.items() if not c["lists"]}
    reason_counts = cn.reasons(faulty)
    most, n = next(iter(reason_counts.items()))
    is_rank = most == f"unreadable_{sch.POSITION}"
    such = "whole numbers such as 1" if is_rank else "numbers such as 0.5, with decimal points"
    unread = f"; allowed: {such}" * most.startswith("unreadable_")
    hints = {cn.REPEATED: _several_lists(log), "position_below_1": f"; if your ranks start at 0, set {from_rank} to 0"}
    # Advice only on a reason that explains most faulty rows.
    hint = hints.get(most, unread) if 2 * n > n_faulty else ""
    none = f"; {_experiment_names(emptied)} would have no result" if emptied else ""
    raise err.QualityError(f"{sentence}, {_allowed(settings)}){none}; reasons: {_spoken(reason_counts)}{hint}")


def _allowed(settings: cfg.Quality) -> str:
    """What is allowed, and which setting says so."""
    key = "on_invalid" if settings.on_invalid == "fail" else "max_invalid_fraction"
    return f"allowed {settings.allowed_fraction:.2%}: {settings.path_of(key)} is {getattr(settings, key)}"


def _spoken(reason_counts: cn.Reasons) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in reason_counts.items())


def _experiment_names(counts: cn.Counts) -> str:
    """Name experiments, the one with the largest share of faulty rows first.

    >>> _experiment_names({"a": {"quarantined": 1, "rows": 2}, "b": {"quarantined": 2, "rows": 2}})
    "experiments 'b', 'a'"
    """
    ordered = sorted(counts, key=lambda name: (-counts[name]["quarantined"] / counts[name]["rows"], name))
    names = ", ".join(f"'{name}'" for name in ordered[:MOST_NAMED])
    more = f" and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else ""
    return f"experiment{'s' if len(counts) > 1 else ''} {names}{more}"


def _several_lists(log: cn.Inspected) -> str:
    if log.tags:
        return "; if several files have the same tag, set source.experiment_from to file"
    if log.plan.columns.list:
        return ""
    return f"; if {UNITS} have several requests each, set {log.plan.options.path_of('list')} to the request's column"


# ---- values and judgements


def _refuse_large_values(log: cn.Inspected) -> None:
    """Refuse a value that is too large to be summed; name the highest grade of the impressions and the judgements."""
    beyond = [(name, column) for name, count in log.counts.items() for column in count["beyond_sums"]]
    if not beyond:
        return
    name, column = beyond[0]
    metric, hint = next(each for each in log.plan.scoring.metrics if each.column == column), ""
    if metric.needs != "scores":
        tables = [log.tables.rows.where(F.col(sch.REJECTED).isNull()).select(sch.RELEVANCE)]
        tables = tables if log.plan.columns.relevance else []
        if log.tables.judgements is not None:
            tables.append(_typed(log, log.tables.judgements).where(f"{road.FAULTY} IS NULL").select(road.GRADE))
        rows = (table.agg(F.max(F.col(table.columns[0]).cast("double"))).first() for table in tables)
        highest = max(float(row[0]) for row in rows if row and row[0] is not None)
        hint = f"; the highest grade is {highest:g}, and the gain is {log.plan.scoring.conventions[0].gain}"
    # Of a metric with a maximum, it is the gains of a list that have no sum.
    if math.isfinite(metric.definition.range[1]):
        raise err.QualityError(lm.said("gains_too_large", metric=metric, name=name, hint=hint))
    raise err.QualityError(lm.said("too_large", metric=metric, name=name, most=st.LARGEST_SUMMAND, hint=hint))


def _typed(log: cn.Inspected, judged: DataFrame) -> DataFrame:
    return road.typed_judgements(judged, log.plan.judgement_mapping, log.plan.options.text_numbers)


def _refuse_foreign_judgements(log: cn.Inspected) -> None:
    """Refuse judgements that match no shown user or no shown item: every value would be 0."""
    if log.tables.judgements is None or not log.total["lists"]:
        return
    typed = _typed(log, log.tables.judgements)
    sound = log.tables.rows.where(F.col(sch.REJECTED).isNull())
    name = sch.USER if not log.total["judged_lists"] else sch.ITEM
    # Check items only if relevance comes from the judgements; judged items may all be irrelevant.
    if name == sch.ITEM and (log.plan.columns.relevance or log.total["judged_items"]):
        return
    if sound.join(typed.where(F.col(name).isNotNull()), name, "left_semi").isEmpty():
        shown, judged = _some_shapes(sound, name), _some_shapes(typed, name)
        if judged == "none":
            cure = lm.said("judged_by_machine") if log.tables.plan.scoring.machine else ""
            raise err.InputError(lm.said("nothing_judged", cure=cure))
        raise err.InputError(lm.said("other_ids", name=name, shown=shown, judged=judged))


def _some_shapes(table: DataFrame, name: str) -> str:
    ids = table.select(name).distinct().limit(MOST_NAMED)
    return ", ".join(dict.fromkeys(repr(err.shape(row[name])) for row in eng.few_rows(ids))) or "none"


# ---- arms of tests, where assignments say who is in which


def with_arms(found: lm.Findings, log: cn.Inspected, allowed: cfg.Quality) -> lm.Findings:
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
    known = cn.row_counts(log.tables.outcome_of_arms, log.plan)
    none = {name: 0 for name, n in whole.items() if isinstance(n, int)}
    counts: cn.Counts = {}
    for name in sorted({arm for test in assigned.tests.values() for arm in test["arms"]} | {*known} - {None}, key=str):
        count = {key: n for key, n in known.get(name, none).items() if key not in cn.UNRECORDED}
        counts[name] = count | {"rows": count["evaluated"], "quarantined": 0, "repeated": 0}
        counts[name]["left_out"] = n = count["quarantined"]
        if n > allowed.allowed_fraction * (count["evaluated"] + n):
            share = f"{n / (count['evaluated'] + n):.2%}, allowed {allowed.allowed_fraction:.2%}"
            raise err.QualityError(f"{n:,} rows of {UNITS} of experiment '{name}' are faulty ({share})")
    if not any(count["lists"] for count in counts.values()):
        raise err.InputError(lm.said("other_assignments"))
    outside, n_out = known.get(None, none), whole["quarantined"]  # type: ignore[call-overload]
    rows = outside["evaluated"] + n_out
    of_none = {"rows": rows, "no_experiment": rows, "evaluated": outside["evaluated"], "rows_outside": 0}
    counts[None] = none | of_none | {"quarantined": n_out, "repeated": whole["repeated"]}  # type: ignore[index]
    # A check of the whole log has a row in each experiment.
    arms = [name for name in counts if name is not None and counts[name]["lists"]]
    checks = tuple(replace(check, experiment=name) for check in found.checks for name in arms)
    notes = (*found.notes, *_in_words(assigned, counts, outside["lists"], whole["lists"]))
    return replace(found, counts=counts, log=whole, checks=checks, notes=notes, assigned=assigned)


def _in_words(assigned: road.AssignmentCounts, counts: cn.Counts, outside: int, lists: int) -> Iterator[str]:
    """What readers should know of the assignments, one sentence each."""
    if assigned.repeated:
        yield lm.said("assigned_again", assigned=assigned)
    if assigned.faulty:
        yield f"{assigned.faulty:,} of {assigned.rows:,} assignments lack a test, an arm, a {UNIT} or a time"
    for test, count in assigned.tests.items():
        if n := count["mixed"]:
            of = "" if test is None else f" of the test '{test}'"
            yield f"{counted(n)} {'is' if n == 1 else 'are'} in several arms{of}, and left out of it"
    if outside:
        yield f"{outside:,} of {lists:,} lists are of {UNITS} in no test, or from before their exposure to each"
    if silent := [name for name, count in counts.items() if name is not None and not count["lists"]]:
        yield f"no {UNIT} has a list in {', '.join(silent)}, so there is no comparison with it"
