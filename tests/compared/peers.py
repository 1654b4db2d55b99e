"""What nine other systems can do, tried on their installed versions: one class per system, one method per feature.

A method returns the cell of the table: ``yes``, ``no``, or ``partly: why``. It calls the system, and asserts what the
cell claims. A feature without a method is absent only if no public name, parameter or metric of the system matches the
feature's words. This runs in the environment of each system, so it imports nothing of the project.
"""

import ast
import importlib
import importlib.util
import inspect
import math
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

QRELS = {"q1": {"a": 2, "b": 1, "unseen": 1}, "q2": {"a": 1}}
RUN = {"q1": {"b": 3.0, "c": 2.0, "a": 1.0}, "q2": {"a": 1.0, "d": 0.5}}
"""Two queries; the judgements hold an item that is not shown."""
LINEAR = (1 / math.log2(2) + 2 / math.log2(4)) / (2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4))
"""NDCG@3 of q1 with the grades as gains."""


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, abs_tol=1e-6)


class Peer:
    """A system in its installed version.

    Attributes:
        title: How the table calls it.
        package: Its distribution.
        modules: Where its public names are.
        documentation: Its page.
        how: ``run``, or ``source`` where it cannot be imported.
    """

    title: str
    package: str
    modules: tuple[str, ...]
    documentation: str
    how = "run"

    @property
    def lib(self) -> Any:
        """The module of its public names."""
        return importlib.import_module(self.modules[0])

    def version(self) -> str:
        return version(self.package)

    def names(self) -> set[str]:
        """Public names, their methods and parameters, and the names of metrics."""
        return {name for module in self.modules for name in _names_of(importlib.import_module(module))} | self.metrics()

    def metrics(self) -> set[str]:
        """Metrics that are texts."""
        return set()

    def cell(self, feature: str, words: str) -> str:
        """The cell of a feature.

        Raises:
            ValueError: No method says what the system can do, and a name suggests that it can.
        """
        method = getattr(self, feature, None)
        if method is not None:
            return str(method())
        result = sorted(name for name in self.names() if re.search(words, name, re.IGNORECASE))
        if result:
            raise ValueError(f"{self.title}, {feature}: {result} look like it; a method has to say whether they are")
        return "no"


def _names_of(module: object) -> Iterator[str]:
    for name in dir(module):
        value = getattr(module, name, None)
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name
            yield from _parameters(value)
        if inspect.isclass(value):
            yield from (each for each in vars(value) if not each.startswith("_"))


def _parameters(value: object) -> list[str]:
    try:
        return list(inspect.signature(value).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []


class RankingEvaluator(Peer):
    title, package, modules = "RankingEvaluator", "pyspark", ("pyspark.ml.evaluation",)
    documentation = "https://spark.apache.org/docs/latest/api/python/reference/api/"
    documentation += "pyspark.ml.evaluation.RankingEvaluator.html"

    def names(self) -> set[str]:
        """Those of this evaluator alone."""
        evaluator = self.lib.RankingEvaluator
        return {name for name in dir(evaluator) if not name.startswith("_")} | set(evaluator.metricName.doc.split())

    def _value(self, prediction: list[float], label: list[float], **parameters: object) -> float:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        rows = spark.createDataFrame([(prediction, label)], "prediction array<double>, label array<double>")
        return float(self.lib.RankingEvaluator(**parameters).evaluate(rows))

    def names_of_metrics(self) -> str:
        assert close(self._value([1.0], [1.0], metricName="ndcgAtK", k=10), 1)
        return "partly: one name and one cut-off per evaluator"

    def graded(self) -> str:
        # The labels are a set of relevant items: an item has no grade to give.
        assert close(self._value([1.0, 3.0, 2.0], [2.0, 1.0], metricName="ndcgAtK", k=3), 1.5 / (1 + 1 / math.log2(3)))
        return "no"

    def not_shown(self) -> str:
        assert close(self._value([1.0, 9.0], [1.0, 2.0], metricName="recallAtK", k=2), 0.5)
        return "yes"

    def scale_out(self) -> str:
        assert "DataFrame" in str(inspect.signature(self.lib.Evaluator.evaluate))
        return "yes: one job or more per number"


class RePlay(Peer):
    title, package, modules = "RePlay", "replay-rec", ("replay.metrics",)
    documentation = "https://sb-ai-lab.github.io/RePlay/pages/modules/metrics.html"

    def _values(self, metric: object) -> dict:
        import pandas as pd

        shown = [("u", item, score) for item, score in RUN["q1"].items()]
        truth = [("u", item, grade) for item, grade in QRELS["q1"].items()]
        columns = ["query_id", "item_id", "rating"]
        return metric(pd.DataFrame(shown, columns=columns), pd.DataFrame(truth, columns=columns))  # type: ignore[operator]

    def names_of_metrics(self) -> str:
        assert "NDCG@3" in self._values(self.lib.NDCG(3))
        return "partly: a class per metric"

    def graded(self) -> str:
        binary = (1 / math.log2(2) + 1 / math.log2(4)) / sum(1 / math.log2(i + 1) for i in (1, 2, 3))
        assert close(self._values(self.lib.NDCG(3))["NDCG@3"], binary)
        return "no"

    def per_user(self) -> str:
        assert list(self._values(self.lib.NDCG(3, mode=self.lib.PerUser()))["NDCG-PerUser@3"]) == ["u"]
        return "yes"

    def intervals(self) -> str:
        assert self._values(self.lib.NDCG(3, mode=self.lib.ConfidenceInterval(0.95)))
        return "yes"

    def not_shown(self) -> str:
        assert close(self._values(self.lib.Recall(3))["Recall@3"], 2 / 3)
        return "yes"

    def scale_out(self) -> str:
        assert "_spark_call" in dir(self.lib.NDCG)
        return "yes"

    def several_experiments(self) -> str:
        assert "add_result" in dir(self.lib.Experiment)
        return "partly: a call for each, into one table"

    def diversity(self) -> str:
        assert {"CategoricalDiversity", "Coverage", "Novelty", "Surprisal", "Unexpectedness"} <= self.names()
        return "yes"

    def intents(self) -> str:
        import pandas as pd

        shown = pd.DataFrame([("u", "x", 2.0), ("u", "x", 1.0)], columns=["query_id", "category_id", "rating"])
        assert close(self.lib.CategoricalDiversity(2)(shown)["CategoricalDiversity@2"], 1 / 2)
        return "partly: distinct categories"

    def percentiles(self) -> str:
        assert self._values(self.lib.NDCG(3, mode=self.lib.Median()))
        return "partly: the median"


class Recommenders(Peer):
    title, package = "recommenders", "recommenders"
    modules = ("recommenders.evaluation.spark_evaluation", "recommenders.evaluation.python_evaluation")
    documentation = "https://recommenders-team.github.io/recommenders/evaluation.html"

    def _call(self, name: str, **options: object) -> float:
        import pandas as pd
        from recommenders.evaluation import python_evaluation

        truth = [("u", item, grade) for item, grade in QRELS["q1"].items()]
        shown = [("u", item, score) for item, score in RUN["q1"].items()]
        keys = ["userID", "itemID"]
        tables = pd.DataFrame(truth, columns=[*keys, "rating"]), pd.DataFrame(shown, columns=[*keys, "prediction"])
        return float(getattr(python_evaluation, name)(*tables, **options))

    def names_of_metrics(self) -> str:
        assert 0 < self._call("ndcg_at_k", k=3) < 1
        return "partly: a function per metric"

    def graded(self) -> str:
        assert close(self._call("ndcg_at_k", k=3, score_type="raw"), LINEAR)
        assert "score_type" not in inspect.signature(self.lib.SparkRankingEvaluation.ndcg_at_k).parameters
        return "partly: in pandas, not on Spark"

    def not_shown(self) -> str:
        assert close(self._call("recall_at_k", k=3), 2 / 3)
        return "yes"

    def per_user(self) -> str:
        assert not [name for name in dir(self.lib.SparkDiversityEvaluation) if "ndcg" in name]
        assert isinstance(self._call("ndcg_at_k", k=3), float)
        return "partly: of diversity and serendipity"

    def scale_out(self) -> str:
        from pyspark.sql import DataFrame
        from recommenders.evaluation import spark_evaluation

        assert spark_evaluation.DataFrame is DataFrame
        assert {"rating_true", "rating_pred"} <= set(_parameters(spark_evaluation.SparkRankingEvaluation))
        return "yes: one job or more per number"

    def diversity(self) -> str:
        assert {"catalog_coverage", "novelty", "serendipity", "diversity"} <= {*dir(self.lib.SparkDiversityEvaluation)}
        return "yes"


class Ranx(Peer):
    title, package, modules = "ranx", "ranx", ("ranx",)
    documentation = "https://amenra.github.io/ranx/"

    def names(self) -> set[str]:
        """Without the ways to fuse runs."""
        return {name for name in super().names() if "fus" not in name.lower()}

    def metrics(self) -> set[str]:
        return set(importlib.import_module("ranx.metrics").__dict__)

    def _evaluate(self, metrics: object, **options: object):
        return self.lib.evaluate(self.lib.Qrels(QRELS), self.lib.Run(RUN), metrics, **options)

    def names_of_metrics(self) -> str:
        assert set(self._evaluate(["ndcg@10", "map@5"])) == {"ndcg@10", "map@5"}
        return "yes"

    def graded(self) -> str:
        first = self._evaluate("ndcg@3", return_mean=False)[0]
        assert close(first, LINEAR)
        assert not close(self._evaluate("ndcg_burges@3", return_mean=False)[0], first)
        return "yes"

    def per_user(self) -> str:
        assert len(self._evaluate("ndcg@3", return_mean=False)) == 2
        return "yes"

    def not_shown(self) -> str:
        assert close(self._evaluate("recall@3", return_mean=False)[0], 2 / 3)
        return "yes"

    def several_experiments(self) -> str:
        other = {query: dict.fromkeys(items, 1.0) | {"z": 2.0} for query, items in RUN.items()}
        runs = [self.lib.Run(RUN, name="a"), self.lib.Run(other, name="b")]
        report = self.lib.compare(self.lib.Qrels(QRELS), runs, ["ndcg@3"], max_p=0.05)
        assert set(report.to_dict()["model_names"]) == {"a", "b"}
        return "yes: in memory"

    def tests(self) -> str:
        assert "stat_test" in inspect.signature(self.lib.compare).parameters
        self.several_experiments()
        return "yes"

    def corrected(self) -> str:
        import ranx.statistical_tests as tests

        assert [name for name in dir(tests) if "tukey" in name]
        return "partly: Tukey's test"

    def unjudged(self) -> str:
        qrels, run = {"q": {"a": 1, "b": 0}}, {"q": {"unjudged": 3.0, "a": 2.0, "b": 1.0}}
        assert close(self.lib.evaluate(self.lib.Qrels(qrels), self.lib.Run(run), "bpref"), 1)
        return "partly: bpref"


class IrMeasures(Peer):
    title, package, modules = "ir_measures", "ir_measures", ("ir_measures",)
    documentation = "https://ir-measur.es/"

    def _calc(self, name: str) -> float:
        measure = self.lib.parse_measure(name)
        return float(self.lib.calc_aggregate([measure], QRELS, RUN)[measure])

    def names_of_metrics(self) -> str:
        assert 0 < self._calc("nDCG@10") < 1
        return "yes"

    def _of_q1(self, name: str) -> float:
        values = self.lib.iter_calc([self.lib.parse_measure(name)], QRELS, RUN)
        return float(next(value.value for value in values if value.query_id == "q1"))

    def graded(self) -> str:
        assert close(self._of_q1("nDCG@3"), LINEAR)
        assert "dcg" in str(self.lib.nDCG.SUPPORTED_PARAMS)
        return "yes"

    def per_user(self) -> str:
        assert 0 < self._of_q1("nDCG@3") < 1
        return "yes"

    def not_shown(self) -> str:
        assert close(self._of_q1("R@3"), 2 / 3)
        return "yes"

    def unjudged(self) -> str:
        assert close(self._of_q1("Judged@3"), 2 / 3)
        assert self._of_q1("nDCG(judged_only=True)@3") > self._of_q1("nDCG@3")
        return "yes"

    def conventions(self) -> str:
        assert "judged_only" in self.lib.nDCG.SUPPORTED_PARAMS
        return "partly: by parameters of a measure"

    def intents(self) -> str:
        assert [str(self.lib.parse_measure(name)) for name in ("alpha_nDCG@10", "ERR_IA@10")]
        return "yes: with pyndeval"


class PytrecEval(Peer):
    title, package, modules = "pytrec_eval", "pytrec_eval-terrier", ("pytrec_eval",)
    documentation = "https://github.com/terrierteam/pytrec_eval"

    def metrics(self) -> set[str]:
        return set(self.lib.supported_measures)

    def _values(self, *measures: str, qrels: dict = QRELS, run: dict = RUN) -> dict:
        return dict(self.lib.RelevanceEvaluator(qrels, set(measures)).evaluate(run))

    def names_of_metrics(self) -> str:
        assert 0 < self._values("ndcg_cut.10")["q1"]["ndcg_cut_10"] < 1
        return "yes"

    def graded(self) -> str:
        assert close(self._values("ndcg_cut.3")["q1"]["ndcg_cut_3"], LINEAR)
        return "yes: as gains, linear"

    def per_user(self) -> str:
        assert self._values("map").keys() == {"q1", "q2"}
        return "yes"

    def not_shown(self) -> str:
        assert close(self._values("recall.3")["q1"]["recall_3"], 2 / 3)
        return "yes"

    def unjudged(self) -> str:
        assert {"bpref", "infAP"} <= self.metrics()
        qrels, run = {"q": {"a": 1, "b": 0}}, {"q": {"unjudged": 3.0, "a": 2.0, "b": 1.0}}
        assert close(self._values("bpref", qrels=qrels, run=run)["q"]["bpref"], 1)
        return "partly: bpref, infAP"


class RecTools(Peer):
    title, package, modules = "RecTools", "RecTools", ("rectools.metrics",)
    documentation = "https://rectools.readthedocs.io/en/stable/metrics.html"

    def _tables(self) -> tuple:
        import pandas as pd

        shown = [("u", item, rank) for rank, item in enumerate(RUN["q1"], start=1)]
        truth = [("u", item) for item in QRELS["q1"]]
        keys = ["user_id", "item_id"]
        return pd.DataFrame(shown, columns=[*keys, "rank"]), pd.DataFrame(truth, columns=keys)

    def names_of_metrics(self) -> str:
        shown, truth = self._tables()
        assert set(self.lib.calc_metrics({"any name": self.lib.MAP(k=3)}, shown, truth)) == {"any name"}
        return "partly: a class per metric"

    def graded(self) -> str:
        shown, truth = self._tables()
        with_weight = self.lib.NDCG(k=3).calc(shown, truth.assign(weight=[2, 1, 1]))
        assert close(with_weight, self.lib.NDCG(k=3).calc(shown, truth))
        return "no"

    def per_user(self) -> str:
        assert list(self.lib.NDCG(k=3).calc_per_user(*self._tables()).index) == ["u"]
        return "yes"

    def not_shown(self) -> str:
        assert close(self.lib.Recall(k=3).calc(*self._tables()), 2 / 3)
        return "yes"

    def conventions(self) -> str:
        assert {"divide_by_k"} <= set(inspect.signature(self.lib.MAP).parameters)
        assert {"divide_by_achievable"} <= set(inspect.signature(self.lib.NDCG).parameters)
        return "partly: the divisor"

    def diversity(self) -> str:
        of_lists = {"AvgRecPopularity", "IntraListDiversity", "MeanInvUserFreq"}
        assert of_lists | {"CatalogCoverage", "Serendipity"} <= self.names()
        return "yes"

    def counterfactual(self) -> str:
        assert set(inspect.signature(self.lib.DebiasConfig).parameters) == {"iqr_coef", "random_state"}
        return "no: it samples popular items down"


class Torchmetrics(Peer):
    """It needs PyTorch, so its source is read instead."""

    title, package, modules, how = "torchmetrics", "torchmetrics", ("torchmetrics.retrieval",), "source"
    documentation = "https://lightning.ai/docs/torchmetrics/stable/"

    def _folder(self) -> Path:
        result = importlib.util.find_spec("torchmetrics")
        assert result and result.submodule_search_locations
        return Path(next(iter(result.submodule_search_locations)))

    def _source(self, name: str) -> str:
        return (self._folder() / name).read_text()

    def names(self) -> set[str]:
        names: set[str] = set()
        for file in [*self._folder().glob("retrieval/*.py"), *self._folder().glob("functional/retrieval/*.py")]:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                    names.add(node.name)
                if isinstance(node, ast.FunctionDef):
                    names |= {argument.arg for argument in node.args.args}
        return names

    def names_of_metrics(self) -> str:
        assert "class RetrievalNormalizedDCG" in self._source("retrieval/ndcg.py")
        return "partly: a class per metric"

    def graded(self) -> str:
        assert "self.allow_non_binary_target = True" in self._source("retrieval/ndcg.py")
        return "yes: as gains, linear"

    def ties(self) -> str:
        assert "ignore_ties" in self._source("functional/retrieval/ndcg.py")
        return "partly: averaged in NDCG"

    def not_shown(self) -> str:
        assert "def retrieval_recall(preds: Tensor, target: Tensor" in self._source("functional/retrieval/recall.py")
        return "no"

    def scale_out(self) -> str:
        assert "dist_reduce_fx=None" in self._source("retrieval/base.py")
        return "partly: processes send all rows to one another"


class Sklearn(Peer):
    title, package, modules = "scikit-learn", "scikit-learn", ("sklearn.metrics",)
    documentation = "https://scikit-learn.org/stable/modules/model_evaluation.html#multilabel-ranking-metrics"

    def names(self) -> set[str]:
        """Those of the ranking metrics."""
        module = importlib.import_module("sklearn.metrics._ranking")
        listed = set(importlib.import_module("sklearn.metrics").__all__)
        result = {name: getattr(module, name) for name in dir(module) if name in listed}
        return {*result, *(parameter for value in result.values() for parameter in _parameters(value))}

    def names_of_metrics(self) -> str:
        assert close(self.lib.ndcg_score([[1, 0]], [[2, 1]], k=1), 1)
        return "partly: a function per metric"

    def graded(self) -> str:
        assert not close(self.lib.ndcg_score([[3, 0, 1]], [[1, 2, 3]]), self.lib.ndcg_score([[1, 0, 1]], [[1, 2, 3]]))
        return "yes: as gains, linear"

    def ties(self) -> str:
        averaged, first = (self.lib.ndcg_score([[1, 0]], [[1, 1]], k=1, ignore_ties=ignore) for ignore in (False, True))
        assert close(averaged, 0.5)
        assert first in (0, 1)
        return "partly: averaged, or any order"

    def not_shown(self) -> str:
        try:
            self.lib.ndcg_score([[1, 1]], [[1]])
        except ValueError:
            return "no"
        raise AssertionError("a shorter list is taken")

    def diversity(self) -> str:
        # How far down the list one has to go for all relevant labels.
        assert close(self.lib.coverage_error([[1, 0, 0]], [[1, 2, 3]]), 3)
        return "no"


PEERS: tuple[type[Peer], ...] = (RankingEvaluator, RePlay, Recommenders, Ranx, IrMeasures, PytrecEval)
PEERS += (RecTools, Torchmetrics, Sklearn)
