"""Which comparisons are corrected together: roles of metrics, segment columns, and their share of the level."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.multitest import multipletests

from rankmetrics_spark.config import Comparison
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.schemas import segment_columns, segment_label
from tests.helpers.messages import json_cases
from tests.helpers.users import compared, deciding_p, table

ROLES = {"m1": "primary", "m2": "guardrail", "m3": "secondary", "m4": "secondary"}


def log(metrics: Sequence[str] = tuple(ROLES), countries: int = 3) -> pd.DataFrame:
    """Thirty users in three experiments; the values of a metric depend on its name alone."""
    users = table({name: np.zeros(30) for name in "abc"})
    for metric in metrics:
        rng = np.random.default_rng([ord(letter) for letter in metric])
        users[metric] = rng.random(90) + np.repeat([0, 0.2, 0.3], 30)
    users["country"] = [f"c{i % countries}" for i in range(90)]
    users["device"] = ["web", "app"] * 45
    return users


def rows_of(
    metrics: Sequence[str] = tuple(ROLES), segments: Sequence[str] = ("country", "device"), **rules: Any
) -> Any:
    return [*compared(log(metrics), metrics=metrics, segments=segments, roles=ROLES, **rules).values()]


@pytest.mark.parametrize("correction", ["holm", "bonferroni", "fdr_bh"])
def test_each_family_is_corrected_by_itself(correction: str) -> None:
    rows = rows_of(correction=correction)
    # Three pairs of experiments; three countries, two devices.
    sizes = {
        "primary metrics": 3 * 1,
        "guardrails": 3 * 1,
        "secondary metrics": 3 * 2,
        "segments of country": 3 * 4 * 3,
        "segments of device": 3 * 4 * 2,
    }
    assert {row["family"] for row in rows} == set(sizes)
    for family, size in sizes.items():
        of_family = [row for row in rows if row["family"] == family]
        assert {row["n_comparisons"] for row in of_family} == {size} == {len(of_family)}
        expected = multipletests([deciding_p(row) for row in of_family], method=correction)[1]
        assert [row["p_adjusted"] for row in of_family] == pytest.approx(list(expected), rel=1e-12)
    assert {row["metric"]: row["role"] for row in rows} == ROLES


@pytest.mark.parametrize("more", [("m3",), ("m2", "m3", "m4")])
@pytest.mark.parametrize("segments", [(), ("country",), ("country", "device")])
def test_more_metrics_and_segments_change_no_primary_p_value(more: tuple[str, ...], segments: tuple[str, ...]) -> None:
    def primary(rows: Any) -> list[float]:
        return [row["p_adjusted"] for row in rows if row["role"] == "primary" and row["segment"] == "all"]

    assert primary(rows_of(("m1", *more), segments)) == primary(rows_of(("m1",), ())) != []


def test_the_primary_metrics_have_their_share_of_the_level_and_all_others_the_rest() -> None:
    rows = rows_of(correction="bonferroni", primary_share=0.8)
    others = len(rows) - 3
    for row in rows:
        n, share = (3, 0.8) if row["family"] == "primary metrics" else (others, 0.2)
        assert row["p_adjusted"] == pytest.approx(min(1, deciding_p(row) * n / share), rel=1e-12)
        assert row["n_comparisons"] == n
    assert {row["family"] for row in rows} == {"primary metrics", "all but primary"}


def test_one_family_ignores_roles() -> None:
    rows = rows_of(families="one")
    assert {(row["family"], row["n_comparisons"]) for row in rows} == {("all", 3 * 4 * (1 + 3 + 2))}


def test_a_label_names_its_columns() -> None:
    labels = [segment_label("country", value) for value in ("de", None, "a=b", "a & b=c", '"', "null", "new\nline")]
    assert {segment_columns(label) for label in labels} == {"country"}
    assert segment_columns(" & ".join([labels[3], segment_label("device", "x & y")])) == "country & device"
    assert segment_columns(segment_label("a & b", "c")) == "a \\& b"


def test_roles_come_from_the_comparison_else_the_first_metric_with_its_largest_cut_off_is_primary() -> None:
    metrics = [parse(name) for name in ("ap@5", "ap@10", "ndcg@10", "p@5")]

    def roles(**section: object) -> list[str]:
        return [*Comparison.read(section).roles(metrics).values()]

    assert roles() == ["secondary", "primary", "secondary", "secondary"]
    assert roles(primary=["ndcg@10", "P@5"]) == ["secondary", "secondary", "primary", "primary"]
    assert roles(guardrails="ap@5,ap@10") == ["guardrail", "guardrail", "primary", "secondary"]


@pytest.mark.parametrize(("section", "message"), json_cases("roles without a metric of the run"))
def test_a_role_needs_a_metric_of_the_run(section: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Comparison.read(section).roles([parse("ap@5"), parse("p@5"), parse("rr@10")])
    assert str(caught.value).startswith(message.partition("; did")[0])


def test_a_metric_has_one_role_and_a_share_needs_families() -> None:
    with pytest.raises(ConfigError, match=r"comparison.guardrails is 'ap@5'; allowed: metrics other than the primary"):
        Comparison.read({"primary": "ap@5", "guardrails": ["p@5", "ap@5"]})
    with pytest.raises(ConfigError, match=r"comparison.primary_share is 0.8; allowed: families: split"):
        Comparison.read({"primary_share": 0.8, "families": "one"})
