"""The studies of a log as commands: the config says what it says of any run, and options say the rest; interleaving."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

import click
import yaml
from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from rankmetrics_spark import config as cfg, doors, engines as eng, job, report as rep, sinks, sources, studies, words
from rankmetrics_spark.cli import options as opts
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.road import flat_judgements, shown_rows
from rankmetrics_spark.schemas import BASELINE, DATE, EXPERIMENT, METRIC, ROLES, Row, is_unknown, quoted

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
        more = [*map(_option, self._own)]
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
            raise ConfigError("judgements: none given; allowed: judgements: {path: FILE} in the config")
        if loaded.comparison.baseline is None and "baseline" in needed:
            raise cfg.refuse("comparison.baseline", None, "the experiment that the others are compared with")
        show, stored = options.get("show") or next(iter(self.tables)), options.get("source") == "lists"
        if stored and show == "to_judge":
            raise ConfigError("--show to_judge names items, of which stored lists have hashes; allowed: --from log")
        read = _of_lists if stored else partial(_of_log, files=files)
        rows = opts.on_session(choice, lambda spark: self._rows(spark, loaded, given, read, show))
        rep.LIST_PRINTERS[style](rows)
        if not rows:
            of = f" of {words.UNITS} that people judged or were to judge" if loaded.options.machine else ""
            opts.say.lines(f"nothing left to judge: no missing label{of} moves {loaded.metrics[0]}")

    def _rows(
        self, spark: SparkSession, config: cfg.Config, given: Mapping[str, Any], read: _Read, show: str
    ) -> list[dict[str, Any]]:
        with job.errors_in_words(config):
            known = {**_of_config(config), **read(spark, config), **given}
            arguments = {name: known[name] for name in self._arguments if name in known}
            rows = [row.asDict() for row in eng.few_rows(self.tables[show](self.function(**arguments)))]
        if not rows and (show != "to_judge" or not eng.few_rows(known["impressions"].limit(1))):
            unjudged = f", or people judged no {words.UNIT} of two experiments" * bool(config.options.machine)
            raise InputError(f"nothing to show of {config.source.place}: no row of the log can be compared{unjudged}")
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


def unjudged_facts(spark: SparkSession, document: str | Mapping[str, object], figures: rep.Figures) -> list[words.Fact]:
    """What labels of unjudged items could change on the metric that decides; empty without judgements, or bounds."""
    with suppress(ConfigError, InputError):
        if DATE not in figures.record:
            return []
        config = cfg.load(document, date=str(figures.record[DATE]))
        bounded = config.judgements and not config.options.machine
        rows = STUDIES["unjudged"]._rows(spark, config, {}, partial(_of_log, files={}), "pairs") if bounded else []
        decides = [row for row in rows if row[METRIC] == figures.primary_name]
        levels: list[words.Level] = ["warn" if row["low"] < 0 < row["high"] else "ok" for row in decides]
        said = zip(decides, levels, strict=True)
        return [words.Fact(f"{row['sentence']}.", level, "Unjudged items") for row, level in said]
    return []


def _of_config(config: cfg.Config) -> dict[str, Any]:
    return {name: cfg.value_at(config, path) for name, path in _OF_CONFIG.items()}


def _option(setting: cfg.Setting) -> click.Option:
    default = ",".join(setting.default) if isinstance(setting.default, tuple) else setting.default
    allowed = setting.allowed or "Columns, such as query,item"
    return click.Option([_flag(setting)], help=f"{allowed}; {default} by default.")


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


# ---- interleaving

#: Keys of ``comparison`` that interleaving follows; every pair of rankers is compared, whatever ``pairs`` says.
READ = ("baseline", "pairs", "confidence", "correction", "looks", "tuning_users", "power")
#: Key of ``comparison`` -> why interleaving does not follow it.
_WHY = doors.data_of(__name__, "interleaving")


def preferences_of(spark: SparkSession, config: cfg.Config, effect: str | None = None) -> list[dict[str, Any]]:
    """Compare the rankers of the log of a config, and plan for an effect; a row per pair.

    Raises:
        ConfigError: The config names no column of rankers, a baseline that is none, or a key of ``comparison`` that
            interleaving does not follow.
        InputError: The log cannot be read, is empty, or has no such column.
        QualityError: More rows are left out than ``quality`` allows, or ranks seem to start at 0.
    """
    source, compared = config.source, config.comparison
    opts.refuse_assignments(config, "interleaving")
    if source.team is None and not source.ranks:
        raise ConfigError.of("no_rankers")
    if source.team is not None and source.ranks:
        raise ConfigError("source.team and source.ranks: both given; allowed: one of the two")
    usual, given = cfg.Comparison(), cfg.as_dict(config)["comparison"]
    for name in (field.name for field in fields(cfg.Comparison)):
        value, default = getattr(compared, name), getattr(usual, name)
        is_read = name in READ and (name != "looks" or value == "any")
        if value != default and not is_read:
            path = compared.path_of(name)
            allowed = "one or any" if name == "looks" else "none" if default == () else json.dumps(default).strip('"')
            why = words.worded(_WHY.get(name, "interleaving has no use for it"))
            raise cfg.refuse(path, given[path.rpartition(".")[2]], f"{allowed}, since {why}")
    request = studies.Preferences.of(vars(compared) | {"team": source.team, "ranks": source.ranks, "effect": effect})
    with job.errors_in_words(config):
        log, _ = job.inputs(spark, config)
        log, options = shown_rows(log, config.options, sources.read_events(spark, config.events))
        table = studies.preferences(log, options, request, config.quality)
        rows = [row.asDict() for row in eng.few_rows(table)]
    if not rows[0]["n_rows"]:
        raise InputError(f"the input is empty: no rows in {config.source.place}")
    return rows


def print_preferences(rows: Sequence[Row], date: str, style: str) -> None:
    """Print the rows on stdout, and on stderr a sentence per pair and what became of the rows of the log."""
    ordered = sorted(rows, key=lambda row: 1.0 if is_unknown(row["p_adjusted"]) else row["p_adjusted"])
    if style == "json":
        pairs = [row for row in rows if row["ranker_b"] is not None]
        counts = {name: rows[0][name] for name in studies.LOG_COUNTS}
        verdict = [row["sentence"] for row in ordered]
        rep.print_json({DATE: date, "comparisons": pairs, "verdict": verdict, "counts": counts})
    elif style == "csv":

        def as_json(shares: Sequence[float] | None) -> str | None:
            """Null where a rank has no slot."""
            return None if shares is None else json.dumps([None if is_unknown(share) else share for share in shares])

        rep.LIST_PRINTERS["csv"]([{**row, "draft_shares": as_json(row["draft_shares"])} for row in rows])
    elif rows[0]["ranker_b"] is not None:
        rep.LIST_PRINTERS["table"]([_texts(row) for row in rows])
    for row in ordered[: rep.MOST_SENTENCES]:
        opts.say.lines(row["sentence"])
    if len(ordered) > rep.MOST_SENTENCES:
        opts.say.lines(f"{len(ordered) - rep.MOST_SENTENCES:,} more pairs: --format json has a sentence for each")
    opts.note.lines(studies.counts_in_words(rows[0]))


def _texts(row: Row) -> dict[str, Any]:
    """A row as people read it: the share of the lists that B won."""
    interval, kind = "-", "sequential_" if row["looks"] == "any" else ""
    if not is_unknown(row[f"{kind}ci_low"]):
        shares = (min(1.0, max(0.0, 0.5 + row[f"{kind}ci_{end}"])) for end in ("low", "high"))
        interval = " to ".join(f"{100 * share:.1f}" for share in shares)
    return {
        "A": row["ranker_a"],
        "B": row["ranker_b"],
        str(words.UNITS): f"{row['n_users']:,}",
        "lists that A won": f"{row['lists_a']:,}",
        "ties": f"{row['lists_tied']:,}",
        "lists that B won": f"{row['lists_b']:,}",
        "share of B %": "-" if is_unknown(row["preference"]) else f"{100 * (0.5 + row['preference']):.1f}",
        "interval %": interval,
        "p": "-" if is_unknown(row["p_adjusted"]) else f"{row['p_adjusted']:.3g}",
        "p at every look": "-" if is_unknown(row["p_sequential"]) else f"{row['p_sequential']:.3g}",
        "p of the draft": "-" if is_unknown(row["p_draft"]) else f"{row['p_draft']:.3g}",
    }
