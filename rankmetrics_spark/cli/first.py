"""The first hour: ``rankmetrics init`` writes a config for a log, ``check`` says what a config would do."""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import pandas as pd
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, engines as eng, errors as err, job, metrics as mx, road, sources, tools
from rankmetrics_spark.pipeline import check as check_quality
from rankmetrics_spark.schemas import INTENTS, JUDGEMENT_ROLES, PRIMARY, ROLES, Rows
from rankmetrics_spark.words import UNIT, UNITS


class InitRequest(SimpleNamespace):
    """What ``rankmetrics init`` is asked for: its options, under the names that its decorators give them."""

    @property
    def input(self) -> dict[str, str] | None:
        """The section of a log that only an engine reads; None for files of this machine."""
        place = Path(self.log)
        if place.exists():
            return {"format": "delta", "path": self.log} if (place / "_delta_log").is_dir() else None
        format = tools.FORMAT_OF.get(place.suffix.lower())
        if "://" in self.log:
            return {"format": format or "parquet", "path": self.log}
        is_name = format is None and re.fullmatch(r"[\w`-]+(\.[\w`-]+){1,2}", self.log)
        return {"format": "table", "table": self.log} if is_name else None


def sample_of_engine(spark: SparkSession, section: Mapping[str, str]) -> tools.LogSample:
    """The first rows of a table, or of a folder that is not on this machine.

    Raises:
        InputError: It cannot be read, or has no rows.
    """
    config = cfg.from_mapping({"source": section})
    with job.errors_in_words(config):
        head = sources.read(spark, config.source).limit(tools.SAMPLE_ROWS)
        rows = eng.python_table(head, "pandas")
    place = section.get("table") or section["path"]
    return tools.checked_sample(place, section["format"], rows, {}, (len(rows) < tools.SAMPLE_ROWS, "tag"))


def first_config(request: InitRequest, log: tools.LogSample) -> tools.FirstConfig:
    """A config for a log; on a terminal, what cannot be guessed is asked.

    Raises:
        ConfigError: A column is not given and cannot be guessed, or the baseline is not in the log.
        InputError: The judgements cannot be read.
    """
    # The columns that the user names: of the log, the judgements, and the assignments.
    names: dict[str, dict[str, str]] = {"": {}, "judgements": {}, "assignments": {}}
    for assignment in request.columns:
        role, equals, name = assignment.partition("=")
        if not equals or not name:
            raise err.ConfigError(f"--column is '{assignment}'; allowed: ROLE=NAME, such as user=visitor_id")
        prefix, _, last = role.rpartition(".")
        names[prefix if prefix in names else ""][last if prefix in names else role] = name
    roles, judged, of_who = names.values()
    err.check_known("column", request.segments, [*map(str, log.rows.columns)], "--segment")
    columns = tools.guesses(log.rows, roles, placed=log.roles)
    # Judgements may be the rows of the scores.
    truth = None if log.options.get("rows") == request.judgements else request.judgements
    first = tools.FirstConfig(log, columns, judgements=truth, judged=judged, split_by=request.segments)
    if request.assignments:
        assigned = tools.AssignmentSample.of(tools.sample(request.assignments, tools.ASSIGNMENTS), of_who)
        first = replace(first, assigned=assigned)
    first = with_events(first, request, roles)
    log = first.log
    if first.truth:
        lists, of_truth = columns.get("list"), first.judged_columns.items()
        mapped = [guess.column for role, guess in of_truth if role in JUDGEMENT_ROLES]
        shown, judged_names = map(str, log.rows.columns), map(str, first.truth.rows.columns)
        if events := cfg.of_single_lists(shown, judged_names, lists.columns if lists else (), mapped):
            raise err.ConfigError(events)
    while missing := first.missing():
        first = _answered(first, missing[0], roles)
    refused: list[str] = []
    # Only its values say that this column is the experiment.
    while asks() and (guessed := first.guessed_experiment):
        if click.confirm(f"Is {guessed} the experiment ({', '.join(first.experiments)})?", True, err=True):
            roles["experiment"] = guessed
        else:
            refused.append(guessed)
        first = replace(first, columns=tools.guesses(first.log.rows, roles, refused, first.log.roles))
    return _decided(first, request)


def with_events(first: tools.FirstConfig, request: InitRequest, roles: Mapping[str, str]) -> tools.FirstConfig:
    """The config with the events of a file, or with those among the rows of the log.

    Raises:
        ConfigError: No kind of event looks like one that counts.
    """
    log, columns = first.log, dict(first.columns)
    rows = log.rows if request.events is None else tools.sample(request.events, tools.EVENTS).rows
    if request.events and "list" not in columns and (shared := _shared_list(first, rows)):
        columns["list"] = tools.Guess(shared, "likely, since the events have it too")

    def found_in(columns: Mapping[str, tools.Guess]) -> tools.EventSample:
        """The events, by the columns of the log."""
        of_list = columns["list"].columns if "list" in columns else ()
        return tools.EventSample.of(rows, of_list, columns["user"].column if "user" in columns else None)

    found = found_in(columns)
    if request.events is None:
        if not found.shown or not found.grades or "relevance" in roles:
            return first
        kind = found.columns["kind"]
        impressions = log.rows[log.rows[kind].astype(str) == found.shown].drop(columns=kind)
        raw = None if log.raw is None else log.raw[log.raw[kind].astype(str) == found.shown]
        log = replace(log, rows=impressions, raw=raw)
        # Only the rows of impressions say which columns tell lists apart.
        columns = dict(tools.guesses(log.rows, roles, placed=log.roles))
        return replace(first, log=log, columns=columns, found=found_in(columns))
    if "kind" in found.columns and not found.grades:
        raise err.ConfigError.of("no_kind_that_counts", events=request.events, kinds=found.others[:6])
    columns.pop("relevance", None)
    return replace(first, events=request.events, found=found, columns=columns)


def _shared_list(first: tools.FirstConfig, events: pd.DataFrame) -> str | None:
    """A column of ids in the log and in the events, which tells the lists of users and experiments apart."""
    rows, taken = first.log.rows, {name for guess in first.columns.values() for name in guess.columns}
    keys = [first.columns[role].column for role in ("experiment", "user") if role in first.columns]
    for name in map(str, events):
        if name in rows and name not in taken and re.search("(?i)id$", name) and keys:
            pairs = rows[[*keys, name]].dropna().drop_duplicates()
            if len(pairs) == pairs[name].nunique() >= len(pairs[keys].drop_duplicates()):
                return name
    return None


def _decided(first: tools.FirstConfig, request: InitRequest) -> tools.FirstConfig:
    """The config with its baseline and its smallest relevant grade, once the user's columns and values can serve."""
    known = [arm for arms in first.assigned.arms.values() for arm in arms] if first.assigned else first.experiments
    whole = (first.assigned.log if first.assigned else first.log).whole
    if request.baseline is not None and request.baseline not in known and whole:
        one = "none, since no column or file names an experiment; --column experiment=NAME, if one does"
        allowed = f"one of {', '.join(dict.fromkeys(known))}" if known else one
        raise err.ConfigError(f"--baseline is '{request.baseline}'; allowed: {allowed}")
    if request.relevant_from is not None and request.relevant_from <= 0:
        raise err.ConfigError(f"--relevant-from is {request.relevant_from:g}; allowed: a grade above 0")
    given = [("", first.log, role, guess.column) for role, guess in first.columns.items() if guess.reason == "given"]
    judged = [("judgements.", first.truth, role, name) for role, name in first.judged.items()]
    for prefix, sampled, role, name in (*given, *judged):
        if sampled and (problem := tools.unusable(sampled.rows, role, name)):
            raise err.ConfigError(f"--column {prefix}{role}={name}: {problem}")
    baseline, relevant = request.baseline or first.likely_baseline, request.relevant_from
    which, arms = "experiment", first.experiments
    if (assigned := first.assigned) and len(of_none := [*assigned.arms.keys() - assigned.baselines(None).keys()]) == 1:
        which, arms = f"arm of {of_none[0]}" if of_none[0] else "arm", assigned.arms[of_none[0]]
    if not request.baseline and len(arms) > 1 and asks():
        names, default = click.Choice(arms), arms[0]
        baseline = click.prompt(f"Which {which} is the baseline?", type=names, default=default, err=True)
    positive = [grade for grade in first.grades if grade > 0]
    if not relevant and len(positive) > 1 and asks():
        asked = f"Which is the smallest grade that is a hit ({positive[0]:g} to {positive[-1]:g})?"
        grade = click.FloatRange(0, positive[-1], min_open=True)
        relevant = click.prompt(asked, type=grade, default=f"{first.likely_hit:g}", err=True)
    first = replace(first, baseline=baseline, relevant_from=relevant)
    if (stars := first.all_relevant) and not asks():
        grades = ", ".join(f"{grade:g}" for grade in first.grades[:6])
        raise err.ConfigError.of("every_value_relevant", stars=stars, grades=grades)
    return first


def _answered(first: tools.FirstConfig, role: str, roles: dict[str, str]) -> tools.FirstConfig:
    """The config with what was missing, as a user on a terminal says.

    Raises:
        ConfigError: There is no terminal; it says why no column has it, and what to type instead.
    """
    word = role.removeprefix("judgements.")
    sampled = first.truth if role != word and first.truth else first.log
    names = [str(name) for name in sampled.rows.columns]
    if role == "judgements":
        if not asks():
            raise err.ConfigError.of("no_qrels", path=sampled.path, what=sampled.ranked_by_format.removesuffix(" of"))
        return replace(first, judgements=_file("Which file holds the judgements (qrels)?"))
    if not asks():
        raise err.ConfigError(_nothing_like(first))
    question = f"Which column{' of the judgements' if word != role else ''} is the {word}?"
    if role == "relevance" and click.confirm("Are there judgements, in a file of their own?", False, err=True):
        return replace(first, judgements=_file("Which file?"))
    answer = click.prompt(question, type=click.Choice(names), err=True)
    if word != role:
        return replace(first, judged={**first.judged, word: answer})
    roles[role] = answer
    return replace(first, columns=tools.guesses(first.log.rows, roles, placed=first.log.roles))


def _nothing_like(first: tools.FirstConfig) -> str:
    """That no column looks like what a run needs: everything that is missing, with the whole command."""
    missing = first.missing()
    requests = first.columns.get("list")
    nothing: list[str] = []
    known: list[str] = []
    allowed: list[str] = []
    for sampled, prefix in ((first.log, ""), (first.truth, "judgements.")):
        words = [role.removeprefix(prefix) for role in missing if role.startswith("judgements.") == bool(prefix)]
        if sampled is None or not words:
            continue
        none = "none" if nothing else "no column"
        nothing.append(f"{none} of '{sampled.path}' looks like the {' or the '.join(words)}")
        alike = [name for word in words for name in (("position", "score") if word == "position" else (word,))]
        nothing += [problem for name in alike for problem in tools.unusable_names(sampled.rows, name)]
        names = list(map(str, sampled.rows.columns))
        if sampled.lists and not prefix:
            names.append(f"and columns of lists ({', '.join(sampled.lists)}), which need a row per item of a list")
        known.append(f"{'it' if not known else sampled.path} has {', '.join(names)}{sampled.in_words}")
        allowed += [f"--column {prefix}{word}=NAME" for word in words]
    text = f"{'; '.join(nothing)}; {'; '.join(known)}; allowed: {' '.join(allowed)}"
    if "user" in missing and requests:
        text += f", also user={requests.column} for requests instead of users"
    if "position" in missing:
        text += " or --column score=NAME; without either there is no ranking to evaluate"
    text += ", or --judgements FILE" if "relevance" in missing else ""
    judged = ["--judgements", first.judgements] if first.judgements else []
    given = [f"{role}={guess.column}" for role, guess in first.columns.items() if guess.reason == "given"]
    given += [f"judgements.{role}={name}" for role, name in first.judged.items()]
    chosen = [*given, *(part.removeprefix("--column ") for part in allowed)]
    command = ["rankmetrics", "init", first.log.path, *judged, *(w for part in chosen for w in ("--column", part))]
    return f"{text}; as a whole: {shlex.join(command)}" if len(missing) > 1 else text


def _file(question: str) -> str:
    return str(click.prompt(question, type=click.Path(exists=True), err=True))


def asks() -> bool:
    """Whether questions can be asked: only on a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


OnEngine = Callable[[Callable[[SparkSession], tools.LogSample]], tools.LogSample]


def sample_of(request: InitRequest, on_engine: OnEngine) -> tools.LogSample:
    """The first rows of the log; ``on_engine`` calls a function with a session, which local files do not need."""
    section = request.input
    if section is None:
        read = partial(tools.sample, request.log, judgements=request.judgements)
        log = read(experiment_from="tag" if request.assignments else request.experiment_from)
        if not log.folds:
            return log
        names = ", ".join(log.folds[:3]) + ", ..." * (len(log.folds) > 3)
        if asks() and click.confirm(f"Is each of {names} an experiment, not a fold of one?", False, err=True):
            return read(experiment_from="file")
        raise err.ConfigError.of("folds", log=request.log, names=names)
    return on_engine(lambda spark: sample_of_engine(spark, section))


def write_first_config(first: tools.FirstConfig, file: Path) -> None:
    """Write the config, and the JSON schema that its first line names beside it.

    Raises:
        ConfigError: The text is no config.
        OutputError: It cannot be written.
    """
    content = first.text().replace("THIS_FILE", str(file))
    cfg.from_mapping(cast("Mapping[str, object]", cfg.parse(content)))
    try:
        file.write_text(content, encoding="utf-8")
        (file.parent / cfg.SCHEMA_FILE).write_text(json.dumps(cfg.schema(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise err.OutputError(f"cannot write '{file}': {error.strerror}") from error


def next_command(config: str, changes: Sequence[str] = (), date: str | None = None) -> str:
    """The command that evaluates a config.

    >>> next_command("my log.yaml", ["metrics=ap@5"], "-2")
    "rankmetrics evaluate --config 'my log.yaml' --set metrics=ap@5 --date -2"
    """
    more = [word for change in changes for word in ("--set", change)] + (["--date", date] if date else [])
    return shlex.join(["rankmetrics", "evaluate", "--config", config, *more])


def sample_means(spark: SparkSession, config: cfg.Config, first: tools.FirstConfig) -> tuple[Rows, list[str]]:
    """Experiment, metric, users and mean over the first rows of a log; a TREC run is read in whole.

    If the quality gates stop a run over these rows, their means would mislead: then there is a sentence instead.
    """
    with job.errors_in_words(config):
        read = sources.all_inputs(spark, config)
        if first.log.format != "trec_run":
            read["source"] = eng.spark_table(first.rows, "the sample", read["source"])
        tables = road.Tables.of_config(config, read)
        try:
            check_quality(tables, config.quality, config.comparison)
        except err.QualityError as error:
            return [], [f"a run over these rows would stop: {error}{_advice(first, str(error))}"]
        means = eng.few_rows(tables.experiment_metrics)
    order = {str(metric): place for place, metric in enumerate(config.metrics)}
    columns = {"experiment": "experiment_id", "metric": "metric", str(UNITS): "n_users", "mean": "mean"}
    every = [{name: row[column] for name, column in columns.items()} for row in means if row["segment"] == "all"]
    return sorted(every, key=lambda row: (row["experiment"], order[row["metric"]])), []


def _advice(first: tools.FirstConfig, refusal: str) -> str:
    """What the sample says about why a run would stop."""
    if "reasons: repeated" in refusal and first.parts_in_words:
        return f"; {first.parts_in_words}"
    guess = first.columns.get("relevance")
    if guess is None or not re.search("reasons: (unreadable|null)_relevance", refusal):
        return ""
    column = first.rows[guess.column]
    empty = len(column) - len(tools.present(column))
    if not empty or tools.numbers(column).isna().any():
        return ""
    rows = f"{empty:,} of {len(column):,} rows have no value in {guess.column}"
    return f"; {rows}: fill them with 0 if empty means no click"


def plan_in_words(spark: SparkSession, config: cfg.Config) -> list[tuple[str, str]]:
    """What each part of a config means for its inputs: (part, text). Reads schemas and no rows.

    Raises:
        RankmetricsError: What a run would refuse before it computes.
    """
    with job.errors_in_words(config):
        plan = road.Tables.of_config(config, sources.all_inputs(spark, config)).plan
    names = {canonical: role for role, canonical in {**ROLES, **JUDGEMENT_ROLES}.items()}
    unread = ["score" if config.rank_by == "position" else "position"]
    unread += [] if plan.columns.intents == "shown" else [INTENTS]
    roles = {names[name]: column for name, column in plan.mapping.items() if name in names and column}
    columns = {role: column for role, column in roles.items() if role not in unread}
    parts = {"impressions": _place(config.source), "columns": _columns(columns)}
    if config.judgements:
        unread = [] if plan.scoring.judged_intents else [INTENTS]
        of_judgements = {names.get(name, name): column for name, column in plan.judgement_mapping.items()}
        judged = {role: column for role, column in of_judgements.items() if column and role not in unread}
        parts |= {"judgements": _place(config.judgements), "their columns": _columns(judged)}
    if config.assignments:
        parts["assignments"] = _place(config.assignments)
    options, compared, sink = config.options, config.comparison, config.sink
    lists = f"several per {UNIT}, told apart by {', '.join(options.list)}" if options.list else f"one per {UNIT}"
    parts["lists"] = f"{lists}, ranked by {config.rank_by}"
    if options.segments:
        parts["segments"] = ", ".join(options.segments)
    parts |= {"metrics": ", ".join(map(str, config.metrics)), "convention": config.convention.name}
    if compared.is_requested:
        pairs = f"{', '.join(compared.candidates) or 'every other experiment'} with {compared.baseline}"
        pairs = "every pair of experiments" if compared.pairs == "all" else pairs
        baselines = (f"{test.baseline or compared.baseline} in {name}" for name, test in compared.tests.items())
        pairs = f"the arms of a test with {', '.join(baselines)}" if compared.tests else pairs
        parts["compared"] = f"{pairs}, p-values corrected by {compared.correction}"
        parts["decides"] = _deciding(compared, config.metrics)
    else:
        parts["compared"] = "nothing; comparison.baseline names the experiment that the others are compared with"
    if config.gates:
        gated = (f"{gate.metric} of {gate.experiment or 'every candidate'}" for gate in config.gates)
        parts["gates"] = "; ".join(gated)
    place = sink.table or _resolved(sink.path or "")
    return [*parts.items(), ("tables", f"{sink.format} in {place}, the partitions of {config.evaluation_date}")]


def _deciding(compared: cfg.Comparison, metrics: Sequence[mx.Metric]) -> str:
    """The metrics that decide, and those of each test that has others."""

    def of(own: cfg.Comparison) -> str:
        """Those of one comparison, as a run finds them."""
        return ", ".join(name for name, role in own.roles(metrics).items() if role == PRIMARY)

    usual = [of(compared)] if replace(compared, tests={}).is_requested else []
    tests = {name: cfg.of_test(compared, name) for name in compared.tests}
    others = {name: of(own) for name, own in tests.items() if own.is_requested}
    return "; ".join([*usual, *(f"{own} in {name}" for name, own in others.items() if own not in usual)])


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"{role} = {column}" for role, column in columns.items())


def _place(section: cfg.Input) -> str:
    """Format and place of an input, with the number and size of its files where they are on this machine."""
    if section.table:
        return f"table {section.table}"
    files: list[Path] = []
    for path in section.paths:
        if place := cfg.local_path(path):
            files += [place] if place.is_file() else place.rglob("*")
    files = [file for file in files if file.is_file() and not file.name.startswith(("_", "."))]
    size = f", {len(files):,} file{'s'[: len(files) > 1]} of {sum(map(os.path.getsize, files)) / 1e6:,.1f} MB"
    filtered = f", where {section.where}" if section.where not in (None, "true") else ""
    parts = section.parts if isinstance(section, cfg.Source) else (section,)
    formats = ", ".join(dict.fromkeys(part.format for part in parts))
    return f"{formats}, {', '.join(map(_resolved, section.paths))}{size if files else ''}{filtered}"


def _resolved(path: str) -> str:
    """A path of this machine with the folder that it is relative to; any other as it is."""
    local = cfg.local_path(path)
    return path if local is None or local.is_absolute() else str(local.absolute())
