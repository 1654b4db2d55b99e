"""A result in MLflow: metrics, parameters and the report, in one call. Needs the extra ``mlflow``."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.report.figures import Figures, number
from rankmetrics_spark.report.html import has_page_libraries, write_page
from rankmetrics_spark.schemas import CONVENTION, EXPERIMENT, METRIC, of_test

_REFUSED = re.compile(r"[^\w\-. ]")
LONGEST_KEY = 180
"""Characters of an experiment's name in a key; stores of MLflow take 250 for the whole key."""


def log_run(figures: Figures, report: str | Path | None = None) -> None:
    """Log to the active run, or to a new one, which is then ended."""
    try:
        import mlflow
    except ImportError as error:
        raise ConfigError("log_to_mlflow needs mlflow; run: pip install 'rankmetrics-spark[mlflow]'") from error
    is_own_run = mlflow.active_run() is None
    try:
        mlflow.log_metrics(values(figures))
        mlflow.log_params(parameters(figures))
        _log_report(figures, report)
    except BaseException:
        if is_own_run:
            mlflow.end_run("FAILED")
        raise
    if is_own_run:
        mlflow.end_run()


def values(figures: Figures) -> dict[str, float]:
    """Key of MLflow -> value: means as ``ndcg_at_10/EXPERIMENT``, differences as ``ndcg_at_10_difference/EXPERIMENT``.

    Characters that MLflow refuses become ``_``; where two names then are the same, the second one gets a number.
    """
    columns = {str(metric): metric.column for metric in figures.metrics}
    metrics: dict[str, float] = {}
    names = _keys([*figures.experiments])
    for row in figures.everyone:
        if (mean := number(row["mean"])) is not None:
            metrics[f"{columns[row[METRIC]]}/{names[row[EXPERIMENT]]}"] = mean
    if len(figures.baselines) == 1:
        for row in figures.compared:
            for name in ("difference", "p_adjusted"):
                if (value := number(of_test(row, name))) is not None:
                    metrics[f"{columns[row[METRIC]]}_{name}/{names[row[EXPERIMENT]]}"] = value
    return metrics


def _keys(names: list[str]) -> dict[str, str]:
    """Name -> a key that MLflow takes.

    >>> _keys(["a", "b(1)", "b[1]"])
    {'a': 'a', 'b(1)': 'b_1_', 'b[1]': 'b_1__2'}
    """
    keys: dict[str, str] = {}
    for name in names:
        key = base = _REFUSED.sub("_", name)[:LONGEST_KEY].strip(". ") or "_"
        while key in keys.values():
            key = f"{base}_{1 + sum(taken_key.startswith(base) for taken_key in keys.values())}"
        keys[name] = key
    return keys


def parameters(figures: Figures) -> dict[str, str]:
    """What the values depend on."""
    run = {"run_id": figures.record["run_id"]} if "run_id" in figures.record else {}
    conventions = sorted({str(row[CONVENTION]) for row in figures.means})
    baseline = {"baseline": figures.baselines[0]} if len(figures.baselines) == 1 else {}
    return {"convention": ", ".join(conventions), **baseline, **run}


def _log_report(figures: Figures, report: str | Path | None) -> None:
    import mlflow

    if report is not None:
        mlflow.log_artifact(str(report))
    elif has_page_libraries():
        with tempfile.TemporaryDirectory() as folder:
            mlflow.log_artifact(str(write_page(figures, Path(folder, "report.html"))))
