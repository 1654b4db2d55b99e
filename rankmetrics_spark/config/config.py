"""What a run is asked to do: frozen dataclasses from YAML or a mapping, with each field checked once. No pyspark."""

# A section is frozen, so one default may serve every config.
# ruff: noqa: RUF009

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date as day_of, timedelta
from pathlib import Path
from typing import Any

from rankmetrics_spark.config import days, places, sections as sec
from rankmetrics_spark.config.assigned import Assignments, OfTest, check_tests, tests
from rankmetrics_spark.config.comparing import Comparison, Gate, check_cuped, check_gates, gates, with_primary
from rankmetrics_spark.config.document import Setting, described, json_schema, merged, override, read_document
from rankmetrics_spark.config.fields import Section, as_given, choice, count, key, section, settings, text, value_at
from rankmetrics_spark.config.options import PATHS, Options, SectionWithOptions, option
from rankmetrics_spark.metrics import Convention, Metric

#: What can compute: Spark, or Sail on this machine.
ENGINES = ("spark", "sail")


#: Users who lost and gained most that a page has of queries; of people it has none unless asked for.
EXAMPLE_USERS = 20


@dataclass(frozen=True)
class Lineage(Section, at="lineage"):
    """Who is told about a run, by OpenLineage events.

    Attributes:
        url: Endpoint of OpenLineage events; by default that of ``OPENLINEAGE_URL``, if set.
        namespace: Of the job; by default that of ``OPENLINEAGE_NAMESPACE``, else default.
        job: Name of the job in the events.
    """

    url: str | None = key(None, text)
    namespace: str | None = key(None, text)
    job: str = key("rankmetrics", text)


@dataclass(frozen=True)
class Report(Section, at="report"):
    """The page of a run.

    Attributes:
        file: HTML file on this machine for the report; by default there is none.
        examples: Users with the largest losses and gains whose lists are on the page: 20 for a TREC run, else none.
        title: Name of the test, above the answer of the page.
        description: What was tried, and why; below the name.
    """

    file: str | None = key(None, text)
    examples: int | None = key(None, count(0, 100))
    title: str | None = key(None, text)
    description: str | None = key(None, text)


#: The page of a run: its keys, or its file alone.
report = section(Report, (str, os.PathLike), "an HTML file, or ", lambda path, value: Report(file=text(path, value)))


@dataclass(frozen=True)
class Config(SectionWithOptions):
    """Everything a run is asked to do; made by ``load`` or ``from_mapping``, or from sections and plain values.

    ``{date}`` in the paths and filters stands for the evaluation date.

    >>> config = Config(source=sec.Source(path="logs/{date}"), metrics="ap@10,map@10", evaluation_date="2026-11-21")
    >>> config.source.path, [str(metric) for metric in config.metrics], config.rank_by
    (('logs/2026-11-21',), ['ap@10'], 'position')
    >>> config.options.metrics == config.metrics, config.options.confidence
    (True, 0.95)

    Attributes:
        source: The impressions.
        judgements: By default m and the ideal list are what is shown.
        machine_judgements: Labels of a machine for all, beside those of people for a sample.
        events: Clicks and the like in rows of their own, which give the relevance.
        assignments: Who is in which test, since when; the log names no experiments then.
        tests: Name of a test -> what it has of its own, beside ``comparison``.
        quality: What happens to faulty rows.
        comparison: How experiments are compared.
        gates: Limits of metrics; a run that fails one publishes nothing.
        sink: Where the tables go.
        lineage: OpenLineage events; off unless an endpoint is set.
        report: The page of the run: its file alone, or the keys below.
        evaluation_date: What ``{date}`` in paths and filters stands for.
        engine: What computes; by default what the command finds.
        spark: Further settings of the Spark session.
    """

    source: sec.Source = key({}, section(sec.Source))
    judgements: sec.Judgements | None = key(None, section(sec.Judgements))
    machine_judgements: sec.MachineJudgements | None = key(None, section(sec.MachineJudgements))
    events: sec.Events | None = key(None, sec.events_of)
    assignments: Assignments | None = key(None, section(Assignments))
    tests: Mapping[str, OfTest] = key({}, tests)
    # ``Options`` reads these three, with what the user wrote.
    rank_by: str = key(None, as_given)
    metrics: tuple[Metric, ...] = key(None, as_given)
    convention: Convention = key(None, as_given)
    percentiles: tuple[float, ...] = option("percentiles")
    unit: str = option("unit")
    quality: sec.Quality = key({}, section(sec.Quality))
    comparison: Comparison = key({}, section(Comparison))
    gates: tuple[Gate, ...] = key((), gates)
    sink: places.Sink = key({}, section(places.Sink))
    lineage: Lineage = key({}, section(Lineage))
    report: Report = key({}, report)
    evaluation_date: str = key("today", days.evaluation_day)
    time_zone: str = option("time_zone")
    engine: str | None = key(None, choice(*ENGINES))
    spark: Mapping[str, str] = key({}, settings)
    #: What the evaluation is asked to do, as ``evaluate`` takes it.
    options: Options = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Checks the fields, fills in what depends on others, and refuses combinations that cannot work.

        Raises:
            ConfigError: One sentence with the path of the field, its value and what is allowed.
        """
        super().__post_init__()
        date = days.resolved(self.evaluation_date, self.time_zone)
        self._settle(events=sec.events_beside(self.source, self.events))
        for name in ("source", "judgements", "machine_judgements", "events", "assignments", "sink"):
            self._settle(**{name: _dated(getattr(self, name), date)})
        self._settle(evaluation_date=date)
        if period := self.comparison.period:
            self._settle(comparison=replace(self.comparison, period=period.on(date)))
        file, examples = self.report.file, self.report.examples
        if examples is None:
            examples = EXAMPLE_USERS if self.source.format == "trec_run" else 0
        self._settle(report=replace(self.report, file=file and file.replace("{date}", date), examples=examples))
        if not self.rank_by:
            # The ranks of a TREC run are not reliable.
            self._settle(rank_by="score" if self.source.format in ("trec_run", "letor") else None)
        places.refuse_overlap(self.inputs, self.sink)
        options = Options(
            # A section that is not given has none of its keys.
            **{name: value_at(self, path) for name, path in PATHS.items()},
            text_numbers=any(sec.FORMATS[section.format].is_text for section in self.inputs),
            judged=self.judgements is not None,
            with_machine=self.machine_judgements is not None,
            with_events=self.events is not None,
            with_assignments=self.assignments is not None,
            paths=PATHS,
            reads=tuple(name for name, read in vars(self.sink.lists or places.Lists()).items() if read),
        )
        self._settle(options=options, metrics=options.metrics, convention=options.convention, rank_by=options.rank_by)
        self._settle(comparison=replace(self.comparison, tests=self.tests))
        check_tests(self.comparison, self.options)
        check_gates(self.gates, self.metrics, self.comparison)
        self._settle(comparison=with_primary(self.comparison, self.metrics, self.gates))
        check_cuped(self.comparison, self.evaluation_date)

    @property
    def every_gate(self) -> tuple[Gate, ...]:
        """The gates of all tests, and those of each."""
        return (*self.gates, *(gate for test in self.tests.values() for gate in test.gates))

    @property
    def inputs(self) -> tuple[sec.Input, ...]:
        """The sections of the tables that are read."""
        tables = self.judgements, self.machine_judgements, self.events, self.assignments
        return (*self.source.parts, *filter(None, tables))

    @property
    def joins(self) -> bool:
        """Whether the log or its users are joined with other tables, as those of a period are for its page."""
        compared = self.comparison
        return len(self.inputs) > len(self.source.parts) or bool(compared.cuped or compared.period)


def schema() -> dict[str, Any]:
    """The JSON schema of a config (draft 7); editors complete and check its keys with it.

    >>> schema()["properties"]["engine"]["enum"]
    ['spark', 'sail', None]
    """
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "title": "rankmetrics-spark config", **json_schema(Config, description())}


def description() -> dict[str, Setting]:
    """Each setting once, by its path in a config, or by its name if only Python has it."""
    return {setting.path: setting for cls in (Config, Options) for setting in described(cls)}


_DAYS = re.compile(r"[{]date([+-][0-9]{1,3})?[}]")


def dated(value: Any, date: str) -> Any:
    """Texts with the date in place of ``{date}``, and days from it for ``{date+1}``."""
    if isinstance(value, str):
        return _DAYS.sub(lambda match: str(day_of.fromisoformat(date) + timedelta(days=int(match[1] or 0))), value)
    if isinstance(value, Mapping):
        return {name: dated(item, date) for name, item in value.items()}
    return value and tuple(dated(item, date) for item in value)


def _dated(part: Any, date: str) -> object:
    """The section with the date in its paths and filter."""
    values = {name: getattr(part, name, None) for name in ("path", "where", "ready")}
    changes = {name: new for name, value in values.items() if (new := dated(value, date)) != value}
    return replace(part, **changes) if changes else part


def from_mapping(mapping: Mapping[str, object]) -> Config:
    """A config from nested mappings, such as those that a YAML file holds.

    Raises:
        ConfigError: One sentence with the path of the field.

    >>> from_mapping({"source": {"table": "logs.impressions"}, "metrics": ["MAP@10"]}).source.format
    'table'
    """
    return Config.read(mapping)


def load(
    path: str | Path | Mapping[str, object], overrides: Sequence[str] = (), date: str | None = None, **top: object
) -> Config:
    """A config from a YAML file. Its paths are relative to the folder in which the process runs.

    Args:
        path: The file, ``-`` for stdin, or the mapping that one holds.
        overrides: Assignments such as ``source.path=logs`` or ``metrics=ap@10,ndcg@10``; later ones win.
        date: The evaluation date, ``yesterday`` or a number of days back; ``None`` keeps the one of the file.
        **top: Values of top-level keys, which win over the file and the overrides. Mappings are merged, and ``None``
            changes nothing.

    Raises:
        ConfigError: One sentence with the path of the field or the line of the file.
    """
    document = dict(path) if isinstance(path, Mapping) else read_document(path)
    for assignment in overrides:
        document = override(document, assignment)
    return from_mapping(merged(document, {"evaluation_date": date, **top}))
