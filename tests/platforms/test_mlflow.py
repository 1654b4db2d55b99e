"""A result in a real MLflow with a file store: ``make test-report`` runs this in ``.venvs/mlflow``."""

import math
import re
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

from rankmetrics_spark.errors import InputError, RankmetricsError
from rankmetrics_spark.mlflow_plugin import scorers
from rankmetrics_spark.report import figures_of, local_tables, log_run
from tests.helpers import readme, results

HOSTILE = '<b>"x" (1) ä'


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # MLflow 3 asks for this where the store is a folder.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("rankings")
    return (tmp_path / "runs").as_uri()


def test_one_call_logs_means_differences_parameters_and_the_report(store: str, tmp_path: Path) -> None:
    figures = figures_of(local_tables(str(results.Output(tmp_path / "out", ["control", HOSTILE]).write())))
    log_run(figures)
    (run,) = mlflow.search_runs(output_format="list")
    assert run.info.status == "FINISHED"
    means = {(mean.experiment_id, mean.metric): mean.mean for mean in figures.everyone}
    # Means with two bounds each; differences with two bounds and a p-value.
    assert len(run.data.metrics) == 2 * 4 * 3 + 4 * 4
    assert run.data.metrics["ap_at_10/control"] == means["control", "ap@10"]
    (key,) = [name for name in run.data.metrics if name.startswith("ndcg_at_5_difference/")]
    (compared,) = [found for found in figures.compared if found.metric == "ndcg@5"]
    assert run.data.metrics[key] == compared.difference
    named = {"convention": "standard", "baseline": "control"}
    assert run.data.params == named | {"run_id": figures.record["run_id"]}
    (artifact,) = mlflow.MlflowClient(store).list_artifacts(run.info.run_id)
    file = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path=artifact.path)
    assert artifact.path == "report.html" and Path(file).stat().st_size > 500_000


def test_an_active_run_goes_on_and_a_given_report_is_logged_as_it_is(store: str, tmp_path: Path) -> None:
    tables = local_tables(str(results.Output(tmp_path / "out").write()))
    page = tmp_path / "mine.html"
    page.write_text("<p>mine")
    with mlflow.start_run() as run:
        log_run(figures_of(tables), page)
        assert mlflow.active_run() is not None
        mlflow.log_metric("more", 1.0)
    assert [each.path for each in mlflow.MlflowClient(store).list_artifacts(run.info.run_id)] == ["mine.html"]


QUERIES = pd.DataFrame(
    {
        "system": ["a", "a", "b", "b"],
        "query": [1, 2, 1, 2],
        "shown": [["x", "y"], ["z"], ["y", "x"], ["w", "z"]],
        "relevant": [["x"], {"z": 1, "u": 1}, ["x"], {"z": 1, "u": 1}],
    }
)
HALF = 0.5 * 12.706204736  # t(0.975) of one degree of freedom: two queries are half of their distance around the mean


def test_an_evaluation_of_mlflow_has_means_intervals_differences_and_a_table_of_queries(store: str) -> None:
    names: dict[str, Any] = {"queries": QUERIES}
    program, of_scorers = readme.blocks("python", readme.section("MLflow", readme.PLATFORMS))
    exec(program, names)
    result = names["evaluation"]
    # AP: a has 1 and 1/2, b has 1/2 and 1/4.
    expected = {"ap_at_10/a": 0.75, "ap_at_10_ci_low/a": 0.75 - HALF * 0.5, "ap_at_10_ci_high/b": 0.375 + HALF * 0.25,
                "ap_at_10_difference/b": -0.375, "ap_at_10_difference_ci_low/b": -0.375 - HALF * 0.25}  # fmt: skip
    (run,) = mlflow.search_runs(output_format="list")
    for name, value in expected.items():
        assert run.data.metrics[name] == result.metrics[name] == pytest.approx(value, abs=1e-8)
    table = result.tables["rankmetrics_per_query"]
    assert dict(zip(zip(table.experiment_id, map(str, table.user_id), strict=True), table.ap_at_10, strict=True)) == {
        ("a", "1"): 1.0, ("a", "2"): 0.5, ("b", "1"): 0.5, ("b", "2"): 0.25,
    }  # fmt: skip
    exec(of_scorers, names)
    assert names["scored"].metrics["ndcg_at_10/mean"] == pytest.approx(1 / math.log2(3))


@pytest.mark.parametrize(
    ("data", "config", "message"),
    [
        (QUERIES, {"columns": {"user": "queri"}}, "columns: unknown column 'queri'; did you mean 'query'?"),
        (QUERIES, {"columns": {"user": "system"}}, "the query 'a' has different targets in two rows"),
        (QUERIES.drop(columns="relevant"), {}, "there are no targets; allowed: targets=COLUMN"),
        (QUERIES.assign(relevant="x"), {}, "'x' is no list; allowed: a list of items, or a mapping"),
        (QUERIES.assign(shown=None), {}, "no row has predictions; allowed: a list of items in each row"),
        (QUERIES.assign(relevant=[{"x": "high"}] * 4), {}, "'high' is no grade; allowed: numbers"),
        (QUERIES, {"metric": "ap"}, "evaluator_config: unknown argument 'metric'; did you mean 'metrics'?"),
    ],
)
def test_unreadable_data_are_one_sentence(store: str, data: pd.DataFrame, config: dict[str, Any], message: str) -> None:
    targets = "relevant" if "relevant" in data else None
    with pytest.raises(RankmetricsError, match=re.escape(message)):
        mlflow.models.evaluate(
            data=data, model_type="ranker", evaluators="rankmetrics", predictions="shown", targets=targets,
            evaluator_config=config,
        )  # fmt: skip


def test_scorers_give_each_row_its_value_and_the_mean_its_interval(store: str) -> None:
    rows = [
        {"inputs": {"q": str(query)}, "outputs": shown, "expectations": {"relevant": relevant}}
        for query, shown, relevant in QUERIES[["query", "shown", "relevant"]][:2].itertuples(index=False)
    ]
    result = mlflow.genai.evaluate(data=rows, scorers=scorers(["ap@10"]))
    assert result.metrics == pytest.approx(
        {"ap_at_10/mean": 0.75, "ap_at_10/ci_low": 0.75 - HALF * 0.5, "ap_at_10/ci_high": 0.75 + HALF * 0.5}
    )
    assert sorted(result.result_df["ap_at_10/value"]) == [0.5, 1.0]
    # A repeated item keeps its rank and counts once, as in a log: 1 and 2/3 of two relevant items.
    (score,) = scorers(["ap@10"])
    truth = {"relevant": ["a", "b"]}
    assert score(outputs=["a", "a", "b"], expectations=truth) == pytest.approx((1 + 2 / 3) / 2)
    assert score(outputs=None, expectations=truth) == 0
    for outputs, expectations in (("a", truth), (["a"], {}), (["a"], None)):
        with pytest.raises(InputError, match=r"no list|expectations has no"):
            score(outputs=outputs, expectations=expectations)
