"""Small rankings of TREC, made here, with values that a reader can check by hand.

They stand in for those of ``test_real_data.py`` where their folder is absent; clicks and scores of made logs are in
``test_seed_values.py`` and ``test_dirty_logs.py``.
"""

from math import log2
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from scipy import stats

from rankmetrics_spark import run, sinks
from tests.helpers.logs import averages, by_user, config

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
    judged = {"format": "trec_qrels", "path": str(tmp_path / "made.qrels")}
    more: dict[str, Any] = {"convention": "trec_eval", "comparison": {"baseline": "first"}, "judgements": judged}
    more |= {"source": {"format": "trec_run"}, "metrics": ["ap", "ndcg", "p@5", "rr"]}
    done = run(spark, config(tmp_path / "made.run", tmp_path / "out", **more))
    result = by_user(sinks.read(spark, f"{done.path}/user_metrics"))
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
