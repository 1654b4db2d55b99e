"""How an effect develops: per day, up to each day, by days since a user's first date, in one pass over the users."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from rankmetrics_spark import config as cfg, engines as eng, schemas as sch, statistics as st
from rankmetrics_spark.comparison import compared, daily, measures as ms, periods, sums as summed, table as tables
from rankmetrics_spark.comparison.columns import means, test
from rankmetrics_spark.comparison.daily import doubts_of_days, doubts_of_mix
from rankmetrics_spark.comparison.families import Question, intervals_at, levels_of
from rankmetrics_spark.comparison.rows import STATISTICS, table_of_sums
from rankmetrics_spark.words import worded

#: Columns of an effect over time -> their types.
OVER_TIME = ms.TABLES["effect_over_time"]
_DATE_LABEL, _LISTS, _WEIGHT = "date", "_lists", "_weight_"


def over_time(table: tables.UserTable, request: cfg.Comparison, start: str | None) -> DataFrame:
    """One row per pair, metric, kind and label, from one row per user and date; see ``effect_over_time``."""
    tables.check_column(table.rows.columns, sch.DATE)
    periods.refuse_other_types(table.rows)
    # A plan counts looks at the whole period, and says nothing about its parts.
    looks = "any" if request.looks == "any" else "one"
    plain = replace(
        request, looks=looks, bootstrap=None, randomization=None, aa_check=None, shares=None, wilcoxon=False
    )
    dated = replace(table, segments={_DATE_LABEL: sch.DATE}, combinations=(), within={})
    weights = {str(metric): f"{_WEIGHT}{metric.column}" for metric in table.metrics}
    metrics = tuple((str(metric), metric.column) for metric in table.metrics)
    columns = (*metrics, *((column, column) for column in (_LISTS, *weights.values())))
    layout = summed.Layout(columns, (_DATE_LABEL,))
    body = partial(_sums_of_days, layout=layout, weights=weights, request=plain, start=start)
    # The lists of each row, and those that have a value of each metric: null where that is unknown.
    stored = table.rows.columns
    numbers = [f"double({sch.N_LISTS if sch.N_LISTS in stored else 1}) AS {_LISTS}"]
    for metric in table.metrics:
        with_value = sch.lists_with_value(metric.column)
        numbers.append(f"double({with_value if with_value in stored else 'null'}) AS {weights[str(metric)]}")
    parts = eng.Step(body, summed.PARTIALS).of(tables.by_user(dated, *numbers, *summed.alike_columns(table.alike)))
    whole = eng.Step(summed.added, summed.PARTIALS).of(parts.repartition(*ms.KEY))
    return table_of_sums(whole, partial(over_time_rows, question=Question.of(plain, table), start=start), OVER_TIME)


def _sums_of_days(
    batches: eng.Batches, layout: summed.Layout, weights: Mapping[str, str], request: cfg.Comparison, start: str | None
) -> Iterator[pa.RecordBatch]:
    totals = ms.Totals()
    for rows in summed.whole_users(summed.noted(batches, totals), layout):
        _, (labels, code) = rows.segments
        texts = [label.partition("=")[2] for label in labels]
        periods.refuse_other_values(texts)
        dates = np.array(texts, "datetime64[D]")
        own = {metric: rows.values[metric] for metric in weights}
        with_value = {metric: rows.values[column] for metric, column in weights.items()}
        days = daily.UserDays.of(replace(rows, values=own), dates[code], rows.values[_LISTS], with_value)
        daily.add_days(totals, days, request, start)
    yield from summed.as_batches(totals)


def over_time_rows(totals: ms.Totals, question: Question, start: str | None = None) -> dict[str, Any]:
    """The rows of an effect over time, column by column.

    Args:
        totals: Of all users, as ``add_days`` adds them up.
        question: Which pairs, and how rows are made.
        start: First date of the experiment.

    Raises:
        ConfigError: There is no experiment with the name of the baseline or of a candidate.
    """
    summed.refuse_several(totals)
    with np.errstate(all="ignore"):
        # The sums with those up to each day, in place of the states that begin and end there.
        changes: dict[ms.Key, dict[str, st.Ints]] = defaultdict(dict)
        running, of_days = ms.Totals(), ms.Totals()
        of_slopes = {kind: ms.Totals() for kind in (daily.SLOPE, daily.BETWEEN)}
        for key, sums in totals.sums.items():
            kind, _, date = key.segment.partition("=")
            if kind not in (daily.ENTERING, daily.LEAVING):
                if kind in of_slopes:
                    of_slopes[kind].add(key._replace(segment=sch.EVERYONE), sums)
                    of_slopes[kind].sums[key] = sums
                else:
                    (of_days if key.kind == "day" else running).sums[key] = sums
                if kind == daily.DAY and key.kind == "arm":
                    arm = st.Sums(ms.KINDS["arm"], sums[None])
                    parts = int(arm["v"][0]) * ms.VALUE_UNIT >> st.LIMB_UNIT
                    of_values = np.array([arm["n"][0], parts], np.int64)
                    of_days.sums[key._replace(kind="day_values", segment=date)] = of_values
                continue
            of_key = changes[key._replace(segment="")]
            of_key[date] = of_key.get(date, 0) + (sums if kind == daily.ENTERING else -sums)
        dates = sorted({date for of_key in changes.values() for date in of_key})
        for key, of_key in changes.items():
            state: Any = 0
            for date in dates:
                state = state + of_key.get(date, 0)
                if np.any(state):
                    running.sums[key._replace(segment=f"{daily.CUMULATIVE}={date}")] = state
        rows = compared.Compared.of(running, replace(question, only_t=True))
        doubts = _doubts(of_days, rows)
        columns = _points(rows, start, doubts)
        of_pairs = {daily.SLOPE: doubts, daily.BETWEEN: _doubts_by_date(of_days, rows)}
        made = [columns, *(_slopes(kind, of_slopes[kind], rows, of_kind) for kind, of_kind in of_pairs.items())]
        merged = {name: [value for part in made for value in part[name]] for name in OVER_TIME}
    fields = (merged[name] for name in (sch.BASELINE, sch.EXPERIMENT, sch.METRIC, "kind", "day_number"))
    places = [
        (baseline is None, baseline, candidate is None, candidate, metric, daily.KINDS.index(kind), day or 0)
        for baseline, candidate, metric, kind, day in zip(*fields, strict=True)
    ]
    order = sorted(range(len(places)), key=places.__getitem__)
    return {name: [values[i] for i in order] for name, values in merged.items()}


#: (g,) why a row about several days cannot be trusted.
Doubts = Sequence[str | None]
#: Of a difference, and of the same as a share.
Tests = Sequence[st.Estimate]


def _doubts(of_days: ms.Totals, rows: compared.Compared) -> Doubts:
    """Why rows about several days cannot be trusted; those up to a date know no later one."""
    parts = (key.segment.partition("=")[::2] for key in rows.keys)
    whole_kinds = {daily.SINCE_FIRST: "", sch.EVERYONE: ""}
    until = [label if kind == daily.CUMULATIVE else whole_kinds.get(kind) for kind, label in parts]
    whole = doubts_of_days(of_days, {(key.baseline, key.candidate) for key in rows.keys})
    known = {"": whole}
    for date in {*filter(None, until)} if whole else ():
        sums = {key: counts for key, counts in of_days.sums.items() if key.segment <= date}
        known[date] = doubts_of_days(replace(of_days, sums=sums), whole)
    mix, doubts = doubts_of_mix(rows, of_days, until), []
    for i, (key, last) in enumerate(zip(rows.keys, until, strict=True)):
        words = None if last is None else known.get(last, whole).get((key.baseline, key.candidate)) or mix.get(i)
        doubts.append(words and f"{sch.NOT_TRUSTED}: {words}")
    return doubts


def _doubts_by_date(of_days: ms.Totals, rows: compared.Compared) -> Doubts:
    """Why a row about users of the same dates cannot be trusted: the mix of dates does not matter there."""
    known = doubts_of_days(of_days, {(key.baseline, key.candidate) for key in rows.keys}, by_date=True)
    of_keys = (known.get((key.baseline, key.candidate)) for key in rows.keys)
    return [words and f"{sch.NOT_TRUSTED}: {words}" for words in of_keys]


def _points(rows: compared.Compared, start: str | None, doubts: Doubts) -> dict[str, list[Any]]:
    """The differences of days, periods and days since the first date."""
    kinds, labels = zip(*(key.segment.partition("=")[::2] for key in rows.keys), strict=True)
    first = min((label for kind, label in zip(kinds, labels, strict=True) if kind == daily.DAY), default="")
    # Only the sums up to a day grow from look to look; a day is looked at once.
    growing = np.array([kind == daily.CUMULATIVE for kind in kinds])
    at_once = replace(rows, question=replace(rows.question, request=replace(rows.request, looks="one")))
    relative = rows.deciding_relative.where(growing, at_once.deciding_relative)
    deciding = rows.deciding.where(growing, at_once.deciding)
    looks = np.where(growing & (rows.request.looks == "any"), "every look", "a single look")
    before = np.array([kind == daily.BEFORE for kind in kinds]) & ~rows.paired
    p = np.where(before, deciding.p_value, np.nan)
    p_before = st.adjusted_p_values(p, rows.request.correction)
    alpha = 1 - rows.request.confidence
    levels = levels_of(p, p_before, rows.request.correction, alpha)
    at_levels = intervals_at(1 - levels, rows.single, rows.single_denominator)
    corrected = [st.with_decision(each, p_before < alpha) for each in at_levels]
    # No other row is corrected.
    shown = [new.where(before, old) for new, old in zip(corrected, (deciding, relative), strict=True)]
    columns: dict[str, Any] = {
        **_columns(rows, (deciding, relative), p_before, shown, means(rows)),
        "kind": kinds,
        "label": [start if kind == daily.BEFORE else label for kind, label in zip(kinds, labels, strict=True)],
        "day_number": [_day_number(*each, first) for each in zip(kinds, labels, strict=True)],
        "test": _chosen(growing.tolist(), test(rows), test(at_once)),
        "valid_at": looks.tolist(),
        "note": _notes(_chosen(growing.tolist(), rows.doubts, at_once.doubts), doubts),
    }
    # The same users have the same past in both experiments: it says nothing about the split.
    kept = [i for i, kind in enumerate(kinds) if kind in daily.KINDS and (kind != daily.BEFORE or not rows.paired[i])]
    return {name: [values[i] for i in kept] for name, values in columns.items()}


def _chosen(these: Sequence[Any], one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """Row by row what is said of ``these``, else of the others."""
    return [first if this else second for this, first, second in zip(these, one, other, strict=True)]


def _notes(known: Sequence[str | None], doubts: Doubts) -> list[str | None]:
    """Why a row has no test, else why its numbers cannot be trusted."""
    return [note or doubt for note, doubt in zip(known, doubts, strict=True)]


def _columns(
    rows: compared.Compared, tests: Tests, p_adjusted: st.Floats, corrected: Tests, of_sides: Sequence[st.Floats]
) -> dict[str, Any]:
    """What each row has: its names, its test and the same as a share of the baseline, and both corrected."""
    (plain, relative), (absolute, share) = tests, corrected
    adjusted = (absolute.ci_low, absolute.ci_high, share.ci_low, share.ci_high)
    columns: dict[str, Any] = {}
    for name in ("names", "n_users", "design", "test", "confidence"):
        columns |= STATISTICS[name].values(rows)
    return {
        **columns,
        **dict(zip(("mean_baseline", "mean_candidate"), of_sides, strict=True)),
        **{name: getattr(plain, name) for name in ("difference", "ci_low", "ci_high", "p_value")},
        **{f"relative_{name}": getattr(relative, name) for name in ("difference", "ci_low", "ci_high")},
        "p_adjusted": p_adjusted,
        **dict(zip((f"{sch.ADJUSTED}_{name}" for name in sch.BOUNDS), adjusted, strict=True)),
    }


def _day_number(kind: str, label: str, first: str) -> int | None:
    """Days since the first day of the period, or since a user's first date."""
    if kind == daily.SINCE_FIRST:
        return int(label)
    if kind in (daily.DAY, daily.CUMULATIVE):
        return int((np.datetime64(label) - np.datetime64(first)).astype(int))
    return None


def _slopes(kind: str, slopes: ms.Totals, points: compared.Compared, doubts: Doubts) -> dict[str, list[Any]]:
    """How much each difference changes per day since a user's first date, or per day that users come later.

    Within users it comes from the slopes of the users themselves, between users from what they have on their first day.
    """
    places = [i for i, key in enumerate(points.keys) if key.segment == sch.EVERYONE]
    keys, paired = [points.keys[i] for i in places], points.paired[places]
    notes = [(i, points.doubts[i] or "") for i in places]
    of_whole = [doubts[i] or (note if note.startswith(sch.NOT_TRUSTED) else None) for i, note in notes]
    # The mean of the slopes, weighted by their information, is that of a mean over lists.
    over = "lists" if kind == daily.SLOPE else "users"
    request = replace(points.request, mean_over=over, looks="one", cuped=None)
    plain = replace(points.question, request=request, earlier=False, days=None)
    rows = compared.Compared(slopes, plain, keys, slopes.sides("arm", keys), slopes.of("pair", keys), paired)
    slope = rows.estimate if kind == daily.SLOPE else _between(rows)
    n, alpha, known = len(keys), 1 - request.confidence, (~np.isnan(slope.p_value)).tolist()
    base, mean = (each[places] for each in means(points))
    share = np.where(base > 0, base, np.nan)
    p_adjusted = st.adjusted_p_values(slope.p_value, request.correction)
    levels = levels_of(slope.p_value, p_adjusted, request.correction, alpha)
    corrected = st.with_decision(slope.within(st.critical_value(slope.df, 1 - levels)), p_adjusted < alpha)
    texts = {"kind": kind, "label": _LABELS[kind], "valid_at": "a single look"}
    # Shares of numbers that count as known.
    names = ("difference", "ci_low", "ci_high")
    of = [(each, replace(each, **{name: getattr(each, name) / share for name in names})) for each in (slope, corrected)]
    columns: dict[str, Any] = {
        **_columns(rows, of[0], p_adjusted, of[1], (base, mean)),
        **{name: [text] * n for name, text in texts.items()},
        "day_number": [None] * n,
        "note": _notes([None if each else worded(_NO_SLOPE) for each in known], of_whole),
    }
    columns["test"] = _chosen(known, columns["test"], [None] * n)
    return {name: list(each) for name, each in columns.items()}


#: What each slope is per day of.
_LABELS = {daily.SLOPE: "per day since the first date", daily.BETWEEN: "per day of a later first date"}
_NO_SLOPE = "no slope: too few users with values on different days"


def _between(rows: compared.Compared) -> st.Estimate:
    """How much the difference on a user's first day changes with its date, by least squares over these dates.

    Users are compared with those of the same first date: that is a regression with a level for each date. The error
    comes from the spread within each date and experiment, so that no line has to fit. Dates with one user count not.
    """
    dates = sorted({key.segment for key in rows.totals.sums} - {sch.EVERYONE})
    cells, confidence = [], rows.request.confidence
    for date in dates:
        keys = [key._replace(segment=date) for key in rows.keys]
        at = replace(rows, keys=keys, arms=rows.totals.sides("arm", keys), both=rows.totals.of("pair", keys))
        test = st.paired_t(at.pair.difference, confidence).where(rows.paired, st.welch(*at.moments, confidence))
        a, b = (sums["n"].astype(float) for sums in at.arms)
        weight = np.where(np.isnan(test.standard_error), 0.0, np.where(rows.paired, at.both["both"], a * b / (a + b)))
        cells.append((weight, test.difference, test.standard_error**2, test.df))
    weight, difference, error, df = np.array(cells).reshape(len(dates), 4, len(rows.keys)).swapaxes(0, 1)
    day = np.array([date.partition("=")[2] for date in dates], "datetime64[D]").astype(float)[:, None]
    used = weight > 0
    apart = day - (weight * day).sum(0) / weight.sum(0)
    lever = weight * apart / (weight * apart**2).sum(0)
    parts = np.where(used, lever**2 * error, 0.0)
    slope = np.where(used.sum(0) > 1, np.where(used, lever * difference, 0.0).sum(0), np.nan)
    df = parts.sum(0) ** 2 / np.where(used, parts**2 / df, 0.0).sum(0)
    error = np.sqrt(np.where(parts.sum(0) > 0, parts.sum(0), np.nan))
    return st.Estimate.of(slope, error, df, confidence).where(rows.testable, st.NO_ESTIMATE)
