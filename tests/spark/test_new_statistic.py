"""A statistic that is registered in one place is a column of ``comparisons`` and a line of the docs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import comparison, run, sinks
from tests.helpers.logs import a_list, config, parquet
from tests.tables_page import updated


@pytest.fixture
def registered() -> Iterator[None]:
    # A function within a function: like that of a notebook cell, it cannot be imported where the rows are made.
    @comparison.statistic()
    def ratio_of_means(rows: Any) -> Any:
        """Mean of the candidate by mean of the baseline."""
        return rows.moments[1].mean / rows.moments[0].mean

    @comparison.statistic("most_users", type="long", needs="wilcoxon")
    def with_a_rank(rows: Any) -> Any:
        """Users whose values differ."""
        return rows.totals.of("ranks", rows.keys)["n"]

    yield
    for name in ("ratio_of_means", "with_a_rank"):
        del comparison.STATISTICS[name]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("wilcoxon", "n"), [(False, None), (True, 2)])
def test_a_registered_statistic_is_a_column_where_what_it_needs_is_asked_for(
    spark: SparkSession, tmp_path: Path, wilcoxon: bool, n: int | None
) -> None:
    lists = {"a": ([0, 1], [0, 0, 0, 1], [1]), "b": ([1], [0, 1], [1])}
    rows = [row for name, users in lists.items() for i, each in enumerate(users) for row in a_list(each, f"u{i}", name)]
    request = {"baseline": "a", "wilcoxon": wilcoxon}
    done = run(spark, config(parquet(tmp_path / "log", rows), tmp_path / "out", metrics="ap@4", comparison=request))
    (row,) = sinks.read(spark, f"{done.path}/comparisons").collect()
    assert row["ratio_of_means"] == (1 + 1 / 2 + 1) / (1 / 2 + 1 / 4 + 1)
    assert row["most_users"] == n
    page = updated("<!-- schemas: written by make readme --><!-- /schemas -->")
    assert "| `ratio_of_means` | double | Mean of the candidate by mean of the baseline. |" in page
    assert "| `most_users` | bigint | `wilcoxon: true`. Users whose values differ. |" in page
