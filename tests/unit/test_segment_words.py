"""Sentences about segments, on the page and where the numbers are odd."""

from typing import Any

import pytest

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import Figures, html, notebook, print_verdict, sentences_of_segments, verdict_of
from tests.helpers import figures as made

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
    # The corrected p-value names a segment.
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
    (line,) = sentences(*(row(f"country={name}", None, n_judged=9) for name in "xy"))
    assert line.endswith(" of country: it is not tested beside labels of a machine")
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
    more = {"mean_baseline": 0.5, "mean_candidate": 0.6, "ci_low": 0.0, "ci_high": 0.2, "relative_ci_low": 0.0}
    more |= {"relative_ci_high": 0.4, "p_adjusted": 0.5, "better": None, "correction": "holm", "n_comparisons": 1}
    rows = [row(name, p, n_users=10, **more) for name, p in (("all", None), ("c=x", 0.01), ("c=y", 0.5), ("c=z", 0.5))]
    page = html.page(Figures([made.mean(name) for name in "ab"], rows)).replace("\N{MINUS SIGN}", "-")
    assert "<li>The effect of b on MAP@10 differs in c=x: +0.1000 (+20.0 %) against +0.2000 (+40.0 %) elsewhere" in page


# ---- all users against every segment

REVERSED = (
    "On MAP@10, b is below a over all users, but above it in each of the 2 segments of country: its users are in other "
    "segments than those of a, so the difference over all users is one of who they are; "
    "rankmetrics compare --decompose country splits it"
)


def turned(whole: float = -0.11, better: str | None = "baseline", **parts: float | None) -> list[dict[str, Any]]:
    """A difference over all users, and one in each of these segments; users as ``design`` has them."""
    changes = {"DE": 0.04, "FR": 0.06} | parts
    rows = [made.compared("b", better, whole, "a", design="independent", p_rest=None, p_rest_adjusted=None)]
    more = {"rest_difference": 0.05, "rest_relative_difference": 0.1, "p_rest": 0.4, "p_rest_adjusted": 0.4}
    users = {"n_users": 2000 // len(changes), "design": "independent", **more}
    for name, change in changes.items():
        row = made.compared("b", None, change or 0.0, "a", segment=f"country={name}", **users)
        rows.append(row | ({"difference": None} if change is None else {}))
    return rows


def test_a_difference_that_is_the_other_way_round_in_every_segment_is_said_first() -> None:
    assert sentences(*turned()) == [REVERSED]
    other = [row | {"segment": row["segment"].replace("country", "device")} for row in turned(DE=-0.2, FR=-0.1)[1:]]
    assert sentences(*turned(), *other) == [
        REVERSED,
        "No sign that the effect of b on MAP@10 differs between the 2 segments of device",
    ]
    above = REVERSED.replace("is below a", "is above a").replace("but above it", "but below it")
    assert sentences(*turned(0.11, "candidate", DE=-0.04, FR=-0.06)) == [above]
    assert sentences(*turned(GB=None, PL=0.0001, SE=0.2, US=0.1, IT=0.1, ES=0.1, PT=0.1, NL=0.1, BE=0.1))[0].startswith(
        "On MAP@10, b is below a over all users, but above it in each of the 10 segments of country that have a diff"
    )
    differs = [row | {"p_rest_adjusted": 0.001} if row["segment"].endswith("GB") else row for row in turned(GB=0.3)]
    first, second = sentences(*differs)
    assert first.startswith("On MAP@10, b is below") and second.startswith("The effect of b on MAP@10 differs in")


@pytest.mark.parametrize(
    "rows",
    [
        turned(better=None),
        turned(FR=-0.01),
        turned(FR=0.0),
        turned(FR=None),
        [row | {"note": "not trustworthy: the users do not follow the planned shares"} for row in turned()],
        # Two small segments of a hundred, of which a page holds the largest, say nothing of all users.
        [row | {"n_users": 10} if row["segment"] != "all" else row for row in turned()],
    ],
)
def test_what_is_not_the_other_way_round_everywhere_is_not_said_to_be(rows: list[dict[str, Any]]) -> None:
    assert not any("over all users" in line for line in [*sentences(*rows), *verdict_of(rows)])


def test_only_what_compare_can_split_is_sent_there_and_the_same_users_are_no_other_mix() -> None:
    alone = REVERSED.partition(";")[0]
    for odd in ({"mean_over": "lists"}, {"cluster": "house"}, {"share_changed": 0.2}):
        counts = {f"n_{what}_{side}": 9 for what in ("lists", "users", "members") for side in ("baseline", "candidate")}
        rows = [row | counts | odd for row in turned()]
        assert sentences(*rows)[0] == alone
    both = [row | {"segment": row["segment"].replace("=", "=x & device=")} for row in turned()]
    assert sentences(*both)[0] == alone.replace("country", "country & device")
    assert sentences(*(row | {"design": "paired"} for row in turned()))[0] == REVERSED.partition(":")[0]


def test_the_verdict_and_the_head_of_a_page_and_of_a_notebook_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row | {"role": "primary"} for row in turned()]
    lines = verdict_of(rows)
    assert lines[0].startswith("b loses to a on MAP@10: ") and lines[1] == REVERSED
    assert not any("over all users" in line for line in verdict_of([row | {"role": "secondary"} for row in rows[1:]]))
    print_verdict(lines, result=Figures([made.mean(name) for name in "ab"], rows))
    assert capsys.readouterr().out.splitlines()[1] == REVERSED
    figures = Figures([made.mean(name) for name in "ab"], rows)
    assert REVERSED in notebook.as_html(figures) and REVERSED in notebook.compared_html(rows)
    pytest.importorskip("altair")
    head, _, rest = html.page(figures).partition('<section aria-labelledby="candidates">')
    assert f'<p class="sure">{REVERSED}.</p>' in head and f"<li>{REVERSED}.</li>" in rest
