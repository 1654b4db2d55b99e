"""The ``rankmetrics`` command: arguments, progress, tables and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankmetrics_spark import __version__, config as cfg, errors as err, metrics as mx, report as rep, tools
from rankmetrics_spark.cli import exit_codes, options as opts
from rankmetrics_spark.cli.status import status
from rankmetrics_spark.cli.stored import forget, plan, prune, recompute, register, runs, verify
from rankmetrics_spark.engines import SUBMITTED, Choice, choose, session_of
from rankmetrics_spark.words import UNITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rankmetrics_spark.job import Outcome


@click.group(cls=opts.Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rankmetrics")
def main() -> None:
    """Which ranking experiment is better, and how sure is that?"""


@main.command()
def evaluate(config: str, style: str, segments: bool, engine: str | None, master: str | None, **options: Any) -> None:
    """Evaluate an impression log and write Parquet tables."""
    document = opts.document_of(config)
    first, last, keep_going = (options.pop(name) for name in ("first", "last", "keep_going"))
    if options["date"] and ".." in options["date"] and not (first or last):
        # For schedulers that have a parameter for the date only.
        first, _, last = options.pop("date").partition("..")
        options["date"] = None
    several = first or last
    days = opts.configs_of_days(document, first, last, options) if several else [opts.loaded(document, **options)]
    choice = choose(engine or days[-1].engine, master, settings=days[-1].spark)
    choice = replace(choice, joins=any(day.joins for day in days))
    shown, outcome, failed = _evaluate(days, style, choice, segments, keep_going)
    _say_report(shown.report.file)
    if SUBMITTED in os.environ:  # in a log, the answer again, as the last line
        answer = (outcome.record["verdict"] or ["published"])[0]
        opts.note.lines(f"{outcome.record['evaluation_date']}: {answer}")
    opts.end_days(days, failed)


@main.command()
def demo(output: str | None, style: str, segments: bool, engine: str | None, **log: Any) -> None:
    """Make a seeded impression log with a known best ranker, evaluate it and write a report."""
    # The log is on this machine; a Connect server may be unable to read it.
    choice = choose(engine, local=True)
    output = output or ("out/demo" if log["days"] == 1 else "out/days")
    made = tools.make_log(Path(output) / "input", **log)
    opts.note.lines(f"made an impression log of {made.rows:,} rows; {made.known}")
    file = str(Path(output) / "report.html") if rep.has_page_libraries() else None
    days = [opts.loaded(str(made.config), (), output, date, file) for date in made.days or [None]]
    written, *_ = _evaluate(days, style, choice, segments)
    _say_report(written.report.file, f"no report: its charts need {rep.INSTALL_PAGE}")


@main.command()
def report(folder: str, html: str, engine: str | None, master: str | None, **more: Any) -> None:
    """Write a page with verdict, charts and tables from the tables of earlier runs."""
    n, config, each = more.pop("examples"), more.pop("config"), more.pop("each")
    if each and (n or config or more["date"]):
        raise err.ConfigError("--each is given with --date, --examples or --config; allowed: --from and --to with it")
    rep.check_page_file("--html", html)
    rep.check_page_libraries()
    chosen = opts.dates_of(**more)
    day, first = chosen["date"], chosen["first"]
    tables = None if (first and not each) or (master or "").startswith("sc://") else rep.local_tables(folder)
    sink = cfg.Sink(path=folder, format=rep.format_of(folder))
    choice_for = partial(opts.choose_for, engine=engine, master=master)
    if each:
        days = partial(rep.figures_of_days, sink=sink, here=tables, first=first, last=chosen["last"])
        parts, lost = opts.on_session(choice_for(folder), days)
        title = f"By day: {' to '.join(dict.fromkeys((min(parts), max(parts))))}"
        return _say_report(str(rep.write_index(parts, title, html, lost)))
    period = (first, chosen["last"]) if first else rep.period_of(tables, day) if tables else None
    here, log = None if period else tables, opts.document_of(config) if config else None

    def read(spark: SparkSession) -> rep.Figures:
        """What the page shows, where this process cannot read all of it."""
        figures = rep.figures_of(here, day) if here else rep.figures_of_output(spark, sink, day, period)
        if not (n or log):
            return figures
        from rankmetrics_spark.cli.studies import unjudged_facts

        figures = rep.with_examples(spark, figures, sink, log, n)
        return replace(figures, unjudged=unjudged_facts(spark, log or figures.config, figures))

    figures = rep.figures_of(here, day) if here and not (n or log) else opts.on_session(choice_for(folder), read)
    if figures.examples and figures.examples.note:
        opts.say.lines(f"warning: {figures.examples.note}")
    _say_report(str(rep.write_page(figures, html)))


@main.command()
def selftest(on_spark: bool, master: str | None) -> None:
    """Check every preset against the golden values of the system it is named after."""
    values = opts.on_session(choose("spark", master), tools.by_spark) if on_spark else tools.by_kernels()
    lines = tools.golden_checks(values)
    for line in lines:
        click.echo(str(line))
    if not all(line.ok for line in lines):
        sys.exit(1)


@main.command()
def metrics(style: str) -> None:
    """Every metric: its name, aliases, range, direction and definition."""
    rep.LIST_PRINTERS[style](mx.reference())


@main.command()
def init(output: str, force: bool, style: str, engine: str | None, master: str | None, **options: Any) -> None:
    """Write a commented config for a log, guessed from its first rows, and evaluate these rows.

    LOG is a file, a folder, a TREC run or a table. On a terminal, it asks what it cannot guess.
    """
    from rankmetrics_spark.cli import first

    request, file = first.InitRequest(**options), Path(output)
    if file.exists() and not force:
        raise err.ConfigError(f"--output is '{output}', which exists; allowed: a new file, or --force")
    choice = choose(engine, master)
    config = first.first_config(request, first.sample_of(request, lambda work: opts.on_session(choice, work)))
    first.write_first_config(config, file)
    opts.note.lines(f"wrote {output}, whose comments say what was guessed: {config.in_words()}")
    day = config.dates[-1] if config.dates else None
    loaded = opts.loaded(output, (), date=day)
    rows, refusal = opts.on_session(choice, lambda spark: first.sample_means(spark, loaded, config))
    if rows or style != "table":
        rep.LIST_PRINTERS[style](rows)
    # What is odd in the log, and what only the user knows and was not asked.
    unasked = (f"not asked without a terminal: {question}" for question in (() if first.asks() else config.unsettled()))
    opts.say.lines(*refusal, *config.notes(), *unasked)
    what = f"means of {config.part}; next" if rows else "once that is settled"
    opts.note.lines(f"{what}: {first.next_command(output, date=day)}")


@main.command()
def example(name: str) -> None:
    """A config to copy: every key with its default, an A/B test, or a TREC run; rankmetrics schema has its schema."""
    click.echo(cfg.example_text(name), nl=False)


@main.command()
def schema() -> None:
    """The JSON schema of a config: editors complete its keys and mark mistakes."""
    rep.print_json(cfg.schema())


@main.command()
def check(config: str, style: str, engine: str | None, master: str | None, **options: Any) -> None:
    """What a config would do: columns, metrics, comparisons, tables; reads schemas and computes nothing."""
    from rankmetrics_spark.cli.first import next_command, plan_in_words

    loaded, choice = opts.read_by(config, engine, master, options)
    lines = opts.on_session(choice, lambda spark: plan_in_words(spark, loaded))
    rows: Any = dict(lines) if style == "json" else [{"part": part, "what": what} for part, what in lines]
    rep.LIST_PRINTERS[style](rows)
    words = next_command(config, options["overrides"], options["date"])
    opts.note.lines(f"nothing was computed; to run it: {words}")


@main.command()
def conventions(
    config: str, source: str, style: str, engine: str | None, master: str | None, **options: Any
) -> None:  # fmt: skip
    """The same data under every convention, side by side; writes nothing."""
    loaded, choice = opts.read_by(config, engine, master, options | {"source": source}, writes=False)
    opts.refuse_assignments(loaded, "conventions")

    def table(spark: SparkSession) -> list[dict[str, Any]]:
        from rankmetrics_spark import sinks, sources
        from rankmetrics_spark.conventions import compare_conventions, every_convention, side_by_side
        from rankmetrics_spark.job import StoredDay, errors_in_words, inputs

        with errors_in_words(loaded):
            if source == "lists":
                store = sinks.store_of(spark, loaded.sink, "", loaded.spark)
                day, rules = StoredDay.of_config(store, loaded), every_convention(loaded.options)
                return side_by_side(*day.side_by_side(store, loaded, rules))
            events = sources.read_events(spark, loaded.events)
            return compare_conventions(*inputs(spark, loaded), loaded.options, events=events)

    rep.CONVENTION_PRINTERS[style](opts.on_session(choice, table))


@main.command()
def compare(folder: str, style: str, engine: str | None, master: str | None, **options: Any) -> None:
    """Compare experiments from the tables of an earlier run; writes nothing."""
    from rankmetrics_spark.cli.earlier import CompareRequest, check_new_file, comparison_of, development_of

    options |= opts.dates_of(options["date"], options["first"], options["last"])
    request = CompareRequest(folder=folder, **options)
    tables = {"--losses": request.losses, "--gains": request.gains, "--decompose": request.decomposed}
    flags = [name for name, value in tables.items() if value]
    if style == "csv" and len(flags) > 1:
        raise err.ConfigError.of("csv_of_one_table", flags=" and ".join(flags))
    _ = request.comparison  # refused before an engine is started
    choice = opts.choose_for(folder, engine, master)
    if request.per_user:
        check_new_file(request.per_user, choice)
    if request.over_time:
        days, rows, metrics = opts.on_session(choice, lambda spark: development_of(spark, request))
        if style != "table":
            opts.note.lines(f"{UNITS} of {days.sentence_part}")
        rep.print_over_time(days, rows, style, metrics)
        return
    result = opts.on_session(choice, lambda spark: comparison_of(spark, request))
    if style != "table" or (result.dates > 1 and result.days is None):
        opts.note.lines(result.of_day)
    if request.per_user:
        opts.note.lines(f"wrote the {UNITS} of both experiments: {request.per_user}")
    rep.print_all(result, style)


@main.command()
def interleaving(config: str, style: str, engine: str | None, master: str | None, **options: Any) -> None:
    """Which ranker wins the clicks on interleaved lists, and is the draft fair; writes nothing.

    source.team names the column with the ranker that drafted an item.
    """
    from rankmetrics_spark.cli.studies import preferences_of, print_preferences

    effect = options.pop("effect")
    loaded, choice = opts.read_by(config, engine, master, options, writes=False)
    rows = opts.on_session(choice, lambda spark: preferences_of(spark, loaded, effect))
    print_preferences(rows, loaded.evaluation_date, style)


class _Study(opts.Command):
    """A command of ``cli.studies``, which is loaded when its options are read."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Those of the study among them."""
        from rankmetrics_spark.cli.studies import STUDIES

        return [*super().get_params(ctx), *STUDIES[str(self.name)].options]


def _study(name: str, words: str) -> None:
    def command(**options: Any) -> None:
        from rankmetrics_spark.cli.studies import STUDIES

        STUDIES[name].run(**options)

    main.add_command(click.command(name, cls=_Study, help=f"{words}; writes nothing.")(command))


_study("changed", "How alike the top items of users are to those in the baseline")
_study("exposure", "Which items users see: coverage, Gini index, entropy and novelty")
_study("propensities", "How often users examine each rank, from keys that are shown at several ranks")
_study("unjudged", "What unjudged items could change, and which to judge first")
for _command in (forget, plan, prune, recompute, register, runs, status, verify):
    main.add_command(_command)


def _say_report(file: str | None, without: str = "") -> None:
    if file or without:
        opts.note.lines(f"open the report: {err.without_secrets(str(Path(file)))}" if file else without)


def _evaluate(
    days: Sequence[cfg.Config], style: str, choice: Choice, segments: bool = False, keep_going: bool = False
) -> opts.Ended:
    """Run the configs of days, print the result of the last, then write its report; return both, and errors of others.

    The earlier days are run in the same session, without a word; see ``opts.run_days``. Only the first day has to be
    there when it begins: its local paths are checked before an engine is started.
    """
    first, config = days[0], days[-1]
    of_csv = opts.table_of_csv(style, config.comparison.is_requested)
    with ExitStack() as engine:
        with exit_codes.live(opts.note) as progress:
            with opts.refusals_on_record(first, choice):
                if config.report.file:
                    rep.check_page_file("report", config.report.file)
                    rep.check_page_libraries()
                if not keep_going:
                    opts.check_places(first, choice)
                spark = engine.enter_context(session_of(choice, progress))
            from rankmetrics_spark.job import rows_here

            config, outcome, failed = opts.run_days(spark, days, choice, progress, keep_going)
            progress("reading the result")
            here = {name: rows_here(outcome, name) for name in ("experiment_metrics", "comparisons", "checks")}
            rows = rep.result_rows(here["experiment_metrics"] or outcome.experiment_metrics)
            compared = rep.compared_rows(here["comparisons"] or outcome.comparisons)
            checked = rep.compared_rows(here["checks"] or outcome.checks) if style != "table" else []
            if not config.report.file:
                engine.close()
        try:
            means = rep.period_means(rows, compared) if style == "table" else rows
            shown = rep.Figures(means, compared, order=[*map(str, config.metrics)], checks=checked)
            opts.print_outcome(outcome, shown, style, segments, of_csv)
        finally:
            # Even if the reader of the output has closed it.
            if config.report.file:
                with exit_codes.live(opts.note) as progress:
                    progress("writing the report")
                    rep.write_page(rep.figures_of_run(spark, config, outcome.record), config.report.file)
    return config, outcome, failed
