"""A result in a real MLflow with a file store: ``make test-report`` runs this in ``.venvs/mlflow``."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest

from rankmetrics_spark.report import figures_of, local_tables, log_run
from tests.helpers.results import Output

HOSTILE = '<b>"x" (1) ä'


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # MLflow 3 asks for this where the store is a folder.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("rankings")
    return (tmp_path / "runs").as_uri()


def test_one_call_logs_means_differences_parameters_and_the_report(store: str, tmp_path: Path) -> None:
    tables = local_tables(str(Output(tmp_path / "out", ["control", HOSTILE]).write()))
    assert tables
    figures = figures_of(tables)
    log_run(figures)
    (run,) = mlflow.search_runs(output_format="list")
    assert run.info.status == "FINISHED"
    means = {(mean.experiment_id, mean.metric): mean.mean for mean in figures.everyone}
    assert len(run.data.metrics) == 2 * 4 + 2 * 4
    assert run.data.metrics["ap_at_10/control"] == means["control", "ap@10"]
    (key,) = [name for name in run.data.metrics if name.startswith("ndcg_at_5_difference/")]
    (compared,) = [found for found in figures.compared if found.metric == "ndcg@5"]
    assert run.data.metrics[key] == compared.difference
    assert run.data.params == {
        "convention": "standard", "baseline": "control", "run_id": figures.record["run_id"],
    }  # fmt: skip
    (artifact,) = mlflow.MlflowClient(store).list_artifacts(run.info.run_id)
    file = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path=artifact.path)
    assert artifact.path == "report.html" and Path(file).stat().st_size > 500_000


def test_an_active_run_goes_on_and_a_given_report_is_logged_as_it_is(store: str, tmp_path: Path) -> None:
    tables = local_tables(str(Output(tmp_path / "out").write()))
    assert tables
    page = tmp_path / "mine.html"
    page.write_text("<p>mine")
    with mlflow.start_run() as run:
        log_run(figures_of(tables), page)
        assert mlflow.active_run() is not None
        mlflow.log_metric("more", 1.0)
    assert [each.path for each in mlflow.MlflowClient(store).list_artifacts(run.info.run_id)] == ["mine.html"]
