"""The ``rankmetrics`` command: arguments, progress, tables and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console

from rankmetrics_spark import __version__
from rankmetrics_spark.cli.exit_codes import exit_codes, live
from rankmetrics_spark.config import ENGINES, Config, Sink, check_local_paths, evaluation_day, load, resolved
from rankmetrics_spark.engines import Choice, choose, separate_output, session_of
from rankmetrics_spark.errors import ConfigError, RankmetricsError, without_secrets
from rankmetrics_spark.report import (
    CONVENTION_PRINTERS,
    INSTALL_PAGE,
    LIST_PRINTERS,
    PRINTERS,
    Shown,
    accounting,
    check_page_file,
    check_page_libraries,
    compared_rows,
    has_page_libraries,
    paths_text,
    print_all,
    print_result,
    print_verdict,
    result_rows,
    safe_cells,
    tie_warnings,
    write_page,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rankmetrics_spark.job import Outcome

MASTER = click.option(
    "--master",
    default=None,
    help="Spark master, or a Connect server (sc://...); by default $SPARK_REMOTE, that of spark-submit, or local[*].",
)
DATE = "YYYY-MM-DD, today, yesterday, or days back such as -2, counted in the config's time_zone; today by default."
DATE_OF_TABLES = "YYYY-MM-DD, yesterday, or days back such as -2, in UTC; the newest by default."
SEGMENTS = "Print a line per experiment and segment, not only the segments that differ most."
# Paths and ids are text: no markup, no emoji.
_say = Console(stderr=True, highlight=False, markup=False, emoji=False)
_apart = True
"""Whether what goes to stderr stays apart from stdout."""


def _chosen_format(context: click.Context, option: click.Parameter, style: str) -> str:
    """The format; where stderr would end in it, nothing is said beside the result, except an error."""
    _say.quiet = style != "table" and not _apart
    return style


_STYLE = click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    callback=_chosen_format,
    help="How the result is printed on stdout.",
)
_SAFE_CELLS = click.option(
    "--safe-cells",
    is_flag=True,
    expose_value=False,
    callback=lambda context, option, value: safe_cells.set(value),
    help="With --format csv: an apostrophe before texts that a spreadsheet would compute, which start with = + - or @.",
)


def FORMAT(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of everything that prints a result."""
    return _STYLE(_SAFE_CELLS(command))


ENGINE = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=None,
    help="spark, or sail: one machine, no Java; by default sail where it is installed and no --master is given.",
)


class _Command(click.Command):
    """A command that returns when it has succeeded: Databricks counts a SystemExit as a failure, even with code 0."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option with two values where one is meant, instead of taking the last."""
        values, _, given = self.make_parser(ctx).parse_args(list(args))
        for option in given:
            n = given.count(option)
            if n > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count):
                last = values[option.name or ""]
                ctx.fail(f"{option.opts[0]} is given {n} times, the last time as '{last}'; allowed: once")
        return super().parse_args(ctx, args)

    def main(self, *arguments: Any, **more: Any) -> Any:
        """Run the command; SystemExit with its code if it fails."""
        global _apart
        _apart = separate_output()
        try:
            return super().main(*arguments, **more)
        except SystemExit as end:
            if end.code:
                raise
            return None


class _Commands(_Command, click.Group):
    """The commands of the package."""

    command_class = _Command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rankmetrics")
def main() -> None:
    """Which ranking experiment is better, and how sure is that?"""


@main.command()
@click.option("--config", "config", required=True, type=click.Path(), help="YAML file; see conf/example.yaml.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key: metrics=ap@10.")
@click.option("--output", help="Output folder, instead of sink.path.")
@click.option("--date", help=DATE)
@FORMAT
@click.option("--segments", is_flag=True, help=SEGMENTS)
@ENGINE
@MASTER
def evaluate(config: str, style: str, segments: bool, engine: str | None, master: str | None, **asked: Any) -> None:
    """Evaluate an impression log and write Parquet tables."""
    with exit_codes(_say):
        loaded = _loaded(config, **asked)
        choice = choose(engine or loaded.engine, master)
        _say_report(_evaluate(loaded, style, choice, segments))


@main.command()
@click.option("--output", default="out/demo", show_default=True, help="Output folder.")
@click.option("--users", default=24_000, show_default=True, type=click.IntRange(min=100), help="Ten rows per user.")
@click.option("--seed", default=7, show_default=True, type=int, help="Another seed makes another log.")
@FORMAT
@click.option("--segments", is_flag=True, help=SEGMENTS)
@ENGINE
def demo(output: str, users: int, seed: int, style: str, segments: bool, engine: str | None) -> None:
    """Make a seeded impression log with a known best ranker, evaluate it and write a report."""
    from rankmetrics_spark.tools import make_log

    with exit_codes(_say):
        # The log is on this machine; a Connect server may be unable to read it.
        choice = choose(engine, local=True)
        made = make_log(Path(output) / "input", users=users, seed=seed)
        _say.print(
            f"made an impression log of {made.rows:,} rows; known order of its rankers: {' > '.join(made.best_first)}",
            soft_wrap=True,
        )
        file = str(Path(output) / "report.html") if has_page_libraries() else None
        loaded = _loaded(str(made.config), (), output, report=file)
        written = _evaluate(loaded, style, choice, segments)
    _say_report(written, f"no report: its charts need {INSTALL_PAGE}")


@main.command()
@click.option("--input", "folder", required=True, help="Output folder of earlier runs.")
@click.option("--html", "html", required=True, type=click.Path(), help="HTML file to write.")
@click.option("--date", help=DATE_OF_TABLES)
@ENGINE
@MASTER
def report(folder: str, html: str, date: str | None, engine: str | None, master: str | None) -> None:
    """Write a page with verdict, charts and tables from the tables of earlier runs."""
    from rankmetrics_spark.report import figures_of, format_of, local_tables, spark_tables

    with exit_codes(_say):
        check_page_file("--html", html)
        check_page_libraries()
        day = _day(date)
        tables = None if (master or "").startswith("sc://") else local_tables(folder)
        if tables is None:
            sink = Sink(path=folder, format=format_of(folder))
            choice = choose(engine, master)
            figures = _on(choice, lambda spark: figures_of(spark_tables(spark, sink), day))
        else:
            figures = figures_of(tables, day)
        path = write_page(figures, html)
    _say_report(path)


@main.command()
@click.option("--spark", "on_spark", is_flag=True, help="Compute the values on Spark's executors.")
@MASTER
def selftest(on_spark: bool, master: str | None) -> None:
    """Check every preset against the golden values of the system it is named after."""
    from rankmetrics_spark.tools import by_kernels, by_spark, golden_checks

    with exit_codes(_say):
        lines = golden_checks(_on(choose("spark", master), by_spark) if on_spark else by_kernels())
    for line in lines:
        click.echo(str(line))
    if not all(line.ok for line in lines):
        sys.exit(1)


@main.command()
@FORMAT
def metrics(style: str) -> None:
    """Every metric: its name, aliases, range, direction and definition."""
    from rankmetrics_spark.metrics import reference

    LIST_PRINTERS[style](reference())


@main.command()
@click.option("--config", "config", required=True, type=click.Path(), help="YAML file; see conf/example.yaml.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a config key.")
@click.option("--date", help=DATE)
@FORMAT
@ENGINE
@MASTER
def conventions(config: str, style: str, engine: str | None, master: str | None, **given: Any) -> None:
    """The same data under every convention, side by side; writes nothing."""
    with exit_codes(_say):
        loaded = _loaded(config, given["overrides"], None, given["date"])
        choice = choose(engine or loaded.engine, master)
        if _on_this_machine(loaded, choice):
            check_local_paths(loaded.inputs)

        def table(spark: SparkSession) -> list[dict[str, Any]]:
            from rankmetrics_spark.conventions import compare_conventions
            from rankmetrics_spark.job import errors_in_words, inputs

            with errors_in_words(loaded):
                return compare_conventions(*inputs(spark, loaded), loaded.options)

        rows = _on(choice, table)
    CONVENTION_PRINTERS[style](rows)
    from rankmetrics_spark.conventions import tie_bounds

    bounds = [rule.name for rule in (loaded.convention, *tie_bounds(loaded.convention))]
    for line in tie_warnings(rows, map(str, loaded.metrics), bounds):
        _say.print(line, markup=False, soft_wrap=True)


@main.command()
@click.option("--input", "folder", required=True, help="Output folder of an earlier run, with its user_metrics.")
@click.option("--baseline", help="The experiment that the others are compared with.")
@click.option("--candidate", "candidates", multiple=True, help="Only this experiment; repeat for several.")
@click.option("--date", help=DATE_OF_TABLES)
@click.option("--pairs", type=click.Choice(["baseline", "all"]), default="baseline", show_default=True)
@click.option("--metrics", help="Only these, such as ap@10,ndcg@10; all by default.")
@click.option("--segment", "segments", multiple=True, help="A column that splits the users; repeat for several.")
@click.option("--combine", "combined", multiple=True, help="Segments that split them together: country,device.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A key of comparison: bootstrap=true.")
@click.option("--losses", type=click.IntRange(min=0), default=0, help="List so many users with the largest losses.")
@click.option("--decompose", "decomposed", help="Split each difference by the mix of users in this column.")
@FORMAT
@ENGINE
@MASTER
def compare(folder: str, style: str, engine: str | None, master: str | None, **asked: Any) -> None:
    """Compare experiments from the tables of an earlier run; writes nothing."""
    with exit_codes(_say):
        from rankmetrics_spark.cli.earlier import Asked, comparison_of

        asked["date"] = _day(asked["date"])
        wanted = Asked(folder, **asked)
        if style == "csv" and wanted.losses and wanted.decomposed:
            raise ConfigError(
                "--format csv is one table, and both --losses and --decompose are given; allowed: one of them, or json"
            )
        found = _on(choose(engine, master), lambda spark: comparison_of(spark, wanted))
    _say.print(found.of_day, soft_wrap=True)
    more = {"losses": found.losses} if wanted.losses else {}
    more |= {"decomposition": found.decomposition} if wanted.decomposed else {}
    print_all(found.date, found.comparisons, more, style, found.metrics)


@main.command()
@click.option("--output", "output", default=None, help="Output folder of the runs.")
@click.option("--table", default=None, help="Instead: schema of a catalog, such as lake.ranking.")
@click.option("--sink-format", type=click.Choice(["delta", "iceberg"]), default="delta", help="Format of --table.")
@FORMAT
@MASTER
def runs(output: str | None, table: str | None, sink_format: str, style: str, master: str | None) -> None:
    """Every run of an output: outcome, counts, timings; the newest first."""
    with exit_codes(_say):
        from rankmetrics_spark.cli.earlier import records_of, summaries

        if (output is None) == (table is None):
            raise ConfigError("allowed: exactly one of --output and --table")
        sink = Sink(path=output) if table is None else Sink(table=table, format=sink_format)
        found = records_of(sink, lambda work: _on(choose(None, master), work))
    LIST_PRINTERS[style](found if style == "json" else summaries(found))


T = TypeVar("T")


def _on(choice: Choice, work: Callable[[SparkSession], T]) -> T:
    """Run ``work`` on the chosen session and return the result."""
    with live(_say) as progress, session_of(choice, progress) as spark:
        progress("evaluating")
        return work(spark)


def _say_report(file: Path | None, without: str = "") -> None:
    if file or without:
        _say.print(f"open the report: {without_secrets(str(file))}" if file else without, soft_wrap=True)


def _loaded(
    config: str,
    overrides: Sequence[str],
    output: str | None = None,
    date: str | None = None,
    report: str | None = None,
) -> Config:
    # Not as an override: YAML would read an empty text as no value.
    return load(config, overrides, date=date, sink=None if output is None else {"path": output}, report=report)


def _day(date: str | None) -> str | None:
    """The date of an option; ``yesterday`` and days back are counted in UTC."""
    return resolved(evaluation_day("--date", date), "UTC") if date else date


def _on_this_machine(config: Config, choice: Choice) -> bool:
    """Whether this process can look at local paths: the engine runs here, and nothing names another file system."""
    return choice.here and not any("defaultFS" in name for name in config.spark)


def _evaluate(config: Config, style: str, choice: Choice, segments: bool = False) -> Path | None:
    """Run a config and print its result, then write the report; return its file, if there is one."""
    with ExitStack() as engine:
        with live(_say) as progress:
            with _refusals_on_record(config, choice):
                if config.report:
                    check_page_file("report", config.report)
                    check_page_libraries()
                if _on_this_machine(config, choice):
                    check_local_paths(config.inputs, config.sink)
                spark = engine.enter_context(session_of(choice, progress))
            from rankmetrics_spark.job import rows_here, run
            from rankmetrics_spark.report import figures_of_run

            outcome = run(spark, config, progress)
            progress("reading the result")
            here = {name: rows_here(outcome, name) for name in ("experiment_metrics", "comparisons")}
            rows = result_rows(here["experiment_metrics"] or outcome.experiment_metrics)
            compared = compared_rows(here["comparisons"] or outcome.comparisons) if style == "table" else []
            if not config.report:
                engine.close()
        try:
            _print(outcome, Shown(rows, compared, config.metrics), style, segments)
        finally:
            # Also where the reader of the output has gone.
            if config.report:
                with live(_say) as progress:
                    progress("writing the report")
                    write_page(figures_of_run(spark, config), config.report)
    return Path(config.report) if config.report else None


def _print(outcome: Outcome, shown: Shown, style: str, segments: bool) -> None:
    if style != "table":
        PRINTERS[style]([*shown.rows], shown.metrics)
    if not _say.quiet:
        print_verdict(outcome.record["verdict"], style)
    if style == "table":
        print_result(shown, segments)
    # Nobody has to wait for the report to read the result.
    sys.stdout.flush()
    for line in accounting(outcome.record):
        _say.print(line, markup=False, soft_wrap=True)
    _say.print(paths_text(outcome.path, outcome.record, outcome.record_path), soft_wrap=True)


@contextmanager
def _refusals_on_record(config: Config, choice: Choice) -> Iterator[None]:
    """A run that ends before it has a session leaves a record too, where that can be written."""
    try:
        yield
    except RankmetricsError as error:
        with suppress(Exception):  # without pyspark, for one; the error itself is what matters
            from rankmetrics_spark.job import record_refusal

            record_refusal(config, choice.engine, error)
        raise
