"""What a type checker sees of the package: ``make lint`` checks this file, and no line of it runs.

Each ``type: ignore`` stands for a mistake that a checker has to find: mypy --strict refuses one without a mistake.
"""

from typing import TYPE_CHECKING

from rankmetrics_spark import Result, compare, evaluate, interleaving, off_policy, parse, propensities, read, run
from rankmetrics_spark.config import load

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import assert_type

    from rankmetrics_spark.job import Outcome

    def first_hour(log: pd.DataFrame, spark: SparkSession) -> None:
        """An evaluation of a frame of pandas, what it gives, and a run."""
        result = evaluate(log, metrics=["ndcg@10", "ap@10"], columns={"relevance": "clicked"}, baseline="control")
        assert_type(result, Result)
        assert_type(result.user_metrics.where("true"), DataFrame)
        assert_type(result.user_metrics.to_pandas(), "pd.DataFrame")
        assert_type(result.to_pandas(), "pd.DataFrame")
        assert_type(result.to_pandas("comparisons"), "pd.DataFrame")
        compared = compare(result.user_metrics, baseline="control", wilcoxon=True)
        assert_type(compared.to_pandas(), "pd.DataFrame")
        assert_type(off_policy(log, "ap@10").to_pandas(), "pd.DataFrame")
        assert_type(off_policy(log, propensities=propensities(log, "item")).to_pandas(), "pd.DataFrame")
        assert_type(interleaving(log, team="drafted_by").to_pandas(), "pd.DataFrame")
        assert_type(read(spark, "out/user_metrics").to_pandas(), "pd.DataFrame")
        assert_type(run(spark, load("first.yaml")), Outcome)
        assert_type(str(parse("map@10")), str)
        evaluate([{"user": "u", "item": "i", "position": 1, "relevance": 1}], "rr")

    def mistakes(log: pd.DataFrame, result: Result) -> None:
        """What is no option, no table of a result and no name."""
        evaluate(log, rank_by="rank")  # type: ignore[arg-type]
        evaluate(log, metric="rr")  # type: ignore[call-arg]
        result.to_pandas("users")  # type: ignore[arg-type]
        result.means  # type: ignore[attr-defined]  # noqa: B018
