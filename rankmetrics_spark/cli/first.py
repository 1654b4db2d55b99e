"""The first hour: ``rankmetrics init`` writes a config for a log, ``check`` says what a config would do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from pyspark.sql import SparkSession

from rankmetrics_spark.config import Config, Input, Source, local_path
from rankmetrics_spark.engines import few_rows, spark_table
from rankmetrics_spark.errors import ConfigError, OutputError
from rankmetrics_spark.job import errors_in_words, inputs
from rankmetrics_spark.metrics import deciding
from rankmetrics_spark.pipeline import Tables
from rankmetrics_spark.schemas import JUDGEMENT_ROLES, ROLES
from rankmetrics_spark.tools import FirstConfig, guesses, sample


def first_config(log: str, columns: Sequence[str], baseline: str | None, judgements: str | None) -> FirstConfig:
    """A config for a log; on a terminal, what cannot be guessed is asked.

    Args:
        log: File or folder.
        columns: What the user says, such as ``user=uid``.
        baseline: The experiment to compare with, if the user says so.
        judgements: File of judgements, if there is one.

    Raises:
        ConfigError: A column is neither given nor to be guessed, or the baseline is not in the log.
        InputError: The log cannot be read.
    """
    given = _given(columns)
    found = sample(log)
    names = [str(name) for name in found.rows.columns]
    first = FirstConfig(found, guesses(found.rows, given), judgements=judgements)
    for role in first.missing():
        if not _asks():
            requests = first.columns.get("list")
            advice = (
                f", also {role}={requests.column} for requests instead of users" if role == "user" and requests else ""
            )
            raise ConfigError(
                f"no column of '{log}' looks like the {role}; it has {', '.join(names)}; allowed: --column {role}=NAME"
                + advice
            )
        given[role] = click.prompt(f"Which column is the {role}?", type=click.Choice(names), err=True)
        first = replace(first, columns=guesses(found.rows, given))
    if baseline is not None and baseline not in first.experiments and found.whole:
        raise ConfigError(f"--baseline is '{baseline}'; allowed: one of {', '.join(first.experiments)}")
    return replace(first, baseline=baseline or _baseline(first), relevant_from=_relevant_from(first))


def _given(columns: Sequence[str]) -> dict[str, str]:
    found = {}
    for assignment in columns:
        role, equals, name = assignment.partition("=")
        if not equals or not name:
            raise ConfigError(f"--column is '{assignment}'; allowed: ROLE=NAME, such as user=visitor_id")
        found[role] = name
    return found


def _asks() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _baseline(first: FirstConfig) -> str | None:
    if len(first.experiments) < 2 or not _asks():
        return first.likely_baseline
    names = click.Choice(first.experiments)
    answer: str = click.prompt(
        "Which experiment is the baseline?", type=names, default=first.experiments[0], show_default=True, err=True
    )
    return answer


def _relevant_from(first: FirstConfig) -> float | None:
    """The smallest relevant grade, if the user says that it is not the smallest one above 0."""
    positive = [grade for grade in first.grades if grade > 0]
    if len(positive) < 2 or not _asks() or click.confirm(f"Is a grade of {positive[0]:g} relevant?", True, err=True):
        return None
    return positive[1]


def write_first_config(first: FirstConfig, file: Path) -> None:
    """Write the config to a new file.

    Raises:
        ConfigError: The file exists.
        OutputError: It cannot be written.
    """
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(first.text().replace("THIS_FILE", str(file)))
    except FileExistsError:
        raise ConfigError(f"--output is '{file}', which exists; allowed: a new file") from None
    except OSError as error:
        raise OutputError(f"cannot write '{file}': {error.strerror}") from error


def sample_means(spark: SparkSession, config: Config, first: FirstConfig) -> list[dict[str, Any]]:
    """Experiment, metric, users and mean over the first rows of a log; a TREC run is read in whole."""
    with errors_in_words(config):
        impressions, judgements = inputs(spark, config)
        if first.log.format != "trec_run":
            rows = first.log.rows
            if first.dates:
                rows = rows[rows[first.columns["date"].column].astype(str) == first.dates[-1]]
            impressions = spark_table(rows, "the sample", impressions)
        means = few_rows(Tables.of(impressions, judgements, config.options).experiment_metrics)
    order = {str(metric): place for place, metric in enumerate(config.metrics)}
    columns = {"experiment": "experiment_id", "metric": "metric", "users": "n_users", "mean": "mean"}
    every = [{name: row[column] for name, column in columns.items()} for row in means if row["segment"] == "all"]
    return sorted(every, key=lambda row: (row["experiment"], order[row["metric"]]))


def plan_in_words(spark: SparkSession, config: Config) -> list[tuple[str, str]]:
    """What each part of a config means for its inputs: (part, text). Reads schemas and no rows.

    Raises:
        RankmetricsError: What a run would refuse before it computes.
    """
    with errors_in_words(config):
        impressions, judgements = inputs(spark, config)
        plan = Tables.of(impressions, judgements, config.options).plan
    names = {canonical: role for role, canonical in {**ROLES, **JUDGEMENT_ROLES}.items()}
    unread = "score" if config.rank_by == "position" else "position"
    roles = {names[name]: column for name, column in plan.mapping.items() if name in names and column}
    columns = {role: column for role, column in roles.items() if role != unread}
    lines = [("impressions", _place(config.source)), ("columns", _columns(columns))]
    if config.judgements:
        judged = {names.get(name, name): column for name, column in plan.judgement_mapping.items() if column}
        lines += [("judgements", _place(config.judgements)), ("their columns", _columns(judged))]
    return [*lines, *_request(config)]


def _request(config: Config) -> Iterator[tuple[str, str]]:
    options, compared = config.options, config.comparison
    lists = f"several per user, told apart by {', '.join(options.list)}" if options.list else "one per user"
    yield "lists", f"{lists}, ranked by {config.rank_by}"
    if options.segments:
        yield "segments", ", ".join(options.segments)
    yield "metrics", ", ".join(map(str, config.metrics))
    yield "convention", config.convention.name
    if compared.pairs == "all":
        yield "compared", f"every pair of experiments, p-values corrected by {compared.correction}"
    elif compared.is_requested:
        others = ", ".join(compared.candidates) or "every other experiment"
        yield "compared", f"{others} with {compared.baseline}, p-values corrected by {compared.correction}"
    else:
        yield "compared", "nothing; comparison.baseline names the experiment that the others are compared with"
    if compared.is_requested:
        yield "decides", ", ".join(map(str, compared.primary or (deciding(config.metrics),)))
    if config.gates:
        yield "gates", "; ".join(f"{gate.metric} of {gate.experiment or 'every candidate'}" for gate in config.gates)
    sink = config.sink
    yield "tables", f"{sink.format} in {sink.path or sink.table}, the partitions of {config.evaluation_date}"


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"{role} = {column}" for role, column in columns.items())


def _place(section: Input) -> str:
    """Format and place of an input, with the number and size of its files where they are on this machine."""
    if section.table:
        return f"table {section.table}"
    files = [file for path in section.paths for file in _files(path)]
    size = (
        f", {len(files):,} file{'s'[: len(files) > 1]} of {sum(map(os.path.getsize, files)) / 1e6:,.1f} MB"
        if files
        else ""
    )
    filtered = f", where {section.where}" if section.where not in (None, "true") else ""
    parts = section.parts if isinstance(section, Source) else (section,)
    formats = ", ".join(dict.fromkeys(part.format for part in parts))
    return f"{formats}, {', '.join(section.paths)}{size}{filtered}"


def _files(path: str) -> list[Path]:
    local = local_path(path)
    if local is None:
        return []
    place = Path(local)
    found = [place] if place.is_file() else place.rglob("*")
    return [file for file in found if file.is_file() and not file.name.startswith(("_", "."))]
