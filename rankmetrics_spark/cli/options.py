"""What commands share: options, the class that checks them, the configs that they name; what is printed of a run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rankmetrics_spark import config as cfg, doors, errors as err, report as rep, schemas as sch
from rankmetrics_spark.cli.exit_codes import Folding, exit_codes, live, verbose
from rankmetrics_spark.engines import Choice, choose, separate_output, session_of
from rankmetrics_spark.words import counted_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rankmetrics_spark.job import Outcome, Progress

    #: The last day that was published, its outcome, and day -> the error of one that was not.
    Ended = tuple[cfg.Config, Outcome, dict[str, err.RankmetricsError]]


# Paths and ids are text: no markup, no emoji.
#: Warnings, errors, and what a person has to know of a result.
say = Folding(stderr=True, highlight=False, markup=False, emoji=False)
#: What ``--quiet`` leaves out: progress, counts, places, what to type next.
note = Folding(stderr=True, highlight=False, markup=False, emoji=False)
_quiet: ContextVar[bool] = ContextVar("_quiet", default=False)
#: Whether what goes to stderr stays apart from stdout.
_apart = True


def _silence(context: click.Context, option: click.Parameter, value: bool) -> None:
    _quiet.set(value)
    say.quiet, note.quiet = False, value


def document_of(config: str) -> str | dict[str, object]:
    """The file of a config, or what stdin holds if it is ``-``: stdin can be read once."""
    return cfg.read_document(config) if config == "-" else config


def _chosen_format(context: click.Context, option: click.Parameter, style: str) -> str:
    """Return the format; a document has the sentences and tables of ``table`` in another notation.

    If stderr and stdout are one stream, print only the result and errors.
    """
    say.quiet = style != "table" and not _apart
    note.quiet = say.quiet or _quiet.get()
    is_document = style in rep.DOCUMENT_STYLES
    rep.document.set(style if is_document else None)
    return "table" if is_document else style


_csv_table: ContextVar[str | None] = ContextVar("_csv_table", default=None)


def _kept_in(chosen: ContextVar[Any]) -> dict[str, Any]:
    """An option that is kept in a variable, which what prints a result reads."""
    return {"expose_value": False, "callback": lambda context, option, value: chosen.set(value)}


#: What an option calls, by its word in ``commands.json``.
_CALLED: dict[str, dict[str, Any]] = {
    "FORMAT": {"callback": _chosen_format},
    "SAFE_CELLS": _kept_in(rep.safe_cells),
    "DETAILS": _kept_in(rep.details),
    "TABLE": _kept_in(_csv_table),
    "QUIET": {"expose_value": False, "callback": _silence},
    "VERBOSE": _kept_in(verbose),
    "SET": {"shell_complete": lambda context, option, typed: [
        f"{key}=" for key in cfg.description() if key.startswith(typed)]},
}  # fmt: skip
_CHOICES = {
    "ENGINES": cfg.ENGINES,
    "EXAMPLES": cfg.EXAMPLES,
    "RESULT_TABLES": rep.RESULT_TABLES,
    "STYLES": ["table", "json", "csv", *rep.DOCUMENT_STYLES],
}
_KINDS = {"path": click.Path(), "path or -": click.Path(allow_dash=True), "int": int, "float": float}
#: Command, or word for what several have -> its arguments and options in their order.
_DESCRIBED = doors.data_of(__name__, "commands")


def _kind_of(words: Any) -> Any:
    """The type of an option: one of a list of words, a number between bounds, a path; None if it is a text."""
    if isinstance(words, list) or words in _CHOICES:
        return click.Choice(words if isinstance(words, list) else _CHOICES[words])
    if bounds := re.fullmatch(r"int from (\d+)(?: to (\d+))?", words or ""):
        return click.IntRange(int(bounds[1]), int(bounds[2]) if bounds[2] else None)
    return _KINDS.get(words)


def params_of(name: str) -> Iterator[click.Parameter]:
    """The arguments and options of a command, or what several commands have, as ``commands.json`` describes them."""
    for each in _DESCRIBED.get(name, ()):
        if isinstance(each, str):
            yield from params_of(each)
            continue
        given = {key: value for key, value in each.items() if key not in ("names", "argument", "called")}
        given = {**given, **_CALLED.get(each.get("called"), {}), "type": _kind_of(each.get("type"))}
        if "help" in given:
            given["help"] = re.sub("<([A-Z_]+)>", lambda word: _DESCRIBED["words"][word[1]], given["help"])
        kind, names = (click.Argument, [each["argument"]]) if "argument" in each else (click.Option, each["names"])
        yield kind(names, **given)


def table_of_csv(style: str, compared: bool) -> str:
    """The table that CSV holds; refuse one that is not asked for as CSV, or that the run does not have.

    Args:
        style: How the result is printed.
        compared: Whether experiments are compared.
    """
    table = _csv_table.get()
    if table is not None and style != "csv":
        raise err.ConfigError(f"--table {table} is given with --format {style}; allowed: --format csv with it")
    if table == "comparisons" and not compared:
        raise err.ConfigError.of("nothing_compared", tables=[name for name in rep.RESULT_TABLES if name != table])
    return table or rep.RESULT_TABLES[0]


class Command(click.Command):
    """A command that returns on success: Databricks counts a SystemExit as a failure, even with code 0."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Add its own options, and those that every command has."""
        super().__init__(*arguments, **more)
        if not isinstance(self, click.Group):
            self.params += [*params_of(str(self.name)), *params_of("ALL")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option that is given twice, unless it may be repeated; click would take the last value."""
        if strange := [word for word in args if re.search("[\ud800-\udfff]", word)]:
            encoding = sys.getfilesystemencoding()
            cure = "" if encoding == "utf-8" else ", or UTF-8 with PYTHONUTF8=1"
            ctx.fail(f"'{err.printable(strange[0])}' is no text in {encoding}; allowed: text in {encoding}{cure}")
        values, _, flags = self.make_parser(ctx).parse_args(list(args))
        for option in flags:
            n = flags.count(option)
            if n > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count):
                last = values[option.name or ""]
                ctx.fail(f"{option.opts[-1]} is given {n} times, the last time as '{last}'; allowed: once")
        return super().parse_args(ctx, args)

    def get_short_help_str(self, limit: int = 0) -> str:
        """The first sentence of its help, whole: a list of commands breaks it instead of cutting it."""
        return super().get_short_help_str(limit=1000)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what a user can fix is one sentence and an exit code."""
        with exit_codes(say) if not isinstance(self, click.Group) else nullcontext():
            return super().invoke(ctx)

    def main(self, *arguments: Any, **more: Any) -> Any:
        """Run the command; SystemExit with its code if it fails."""
        global _apart
        _apart = separate_output()
        streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
        for stream in streams:
            # A name or a mark that an old terminal cannot show must not end a run, least of all one that has published.
            with suppress(AttributeError, ValueError):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().main(*arguments, **more)
        except SystemExit as end:
            if end.code:
                raise
            return None


class Commands(Command, click.Group):
    """The commands of the package."""

    command_class = Command


def _day(date: str | None) -> str | None:
    """Return the date of an option; ``yesterday`` and days back are counted in UTC."""
    return cfg.resolved(cfg.evaluation_day("--date", date), "UTC") if date else date


def dates_of(date: str | None, first: str | None, last: str | None) -> dict[str, str | None]:
    """The dates of --date, --from and --to; refuse them where they say different things."""
    cfg.check_rules("dates", {"date": date, "first": first, "last": last}, {})
    return {"date": _day(date), "first": _day(first), "last": _day(last)}


def loaded(
    config: str | Mapping[str, object],
    overrides: Sequence[str],
    output: str | None = None,
    date: str | None = None,
    report: str | None = None,
    where: str | None = None,
) -> cfg.Config:
    """A config with what the command line says of it; ``where`` filters a log that its config does not filter.

    Raises:
        ConfigError: The config is wrong, or it has a filter of its own.
    """
    # The variable of a bundle says null for none.
    none = where is None or cfg.override({}, f"source.where={where}") == {"source": {"where": None}}
    if not none:
        document = dict(cfg.read_document(config) if isinstance(config, str) else config)
        for assignment in overrides:
            document = cfg.override(document, assignment)
        source = document.get("source")
        own = source.get("where") if isinstance(source, Mapping) else None
        if own is not None and not _same_filter(str(own), str(where), document, date):
            raise err.ConfigError.of("two_filters", where=where, own=str(own))
    # The folder is no override, because YAML reads an empty text as null.
    filters = [] if none else [f"source.where={where}"]
    sink = None if output is None else {"path": output}
    read = cfg.load(config, [*filters, *overrides], date=date, sink=sink, report=report)
    told_of(read.unit)
    return read


def told_of(unit: str) -> None:
    """Until the command ends, texts are about users, or about queries."""
    if context := click.get_current_context(silent=True):
        context.with_resource(counted_in(unit))


def refuse_assignments(config: cfg.Config, what: str) -> None:
    """Refuse a config with assignments, for a command that reads the log as it is."""
    if config.assignments:
        raise err.ConfigError.of("reads_no_tests", what=what)


def _same_filter(own: str, where: str, document: Mapping[str, object], date: str | None) -> bool:
    """Whether two filters are the same on the date of a run, which ``{date}`` stands for."""
    chosen = cfg.evaluation_day("evaluation_date", date or document.get("evaluation_date") or "today")
    day = cfg.resolved(chosen, str(cfg.time_zone("time_zone", document.get("time_zone") or "UTC")))
    return own.replace("{date}", day) == where.replace("{date}", day)


def configs_of_days(
    config: str | Mapping[str, object], first: str | None, last: str | None, options: dict[str, Any]
) -> list[cfg.Config]:
    """The configs of all days from the first to the last."""
    if not first or not last or options["date"]:
        raise err.ConfigError("--from and --to name the days to evaluate; allowed: both of them, without --date")
    first, last = (loaded(config, **options | {"date": date}).evaluation_date for date in (first, last))
    days = cfg.Days(first, last, ())
    if days.first > days.last:
        raise err.ConfigError(f"--from is {days.first}; allowed: a date up to --to, {days.last}")
    days.refuse_too_long("--from and --to")
    configs = [loaded(config, **options | {"date": date}) for date in days.calendar]
    if len(configs) > 1 and configs[0].source == configs[-1].source:
        say.lines(err.said("same_log_each_day"))
    return configs


def print_outcome(outcome: Outcome, shown: rep.Figures, style: str, segments: bool, of_csv: str) -> None:
    """Print the result on stdout, and on stderr what was counted and where it is; the session may have ended."""
    tables = {name: getattr(shown, name) for name in rep.RESULT_TABLES}
    if style == "json":
        rep.print_json(rep.result_object(outcome.record, tables, outcome.paths))
    elif style == "csv":
        rep.print_csv(tables[of_csv])
    if not say.quiet:
        rep.print_verdict(outcome.record["verdict"], style, shown if style == "table" else None)
    if style == "table":
        rep.print_result(shown, segments)
    # People can read the result before the report is written.
    sys.stdout.flush()
    for line in rep.facts(rep.Figures((), record=outcome.record), "terminal", "notes"):
        (say if line.level == "warn" else note).lines(line)
    note.lines(rep.paths_text(outcome.path, outcome.record, outcome.record_path))


def print_failure(error: err.RankmetricsError, config: cfg.Config) -> None:
    """The numbers of a run whose gates have failed, on stderr, before the sentence of the error."""
    checks = [check for check in error.checks if check.status != sch.NOT_CHECKED and check.name in cfg.RATES]
    with redirect_stdout(sys.stderr):
        if error.record:
            rep.print_not_published(error.record, config.metrics)
        elif any(check.status == sch.FAIL for check in checks):
            rep.print_gates(checks, "rates of the log and their margins")
    if error.page:
        say.lines(f"open the page, which is not published: {err.without_secrets(error.page)}")


@contextmanager
def refusals_on_record(config: cfg.Config, choice: Choice) -> Iterator[None]:
    """Write a record for a run that fails before it has a session, if this process can write it."""
    try:
        yield
    except err.RankmetricsError as error:
        with suppress(Exception):  # without pyspark, for one; the error itself is what matters
            from rankmetrics_spark.job import record_refusal

            record_refusal(config, choice.engine, error)
        raise


def check_places(config: cfg.Config, choice: Choice, writes: bool = True) -> None:
    """Refuse local paths that cannot work, of inputs and of what is written, where this process can check them."""
    # The engine runs here, and no setting names another file system.
    if choice.here and not any("defaultFS" in name for name in config.spark):
        cfg.check_local_paths(config.inputs, config.sink if writes else None)


def read_by(
    config: str, engine: str | None, master: str | None, options: Mapping[str, Any], writes: bool = True
) -> tuple[cfg.Config, Choice]:
    """The config of a command of ``READS``, and its engine, once local paths are checked as by ``check_places``."""
    read = loaded(document_of(config), options["overrides"], None, options["date"])
    choice = choose(engine or read.engine, master, settings=read.spark)
    if options.get("source") != "lists":  # then the log may be gone
        check_places(read, choice, writes)
    return read, choice


def run_days(
    spark: SparkSession, days: Sequence[cfg.Config], choice: Choice, progress: Progress, keep_going: bool = False
) -> Ended:
    """Run the configs of days one after the other; return the last day that published, and the errors of others.

    A day that fails stops them, unless they keep going; an engine that has ended stops them in any case. The paths of
    the first day are checked by now, if it may stop them; those of a later one may come while the days before it run.
    """
    from rankmetrics_spark.job import run

    published: dict[str, tuple[cfg.Config, Outcome]] = {}
    failed: dict[str, err.RankmetricsError] = {}
    for of_day in days:
        day, is_last = of_day.evaluation_date, of_day is days[-1]
        try:
            if keep_going or of_day is not days[0]:
                with refusals_on_record(of_day, choice):
                    check_places(of_day, choice)
            if not is_last:
                progress(f"evaluating {day}")
            try:
                outcome = run(spark, of_day, *([progress] if is_last else []))
            except err.MetricGateError as error:
                if error.published is None:
                    raise
                print_failure(error, of_day)
                outcome, failed[day] = error.published, error
                if len(days) > 1:
                    say.lines(f"{day}: {error}")
            published[day] = of_day, outcome
            if not is_last and of_day.report.file and of_day.report.file != days[-1].report.file:
                rep.write_page(rep.figures_of_run(spark, of_day, outcome.record), of_day.report.file)
        except BaseException as error:
            if isinstance(error, err.RankmetricsError):
                print_failure(error, of_day)
                if keep_going and error.exit_code != err.RankmetricsError.exit_code:
                    failed[day] = error
                    say.lines(f"{day} is not published: {error}")
                    continue
            if len(days) > 1:
                say.lines(f"stopped at {day}; published: {cfg.dates_in_words([*published]) or 'no day'}")
            raise
    if not published:
        end_days(days, failed)
    return *[*published.values()][-1], failed


def end_days(days: Sequence[cfg.Config], failed: Mapping[str, err.RankmetricsError]) -> None:
    """Print a line for each day and raise the worst error, if days have failed."""
    if not failed:
        return
    worst = max(failed.values(), key=lambda error: error.exit_code)
    if len(days) == 1:
        raise worst
    for day in (each.evaluation_date for each in days):
        say.lines(f"{day}: " + (f"exit code {failed[day].exit_code}" if day in failed else "published"))
    part = " in whole" if any(error.published for error in failed.values()) else ""
    raise type(worst)(f"{len(failed)} of {len(days)} days are not published{part}: {cfg.dates_in_words([*failed])}")


T = TypeVar("T")


def choose_for(folder: str, engine: str | None, master: str | None) -> Choice:
    """The choice of a command that reads the tables of ``--input``; refuse a folder of this machine that is absent."""
    choice, path = choose(engine, master), cfg.local_path(folder)
    if choice.here and path is not None and not path.exists():
        raise err.InputError.of("no_folder_of_run", folder=folder)
    return choice


def on_session(choice: Choice, work: Callable[[SparkSession], T]) -> T:
    """Run ``work`` on the chosen session and return the result."""
    with live(note) as progress, session_of(choice, progress) as spark:
        if note.is_terminal:  # elsewhere, a line for the only step says nothing
            progress("computing")
        return work(spark)


def on_job(choice: Choice, work: Callable[[Any, SparkSession], T]) -> T:
    """The same for work with the module ``job``, which is loaded once there is a session."""
    return on_session(choice, lambda spark: work(import_module("rankmetrics_spark.job"), spark))
