"""The studies of a log as commands: the config says what it says of any run, and options say the rest."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

import click
import yaml
from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from rankmetrics_spark import (
    config as cfg,
    doors,
    engines as eng,
    errors as err,
    job,
    report as rep,
    sinks,
    sources,
    studies,
)
from rankmetrics_spark.cli import options as opts
from rankmetrics_spark.road import flat_judgements, shown_rows
from rankmetrics_spark.schemas import BASELINE, DATE, EXPERIMENT, METRIC, ROLES, quoted
from rankmetrics_spark.words import Fact, Level

_LIKENESS = ("same_top", "jaccard", "rbo", "kendall", "unexpectedness")
# A mean of decimals does not depend on the order of the rows.
_MEANS = [f"double(avg(cast({name} AS decimal(28, 18)))) AS {name}" for name in _LIKENESS]


def _by_experiment(users: DataFrame) -> DataFrame:
    """The means over users of ``changed``."""
    means = users.groupBy(BASELINE, EXPERIMENT).agg(*map(F.expr, ("count(1) AS n_users", *_MEANS)))
    return means.orderBy(EXPERIMENT)


def _numbers(rows: DataFrame, columns: Mapping[str, str | None]) -> DataFrame:
    """The rows of a file of texts, with numbers where a role is one; what is none is null, which is a fault."""
    texts = {field.name for field in rows.schema.fields if isinstance(field.dataType, T.StringType)}
    roles = {role: columns.get(role) or ROLES[role] for role in ("position", "score", "relevance")}
    numbers = {name: F.expr(eng.as_number(quoted(name))) for name in texts & {*roles, *roles.values()}}
    return rows.withColumns(numbers) if numbers else rows


#: What a study reads, by the names of its arguments.
_Read: TypeAlias = Callable[[SparkSession, cfg.Config], dict[str, Any]]


@dataclass(frozen=True)
class Study:
    """A study as a command.

    Attributes:
        function: The public function.
        section: Its arguments and what is allowed.
        tables: Name of a table of its result -> how it is made; the first is printed by default.
        files: Arguments that are files.
    """

    function: Callable[..., Any]
    section: type[cfg.Section]
    tables: Mapping[str, Callable[[Any], DataFrame]]
    files: tuple[str, ...] = ()

    @property
    def _own(self) -> list[cfg.Setting]:
        """The arguments that no config has."""
        return [each for each in cfg.described(self.section) if each.name not in _OF_CONFIG]

    @property
    def _arguments(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @property
    def options(self) -> list[click.Option]:
        """The options of its command, beside those of every command that reads a config."""
        more = [
            click.Option(
                [_flag(each)], help=f"{each.allowed or 'Columns, such as query,item'}; {_shown(each)} by default."
            )
            for each in self._own
        ]
        more += [click.Option([f"--{file}"], help=f"File or folder of {file}, a row per item.") for file in self.files]
        if len(self.tables) > 1:
            more.append(click.Option(["--show"], type=click.Choice([*self.tables]), help="Which table is printed."))
        return more

    def run(self, config: str, style: str, engine: str | None, master: str | None, **options: Any) -> None:
        """Read the log of a config, and print a table."""
        loaded, choice = opts.read_by(config, engine, master, options, writes=False)
        opts.refuse_assignments(loaded, f"a study such as {self.function.__name__}")
        given = {each.name: _read(each, options[each.name]) for each in self._own if options[each.name] is not None}
        files = {name: options[name] for name in self.files if options[name] is not None}
        # Refused before an engine is started.
        self.section.of(_of_config(loaded) | given)
        needed = {name for name, each in self._arguments.items() if each.default is each.empty}
        if loaded.judgements is None and "judgements" in needed:
            raise err.ConfigError("judgements: none given; allowed: judgements: {path: FILE} in the config")
        if loaded.comparison.baseline is None and "baseline" in needed:
            raise cfg.refuse("comparison.baseline", None, "the experiment that the others are compared with")
        show, stored = options.get("show") or next(iter(self.tables)), options.get("source") == "lists"
        if stored and show == "to_judge":
            raise err.ConfigError("--show to_judge names items, of which stored lists have hashes; allowed: --from log")
        read = _of_lists if stored else partial(_of_log, files=files)
        rows = opts.on_session(choice, lambda spark: self._rows(spark, loaded, given, read, show))
        rep.LIST_PRINTERS[style](rows)

    def _rows(
        self, spark: SparkSession, config: cfg.Config, given: Mapping[str, Any], read: _Read, show: str
    ) -> list[dict[str, Any]]:
        with job.errors_in_words(config):
            known = {**_of_config(config), **read(spark, config), **given}
            arguments = {name: known[name] for name in self._arguments if name in known}
            rows = [row.asDict() for row in eng.few_rows(self.tables[show](self.function(**arguments)))]
        if not rows:
            raise err.InputError(f"nothing to show of {config.source.place}: no row of the log can be compared")
        return rows


#: Argument of a study -> where a config says it.
_OF_CONFIG = doors.settings_of(__name__, "studies")


def _of_log(spark: SparkSession, config: cfg.Config, files: Mapping[str, str]) -> dict[str, Any]:
    """What a study reads of the inputs, and of the files of its options."""
    log, judged = job.inputs(spark, config)
    log, options = shown_rows(log, config.options, sources.read_events(spark, config.events))
    known = {"columns": options.columns, "list": options.list, "impressions": _numbers(log, options.columns)}
    if judged is not None:
        judged, options = flat_judgements(judged, options)
        known["judgements"] = _numbers(judged, options.judgement_columns)
        known["judgement_columns"] = options.judgement_columns
    item = [options.columns.get("item") or "item"]
    return known | {name: sources.read(spark, cfg.Source.read({"path": path}), item) for name, path in files.items()}


def _of_lists(spark: SparkSession, config: cfg.Config) -> dict[str, Any]:
    """The same of the lists that the run of the date has stored, in the order that they have there."""
    store = sinks.store_of(spark, config.sink, "", config.spark)
    return {**job.StoredDay.of_config(store, config).log(store, config), "rank_by": "position", "first_rank": 1}


def unjudged_facts(spark: SparkSession, document: str | Mapping[str, object], figures: rep.Figures) -> list[Fact]:
    """What labels of unjudged items could change on the metric that decides; empty without judgements, or bounds."""
    with suppress(err.ConfigError, err.InputError):
        if DATE not in figures.record:
            return []
        config = cfg.load(document, date=str(figures.record[DATE]))
        bounded = config.judgements and not config.options.machine
        rows = STUDIES["unjudged"]._rows(spark, config, {}, partial(_of_log, files={}), "pairs") if bounded else []
        decides = [row for row in rows if row[METRIC] == figures.primary_name]
        levels: list[Level] = ["warn" if row["low"] < 0 < row["high"] else "ok" for row in decides]
        said = zip(decides, levels, strict=True)
        return [Fact(f"{row['sentence']}.", level, "Unjudged items") for row, level in said]
    return []


def _of_config(config: cfg.Config) -> dict[str, Any]:
    return {name: cfg.value_at(config, path) for name, path in _OF_CONFIG.items()}


def _shown(setting: cfg.Setting) -> str:
    default = setting.default
    return ",".join(default) if isinstance(default, tuple) else str(default)


def _read(setting: cfg.Setting, text: str) -> object:
    """The value of an option, as YAML reads it."""
    value = yaml.safe_load(f"[{text}]") if isinstance(setting.default, tuple) else yaml.safe_load(text)
    return setting.read(_flag(setting), value)


def _flag(setting: cfg.Setting) -> str:
    return f"--{setting.name.replace('_', '-')}"


#: What a table of bounds is read by: its own name.
_SAID = {name: attrgetter(name) for name in ("pairs", "means")}
#: Name of a command -> its study.
STUDIES = {
    "changed": Study(studies.changed, studies.Change, {"means": _by_experiment}),
    "exposure": Study(studies.exposure, studies.Exposure, {"rows": lambda rows: rows}, ("catalogue", "interactions")),
    "propensities": Study(studies.propensities, studies.Harvest, {"rows": lambda rows: rows}),
    "unjudged": Study(studies.unjudged, studies.Missing, _SAID | {"to_judge": lambda found: found.to_judge.limit(50)}),
}
