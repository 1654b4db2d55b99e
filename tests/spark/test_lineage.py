"""OpenLineage events of a run, as a local endpoint gets them."""

import json
import logging
import sys
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, run
from rankmetrics_spark.errors import MetricGateError, QualityError
from rankmetrics_spark.job import lineage
from tests.helpers.commands import Call
from tests.helpers.lineage import Endpoint, lineage_endpoint
from tests.helpers.logs import DATE, a_list, config, parquet
from tests.helpers.messages import slow

needs_client = pytest.mark.skipif(
    find_spec("openlineage") is None, reason="the environments of other Sparks have no client of OpenLineage"
)
LOG = [*a_list([0, 1, 0], "u", "a"), *a_list([1, 0, 0], "u", "b"), *a_list([0, 0, 0], "v", "a")]
GATES = [{"metric": "ap@3", "min": 0.3, "experiment": "a"}]


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "CONFIG", "NAMESPACE", "DISABLED", "API_KEY", "ENDPOINT", "PARENT_ID", "_TRANSPORT__TYPE"):
        monkeypatch.delenv(f"OPENLINEAGE_{name}", raising=False)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with lineage_endpoint() as result:
        yield result


def config_of(tmp_path: Path, url: str | None, **more: Any) -> cfg.Config:
    lineage = {"url": url, "namespace": "shop", "job": "ranking"} if url else {}
    log = parquet(tmp_path / "log", LOG)
    return config(log, tmp_path / "out", metrics=["ap@3"], lineage=lineage, **more)


@needs_client
def test_a_run_that_publishes_sends_start_and_complete(spark: SparkSession, tmp_path: Path, endpoint: Endpoint) -> None:
    limits = {"gates": {"no_relevant_rate": {"warn": 0.4, "fail": 0.9}}}
    outcome = run(spark, config_of(tmp_path, endpoint.url, quality=limits, comparison={"baseline": "a"}))
    assert endpoint.kinds == ["START", "COMPLETE"]
    start, complete = endpoint.events
    # Both are one run of one job, which the run record names.
    assert start["run"]["runId"] == complete["run"]["runId"] == outcome.record["lineage"]["run_id"]
    assert (complete["job"]["namespace"], complete["job"]["name"]) == ("shop", "ranking")
    assert complete["run"]["facets"]["nominalTime"]["nominalStartTime"] == f"{DATE}T00:00:00Z"
    assert complete["run"]["facets"]["processing_engine"]["name"] == outcome.record["engine"]
    assert "parent" not in complete["run"]["facets"]
    (log,) = complete["inputs"]
    assert (log["namespace"], log["name"]) == ("file", str(tmp_path / "log"))
    columns = {field["name"]: field["type"] for field in log["facets"]["schema"]["fields"]}
    assert columns == outcome.record["inputs"]["source"]["schema"]
    # Half of the lists of a, and none of b, have no relevant item: a warning of one, nothing wrong with the other.
    checked = {
        (one["params"]["experiment_id"], one["assertion"]): (one["success"], one["severity"], one["actual"])
        for one in log["inputFacets"]["dataQualityAssertions"]["assertions"]
    }
    assert checked["a", "no_relevant_rate"] == (False, "warn", "0.5")
    assert checked["b", "no_relevant_rate"] == (True, "warn", "0.0")
    rows = {
        t["name"]: (t["outputFacets"]["outputStatistics"]["rowCount"], t["facets"]["version"]["datasetVersion"])
        for t in complete["outputs"]
    }
    expected = {"user_metrics": 3, "experiment_metrics": 2, "comparisons": 1}
    result = {name: rows[str(tmp_path / "out" / name)] for name in expected}
    assert result == {name: (count, outcome.run_id) for name, count in expected.items()}
    assert start["outputs"] == []


@needs_client
def test_a_run_that_fails_a_gate_sends_fail_with_its_sentence_and_the_gate(
    spark: SparkSession, tmp_path: Path, endpoint: Endpoint
) -> None:
    with pytest.raises(MetricGateError):
        run(spark, config_of(tmp_path, endpoint.url, gates=GATES))
    assert endpoint.kinds == ["START", "FAIL"]
    fail = endpoint.events[-1]
    record = json.loads(next((tmp_path / "out" / "runs").glob("*.json")).read_text())
    assert fail["run"]["facets"]["errorMessage"]["message"] == f"MetricGateError: {record['error']['message']}"
    assert fail["run"]["runId"] == record["lineage"]["run_id"]
    assert fail["outputs"] == []
    row = fail["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"][0]
    assert (row["assertion"], row["success"], row["severity"], row["name"]) == ("min", False, "error", "min a ap@3")
    # AP of a is 1/2 for one user and 0 for the other.
    assert (row["actual"], row["expected"]) == ("0.25", "0.3")


@pytest.mark.slow
@needs_client
def test_a_run_whose_log_is_missing_sends_start_and_fail(
    call: Call, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", endpoint.url)
    settings = {"source": {"path": str(tmp_path / "late")}, "sink": {"path": str(tmp_path / "out")}}
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    code, _, err = call("evaluate", "--config", tmp_path / "config.yaml", "--date", DATE)
    assert code == 3 and endpoint.kinds == ["START", "FAIL"]
    (record,) = (json.loads(path.read_text()) for path in (tmp_path / "out" / "runs").glob("*.json"))
    assert {event["run"]["runId"] for event in endpoint.events} == {record["lineage"]["run_id"]}
    message = endpoint.events[-1]["run"]["facets"]["errorMessage"]["message"].removeprefix("InputError: ")
    assert err.splitlines()[-1] == f"rankmetrics: {message}"


@pytest.mark.slow
@needs_client
@pytest.mark.parametrize("place", ["settings", "environment"])
def test_the_run_that_started_it_is_its_parent(
    spark: SparkSession, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    parent, root = str(uuid.uuid4()), str(uuid.uuid4())
    settings = {}
    if place == "settings":  # as Airflow's operators for Spark inject them
        settings = {
            "spark.openlineage.parentRunId": parent,
            "spark.openlineage.parentJobNamespace": "airflow",
            "spark.openlineage.parentJobName": "rankmetrics.evaluate",
            "spark.openlineage.rootParentRunId": root,
            "spark.openlineage.rootParentJobNamespace": "airflow",
            "spark.openlineage.rootParentJobName": "rankmetrics",
        }
    else:
        monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/rankmetrics.evaluate/{parent}")
        monkeypatch.setenv("OPENLINEAGE_ROOT_PARENT_ID", f"airflow/rankmetrics/{root}")
    run(spark, config_of(tmp_path, endpoint.url, spark=settings))
    for event in endpoint.events:
        facet = event["run"]["facets"]["parent"]
        assert (facet["run"]["runId"], facet["job"]["name"]) == (parent, "rankmetrics.evaluate")
        assert (facet["root"]["run"]["runId"], facet["root"]["job"]["namespace"]) == (root, "airflow")


@pytest.mark.slow
@needs_client
def test_the_endpoint_may_be_that_of_the_environment(
    spark: SparkSession, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", endpoint.url)
    run(spark, config_of(tmp_path, None))
    assert [(e["job"]["namespace"], e["job"]["name"]) for e in endpoint.events] == [("default", "rankmetrics")] * 2
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert "lineage" not in run(spark, config_of(tmp_path, endpoint.url)).record
    assert len(endpoint.events) == 2


def test_without_an_endpoint_nothing_is_sent_and_nothing_is_said(spark: SparkSession, tmp_path: Path) -> None:
    record = run(spark, config_of(tmp_path, None)).record
    assert ("lineage" in record, record["warnings"]) == (False, [])


@needs_client
@pytest.mark.parametrize("trouble", ["nobody listens", *(slow(e) for e in ("it answers with errors", "no address"))])
def test_an_endpoint_in_trouble_costs_a_run_one_warning(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr("rankmetrics_spark.job.lineage._TRIES", (0.0, 0.01))
    with lineage_endpoint(status=500) as endpoint:
        url = {"it answers with errors": endpoint.url, "no address": "ftp://nowhere"}.get(trouble, "")
        if not url:
            with lineage_endpoint() as gone:
                url = gone.url
        outcome = run(spark, config_of(tmp_path, url))
        tries = endpoint.refused
        with caplog.at_level(logging.WARNING), pytest.raises(QualityError):
            run(spark, config_of(tmp_path, url, quality={"gates": {"no_relevant_rate": {"fail": 0.1}}}))
    (warning,) = outcome.record["warnings"]
    assert warning.startswith("the run is not known to OpenLineage: ") and "\n" not in warning
    assert outcome.user_metrics.count() == 3
    # Two tries of START, and nothing after it.
    assert tries == (2 if trouble == "it answers with errors" else 0)
    logged = [record.message for record in caplog.records if record.name.startswith("rankmetrics")]
    assert logged == [f"warning: {warning}"]


@needs_client
def test_no_password_gets_into_an_event_or_into_what_is_said_of_its_endpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "_TRIES", (0.0,))
    address = "https://me:hush@host/logs?sig=hush"
    settings = config(address, tmp_path / "out", metrics=["ap@3"], lineage={"url": "http://127.0.0.1:1"})
    made = {"run_id": "1", "evaluation_date": DATE, "versions": {}, "engine": "sail", "tables": {"means": {"rows": 1}}}
    sent = []

    def refuse(event: Any) -> None:
        """Keep the event, and fail with the address, as an HTTP client does."""
        sent.append(event)
        raise OSError(f"no answer from {address}")

    events = lineage.Events.of(None, settings, made)
    events._client = SimpleNamespace(emit=refuse)
    said = events.complete({"means": address}, ())
    assert said == ("the run is not known to OpenLineage: no answer from https://(hidden)@host/logs?sig=(hidden)")
    (event,) = sent
    places = {(each.namespace, each.name) for each in (*event.inputs, *event.outputs)}
    assert places == {("https://(hidden)@host", "/logs")}
    events.problem = ""
    with caplog.at_level(logging.WARNING):
        events.fail(())
    assert [each.message for each in caplog.records] == [f"warning: {said}"]
    assert "hush" not in f"{sent}"


def test_a_missing_client_is_one_warning(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage", None)
    (warning,) = run(spark, config_of(tmp_path, "http://127.0.0.1:1")).record["warnings"]
    assert warning == (
        "the run is not known to OpenLineage: openlineage-python is not installed; run: pip install "
        "'openlineage-python>=1.20,<2'"
    )
