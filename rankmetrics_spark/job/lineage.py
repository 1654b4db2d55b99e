"""OpenLineage events of a run: START, then COMPLETE or FAIL. Off unless an endpoint is set; no run fails by them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from pyspark.sql import SparkSession

from rankmetrics_spark import __version__, config as cfg, errors as err
from rankmetrics_spark.schemas import EXPERIMENT, FAIL, METRIC, NOT_CHECKED, OK, SEGMENT, Check

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset

#: How long a run waits for its endpoint, at most, before it ends.
SECONDS = 10.0
MOST_ASSERTIONS = 1_000
#: Seconds before each try to send an event.
_TRIES = (0.0, 0.5, 1.5)
#: Airflow's operators for Spark and others set the parent run with this prefix.
_PARENT = "spark.openlineage."
_PRODUCER = f"https://github.com/rankmetrics/rankmetrics-spark/tree/v{__version__}"


@dataclass
class Events:
    """What tells an endpoint about one run.

    Attributes:
        record: The record of the run; it gets the id under which the endpoint knows the run.
        config: The config of the run.
        problem: Why an event did not arrive; after that, nothing is sent.
    """

    record: dict[str, Any]
    config: cfg.Config
    problem: str = ""
    _client: OpenLineageClient | None = None
    _parent: Mapping[str, str] = field(default_factory=dict)
    _last: Thread | None = None

    @classmethod
    def of(cls, spark: SparkSession | None, config: cfg.Config, record: dict[str, Any]) -> Events:
        """The events of a run; they go nowhere if no endpoint is set, or without the extra ``lineage``."""
        events = cls(record, config)
        names = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT", "OPENLINEAGE__TRANSPORT__TYPE")
        is_disabled = os.environ.get("OPENLINEAGE_DISABLED", "").lower().strip() == "true"
        if is_disabled or not (any(map(os.environ.get, names)) or config.lineage.url is not None):
            return events
        try:
            if find_spec("openlineage") is None:
                raise ModuleNotFoundError(f"openlineage-python is not installed; run: {err.installation('lineage')}")
            from openlineage.client import OpenLineageClient

            # The repository in the folder of a command is not that of the job.
            options: dict[str, Any] = {"facets": {"source_code_location": {"disabled": True}}}
            # A plain address has one connection per try: the client would print a line for each of its own.
            url = config.lineage.url or os.environ.get("OPENLINEAGE_URL")
            if url:
                options["transport"] = {"type": "http", "url": url, "timeout": 5.0, "retry": {"total": 0}}
                if endpoint := os.environ.get("OPENLINEAGE_ENDPOINT"):
                    options["transport"]["endpoint"] = endpoint
                if key := os.environ.get("OPENLINEAGE_API_KEY"):
                    options["transport"]["auth"] = {"type": "api_key", "apiKey": key}
            events._client, events._parent = OpenLineageClient(config=options), _parent_of(spark, config.spark)
            namespace = config.lineage.namespace or os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
            record["lineage"] = {"run_id": str(uuid4()), "namespace": namespace, "job": config.lineage.job}
        except Exception as error:  # a run does not depend on its lineage
            events.problem = err.first_sentence(error)
        return events

    def start(self) -> None:
        """Say that the run has begun; sent while it computes."""
        self._send("START")

    def complete(self, tables: Mapping[str, str], checks: Sequence[Check]) -> str:
        """Say that the run has published, and wait until that has arrived.

        Args:
            tables: Name -> place of each published table.
            checks: What was checked.

        Returns:
            A sentence if an event did not arrive, else an empty text.
        """
        self._send("COMPLETE", tables, checks)
        return self._settled()

    def fail(self, checks: Sequence[Check]) -> None:
        """Say that the run has failed, with its error and what was checked; log a warning if that does not arrive."""
        self._send("FAIL", {}, checks)
        if sentence := self._settled():
            logging.getLogger("rankmetrics_spark").warning("warning: %s", sentence)

    def _send(self, kind: str, tables: Mapping[str, str] | None = None, checks: Sequence[Check] = ()) -> None:
        """Send an event after the one before it, on a thread that nothing waits for."""
        client, before = self._client, self._last
        if client is None:
            return
        try:
            event = self._event(kind, tables or {}, checks)
        except Exception as error:
            self.problem = self.problem or err.first_sentence(error)
            return

        def send() -> None:
            """Try until the event arrives."""
            if before:
                before.join()
            for pause in () if self.problem else _TRIES:
                time.sleep(pause)
                try:
                    client.emit(event)
                except Exception as error:  # each transport has errors of its own
                    self.problem = err.first_sentence(error) or type(error).__name__
                else:
                    self.problem = ""
                    return

        self._last = Thread(target=send, daemon=True)
        self._last.start()

    def _settled(self) -> str:
        if self._last:
            self._last.join(SECONDS)
            if self._last.is_alive():
                self.problem = self.problem or f"no answer within {SECONDS:g} seconds"
        return f"the run is not known to OpenLineage: {err.without_secrets(self.problem)}" if self.problem else ""

    def _event(self, kind: str, tables: Mapping[str, str], checks: Sequence[Check]) -> Any:
        from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState

        known, is_table = self.record["lineage"], self.config.sink.table is not None
        # The run is the version of each table.
        facets = {"version": _facet("dataset_version_dataset", self.record["run_id"])}
        rows = {name: self.record["tables"][name]["rows"] for name in tables}
        counts = {name: {"outputStatistics": _facet("output_statistics_output_dataset", n)} for name, n in rows.items()}
        outputs = [
            OutputDataset(*dataset_of(place, is_table), facets=facets, outputFacets=counts[name])
            for name, place in tables.items()
        ]
        of_job = {"jobType": _facet("job_type_job", processingType="BATCH", integration="RANKMETRICS", jobType="JOB")}
        return RunEvent(
            eventTime=datetime.now(timezone.utc).isoformat(),
            producer=_PRODUCER,
            eventType=RunState[kind],
            run=Run(known["run_id"], dict(self._run_facets())),
            job=Job(known["namespace"], known["job"], of_job),
            inputs=[*self._inputs(checks)],
            outputs=outputs,
        )

    def _run_facets(self) -> Iterator[tuple[str, Any]]:
        from openlineage.client.facet_v2 import parent_run

        engine = self.record["engine"]
        yield "nominalTime", _facet("nominal_time_run", f"{self.record['evaluation_date']}T00:00:00Z")
        version = self.record["versions"].get(engine, "unknown")
        yield "processing_engine", _facet("processing_engine_run", version=version, name=engine)
        if error := self.record.get("error"):
            yield "errorMessage", _facet("error_message_run", f"{error['class']}: {error['message']}", "PYTHON")
        if parent := self._parent:
            root, job = None, parent_run.Job(parent["parentJobNamespace"], parent["parentJobName"])
            if "rootParentRunId" in parent:
                of_root = parent_run.RootJob(parent["rootParentJobNamespace"], parent["rootParentJobName"])
                root = parent_run.Root(parent_run.RootRun(parent["rootParentRunId"]), of_root)
            yield "parent", _facet("parent_run", parent_run.Run(parent["parentRunId"]), job, root)

    def _inputs(self, checks: Sequence[Check]) -> Iterator[InputDataset]:
        """The inputs with their schemas, once these are known; the log with its rows and what was checked of it."""
        from openlineage.client.event_v2 import InputDataset
        from openlineage.client.facet_v2 import data_quality_assertions_dataset, schema_dataset

        known, assertions = self.record.get("inputs", {}), []
        judged = (check for check in checks if check.status != NOT_CHECKED)
        # What failed first.
        for check in sorted(judged, key=lambda check: (check.status != FAIL, check.status == OK))[:MOST_ASSERTIONS]:
            row = check.as_row()
            of = [check.experiment or "", "" if check.segment == "all" else check.segment, check.metric or ""]
            assertion = data_quality_assertions_dataset.Assertion(
                assertion=check.name,
                success=check.status == OK,
                severity="error" if check.status == FAIL else "warn",
                name=" ".join(filter(None, [check.name, *of])),
                description=check.sentence or None,
                expected=None if row["limit"] is None else repr(row["limit"]),
                actual=None if row["observed"] is None else repr(row["observed"]),
                params={name: row[name] for name in (EXPERIMENT, SEGMENT, METRIC) if row[name] is not None},
            )
            assertions.append(assertion)
        for name in ("source", "judgements", "events"):
            section = getattr(self.config, name)
            kinds = known.get(name, {}).get("schema", {}).items()
            fields = [schema_dataset.SchemaDatasetFacetFields(name=column, type=kind) for column, kind in kinds]
            facets = {"schema": _facet("schema_dataset", fields)} if fields else {}
            of_log: dict[str, Any] = {}
            if name == "source" and assertions:
                of_log["dataQualityAssertions"] = _facet("data_quality_assertions_dataset", assertions)
            is_table = section is not None and section.table is not None
            for place in ([section.table] if section.table else section.path or ()) if section else ():
                yield InputDataset(*dataset_of(place, is_table), facets=facets, inputFacets=of_log)


def _facet(module: str, *values: Any, **more: Any) -> Any:
    """The facet of a module of the client, whose class has the same name, with its producer."""
    from openlineage.client import facet_v2

    kind = getattr(getattr(facet_v2, module), f"{module.title().replace('_', '')}Facet")
    return kind(*values, **more, producer=_PRODUCER)


def _parent_of(spark: SparkSession | None, settings: Mapping[str, str]) -> dict[str, str]:
    """The run that started this one, from Spark's settings or from OPENLINEAGE_PARENT_ID: namespace/name/id."""
    parent: dict[str, str] = {}
    for kind in ("parent", "rootParent"):
        names = [f"{kind}{part}" for part in ("JobNamespace", "JobName", "RunId")]
        values: list[str | None] = [None]
        with suppress(Exception):  # serverless compute answers for few settings
            of_session = spark.conf.get if spark else settings.get
            values = [settings.get(_PARENT + name) or of_session(_PARENT + name, None) for name in names]
        if not all(values):
            variable = "OPENLINEAGE_PARENT_ID" if kind == "parent" else "OPENLINEAGE_ROOT_PARENT_ID"
            values = [*os.environ.get(variable, "").rsplit("/", 2)]
        if len(values) == 3 and all(values):
            parent |= {name: str(value) for name, value in zip(names, values, strict=True)}
    return parent if "parentRunId" in parent else {}


def dataset_of(place: str, is_table: bool = False) -> tuple[str, str]:
    """Namespace and name of a table as OpenLineage writes them, without passwords.

    >>> dataset_of("s3a://lake/logs/shown"), dataset_of("/logs"), dataset_of("main.logs.shown", is_table=True)
    (('s3://lake', 'logs/shown'), ('file', '/logs'), ('catalog', 'main.logs.shown'))
    """
    if is_table:
        return "catalog", place
    if (local := cfg.local_path(place)) is not None:
        return "file", err.without_secrets(str(local.absolute()))
    url = urlsplit(err.without_secrets(place))
    scheme = "s3" if url.scheme in ("s3a", "s3n") else url.scheme
    name = url.path.lstrip("/") if scheme in ("s3", "gs") else url.path
    return f"{scheme}://{url.netloc}", name or "/"
