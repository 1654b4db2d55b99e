"""What a run is told: frozen dataclasses, read from YAML or a mapping, each field checked once. No pyspark."""

# A section is frozen, so one default may serve every config.
# ruff: noqa: RUF009

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rankmetrics_spark import conventions
from rankmetrics_spark import metrics as known_metrics
from rankmetrics_spark.config_document import merged, override, read_document
from rankmetrics_spark.config_fields import Section, choice, day, key, listed, refuse, section, settings
from rankmetrics_spark.config_sections import RESERVED, Comparison, Judgements, Quality, Sink, Source
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import Metric

__all__ = [
    "RESERVED",
    "Comparison",
    "Config",
    "Judgements",
    "Quality",
    "Sink",
    "Source",
    "as_dict",
    "from_mapping",
    "load",
]

Overrides = Mapping[str, object]
"""The knobs that the config itself sets, apart from those that its preset brings."""

_PRIVATE = re.compile(r"secret|password|token|access[._-]?key", re.IGNORECASE)
_OF_TIES = frozenset({"expected", "best", "worst", "threshold"})
_OF_JUDGED = frozenset({"judged", "both", "either"})


def _read_metrics(path: str, value: object) -> tuple[Metric, ...]:
    found = tuple(dict.fromkeys(_read_metric(path, item) for item in listed(path, value)))
    if not found:
        raise refuse(path, value, "at least one metric, such as ap@10")
    return found


def _read_metric(path: str, value: object) -> Metric:
    if isinstance(value, Metric):
        return value
    if not isinstance(value, str):
        raise refuse(path, value, "metric names such as ap@10")
    try:
        return known_metrics.parse(value)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_convention(path: str, value: object) -> Convention:
    if not isinstance(value, (str, Mapping, Convention)):
        raise refuse(path, value, "a preset, or a mapping of knobs")
    try:
        return conventions.resolve(value)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


@dataclass(frozen=True)
class Config(Section):
    """Everything that a run is told; built by ``load`` or ``from_mapping``, or from sections and plain values.

    ``{date}`` in the paths and filters stands for the evaluation date.

    Attributes:
        source: The impressions.
        judgements: The judgements, or ``None``: then m and the ideal list come from what was shown.
        rank_by: ``position``, or ``score`` (the default for a TREC run, whose ranks are not to be trusted).
        metrics: Each metric once, in the order given.
        convention: The knobs, whether from a preset or not.
        quality: What happens to faulty rows.
        comparison: How experiments are compared.
        sink: Where the tables go.
        evaluation_date: YYYY-MM-DD; today in UTC unless given.
        spark: Further settings of the session.

    >>> config = Config(source=Source(path="logs/{date}"), metrics="ap@10,map@10", evaluation_date="2026-11-21")
    >>> config.source.path, [str(metric) for metric in config.metrics], config.rank_by
    (('logs/2026-11-21',), ['ap@10'], 'position')
    """

    source: Source = key({}, section(Source))
    judgements: Judgements | None = key(None, section(Judgements))
    rank_by: str = key(None, choice("position", "score"))
    metrics: tuple[Metric, ...] = key(("ap@5", "ap@10", "ndcg@5", "ndcg@10"), _read_metrics)
    convention: Convention = key("standard", _read_convention)
    quality: Quality = key({}, section(Quality))
    comparison: Comparison = key({}, section(Comparison))
    sink: Sink = key({}, section(Sink))
    evaluation_date: str = key(None, day)
    spark: Mapping[str, str] = key({}, settings)

    def __post_init__(self) -> None:
        """Checks the fields, fills in what depends on others, and refuses combinations that cannot be.

        Raises:
            ConfigError: names the field, its value and what is allowed.
        """
        given: object = self.convention
        super().__post_init__()
        self._settle("rank_by", self.rank_by or ("score" if self.source.format == "trec_run" else "position"))
        self._settle("evaluation_date", self.evaluation_date or datetime.now(timezone.utc).date().isoformat())
        for name in ("source", "judgements", "sink"):
            self._settle(name, _dated(getattr(self, name), self.evaluation_date))
        for rule in _RULES:
            rule(self, given if isinstance(given, Mapping) else {})


def _dated(part: Any, date: str) -> object:
    """The section with ``{date}`` replaced in its path and filter."""
    changes: dict[str, object] = {}
    for name in ("path", "where"):
        value = getattr(part, name, None)
        if isinstance(value, str):
            changes[name] = value.replace("{date}", date)
        elif value is not None:
            changes[name] = tuple(item.replace("{date}", date) for item in value)
    return replace(part, **changes) if changes else part


def from_mapping(mapping: Mapping[str, object]) -> Config:
    """A config from nested mappings, as a YAML file holds them.

    Raises:
        ConfigError: in one sentence, with the path of the field.

    >>> from_mapping({"source": {"table": "logs.impressions"}, "metrics": ["MAP@10"]}).source.format
    'table'
    """
    return Config.read(mapping)


def load(path: str | Path, overrides: Sequence[str] = (), date: str | None = None, **top: object) -> Config:
    """A config from a YAML file.

    Args:
        path: The file.
        overrides: Such as ``source.path=logs`` or ``metrics=ap@10,ndcg@10``; later ones win.
        date: The evaluation date, if not the one in the file.
        **top: Values of top-level keys, above the file and the overrides; mappings are merged, ``None`` is left out.

    Raises:
        ConfigError: in one sentence, with the path of the field or the line of the file.
    """
    document = read_document(path)
    for assignment in overrides:
        document = override(document, assignment)
    return from_mapping(merged(document, {"evaluation_date": date, **top}))


def as_dict(config: Config) -> dict[str, Any]:
    """The resolved config in plain values for the run record: metrics by name, the convention as text, no secrets.

    >>> as_dict(Config(source=Source(path="logs"), metrics="ap@10"))["metrics"]
    ['ap@10']
    """
    return {spec.name: _plain(getattr(config, spec.name)) for spec in fields(config)}


def _plain(value: object) -> Any:
    if isinstance(value, Section):
        return {spec.name: _plain(getattr(value, spec.name)) for spec in fields(value)}
    if isinstance(value, Mapping):
        return {name: "(hidden)" if _PRIVATE.search(name) else _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Convention):
        return value.text()
    return str(value) if isinstance(value, Metric) else value


def _rank_column(config: Config, _: Overrides) -> None:
    if config.source.lacks(config.rank_by):
        raise ConfigError(
            f"rank_by is '{config.rank_by}', but source.columns.{config.rank_by} is null; "
            "allowed: a rank_by whose column is there"
        )


def _relevance(config: Config, _: Overrides) -> None:
    if config.judgements is not None:
        return
    if config.source.format == "trec_run":
        raise ConfigError(
            "judgements is missing, and source.format 'trec_run' has no relevance; "
            "allowed: a judgements section, such as format: trec_qrels with a path"
        )
    if config.source.lacks("relevance"):
        raise ConfigError("source.columns.relevance is null, and judgements is missing; allowed: one of the two")


def _items(config: Config, _: Overrides) -> None:
    if not config.source.lacks("item"):
        return
    if config.rank_by == "score":
        raise ConfigError("source.columns.item is null, but rank_by is 'score'; allowed: null with rank_by 'position'")
    if config.judgements is not None and config.source.columns.get("relevance") is None:
        raise ConfigError(
            "source.columns.item is null, but relevance is looked up in the judgements by item; "
            "allowed: null with a source.columns.relevance"
        )


def _scores(config: Config, _: Overrides) -> None:
    if config.rank_by == "score" or config.source.columns.get("score") is not None:
        return
    for metric in config.metrics:
        if metric.needs == "scores":
            raise ConfigError(
                f"metrics: '{metric}' needs scores, but rank_by is 'position'; "
                "allowed: rank_by 'score', or a source.columns.score"
            )


def _ties(config: Config, overrides: Overrides) -> None:
    for knob in ("ties", "ap_ties", "ndcg_ties"):
        value = str(overrides.get(knob)).lower()
        if config.rank_by == "position" and value in _OF_TIES:
            raise ConfigError(
                f"convention.{knob} is '{value}', but rank_by is 'position' and ranks have no ties; "
                "allowed: rank_by 'score', or another order"
            )


def _judged(config: Config, overrides: Overrides) -> None:
    for knob, rest in (("population", "shown"), ("ideal_pool", "shown, constant_k")):
        value = str(overrides.get(knob)).lower()
        if config.judgements is None and value in _OF_JUDGED:
            raise ConfigError(
                f"convention.{knob} is '{value}', but judgements is missing; allowed without judgements: {rest}"
            )


def _extra_columns(config: Config, _: Overrides) -> None:
    columns = {metric.column: metric for metric in config.metrics}
    for part in ("list", "segments"):
        for name in getattr(config.source, part):
            if name.lower() in columns:
                raise ConfigError(
                    f"source.{part}: '{name}' is the output column of '{columns[name.lower()]}'; "
                    "allowed: any other column, so rename this one in the input"
                )
    for name in config.source.segments:
        if name in config.source.list:
            raise ConfigError(
                f"source.segments: '{name}' is in source.list too; allowed: a column in one of them, "
                "since a segment holds whole users"
            )


_RULES: tuple[Callable[[Config, Overrides], None], ...] = (
    _rank_column,
    _relevance,
    _items,
    _scores,
    _ties,
    _judged,
    _extra_columns,
)
