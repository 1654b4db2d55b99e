"""Figures of a period, from the stored users of its days and the records of their runs; figures of a result."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from rankmetrics_spark import comparison, config as cfg, engines as eng, findings as fd, road, schemas as sch, sinks
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.metrics import Convention
from rankmetrics_spark.pointers import History, Pointers, unpublished
from rankmetrics_spark.report import assets, examples, over_time, read, reruns, trust, verdict
from rankmetrics_spark.report.figures import Figures, period_means, seconds_of
from rankmetrics_spark.words import about

#: Rows of segments that are read of a result.
MOST_ROWS_OF_FRAMES = 10_000

Records = Sequence[sch.Row]
#: The first date, and the last one; by default the last one that is published.
Period = tuple[str, str | None]


def _of_period(tables: read.SparkTables, first: str, last: str | None, date: str | None) -> Figures:
    """What a report of a period shows; means and comparisons are computed as the newest run of its days was asked to.

    Args:
        tables: Of the output.
        first: The first date.
        last: The last date; by default the last one that is published.
        date: The date whose run may have published the comparisons of the period; by default its last day.
    """
    if (users := tables.read("user_metrics")) is None:
        raise InputError(f"--input '{tables.name}' holds no user_metrics; allowed: the output folder of an earlier run")
    if sch.TEST_NAME in users.columns:
        raise InputError(assets.said("tests_without_page", tables=tables))
    published, every = tables.dates(), [*tables.records()]
    days = comparison.published_days(users, first, last or max(*published, first), "--from")
    records = [record for day in days.dates if (record := reruns.record_of_date(every, day, tables.known.get(day)))]
    # Each query reads the days again: serverless compute refuses to keep rows.
    state = comparison.State.of(users, days, tables.known, tables.store.days)
    of_period = replace(tables, period_users=comparison.period_rows(users, days, state=state))
    end = None if days.dates[-1] == max(published) else days.last
    newest = read.newest_of(every).items()
    history = [record for day, record in newest if days.first <= day <= (end or day)][-read.MOST_DATES :]
    return _figures(of_period, users, days, records, history, date or days.last)


def figures_of_output(
    spark: SparkSession, sink: cfg.Sink, date: str | None, period: Period | None = None, here: read.Tables | None = None
) -> Figures:
    """What a report of an output shows: of a period, or of a date, whose run may have compared a period.

    Args:
        spark: The session.
        sink: Where the runs wrote.
        date: The date; by default the newest.
        period: The dates of the period.
        here: The tables, where they are open.

    Raises:
        ConfigError: A date is none, or the first is after the last.
        InputError: Nothing is there, or the dates follow different conventions.
    """
    tables = here or read.spark_tables(spark, sink)
    if not (chosen := period or period_of(tables, date)):
        return read.figures_of(tables, date)
    by_spark = tables if isinstance(tables, read.SparkTables) else read.spark_tables(spark, sink)
    return _of_period(by_spark, *chosen, date)


def figures_of_days(
    spark: SparkSession, sink: cfg.Sink, here: read.Tables | None, first: str | None, last: str | None
) -> tuple[dict[str, Figures], dict[str, str]]:
    """The figures of each published date, the newest first, and why the other dates of these were not published.

    Args:
        spark: The session.
        sink: Where the runs wrote.
        here: The tables, where this process can read them.
        first: No date before it.
        last: No date after it.
    """
    tables = here or read.spark_tables(spark, sink)
    every = tables.dates()
    dates = [date for date in every if (first or date) <= date <= (last or date)][-read.MOST_DATES :]
    if not dates:
        raise InputError(f"--each: {unpublished(first or last or '', every)}")
    errors = {day: record.get("error") for day, record in read.newest_of(tables.records()).items() if day not in every}
    start = first or dates[0]
    lost = {day: str(why["message"]) for day, why in reversed(errors.items()) if why and start <= day <= (last or day)}
    return {date: figures_of_output(spark, sink, date, here=tables) for date in dates[::-1]}, lost


def period_of(tables: read.Tables, date: str | None) -> tuple[str, str] | None:
    """The first and the last date of the period that the comparisons of a date are about; None where there is none."""

    def period(known: read.Tables) -> tuple[str, str] | None:
        day = date or max(known.dates(), default="")
        return Figures((), known.rows("comparisons", day, 0)).period

    return sinks.settled(tables.name, tables.pointers, lambda known: period(tables.at(known)))


def figures_of_run(spark: SparkSession, config: cfg.Config, record: sch.Row) -> Figures:
    """What a report of a run shows that has just ended: what it wrote, and single users if asked for."""
    date, period = config.evaluation_date, record.get("period")
    by_spark = read.spark_tables(spark, config.sink, "sink")
    if period is not None:
        figures = _of_period(by_spark, period[sch.PERIOD_FROM], period[sch.PERIOD_TO], date)
    else:
        # A Connect server may have written to a disk of its own, under a path that is also one of this machine.
        remote = "connect" in type(spark).__module__
        path = None if remote or config.sink.format != "parquet" else config.sink.path
        tables = read.local_tables(path) if path else None
        figures = read.figures_of(tables or by_spark, date, "evaluation_date")
    return replace(figures, examples=examples.examples_of(spark, config, figures, by_spark))


@about(lambda tables, users, days, records, *_: Figures((), record=merged_record(records)).unit)
def _figures(
    tables: read.SparkTables, users: DataFrame, days: cfg.Days, records: Records, history: Records, date: str
) -> Figures:
    record = merged_record(records)
    config = record.get("config") or {}
    # The period of the run is that of the page, and not asked for twice.
    section = cfg.Comparison.read({**(config.get("comparison") or {}), "period": None})
    section = replace(section, gates=cfg.gates("gates", config.get("gates") or ()))
    segments = {name: name for name in (config.get("source") or {}).get("segments") or () if name in users.columns}
    # Wanted by name, a metric that was not stored would be an error; the order is that of the config all the same.
    before = _before(users, section, days)
    if section.cuped and before is None:
        section = replace(section, cuped=None, covariates=())
    assert tables.period_users is not None
    table = comparison.UserTable.of(tables.period_users, None, segments, before)
    table = comparison.without_unstored(table, tables.known, days.dates)
    of_days = comparison.days_of_experiments(users, days, table.metrics)
    table = replace(table, days=days, of_days=of_days, looks=History.before(days.dates[-1], tables.known, days.first))
    over_lists = section.mean_over == "lists"
    sums = road.sums_of_users(table.rows, road.Summands(table.metrics, table.segments, over_lists=over_lists))
    # The columns of the convention are those of the record; nothing here reads them.
    averages = road.averages_of_sums(sums, [Convention()], section.confidence, over_lists)
    means = eng.few_rows(comparison.with_cluster_intervals(averages, table, section))
    compared, outdated = _published(tables, date, days)
    # The run that compared these days has checked the gates; a least mean is that of its day alone.
    stored = tables.checks(date) if compared and config.get("gates") else []
    ends = dict.fromkeys(trust.GATES, "") | {"min": f", on {date} alone"}
    of_gates = [replace(each, sentence=each.sentence + ends[each.name]) for each in stored if each.name in ends]
    if section.is_requested and not compared:
        compared = [row.asDict() for row in eng.few_rows(comparison.comparisons(table, section))]
    rows = [{**each.row, "note": each.remark or None} for each in fd.findings(compared)]
    draft = Figures(
        means=read.everyone_and_largest([row.asDict() for row in means], read.MOST_ROWS),
        comparisons=read.everyone_and_largest(rows, read.MOST_ROWS),
        record=record,
        history=history,
        n_means=len(means),
        n_comparisons=len(compared),
        days=days,
        uneven=[
            *comparison.uneven_columns(table.metrics, segments, tables.known, days.dates),
            *comparison.changed_settings({str(each.get(sch.DATE)): each.get("config") or {} for each in records}),
            *([outdated] if outdated and not section.is_requested else []),
        ],
    )
    if of_gates:
        draft = replace(draft, checks=sch.rows_of([*of_gates, *trust.check_rows(draft)]))
    draft = read.with_users(tables, days.last, draft)
    if len(days.dates) == 1:
        return draft
    of_all = [found.row for found in draft.compared]
    draft = replace(draft, outlook=outlook_of(of_all, users, days, section, draft.metrics))
    if developed := _over_time(tables, users, days, section, draft):
        return replace(draft, over_time=developed)
    dates, experiments = days.dates[-read.MOST_DATES :], draft.experiments[: read.MOST_EXPERIMENTS]
    trend = tables.of_all("experiment_metrics", dates, experiments)
    return replace(draft, trend=trend, no_course=over_time.left_out(section) if draft.compared else "")


def outlook_of(
    rows: Records, users: DataFrame, days: cfg.Days, section: cfg.Comparison, metrics: fd.Metrics
) -> list[str]:
    """When the open comparisons of a period could find an effect, in words; reads the users again if one is open.

    Args:
        rows: Rows of ``comparisons`` over the period.
        users: One row per (experiment_id, user_id, evaluation_date).
        days: The days of the period.
        section: How the rows were made.
        metrics: In the order of the run.
    """
    metric = Figures((), rows).deciding_of(metrics)
    # How fast clusters, or triggered users, arrive is not counted.
    if metric is None or section.cluster is not None or section.trigger is not None:
        return []
    return [verdict.outlook_sentence(each) for each in comparison.outlooks(rows, users, days, section, metric)]


#: Keys of a comparison that a command gives anew.
_OF_REQUEST = ("baseline", "candidates", "pairs", "period")


def notes_of_runs(records: Records, pointers: Pointers, dates: Sequence[str], section: cfg.Comparison) -> list[str]:
    """What the runs of some dates were asked for that a comparison is not: a sentence for each difference.

    Args:
        records: Of all runs of the output; empty where this process cannot read them.
        pointers: Date -> what is published.
        dates: Those that are compared.
        section: How they are compared.
    """
    ordered = sorted(records, key=lambda record: str(record[sch.RUN]))
    runs = {date: pointers[date].entries[0].run_id if date in pointers else None for date in dates}
    configs = {date: config for date in dates if (config := reruns.record_of(ordered, date, runs[date]).get("config"))}
    notes = comparison.changed_settings(configs)
    newest = configs[max(configs)].get("comparison") or {} if configs else {}
    if not newest.get("baseline") and newest.get("pairs") != "all":
        return notes
    usual, own = cfg.as_dict(cfg.Comparison()), cfg.as_dict(section)
    options = [
        shlex.quote(f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
        for name, value in newest.items()
        if name not in _OF_REQUEST and name in own and value not in (usual[name], own[name])
    ]
    words = " ".join(f"--set {option}" for option in options)
    return [*notes, *([f"the run of {max(configs)} compared with other options: {words}"] if options else [])]


def _over_time(
    tables: read.SparkTables, users: DataFrame, days: cfg.Days, section: cfg.Comparison, draft: Figures
) -> list[dict[str, Any]]:
    """Rows of ``effect_over_time``: of the metric that decides alone, and of the best candidates, if all are too many.

    The last days before the period count as earlier visits of its users, if they follow the same convention. Empty
    where nothing is compared, and where even these pairs are too many.
    """
    pairs, size = {found.pair[::-1] for found in draft.compared}, 3 * days.length + 3
    if not pairs or draft.primary is None or over_time.left_out(section):
        return []
    earlier = [date for date in tables.dates() if date < days.first][-read.MOST_DATES :]
    date, convention = F.col(sch.DATE).cast("string"), (draft.record.get("convention") or {}).get("hash")
    is_earlier = date.isin(earlier) & F.col(sch.CONVENTION_HASH).eqNullSafe(F.lit(convention))
    is_read = date.isin([*days.dates]) | is_earlier if earlier and convention else date.isin([*days.dates])
    table = comparison.UserTable.of(users.where(is_read), None, None, _before(users, section, days))
    if len(pairs) * len(table.metrics) * size > read.MOST_ROWS:
        table = replace(table, metrics=(draft.primary,))
    room = read.MOST_ROWS // (size * len(table.metrics))
    if len(pairs) > room:
        best = [name for name in draft.experiments if (section.baseline, name) in pairs][:room]
        if section.pairs == "all" or not best:
            return []
        section = replace(section, candidates=tuple(best))
    return [row.asDict() for row in eng.few_rows(comparison.development(table, section, (days.first, days.last)))]


def _published(tables: read.SparkTables, date: str, days: cfg.Days) -> tuple[list[dict[str, Any]], str]:
    """The comparisons of this period as a run has published them, and why there are none that hold, in words."""
    rows = tables.rows("comparisons", date, read.MOST_ROWS)
    found, of_days = fd.findings(rows), (days.first, days.last, len(days.dates))
    if {(each.period_from, each.period_to, each.n_days) for each in found} != {of_days}:
        return [], ""
    if reruns.parted(rows, tables.known)[1] or not reruns.compared_as_now(tables.known, date, days.dates):
        baseline, period = shlex.quote(found[0].baseline), f"--from {days.first} --to {days.last}"
        return [], assets.said("replaced_since", baseline=baseline, period=period)
    return rows, ""


def _before(users: DataFrame, section: cfg.Comparison, days: cfg.Days) -> DataFrame | str | None:
    """The earlier values for CUPED; None where they are of a date of the period itself."""
    if (cuped := section.cuped) is None or cuped.date is None:
        return cuped.column if cuped else None
    return users.where(F.col(sch.DATE) == cuped.date) if cuped.date < days.first else None


def merged_record(records: Records) -> dict[str, Any]:
    """The records of the runs of several dates as one: counts are added up, all else is that of the last date.

    >>> day = {"rows": {"in": 3}, "experiments": {"a": {"lists": 2}}, "evaluation_date": "2026-11-20"}
    >>> both = merged_record([day, day | {"evaluation_date": "2026-11-21"}])
    >>> both["rows"], both["experiments"], both["evaluation_date"]
    ({'in': 6}, {'a': {'lists': 4}}, '2026-11-21')
    """
    if not records:
        return {}
    added: dict[str, Counter[str]] = {"rows": Counter(), "quarantine_reasons": Counter()}
    experiments: defaultdict[str, Counter[str]] = defaultdict(Counter)
    warnings: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        for name, counts in added.items():
            counts.update(record.get(name, {}))
        for name, counts in record.get("experiments", {}).items():
            experiments[name].update({key: value for key, value in counts.items() if isinstance(value, int)})
        for text in (record.get("quality") or {}).get("warnings", ()):
            warnings[str(text)].append(str(record.get(sch.DATE)))
    return {
        **records[-1],
        **{name: dict(counts) for name, counts in added.items()},
        "experiments": {name: dict(counts) for name, counts in experiments.items()},
        "total_seconds": round(sum(seconds_of(record) or 0.0 for record in records), 3),
        "quality": {"warnings": [f"{text} ({', '.join(dates)})" for text, dates in warnings.items()]},
        "n_runs": len(records),
        "last_record": records[-1],
    }


# ---- figures of a result


def figures_of_frames(averages: DataFrame, comparisons: DataFrame | None, **more: Any) -> Figures:
    """Return figures of averages and comparisons; ``more`` are further fields, such as the run record. Starts a job."""
    means, n_means = shown_rows(averages)
    compared, n_compared = ([], 0) if comparisons is None else shown_rows(comparisons)
    return Figures(period_means(means, compared), compared, n_means=n_means, n_comparisons=n_compared, **more)


def shown_rows(table: DataFrame) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of all users and of the largest segments, and how many rows the table has."""
    everyone = F.col(sch.SEGMENT) == sch.EVERYONE
    keys = [name for name in (sch.BASELINE, sch.EXPERIMENT, sch.SEGMENT, sch.METRIC) if name in table.columns]
    parts = Window.partitionBy(everyone)
    place = F.row_number().over(parts.orderBy(F.col(sch.N_USERS).desc(), *keys))
    places = table.withColumns({"_place": place, "_size": F.count(F.lit(1)).over(parts)})
    shown = places.where(everyone | (F.col("_place") <= MOST_ROWS_OF_FRAMES)).drop("_place")
    rows = [read.plain(row) for row in eng.few_rows(shown)]
    return rows, sum({sch.is_of_segment(row): row.pop("_size") for row in rows}.values())
