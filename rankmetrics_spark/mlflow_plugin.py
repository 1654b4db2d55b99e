"""Ranking metrics in MLflow's own evaluations: an evaluator for ``mlflow.evaluate`` and scorers for MLflow 3.

A row is a query. Its prediction is the list of shown items, the best first; its target holds the relevant items: a list
of them, or a mapping of items to grades. Ids are compared as texts. Needs the extra ``mlflow``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import EvaluationResult
from mlflow.models.evaluation import ModelEvaluator
from mlflow.models.evaluation.artifacts import JsonEvaluationArtifact

from rankmetrics_spark import metrics as mx, statistics as st
from rankmetrics_spark.errors import ConfigError, InputError, check_known, unknown
from rankmetrics_spark.pipeline import evaluate

DEFAULT_METRICS = ("ndcg@10", "ap@10", "rr")
#: Name of the table with a row per query.
PER_QUERY = "rankmetrics_per_query"


class RankingEvaluator(ModelEvaluator):  # type: ignore[misc]  # mypy cannot see MLflow: the base class is Any
    """``mlflow.evaluate(data, model_type="ranker", evaluators="rankmetrics", predictions=..., targets=...)``.

    ``evaluator_config`` holds arguments of ``rankmetrics_spark.evaluate``, such as ``metrics``, ``convention`` or
    ``baseline``; ``columns`` names columns of the data: ``experiment`` for several systems, ``user`` for the query, by
    which they are paired. Without a user, each row is a query of its own.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Mapping[str, Any] | None = None, **_: Any) -> bool:
        """Whether a model ranks: MLflow calls that a retriever."""
        return model_type in ("ranker", "retriever")

    def evaluate(
        self,
        *,
        dataset: Any,
        run_id: str,
        evaluator_config: Mapping[str, Any] | None = None,
        model: Any = None,
        predictions: str | None = None,
        **_: Any,
    ) -> EvaluationResult:
        """Log means, intervals, differences and a table of queries to the run.

        Raises:
            ConfigError: A wrong argument.
            InputError: There are no targets, or a query has other targets in another row.
        """
        options = {name: value for name, value in (evaluator_config or {}).items() if name != "col_mapping"}
        check_known("argument", map(str, options), signature(evaluate).parameters, "evaluator_config")
        options.setdefault("metrics", DEFAULT_METRICS)
        options.setdefault("unit", "query")
        features = pd.DataFrame(dataset.features_data).reset_index(drop=True)
        shown = dataset.predictions_data if model is None else model.predict(features)
        if predictions and not isinstance(shown, (list, np.ndarray)):
            shown = shown[predictions]
        if shown is None or dataset.labels_data is None:
            raise InputError.of("not_evaluated", missing="predictions" if shown is None else "targets")
        columns = {"experiment": None, "relevance": None, **options.pop("columns", {})}
        if "user" not in columns:
            features["query"] = [f"{place:09d}" for place in range(len(features))]
        user = str(columns.setdefault("user", "query"))
        if others := [name for name in columns.values() if name and name not in features]:
            raise ConfigError(f"columns: {unknown('column', others[0], map(str, features))}")
        truth: dict[str, dict[str, float]] = {}
        for query, target in zip(features[user].astype(str), dataset.labels_data, strict=True):
            if truth.setdefault(query, graded(target)) != graded(target):
                raise InputError(f"the query '{query}' has different targets in two rows; allowed: the same in each")
        features[user] = features[user].astype(str)
        features["items"] = [*map(items_of, shown)]
        if not any(features["items"]):
            raise InputError("no row has predictions; allowed: a list of items in each row, the best first")
        kinds = {"user": str, "item": str, "relevance": float}
        rows = [(query, item, grade) for query, grades in truth.items() for item, grade in grades.items()]
        judged = pd.DataFrame(rows, columns=[*kinds]).astype(kinds)
        result = evaluate(features, judgements=judged, columns={"items": "items", **columns}, **options)
        logged = result.log_to_mlflow()
        table = result.to_pandas("user_metrics")
        mlflow.log_table(table, f"{PER_QUERY}.json", run_id)
        artifact = JsonEvaluationArtifact(f"{mlflow.get_run(run_id).info.artifact_uri}/{PER_QUERY}.json", table)
        return EvaluationResult(logged, {PER_QUERY: artifact}, run_id)


def items_of(cell: Any) -> list[str]:
    """The items of a cell; none of a missing value.

    Raises:
        InputError: A text or a number, which is no list.

    >>> items_of(["a", 7]), items_of(None), items_of(float("nan"))
    (['a', '7'], [], [])
    """
    if cell is None or (isinstance(cell, float) and np.isnan(cell)):
        return []
    if isinstance(cell, (str, bytes)) or not isinstance(cell, Iterable):
        raise InputError(f"{cell!r} is no list; allowed: a list of items, or a mapping of relevant items to grades")
    return [str(item) for item in cell]


def graded(target: Any) -> dict[str, float]:
    """Item -> grade of what is relevant to a query.

    >>> graded(["a", 7]), graded({"a": 3}), graded(None)
    ({'a': 1.0, '7': 1.0}, {'a': 3.0}, {})
    """
    if not isinstance(target, Mapping):
        return dict.fromkeys(items_of(target), 1.0)
    if wrong := [grade for grade in target.values() if not isinstance(grade, (int, float, np.number))]:
        raise InputError(f"{wrong[0]!r} is no grade; allowed: numbers")
    return {str(item): float(grade) for item, grade in target.items()}


def scorers(metrics: Sequence[str] = DEFAULT_METRICS, convention: str = "standard", key: str = "relevant") -> list[Any]:
    """Scorers for ``mlflow.genai.evaluate``: a value per row, and over all rows the mean with its 95 % interval.

    Args:
        metrics: Names such as ``ndcg@10``.
        convention: A preset.
        key: Of ``expectations``: where the relevant items are. ``outputs`` are the shown items.

    Raises:
        ConfigError: There is no such metric or preset, or MLflow is older than 3.
    """
    try:
        from mlflow.genai.scorers import scorer
    except ImportError:
        raise ConfigError(f"scorers need MLflow 3; found {mlflow.__version__}") from None
    rules = mx.resolve(convention)

    def of(name: str) -> Any:
        metric = mx.parse(name)

        def score(outputs: Any, expectations: Mapping[str, Any]) -> float | None:
            if key not in (expectations or {}):
                raise InputError.of("no_expectation", key=key)
            truth, items = graded(expectations[key]), items_of(outputs)
            # As in a log, where a repeated item is left out and leaves a gap.
            kept = rules.duplicates == "count"
            grades = [truth.get(item, 0.0) * (kept or item not in items[:at]) for at, item in enumerate(items)]
            value = mx.compute(mx.one_list(grades, pool=[*truth.values()]).batch, [metric], rules)[0, 0]
            return None if np.isnan(value) else float(value)

        return scorer(score, name=metric.column, aggregations=["mean", *map(_bound, ("ci_low", "ci_high"))])

    return [of(name) for name in metrics]


def _bound(name: str) -> Callable[[list[float]], float]:
    """A bound of the 95 % t interval of a mean, as an aggregation of MLflow."""

    def bound(values: list[float]) -> float:
        known = [value for value in values if value is not None]
        return float(st.t_interval(st.Moments.of(known), 0.95)[name == "ci_high"][0])

    bound.__name__ = name
    return bound
