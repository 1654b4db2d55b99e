"""Commands about what runs have stored: list and verify runs, recompute, plan a test, remove old dates and users."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from rankmetrics_spark import config as cfg, errors as err, metrics as mx, report as rep
from rankmetrics_spark.cli.options import Command, choose_for, dates_of, on_job, on_session, say
from rankmetrics_spark.engines import choose
from rankmetrics_spark.schemas import DATE, RUN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rankmetrics_spark.comparison import LabelPlan, Plan

    Planned = Plan | list[LabelPlan]

DAYS = {"d": 1, "w": 7}


def days_of(text: str, option: str = "--keep") -> int:
    """The days that an option means.

    Raises:
        ConfigError: It is no number of days or weeks.

    >>> days_of("90d"), days_of("12w")
    (90, 84)
    """
    match = re.fullmatch(r"([1-9][0-9]{0,4})([dw])", text)
    if match is None:
        raise err.ConfigError(f"{option} is '{text}'; allowed: a number of days or weeks such as 90d or 12w")
    return int(match[1]) * DAYS[match[2]]


def SINK(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of an output: a folder, or a schema of a catalog; the command gets it as ``sink``."""

    @wraps(command)
    def with_sink(output: str | None, table: str | None, sink_format: str, **options: Any) -> Any:
        if (output is None) == (table is None):
            raise err.ConfigError("allowed: exactly one of --output and --table")
        format = sink_format if output is None else rep.format_of(output)
        return command(sink=cfg.Sink(path=output, table=table, format=format), **options)

    return with_sink


@click.command(cls=Command)
@SINK
def prune(sink: cfg.Sink, keep: str | None, dry: bool, style: str, master: str | None) -> None:
    """Remove old dates from an output, and files that no pointer names. A folder needs no engine.

    Dates that a kept comparison of several days names stay, and so does what a run is writing.
    """
    if keep is None:
        raise err.ConfigError("nothing to do; allowed: --keep with a number of days such as 90d, or all")
    days = None if keep == "all" else days_of(keep)
    from rankmetrics_spark import sinks

    rows = []
    if sink.path is not None:
        rows = sinks.prune(sinks.files_of(sink.path), sink.path, days, dry)
    elif days is not None:
        rows = on_session(choose(None, master), lambda spark: sinks.prune_tables(spark, sink, days, dry))
    if rows or style != "table":
        rep.LIST_PRINTERS[style]([asdict(row) for row in rows])
    say.lines(sinks.in_words(rows, dry))


@click.command(cls=Command)
def plan(style: str, engine: str | None, master: str | None, **options: Any) -> None:
    """How long a test has to run: the smallest change that it finds by each day; writes nothing."""
    planned = plan_of(**options)
    result = on_session(choose_for(options["folder"], engine, master), planned)
    if isinstance(result, list):
        _print_labels(style, result)
        return
    # As people read them: changes with their share of the mean.
    lines = [
        {"day": row["day"], "date": row["date"] or row["basis"], result.units: f"{row['users']:,}"}
        | _changes(row, "valid at every look", "_any_look")
        for row in result.rows
    ]
    rows: Any = {"table": lines, "json": result.as_dict()}.get(style, [*result.rows])
    rep.LIST_PRINTERS[style](rows)
    say.lines(*filter(None, (result.test, result.basis, result.answer)))


def _print_labels(style: str, plans: Sequence[LabelPlan]) -> None:
    rows: list[Any] = [row for plan in plans for row in plan.rows]
    lines = [
        {"candidate": row["candidate"], "judged by people": f"{row['n_judged']:,}"}
        | _changes(row, "without the machine", "_human")
        for row in rows
    ]
    rep.LIST_PRINTERS[style]({"table": lines, "json": [plan.as_dict() for plan in plans]}.get(style, rows))
    say.lines(*filter(None, (text for plan in plans for text in (plan.basis, plan.answer))))


def plan_of(folder: str, metric: str, labels: bool = False, **options: Any) -> Callable[[SparkSession], Planned]:
    """What reads ``user_metrics`` of an output in a session and plans a test.

    Args:
        folder: Output folder of earlier runs.
        metric: The metric that decides.
        labels: Whether labels of people are planned, and not days.
        **options: The further options of the command.

    Raises:
        ConfigError: A wrong argument; in the session, more days than the stored ones allow to expect.
    """
    settings: Mapping[str, Any] = {}
    for assignment in options.pop("overrides"):
        settings = cfg.override(settings, assignment)
    err.check_known("key", settings, ("confidence", "power", "tuning_users", "mean_over", "cluster"), "--set")
    try:
        shares = [float(cfg.fraction(share.strip())) for share in options["shares"].split(",")]
    except ValueError:
        raise err.ConfigError(f"--shares is '{options['shares']}'; allowed: two shares such as 0.5,0.5") from None
    dates = options.pop("first"), options.pop("last")
    if (before := options.pop("before")) is not None:
        first, dots, last = before.partition("..")
        before = (first, last if dots else first)
    mx.parse(metric)
    others = (options["days"], dates[0], before, options["baseline"], *({*settings} - {"confidence", "power"}))
    usual = shares == [0.5, 0.5] and options["comparisons"] == 1
    if labels and (options["experiment"] is None or not usual or any(value is not None for value in others)):
        raise err.ConfigError.of("half_labels")

    def planned(spark: SparkSession) -> Planned:
        """The plan; InputError where there is no such table, no such date, or a single user."""
        from rankmetrics_spark import comparison
        from rankmetrics_spark.cli.earlier import stored_users, users_of_date

        users, _ = stored_users(spark, folder)
        if labels:
            users, asked = users_of_date(users, dates[1]), (options["experiment"], options["effect"], options["users"])
            return comparison.plan_labels(users, metric, *asked, **settings)
        more: dict[str, object] = {"shares": shares, "dates": dates, "before": before}
        return comparison.plan(users, metric, **{**options, **more, **settings})

    return planned


def _changes(row: Mapping[str, Any], other: str, end: str) -> dict[str, str]:
    """The smallest change with its share of the mean, and another one that the row has under names with this end."""
    texts = {}
    for title, each in (("smallest change", ""), (other, end)):
        effect, share = row[f"smallest_effect{each}"], row[f"smallest_relative_effect{each}"]
        of_mean = "" if share is None else f" ({_digits(100 * share)} %)"
        texts[title] = "-" if effect is None else _digits(effect) + of_mean
    return texts


def _digits(value: float) -> str:
    """Three digits, without the point that a whole number would end with.

    >>> _digits(0.0345), _digits(9.5), _digits(138.2)
    ('0.0345', '9.50', '138')
    """
    return f"{value:#.3g}".removesuffix(".")


@click.command(cls=Command)
@SINK
def runs(sink: cfg.Sink, style: str, master: str | None) -> None:
    """Every run of an output: outcome, counts, timings; the newest first."""
    from rankmetrics_spark.cli.earlier import records_of, summaries

    records = records_of(sink, lambda work: on_session(choose(None, master), work))
    if style == "table":
        _print_runs(summaries(records))
    else:
        rep.LIST_PRINTERS[style](records if style == "json" else summaries(records))


def _print_runs(rows: Sequence[Mapping[str, Any]]) -> None:
    """A line per run, which fits a terminal of 80 characters, and below them why runs have failed."""
    counts = {"rows": "rows", "faulty": "quarantined", "s": "seconds"}
    texts = [
        {"run": row["run_id"], **{name: row[name] or "-" for name in ("date", "outcome")}}
        | {title: "-" if row[name] is None else f"{row[name]:,.0f}" for title, name in counts.items()}
        for row in rows
    ]
    rep.print_texts(texts, ("run", "date", "outcome"))
    for row in rows:
        if row["error"]:
            rep.print_sentence(f"{row['run_id']}: {row['error']}")


@click.command(cls=Command)
@SINK
def verify(
    sink: cfg.Sink, date: str | None, config: str | None, without: str | None, source: str, style: str,
    engine: str | None, master: str | None,
) -> None:  # fmt: skip
    """Derive what is published on a date again, from its record and its inputs, and compare every table.

    The output is only read. Ends with exit code 6 at a difference, and names the first one; with 3 if an input is gone.
    """
    day = dates_of(date, None, None)["date"]
    document, of_log = cfg.read_document(config) if config else None, source == "lists"
    if source != "inputs" and (without or (config and not of_log)):
        not_read = ("log; allowed: " if of_log else "inputs; allowed: --config and ") + "--without without it"
        raise err.ConfigError(f"--from {source} reads no {not_read}")
    choice = choose(engine, master)
    if not choice.here:
        raise err.ConfigError("the engine is on another machine; allowed: an engine that runs here, or --engine sail")
    asked = sink, day, document, without, source
    result = on_job(choice, lambda job, spark: job.verify(spark, *asked))
    rep.LIST_PRINTERS[style](result.rows)
    say.lines(*result.in_words())


@click.command(cls=Command)
@SINK
def recompute(
    sink: cfg.Sink, metrics: str, convention: str | None, judgements: str | None, overrides: tuple[str, ...],
    first: str | None, last: str | None, style: str, engine: str | None, master: str | None,
) -> None:  # fmt: skip
    """Add metrics to published dates from the lists that runs have stored (sink.lists: true), without their logs.

    Each date is published at once, with its averages, comparisons and checks. By default all dates; --from alone is
    one date.
    """
    days, names = dates_of(None, first, last), [name.strip() for name in metrics.split(",") if name.strip()]
    asked = sink, names, convention, (days["first"], days["last"]), judgements, overrides
    records: list[Mapping[str, Any]] = []
    try:
        on_job(choose(engine, master), lambda job, spark: job.recompute(spark, *asked, done=records.append))
    finally:
        # Where a gate withholds a test, the others are published, and so are the dates before one that fails.
        shown = [{DATE: each[DATE], RUN: each[RUN], "metrics": " ".join(each["config"]["metrics"])} for each in records]
        if shown:
            rep.LIST_PRINTERS[style](shown)


@click.command(cls=Command)
def forget(output: str, users: str, style: str, engine: str | None, master: str | None) -> None:
    """Erase users from every table, record and page of an output; each date is published anew in one step.

    Means, comparisons and checks become those of a log without them. A later run over a log that still holds them
    brings them back.
    """
    result = on_job(choose(engine, master), lambda job, spark: job.forget(spark, output, users))
    if result.rows or style != "table":
        rep.LIST_PRINTERS[style](result.rows)
    say.lines(*result.sentences)


@click.command(cls=Command)
def register(plan: str, output: str) -> None:
    """Write down, before the first look, what will decide: keys of comparison, and end, segments and exclusions.

    PLAN is a YAML file. Every run of the output then says whether it decides as registered; a plan cannot be replaced.
    """
    from rankmetrics_spark.job import register as register_plan

    rep.print_json(register_plan(cfg.read_document(plan, "plan", "primary"), output))
    say.lines(f"registered in {output}; each run now says whether it decides as registered")
