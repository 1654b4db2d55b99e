"""Small rankings, made here, with values that a reader can check by hand: a TREC run, a click log, a ranker's scores.

They stand in for the real rankings of ``test_real_data.py`` where their folder is absent.
"""

from __future__ import annotations

from math import log2
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from scipy import stats

from rankmetrics_spark import run
from rankmetrics_spark.config import from_mapping
from rankmetrics_spark.sinks import read
from tests.helpers.logs import averages, by_user

# d9 of topic 1 is never shown by `first`; a negative grade is not relevant; topic 3 is missing from `first`.
QRELS = """\
1 0 d1 1
1 0 d2 0
1 0 d3 2
1 0 d9 1
2 0 d1 -1
2 0 d5 1
3 0 d1 1
"""
# The column of ranks is wrong on purpose: the score decides. Of two scores that are one 32-bit number, the greater
# document comes first.
FIRST = """\
1 Q0 d3 1 1.0 first
1 Q0 d1 3 2.0 first
1 Q0 d2 2 3.0 first
2 Q0 d1 1 1.00000001 first
2 Q0 d5 2 1.0 first
"""
SECOND = """\
1 Q0 d1 1 3 second
1 Q0 d9 1 4 second
1 Q0 d3 1 5 second
2 Q0 d1 1 2 second
2 Q0 d5 1 1 second
3 Q0 d1 1 1 second
"""
AP = {
    ("first", "1"): (1 / 2 + 2 / 3) / 3,
    ("first", "2"): 1 / 1,
    ("first", "3"): 0,
    ("second", "1"): (1 / 1 + 2 / 2 + 3 / 3) / 3,
    ("second", "2"): 1 / 2,
    ("second", "3"): 1 / 1,
}


def test_a_run_and_its_judgements_have_the_values_of_trec_eval(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "made.run").write_text(FIRST + SECOND)
    (tmp_path / "made.qrels").write_text(QRELS)
    document = {
        "source": {"format": "trec_run", "path": str(tmp_path / "made.run")},
        "judgements": {"format": "trec_qrels", "path": str(tmp_path / "made.qrels")},
        "metrics": ["ap", "ndcg", "p@5", "rr"],
        "convention": "trec_eval",
        "comparison": {"baseline": "first"},
        "sink": {"path": str(tmp_path / "out")},
    }
    done = run(spark, from_mapping(document))
    result = by_user(read(spark, f"{done.path}/user_metrics"))
    assert {key: row["ap"] for key, row in result.items()} == pytest.approx(AP, abs=1e-15)
    ideal = 2 / log2(2) + 1 / log2(3) + 1 / log2(4)
    assert result["first", "1"]["ndcg"] == pytest.approx((1 / log2(3) + 2 / log2(4)) / ideal, abs=1e-15)
    assert result["second", "1"]["ndcg"] == pytest.approx(1, abs=1e-15)
    assert (result["first", "1"]["p_at_5"], result["first", "1"]["rr"]) == (2 / 5, 1 / 2)
    assert result["first", "3"]["n_lists"] == 0
    means = averages(done.experiment_metrics)
    sides = [[value for (name, _), value in AP.items() if name == side] for side in ("first", "second")]
    assert [means[side, "all", "ap"] for side in ("first", "second")] == pytest.approx([sum(s) / 3 for s in sides])
    assert done.comparisons is not None
    (row,) = (row for row in done.comparisons.collect() if row["metric"] == "ap")
    assert (row["design"], row["n_users"]) == ("paired", 3)
    assert row["p_value"] == pytest.approx(stats.ttest_rel(*sides).pvalue, abs=1e-12)


# As in a log of recommendations: clicks by position, a user without a click, and one with a click below the cut-off.
CLICKS = """\
experiment,segment,item,position,clicks
men/random,a,i1,1,0
men/random,a,i2,2,1
men/random,a,i3,3,1
men/random,b,i1,1,0
men/random,b,i2,2,0
men/random,c,i1,1,0
men/random,c,i2,2,0
men/random,c,i3,3,1
"""


@pytest.mark.parametrize("zero_relevant", ["zero", "skip"])
def test_clicks_by_position_with_and_without_users_without_a_click(
    spark: SparkSession, tmp_path: Path, zero_relevant: str
) -> None:
    (tmp_path / "clicks.csv").write_text(CLICKS)
    config = {
        "source": {
            "format": "csv",
            "path": str(tmp_path / "clicks.csv"),
            "columns": {"experiment": "experiment", "user": "segment", "relevance": "clicks"},
        },
        "metrics": ["ap", "ap@2", "ndcg@2"],
        "convention": {"preset": "standard", "zero_relevant": zero_relevant},
        "sink": {"path": str(tmp_path / "out")},
    }
    done = run(spark, from_mapping(config))
    users = 3 if zero_relevant == "zero" else 2
    means, counts = averages(done.experiment_metrics), averages(done.experiment_metrics, "n_users")
    ap = 1 / 2 * (1 / 2 + 2 / 3), 1 / 3
    ndcg = (1 / log2(3)) / (1 + 1 / log2(3)), 0.0
    expected = {"ap": sum(ap) / users, "ap@2": 1 / 2 * (1 / 2) / users, "ndcg@2": sum(ndcg) / users}
    for metric, value in expected.items():
        assert means["men/random", "all", metric] == pytest.approx(value, rel=1e-12)
        assert counts["men/random", "all", metric] == users


# As from a ranker: scores and grades from 0 to 4. Two scores of query 1 are one 32-bit number, and the greater item
# comes first: i3 with grade 4 before i2 with grade 0.
SCORED = """\
ranker,query,item,score,label
lambdarank,1,i1,0.5,2
lambdarank,1,i2,0.30000000001,0
lambdarank,1,i3,0.3,4
lambdarank,2,j1,-1.0,3
lambdarank,2,j2,-0.5,1
"""


def test_scored_lists_with_grades_have_the_values_of_the_exponential_gain(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "scored.csv").write_text(SCORED)
    config = {
        "source": {
            "format": "csv",
            "path": str(tmp_path / "scored.csv"),
            "columns": {"experiment": "ranker", "user": "query", "item": "item", "relevance": "label"},
        },
        "rank_by": "score",
        "metrics": ["ap", "ndcg@2"],
        "convention": {"preset": "standard", "gain": "exponential", "score_precision": 32},
        "sink": {"path": str(tmp_path / "out")},
    }
    done = run(spark, from_mapping(config))
    rows = by_user(read(spark, f"{done.path}/user_metrics"))
    ndcg = (3 + 15 / log2(3)) / (15 + 3 / log2(3)), (1 + 7 / log2(3)) / (7 + 1 / log2(3))
    assert [rows["lambdarank", query]["ndcg_at_2"] for query in ("1", "2")] == pytest.approx(list(ndcg), rel=1e-12)
    assert [rows["lambdarank", query]["ap"] for query in ("1", "2")] == [1.0, 1.0]
    assert averages(done.experiment_metrics)["lambdarank", "all", "ndcg@2"] == pytest.approx(sum(ndcg) / 2, rel=1e-12)
