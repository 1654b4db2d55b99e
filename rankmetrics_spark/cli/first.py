"""What ``rankmetrics check`` shows: what a config would do, from its values and the schemas of its inputs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from rankmetrics_spark.config import Config, Input, local_path
from rankmetrics_spark.job import errors_in_words, inputs
from rankmetrics_spark.metrics import deciding
from rankmetrics_spark.pipeline import Tables
from rankmetrics_spark.schemas import JUDGEMENT_ROLES, ROLES


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
    paths = section.path or ()
    files = [file for path in paths for file in _files(path)]
    size = (
        f", {len(files):,} file{'s'[: len(files) > 1]} of {sum(map(os.path.getsize, files)) / 1e6:,.1f} MB"
        if files
        else ""
    )
    filtered = f", where {section.where}" if section.where not in (None, "true") else ""
    return f"{section.format}, {', '.join(paths)}{size}{filtered}"


def _files(path: str) -> list[Path]:
    local = local_path(path)
    if local is None:
        return []
    place = Path(local)
    found = [place] if place.is_file() else place.rglob("*")
    return [file for file in found if file.is_file() and not file.name.startswith(("_", "."))]
