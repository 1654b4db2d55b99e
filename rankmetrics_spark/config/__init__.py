"""What a run is asked to do: frozen dataclasses from YAML or a mapping, with each field checked once. No pyspark."""

# A section is frozen, so one default may serve every config.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rankmetrics_spark.config.comparing import (
    AaCheck,
    Bootstrap,
    Comparison,
    Cuped,
    Gate,
    Resampling,
    check_cuped,
    check_experiments,
    check_gates,
    gates,
)
from rankmetrics_spark.config.days import evaluation_day, resolved, time_zone
from rankmetrics_spark.config.document import merged, override, parse, read_document
from rankmetrics_spark.config.fields import (
    Section,
    as_given,
    choice,
    key,
    key_names,
    listed,
    number,
    refuse,
    section,
    settings,
    text,
)
from rankmetrics_spark.config.filters import FUNCTIONS, KNOWN, QUERY_WORDS, Token, condition, table_name, tokens
from rankmetrics_spark.config.options import DEFAULT_METRICS, Options
from rankmetrics_spark.config.places import check_local_paths, check_output, local_path, refuse_overlap
from rankmetrics_spark.config.sections import RATES, TEXT_FORMATS, Input, Judgements, Limits, Quality, Sink, Source
from rankmetrics_spark.errors import HIDDEN, ConfigError, is_secret, without_secrets
from rankmetrics_spark.metrics import Convention, Metric

__all__ = [
    "DEFAULT_METRICS",
    "ENGINES",
    "FUNCTIONS",
    "KNOWN",
    "QUERY_WORDS",
    "RATES",
    "TEXT_FORMATS",
    "AaCheck",
    "Bootstrap",
    "Comparison",
    "Config",
    "Cuped",
    "Gate",
    "Input",
    "Judgements",
    "Limits",
    "Options",
    "Quality",
    "Resampling",
    "Section",
    "Sink",
    "Source",
    "Token",
    "as_dict",
    "check_cuped",
    "check_experiments",
    "check_local_paths",
    "check_output",
    "choice",
    "condition",
    "evaluation_day",
    "from_mapping",
    "key",
    "listed",
    "load",
    "local_path",
    "number",
    "override",
    "parse",
    "refuse",
    "refuse_overlap",
    "resolved",
    "table_name",
    "text",
    "tokens",
]

ENGINES = ("spark", "sail")
"""What can compute: Spark, or Sail on this machine."""
_PATHS = {
    "columns": "source.columns",
    "judgement_columns": "judgements.columns",
    "list": "source.list",
    "segments": "source.segments",
    "segment_combinations": "source.segment_combinations",
    "first_rank": "source.first_rank",
    "confidence": "comparison.confidence",
    "repeated_items": "quality.repeated_items",
}
"""Field of ``Options`` -> its path in a config file, where the two differ."""


@dataclass(frozen=True)
class Config(Section):
    """Everything a run is asked to do; made by ``load`` or ``from_mapping``, or from sections and plain values.

    ``{date}`` in the paths and filters stands for the evaluation date.

    Attributes:
        source: The impressions.
        judgements: The judgements, or ``None``: then m and the ideal list come from the items shown.
        rank_by: ``position``, or ``score`` (the default for a TREC run, whose ranks are not reliable).
        metrics: Each metric once, in the order given.
        convention: Every knob, from a preset or set one by one.
        quality: What happens to faulty rows.
        comparison: How experiments are compared.
        gates: Limits that metrics have to keep; a run that fails one publishes nothing.
        sink: Where the tables go.
        report: HTML file on this machine for the report; ``None`` = no report.
        evaluation_date: YYYY-MM-DD; today unless given. ``yesterday`` and days back such as -2 become the date.
        time_zone: Where today starts and ends, for an evaluation date that counts from it.
        engine: ``spark`` or ``sail``; None = what the command finds (see ``session_choice.choose``).
        spark: Further settings of the session.
        options: What the evaluation is asked to do, as ``evaluate`` takes it; made from the fields above.

    >>> config = Config(source=Source(path="logs/{date}"), metrics="ap@10,map@10", evaluation_date="2026-11-21")
    >>> config.source.path, [str(metric) for metric in config.metrics], config.rank_by
    (('logs/2026-11-21',), ['ap@10'], 'position')
    >>> config.options.metrics == config.metrics, config.options.confidence
    (True, 0.95)
    """

    source: Source = key({}, section(Source))
    judgements: Judgements | None = key(None, section(Judgements))
    rank_by: str = key(None, as_given)
    metrics: tuple[Metric, ...] = key(None, as_given)
    convention: Convention = key(None, as_given)
    quality: Quality = key({}, section(Quality))
    comparison: Comparison = key({}, section(Comparison))
    gates: tuple[Gate, ...] = key((), gates)
    sink: Sink = key({}, section(Sink))
    report: str | None = key(None, text)
    evaluation_date: str = key("today", evaluation_day)
    time_zone: str = key("UTC", time_zone)
    engine: str | None = key(None, choice(*ENGINES))
    spark: Mapping[str, str] = key({}, settings)
    options: Options = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Checks the fields, fills in what depends on others, and refuses combinations that cannot work.

        Raises:
            ConfigError: One sentence with the path of the field, its value and what is allowed.
        """
        super().__post_init__()
        self._settle("evaluation_date", resolved(self.evaluation_date, self.time_zone))
        for name in ("source", "judgements", "sink"):
            self._settle(name, _dated(getattr(self, name), self.evaluation_date))
        self._settle("report", self.report and self.report.replace("{date}", self.evaluation_date))
        _check_trec_run(self)
        refuse_overlap(self.inputs, self.sink)
        self._settle("options", _options(self))
        for name in ("metrics", "convention", "rank_by"):
            self._settle(name, getattr(self.options, name))
        check_gates(self.gates, self.metrics, self.comparison)
        check_cuped(self.comparison, self.evaluation_date)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The sections of the tables that are read."""
        return (self.source, self.judgements) if self.judgements else (self.source,)


def _check_trec_run(config: Config) -> None:
    if config.source.format == "trec_run" and config.judgements is None:
        raise ConfigError(
            "judgements is missing, and source.format 'trec_run' has no relevance; "
            "allowed: a judgements section, such as format: trec_qrels with a path"
        )


def _options(config: Config) -> Options:
    source, judgements = config.source, config.judgements
    formats = {source.format, judgements.format if judgements else source.format}
    return Options(
        metrics=config.metrics,
        convention=config.convention,
        rank_by=config.rank_by or ("score" if source.format == "trec_run" else "position"),
        columns=source.columns,
        judgement_columns=judgements.columns if judgements else {},
        list=source.list,
        segments=source.segments,
        segment_combinations=source.segment_combinations,
        covariate=config.comparison.cuped.column if config.comparison.cuped else None,
        first_rank=source.first_rank,
        confidence=config.comparison.confidence,
        repeated_items=config.quality.repeated_items,
        text_numbers=not TEXT_FORMATS.isdisjoint(formats),
        judged=judgements is not None,
        paths=_PATHS,
    )


def _dated(part: Any, date: str) -> object:
    """The section with the date in place of ``{date}`` in its path and filter."""
    changes: dict[str, object] = {}
    for name in ("path", "where"):
        value = getattr(part, name, None)
        if isinstance(value, str):
            changes[name] = value.replace("{date}", date)
        elif value is not None:
            changes[name] = tuple(item.replace("{date}", date) for item in value)
    return replace(part, **changes) if changes else part


def from_mapping(mapping: Mapping[str, object]) -> Config:
    """A config from nested mappings, such as those that a YAML file holds.

    Raises:
        ConfigError: One sentence with the path of the field.

    >>> from_mapping({"source": {"table": "logs.impressions"}, "metrics": ["MAP@10"]}).source.format
    'table'
    """
    return Config.read(mapping)


def load(path: str | Path, overrides: Sequence[str] = (), date: str | None = None, **top: object) -> Config:
    """A config from a YAML file.

    Args:
        path: The file.
        overrides: Assignments such as ``source.path=logs`` or ``metrics=ap@10,ndcg@10``; later ones win.
        date: The evaluation date, ``yesterday`` or a number of days back; ``None`` keeps the one of the file.
        **top: Values of top-level keys, which win over the file and the overrides. Mappings are merged, and ``None``
            changes nothing.

    Raises:
        ConfigError: One sentence with the path of the field or the line of the file.
    """
    document = read_document(path)
    for assignment in overrides:
        document = override(document, assignment)
    return from_mapping(merged(document, {"evaluation_date": date, **top}))


def as_dict(config: Config) -> dict[str, Any]:
    """The config as plain values for the run record: metrics by name, the convention as text, secrets hidden.

    >>> as_dict(Config(source=Source(path="logs"), metrics="ap@10"))["metrics"]
    ['ap@10']
    """
    return {name: _plain(getattr(config, name)) for name in key_names(Config)}


def _plain(value: object) -> Any:
    if isinstance(value, Section):
        return {name: _plain(getattr(value, name)) for name in key_names(type(value))}
    if isinstance(value, Mapping):
        return {name: HIDDEN if is_secret(name) else _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Convention):
        return value.text()
    if isinstance(value, str):
        return without_secrets(value)
    return str(value) if isinstance(value, Metric) else value
