"""Sentences about segments, on the page and where the numbers are odd."""

from __future__ import annotations

from typing import Any

import pytest

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import Figures, html, sentences_of_segments

METRIC = parse("ap@10")


def row(segment: str, p: float | None = 0.5, effect: float = 0.1, **more: Any) -> dict[str, Any]:
    shared = {"experiment_id": "b", "baseline": "a", "metric": "ap@10", "confidence": 0.95, "note": None}
    difference = {"difference": effect, "relative_difference": 2 * effect}
    rest = {"rest_difference": 0.2, "rest_relative_difference": 0.4, "p_rest": p, "p_rest_adjusted": p}
    return {**shared, **difference, **rest, "segment": segment, **more}


def sentences(*rows: dict[str, Any]) -> list[str]:
    return [line.replace("\N{MINUS SIGN}", "-") for line in sentences_of_segments(rows, METRIC)]


def test_columns_without_a_sign_share_a_sentence() -> None:
    rows = [*(row(f"country={name}") for name in "xyz"), row("device=app"), row("device=web")]
    assert sentences(row("all", None), *rows) == [
        "No sign that the effect of b on MAP@10 differs between the 3 segments of country or the 2 segments of device"
    ]
    assert sentences(*rows[::-1]) == sentences(*rows), "in any order of the rows"
    assert sentences(row("all", None)) == [] == sentences({"segment": "country=x", "metric": "ap@10"})


def test_the_corrected_p_value_names_a_segment() -> None:
    rows = [row(f"country={name}", p_rest=0.01, p_rest_adjusted=0.2) for name in "xyz"]
    assert sentences(*rows) == ["No sign that the effect of b on MAP@10 differs between the 3 segments of country"]


def test_the_only_two_segments_of_a_column_are_named_in_one_sentence() -> None:
    assert sentences(row("device=app", 0.01, 0.3), row("device=web", 0.01, -0.1)) == [
        "The effect of b on MAP@10 differs by device: +0.3000 (+60.0 %) in device=app against -0.1000 (-20.0 %) in "
        "device=web (p = 0.010)"
    ]


def test_segments_without_a_test_are_not_called_alike() -> None:
    (line,) = sentences(row("country=x", None), row("country=y", float("nan")))
    assert line.startswith("Not known whether the effect of b on MAP@10 differs between segments of country: ")
    spoilt = {"note": "not trustworthy: the users do not follow the planned shares"}
    (line,) = sentences(row("country=x", 0.001, **spoilt), row("country=y", 0.001, **spoilt))
    assert line.startswith("Not known")


def test_many_segments_and_pairs_are_counted() -> None:
    lines = sentences(*(row(f"country={i}", 0.001) for i in range(8)), row("country=zz"))
    assert len(lines) == 5 + 1 + 1
    assert lines[5:] == [
        "The effect of b on MAP@10 differs in 3 more segments of country",
        "No sign that the effect of b on MAP@10 differs in the other segment of country",
    ]
    many = [row(f"country={name}", experiment_id=f"b{i}") for i in range(9) for name in "xy"]
    assert len(sentences(*many)) == 6 + 1 and sentences(*many)[-1].startswith("The other 3 pairs")


def test_a_share_of_nothing_is_left_out_and_other_metrics_are_not_told() -> None:
    odd = row("country=x", 0.001, relative_difference=None, rest_relative_difference=None)
    assert sentences(odd, row("country=y"), row("country=z", 0.0001, metric="rr"))[0].endswith(
        "in country=x: +0.1000 against +0.2000 elsewhere (p = 0.001)"
    )


def test_the_page_says_where_the_effect_differs() -> None:
    pytest.importorskip("jinja2")
    counts = {"n_users": 1000, "n_users_with_relevant": 600, "confidence": 0.95, "convention": "standard"}
    means = [
        {
            "experiment_id": name,
            "segment": "all",
            "metric": "ap@10",
            "mean": 0.5,
            "ci_low": 0.4,
            "ci_high": 0.6,
            **counts,
        }
        for name in "ab"
    ]
    more = {"mean_baseline": 0.5, "mean_candidate": 0.6, "ci_low": 0.0, "ci_high": 0.2, "relative_ci_low": 0.0}
    more |= {"relative_ci_high": 0.4, "p_adjusted": 0.5, "better": None, "correction": "holm", "n_comparisons": 1}
    rows = [row(name, p, n_users=10, **more) for name, p in (("all", None), ("c=x", 0.01), ("c=y", 0.5), ("c=z", 0.5))]
    page = html.page(Figures(means, rows)).replace("\N{MINUS SIGN}", "-")
    assert "<li>The effect of b on MAP@10 differs in c=x: +0.1000 (+20.0 %) against +0.2000 (+40.0 %) elsewhere" in page
