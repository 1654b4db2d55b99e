"""The ``rankmetrics`` command: arguments, progress, tables and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rankmetrics_spark import __version__
from rankmetrics_spark.config import Config, load
from rankmetrics_spark.config.days import evaluation_day, resolved
from rankmetrics_spark.config.places import check_local_paths
from rankmetrics_spark.errors import RankmetricsError, raised_by_python, root_cause
from rankmetrics_spark.report import comparisons, console
from rankmetrics_spark.session_choice import chosen_session, on_this_machine, separate_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "Spark master, or a Connect server (sc://...); by default $SPARK_REMOTE, that of spark-submit, or local[*]."
DATE = "YYYY-MM-DD, today, yesterday, or days back such as -2, counted in the config's time_zone; today by default."
TRACE = "RANKMETRICS_TRACE"
"""Environment variable: any value shows the stack trace of an error of Spark."""
FORMATS = click.Choice(["table", "json", "csv"])
# Paths and ids are text: no markup, no emoji.
_say = Console(stderr=True, highlight=False, markup=False, emoji=False)
_apart = True
"""Whether what goes to stderr stays apart from stdout."""


def _chosen_format(context: click.Context, option: click.Parameter, style: str) -> str:
    """The format; where stderr would end in it, nothing is said beside the result, except an error."""
    _say.quiet = style != "table" and not _apart
    return style


FORMAT = click.option(
    "--format",
    "style",
    type=FORMATS,
    default="table",
    callback=_chosen_format,
    help="How the result is printed on stdout.",
)


class _Command(click.Command):
    """A command that returns when it has succeeded: Databricks counts a SystemExit as a failure, even with code 0."""

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
@click.option("--master", default=None, help=MASTER)
def evaluate(
    config: str, overrides: Sequence[str], output: str | None, date: str | None, style: str, master: str | None
) -> None:
    """Evaluate an impression log and write Parquet tables."""
    with _exit_codes():
        loaded = _loaded(config, overrides, output, date)
        if _on_this_machine(loaded, master):
            check_local_paths(loaded.inputs, loaded.sink)
        _evaluate(loaded, style, lambda say: _session(master, say))


@main.command()
@click.option("--output", default="out/demo", show_default=True, help="Output folder.")
@click.option("--users", default=24_000, show_default=True, type=click.IntRange(min=100), help="Ten rows per user.")
@click.option("--seed", default=7, show_default=True, type=int)
@FORMAT
def demo(output: str, users: int, seed: int, style: str) -> None:
    """Make a seeded impression log with a known best ranker, and evaluate it."""
    from rankmetrics_spark.tools import demo as demo_log

    with _exit_codes():
        made = demo_log.make_log(Path(output) / "input", users=users, seed=seed)
        _say.print(
            f"made an impression log of {made.rows:,} rows; known order of its rankers: {' > '.join(made.best_first)}",
            soft_wrap=True,
        )
        # The log is on this machine; a Connect server may be unable to read it.
        _evaluate(
            _loaded(str(made.config), (), output, None), style, lambda say: _session(None, say, default="local[*]")
        )


@main.command()
@click.option("--spark", "on_spark", is_flag=True, help="Compute the values on Spark's executors.")
@click.option("--master", default=None, help=MASTER)
def selftest(on_spark: bool, master: str | None) -> None:
    """Check every preset against the golden values of the system it is named after."""
    from rankmetrics_spark.tools import selftest as test

    with _exit_codes():
        lines = test.checks(_on(master, test.by_spark) if on_spark else test.by_kernels())
    for line in lines:
        click.echo(str(line))
    if not all(line.ok for line in lines):
        sys.exit(1)


@main.command()
@FORMAT
def metrics(style: str) -> None:
    """Every metric: its name, aliases, range, direction and definition."""
    from rankmetrics_spark.metrics import reference

    console.LIST_PRINTERS[style](reference())


@main.command()
@click.option("--config", "config", required=True, type=click.Path(), help="YAML file; see conf/example.yaml.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a config key.")
@click.option("--date", help=DATE)
@FORMAT
@click.option("--master", default=None, help=MASTER)
def conventions(config: str, overrides: Sequence[str], date: str | None, style: str, master: str | None) -> None:
    """The same data under every convention, side by side; writes nothing."""
    with _exit_codes():
        loaded = _loaded(config, overrides, None, date)
        if _on_this_machine(loaded, master):
            check_local_paths(loaded.inputs)

        def table(spark: SparkSession) -> list[dict[str, Any]]:
            from rankmetrics_spark.job import inputs
            from rankmetrics_spark.side_by_side import compare_conventions

            return compare_conventions(*inputs(spark, loaded), loaded.options)

        rows = _on(master, table)
    console.CONVENTION_PRINTERS[style](rows)
    from rankmetrics_spark.side_by_side import tie_bounds

    bounds = [rule.name for rule in (loaded.convention, *tie_bounds(loaded.convention))]
    for line in console.tie_warnings(rows, map(str, loaded.metrics), bounds):
        _say.print(line, markup=False, soft_wrap=True)


@main.command()
@click.option("--input", "folder", required=True, help="Output folder of an earlier run, with its user_metrics.")
@click.option("--baseline", help="The experiment that the others are compared with.")
@click.option("--candidate", "candidates", multiple=True, help="Only this experiment; repeat for several.")
@click.option("--date", help="YYYY-MM-DD, yesterday, or days back such as -2, in UTC; the newest by default.")
@click.option("--pairs", type=click.Choice(["baseline", "all"]), default="baseline", show_default=True)
@click.option("--metrics", help="Only these, such as ap@10,ndcg@10; all by default.")
@click.option("--segment", "segments", multiple=True, help="A column that splits the users; repeat for several.")
@click.option("--combine", "combined", multiple=True, help="Segments that split them together: country,device.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A key of comparison: bootstrap=true.")
@click.option("--losses", type=click.IntRange(min=0), default=0, help="List so many users with the largest losses.")
@click.option("--decompose", "decomposed", help="Split each difference by the mix of users in this column.")
@FORMAT
@click.option("--master", default=None, help=MASTER)
def compare(folder: str, style: str, master: str | None, **asked: Any) -> None:
    """Compare experiments from the tables of an earlier run; writes nothing."""
    with _exit_codes():
        from rankmetrics_spark.tools.compare import Asked, comparison_of

        if asked["date"]:
            asked["date"] = resolved(evaluation_day("--date", asked["date"]), "UTC")
        wanted = Asked(folder, **asked)
        found = _on(master, lambda spark: comparison_of(spark, wanted))
    more = {"losses": found.losses} if wanted.losses else {}
    more |= {"decomposition": found.decomposition} if wanted.decomposed else {}
    comparisons.print_all(found.comparisons, more, style)


T = TypeVar("T")


def _on(master: str | None, work: Callable[[SparkSession], T]) -> T:
    """Run ``work`` on a session and return the result."""
    with _progress() as progress, _session(master, progress) as spark:
        progress("evaluating")
        return work(spark)


def _loaded(config: str, overrides: Sequence[str], output: str | None, date: str | None) -> Config:
    # Not as an override: YAML would read an empty text as no value.
    return load(config, overrides, date=date, sink=None if output is None else {"path": output})


def _on_this_machine(config: Config, master: str | None) -> bool:
    """Whether this process can look at local paths: Spark runs here, and nothing names another file system."""
    return on_this_machine(master) and not any("defaultFS" in name for name in config.spark)


def _session(
    master: str | None, say: Callable[[str], None], default: str | None = None
) -> AbstractContextManager[SparkSession]:
    return chosen_session(master, say, default)


def _evaluate(
    config: Config, style: str, session: Callable[[Callable[[str], None]], AbstractContextManager[SparkSession]]
) -> None:
    with _progress() as progress, session(progress) as spark:
        from rankmetrics_spark.job import run

        outcome = run(spark, config, progress)
        progress("reading the result")
        rows = console.result_rows(outcome.experiment_metrics)
    console.PRINTERS[style](rows, config.metrics)
    if not _say.quiet:
        comparisons.print_verdict(outcome.record["verdict"], style)
    for line in console.accounting(outcome.record):
        _say.print(line, markup=False, soft_wrap=True)
    _say.print(console.places(outcome.path, outcome.record, outcome.record_path), soft_wrap=True)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the current step and its time on a terminal; print one line per step elsewhere."""
    if not _say.is_terminal:
        yield lambda text: _say.print(f"{text} ...", soft_wrap=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description} ...", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=_say, transient=True) as progress:
        task = progress.add_task("")
        yield lambda text: progress.update(task, description=text)


def _mute() -> None:
    """Keep pyspark from logging a Java stack trace for an error that we report in one sentence."""
    with suppress(ImportError):  # Spark 3.5 has no such logger
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Report a user's mistake in one sentence and exit with its code."""
    _mute()
    try:
        yield
    except RankmetricsError as error:
        _fail(error)
    except BrokenPipeError:  # the reader of our output has gone
        raise
    except OSError as error:
        where = f" '{error.filename}'" if error.filename else ""
        _fail(RankmetricsError(f"cannot use the file or folder{where}: {error.strerror or error}"))
    except Exception as error:
        if ours := raised_by_python(error):
            _fail(ours)
        if os.environ.get(TRACE) or not _of_spark(error):
            raise
        _fail(RankmetricsError(f"Spark failed: {root_cause(error)}; set {TRACE}=1 to see its whole error"))


def _fail(error: RankmetricsError) -> NoReturn:
    _say.quiet = False
    _say.print(f"rankmetrics: {error}", markup=False, soft_wrap=True)
    sys.exit(error.exit_code)


def _of_spark(error: Exception) -> bool:
    """Whether Spark raised the error; one of our own code on its executors is a bug, and keeps its trace."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    ours = any(name.endswith(".PythonException") for name in kinds)
    return not ours and any(name.startswith(("pyspark.errors.", "py4j.")) for name in kinds)


if __name__ == "__main__":
    main()
