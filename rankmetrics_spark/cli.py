"""The ``rankmetrics`` command: arguments, progress, tables and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rankmetrics_spark import __version__
from rankmetrics_spark.config import Config, load
from rankmetrics_spark.config.places import check_local_paths
from rankmetrics_spark.config.sections import Sink
from rankmetrics_spark.errors import ConfigError, RankmetricsError, raised_by_python, root_cause
from rankmetrics_spark.report import comparisons, console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "Spark master, or a Connect server (sc://...); by default $SPARK_REMOTE, that of spark-submit, or local[*]."
MASTERS = ("local", "spark://", "yarn", "k8s://")
TRACE = "RANKMETRICS_TRACE"
"""Environment variable: any value shows the stack trace of an error of Spark."""
FORMATS = click.Choice(["table", "json", "csv"])
# Paths and ids are text: no markup, no emoji.
_say = Console(stderr=True, highlight=False, markup=False, emoji=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rankmetrics")
def main() -> None:
    """Which ranking experiment is better, and how sure is that?"""


@main.command()
@click.option("--config", "config", required=True, type=click.Path(), help="YAML file; see conf/example.yaml.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key: metrics=ap@10.")
@click.option("--output", help="Output folder, instead of sink.path.")
@click.option("--date", help="Evaluation date, ISO; today by default.")
@click.option("--format", "style", type=FORMATS, default="table", help="How the result is printed on stdout.")
@click.option("--master", default=None, help=MASTER)
def evaluate(
    config: str, overrides: Sequence[str], output: str | None, date: str | None, style: str, master: str | None
) -> None:
    """Evaluate an impression log and write Parquet tables."""
    with _exit_codes():
        loaded = _loaded(config, overrides, output, date)
        if _on_this_machine(loaded, master):
            check_local_paths(loaded.inputs, loaded.sink)
        _evaluate(loaded, style, lambda: _session(master))


@main.command()
@click.option("--output", default="out/demo", show_default=True, help="Output folder.")
@click.option("--users", default=24_000, show_default=True, type=click.IntRange(min=100), help="Ten rows per user.")
@click.option("--seed", default=7, show_default=True, type=int)
@click.option("--format", "style", type=FORMATS, default="table")
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
        _evaluate(_loaded(str(made.config), (), output, None), style, lambda: _session("local[*]"))


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
    sys.exit(0 if all(line.ok for line in lines) else 1)


@main.command()
@click.option("--format", "style", type=FORMATS, default="table", help="How the list is printed on stdout.")
def metrics(style: str) -> None:
    """Every metric: its name, aliases, range, direction and definition."""
    from rankmetrics_spark.metrics import reference

    console.LIST_PRINTERS[style](reference())


@main.command()
@click.option("--config", "config", required=True, type=click.Path(), help="YAML file; see conf/example.yaml.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a config key.")
@click.option("--date", help="Evaluation date, ISO; today by default.")
@click.option("--format", "style", type=FORMATS, default="table", help="How the result is printed on stdout.")
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
@click.option("--date", help="Evaluation date, ISO; the newest by default.")
@click.option("--pairs", type=click.Choice(["baseline", "all"]), default="baseline", show_default=True)
@click.option("--metrics", help="Only these, such as ap@10,ndcg@10; all by default.")
@click.option("--segment", "segments", multiple=True, help="A column that splits the users; repeat for several.")
@click.option("--combine", "combined", multiple=True, help="Segments that split them together: country,device.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A key of comparison: bootstrap=true.")
@click.option("--losses", type=click.IntRange(min=0), default=0, help="List so many users with the largest losses.")
@click.option("--decompose", "decomposed", help="Split each difference by the mix of users in this column.")
@click.option("--format", "style", type=FORMATS, default="table", help="How the result is printed on stdout.")
@click.option("--master", default=None, help=MASTER)
def compare(folder: str, style: str, master: str | None, **asked: Any) -> None:
    """Compare experiments from the tables of an earlier run; writes nothing."""
    with _exit_codes():
        from rankmetrics_spark.tools.compare import Asked, comparison_of

        wanted = Asked(folder, **asked)
        found = _on(master, lambda spark: comparison_of(spark, wanted))
    more = {"losses": found.losses} if wanted.losses else {}
    more |= {"decomposition": found.decomposition} if wanted.decomposed else {}
    comparisons.print_all(found.comparisons, more, style)


@main.command()
@click.option("--output", "output", default=None, help="Output folder of the runs.")
@click.option("--table", default=None, help="Instead: schema of a catalog, such as lake.ranking.")
@click.option("--sink-format", type=click.Choice(["delta", "iceberg"]), default="delta", help="Format of --table.")
@click.option("--format", "style", type=FORMATS, default="table", help="How the list is printed on stdout.")
@click.option("--master", default=None, help=MASTER)
def runs(output: str | None, table: str | None, sink_format: str, style: str, master: str | None) -> None:
    """Every run of an output: outcome, counts, timings; the newest first."""
    with _exit_codes():
        from rankmetrics_spark.tools.runs import records_of, summaries

        if (output is None) == (table is None):
            raise ConfigError("allowed: exactly one of --output and --table")
        sink = Sink(path=output) if table is None else Sink(table=table, format=sink_format)
        found = records_of(sink, lambda work: _on(master, work))
    console.LIST_PRINTERS[style](found if style == "json" else summaries(found))


T = TypeVar("T")


def _on(master: str | None, work: Callable[[SparkSession], T]) -> T:
    """Start a session, run ``work`` on it, stop the session and return the result."""
    with _progress() as progress:
        progress("starting Spark")
        spark = _session(master)
        try:
            progress("evaluating")
            return work(spark)
        finally:
            progress("stopping Spark")
            spark.stop()


def _loaded(config: str, overrides: Sequence[str], output: str | None, date: str | None) -> Config:
    # Not as an override: YAML would read an empty text as no value.
    return load(config, overrides, date=date, sink=None if output is None else {"path": output})


def _on_this_machine(config: Config, master: str | None) -> bool:
    """Whether this process can look at local paths: Spark runs here, and nothing names another file system."""
    address = master or os.environ.get("SPARK_REMOTE") or "local"
    elsewhere = {"PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"} & os.environ.keys()
    return address.startswith("local") and not elsewhere and not any("defaultFS" in name for name in config.spark)


def _session(master: str | None) -> SparkSession:
    """Return the session of Spark Connect (``sc://...``) or spark-submit if there is one, else a local session."""
    from rankmetrics_spark.sessions import connect_session, local_session

    address = master or os.environ.get("SPARK_REMOTE")
    if address and address.startswith("sc://"):
        return connect_session(address)
    if address is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark.sql import SparkSession

        return SparkSession.builder.appName("rankmetrics").getOrCreate()
    if address is not None and not address.startswith(MASTERS):
        raise ConfigError(
            f"--master is '{address}'; allowed: an address such as {', '.join(MASTERS)}, or sc://HOST:PORT"
        )
    return local_session(address or "local[*]")


def _evaluate(config: Config, style: str, start: Callable[[], SparkSession]) -> None:
    with _progress() as progress:
        progress("starting Spark")
        spark = start()
        try:
            from rankmetrics_spark.job import run

            outcome = run(spark, config, progress)
            progress("reading the result")
            rows = console.result_rows(outcome.experiment_metrics)
        finally:
            progress("stopping Spark")
            spark.stop()
    console.PRINTERS[style](rows, config.metrics)
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
    _say.print(f"rankmetrics: {error}", markup=False, soft_wrap=True)
    sys.exit(error.exit_code)


def _of_spark(error: Exception) -> bool:
    """Whether Spark raised the error; one of our own code on its executors is a bug, and keeps its trace."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    ours = any(name.endswith(".PythonException") for name in kinds)
    return not ours and any(name.startswith(("pyspark.errors.", "py4j.")) for name in kinds)


if __name__ == "__main__":
    main()
