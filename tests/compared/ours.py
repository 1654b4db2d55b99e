"""What this project can do, tried like the others."""

from peers import LINEAR, QRELS, RUN, Peer, close
from pyspark.sql import DataFrame, SparkSession, functions as F

import rankmetrics_spark as ours
from rankmetrics_spark.engines.spark import local_session
from rankmetrics_spark.metrics import PRESETS


class Ours(Peer):
    """Every cell is a call."""

    title, package, modules = "rankmetrics_spark", "rankmetrics_spark", ("rankmetrics_spark",)
    documentation = "reference.md"

    def __init__(self) -> None:
        """Start a session, and make two experiments with the same lists, the second one upside down."""
        self.spark: SparkSession = local_session("local[1]", "compared", {})
        shown = [
            (experiment, query, f"device-{place % 2}", item, rank, score, float(QRELS[query].get(item, 0)), 0.5)
            for experiment, turn in (("a", 1), ("b", -1))
            for place, (query, items) in enumerate((RUN | {f"q{n}": RUN["q2"] for n in range(3, 9)}).items())
            if query in QRELS or QRELS.setdefault(query, {"d": 1})
            for rank, (item, score) in enumerate(list(items.items())[::turn], start=1)
        ]
        names = "experiment_id string, user_id string, device string, item_id string, position int, score double"
        self.log: DataFrame = self.spark.createDataFrame(shown, f"{names}, relevance double, propensity double")
        judged = [(user, item, float(grade)) for user, items in QRELS.items() for item, grade in items.items()]
        self.judgements = self.spark.createDataFrame(judged, "user_id string, item_id string, relevance double")

    def version(self) -> str:
        return ours.__version__

    def _of(self, table: str, **options: object) -> list[dict]:
        options = {"metrics": ["ndcg@3"], "judgements": self.judgements} | options
        return [row.asDict() for row in getattr(ours.evaluate(self.log, **options), table).collect()]  # type: ignore[arg-type]

    def names_of_metrics(self) -> str:
        names = ["ndcg@10", "ap@5"]
        assert {row["metric"] for row in self._of("experiment_metrics", metrics=names)} == set(names)
        return "yes"

    def _q1(self, column: str, **options: object) -> float:
        rows = self._of("user_metrics", **options)
        return float(next(row[column] for row in rows if (row["experiment_id"], row["user_id"]) == ("a", "q1")))

    def graded(self) -> str:
        assert close(self._q1("ndcg_at_3"), LINEAR)
        assert not close(self._q1("ndcg_at_3", convention={"gain": "exponential"}), LINEAR)
        return "yes"

    def conventions(self) -> str:
        assert {"trec_eval", "spark_mllib", "ranx"} <= set(PRESETS)
        divided = [self._q1("ap_at_1", metrics=["ap@1"], convention=name) for name in ("standard", "trec_eval")]
        assert close(divided[0], 1)
        assert close(divided[1], 1 / 3)
        return "yes"

    def ties(self) -> str:
        tied = self.log.selectExpr("*", "0.0 AS same")
        options = {"rank_by": "score", "columns": {"score": "same"}, "metrics": ["p@1"], "judgements": self.judgements}
        best, worst = (
            ours.evaluate(tied, convention={"ties": rule}, **options).experiment_metrics.first()["mean"]  # type: ignore[arg-type, index]
            for rule in ("best", "worst")
        )
        assert best > worst
        return "yes"

    def not_shown(self) -> str:
        assert close(self._q1("r_at_3", metrics=["r@3"]), 2 / 3)
        return "yes"

    def unjudged(self) -> str:
        options = {"columns": {"relevance": None}}
        condensed = self._q1("ndcg_at_3", convention={"unjudged": "removed"}, **options)
        assert condensed > self._q1("ndcg_at_3", **options)
        return "yes"

    def per_user(self) -> str:
        assert len(self._of("user_metrics")) == 2 * len(QRELS)
        return "yes"

    def several_experiments(self) -> str:
        assert {row["experiment_id"] for row in self._of("experiment_metrics")} == {"a", "b"}
        return "yes"

    def segments(self) -> str:
        result = {row["segment"] for row in self._of("experiment_metrics", segments=["device"])}
        assert result == {"all", "device=device-0", "device=device-1"}
        return "yes"

    def intervals(self) -> str:
        assert all(row["ci_low"] <= row["mean"] <= row["ci_high"] for row in self._of("experiment_metrics"))
        return "yes"

    def tests(self) -> str:
        assert all(0 <= row["p_value"] <= 1 for row in self._of("comparisons", baseline="a"))
        return "yes"

    def corrected(self) -> str:
        assert all(row["p_adjusted"] >= row["p_value"] for row in self._of("comparisons", baseline="a"))
        return "yes"

    def sequential(self) -> str:
        users = ours.evaluate(self.log, ["ndcg@3"], self.judgements).user_metrics
        result = ours.compare(users, baseline="a", looks="any").first()
        assert result is not None
        assert result["p_sequential"] >= result["p_value"]
        return "yes"

    def left_out(self) -> str:
        faulty = self.log.selectExpr(*(f"{'-1' if c == 'position' else c} AS {c}" for c in self.log.columns))
        rows = ours.evaluate(faulty.limit(1).unionByName(self.log), ["ndcg@3"]).quarantine.collect()
        assert [row["reason"] for row in rows] == ["position_below_1"]
        return "yes"

    def scale_out(self) -> str:
        assert isinstance(ours.evaluate(self.log, ["ndcg@3"]).user_metrics, DataFrame)
        return "yes: one pass for all numbers"

    def diversity(self) -> str:
        rows = ours.exposure(self.log, k=2).collect()
        assert {"coverage@2", "gini@2"} <= {row["metric"] for row in rows}
        return "yes"

    def intents(self) -> str:
        log = self.log.withColumn("intents", F.col("item_id"))
        rows = ours.evaluate(log, ["alpha_ndcg@2", "err_ia@2", "distinct@2"]).experiment_metrics.collect()
        assert next(row["mean"] for row in rows if row["metric"] == "distinct@2") == 2
        return "yes"

    def missing_labels(self) -> str:
        few = self.judgements.where("item_id != 'b'")
        result = ours.unjudged(self.log, few, ["p@2"], baseline="a")
        (pair,) = result.pairs.collect()
        assert pair["low"] < pair["difference"] <= pair["high"]
        assert result.to_judge.first() is not None
        return "yes"

    def click_judgements(self) -> str:
        clicks = self.log.withColumn("relevance", F.expr("int(relevance > 0)"))
        rows = ours.coec_judgements(clicks, min_impressions=1).collect()
        assert all(row["ci_low"] <= row["relevance"] <= row["ci_high"] for row in rows)
        return "yes"

    def percentiles(self) -> str:
        assert all(0 <= row["percentile_50"] <= 1 for row in self._of("experiment_metrics", percentiles=[50]))
        return "yes"

    def only_changed(self) -> str:
        rows = self._of("comparisons", baseline="a", only_changed=True)
        assert all(0 < row["share_changed"] <= 1 for row in rows)
        return "yes"

    def changed(self) -> str:
        rows = ours.changed(self.log, "a", k=2).collect()
        assert rows
        return "yes"

    def interleaving(self) -> str:
        drafted = self.log.where("experiment_id = 'a'").selectExpr("*", "if(position % 2 = 0, 'x', 'y') AS drafted_by")
        assert ours.interleaving(drafted, team="drafted_by") is not None
        return "yes"

    def counterfactual(self) -> str:
        estimate = ours.off_policy(self.log, ["ndcg@3"], propensity="propensity").first()
        assert estimate is not None
        assert estimate["n_users"] > 0
        return "yes"
