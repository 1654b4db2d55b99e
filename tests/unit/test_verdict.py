"""The answer in words."""

from typing import Any

import pytest

from rankmetrics_spark.findings import Finding
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import MOST_SENTENCES, Compared, Figures, cards, details, print_all, sentence, verdict_of
from tests.helpers.figures import compared, mean
from tests.helpers.messages import messages

NAN = float("nan")


OPEN = {"adjusted_ci_low": -0.02, "adjusted_ci_high": 0.12}
OPEN |= {"adjusted_relative_ci_low": -0.04, "adjusted_relative_ci_high": 0.24}
"""Of a difference that is not shown."""
PRINTED = {"design": "independent", "test": "welch", "wins": 0, "ties": 0, "losses": 0}


def row(**changes: Any) -> dict[str, Any]:
    """A comparison that shows a difference: 0.55 against 0.5."""
    bounds = {"ci_low": 0.04, "ci_high": 0.06, "relative_ci_low": 0.08, "relative_ci_high": 0.12}
    test = {"metric": "ndcg@10", "p_adjusted": 0.0004, "n_comparisons": 4, "n_users": 20_000, "power": 0.8}
    detectable = {"minimum_detectable_effect": 0.005, "adjusted_minimum_detectable_effect": 0.006}
    return compared("b", "candidate", 0.05, "a") | bounds | test | detectable | changes


@pytest.mark.parametrize(("changes", "message"), messages("a sentence"))
def test_a_comparison_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    result = sentence(row(**changes), parse("ndcg@10"))
    assert result == message if message.startswith("b ") else result.endswith(message)


def test_a_metric_without_a_direction_has_no_winner() -> None:
    result = sentence(row(metric="idcg@5", better=None), parse("idcg@5"))
    assert "neither direction is better, 0.500 → 0.550, +10.0 % (+8.0 to +12.0), p < 0.001" in result


def test_segments_are_left_out_and_shown_differences_come_first() -> None:
    rows = [row(experiment_id="c", better=None, p_adjusted=0.3), row(segment="country=de", experiment_id="d"), row()]
    assert [text.split()[0] for text in verdict_of(rows)] == ["b", "c"]
    assert verdict_of([]) == []


def test_a_long_verdict_keeps_the_surest_and_says_how_many_more_there_are() -> None:
    rows = [row(experiment_id=f"e{i:02}", p_adjusted=0.001 * (40 - i)) for i in range(40)]
    result = verdict_of(rows)
    assert len(result) == MOST_SENTENCES + 1
    assert [text.split()[0] for text in result[:2]] == ["e39", "e38"]
    assert result[-1] == f"... and {40 - MOST_SENTENCES} more, in the table comparisons"


def test_the_first_sentences_are_about_the_metric_that_decides() -> None:
    rows = [
        row(experiment_id=name, metric=metric, better="candidate" if metric == "ap@5" else None, p_adjusted=p)
        for name, p in (("b", 0.001), ("c", 0.002))
        for metric in ("ap@5", "ap@10", "ndcg@10")
    ]
    metrics = [parse(name) for name in ("ap@5", "ap@10", "ndcg@10")]

    def subjects(primary: str = "") -> list[str]:
        of_role = [row | {"role": "primary" if row["metric"] == primary else "secondary"} for row in rows]
        words = (text.partition(":")[0].split() for text in verdict_of(of_role, metrics))
        return [f"{name} {words[-1]}" for name, *words in words]

    # The primary metric, else the largest cut-off of the first metric; then the differences that are shown.
    assert subjects()[:4] == ["b MAP@10", "c MAP@10", "b MAP@5", "c MAP@5"]
    assert subjects("ndcg@10")[:4] == ["b NDCG@10", "c NDCG@10", "b MAP@5", "c MAP@5"]


def test_a_long_verdict_begins_with_the_metric_that_decides_and_counts_what_was_not_read() -> None:
    other = [row(experiment_id=f"e{i:02}", metric="p@5", p_adjusted=1e-9) for i in range(20)]
    deciding = [row(experiment_id="x", metric="ndcg@10", better=None, p_adjusted=0.9)]
    result = verdict_of([*other, *deciding], [parse("ndcg@10"), parse("p@5")], more=1_000)
    assert result[0].startswith("x against a on NDCG@10: no difference shown")
    assert result[-1] == f"... and {21 + 1_000 - MOST_SENTENCES:,} more, in the table comparisons"


def test_a_long_verdict_says_every_lost_guardrail_before_what_is_open(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"c{i:02}" for i in range(14)]
    lost = {"better": "baseline", "relative_difference": -0.66, "p_adjusted": 0.0001, "role": "guardrail"}
    rows = [
        row(experiment_id=name, metric=metric, role=role, **PRINTED | OPEN | {"better": None, "p_adjusted": 0.5})
        for metric, role in (("p@5", "primary"), ("p@1", "guardrail"))
        for name in names
    ]
    rows[14 + 5] |= lost | {f"adjusted_{name}": None for name in ("ci_low", "relative_ci_low")}
    order = [line.split()[0] for line in verdict_of(rows)]
    assert order[:12] == ["c05", *names[:11]] and order[12] == "..."
    first = printed(rows, capsys)[0]
    assert first == (
        "No clear winner yet: none of 14 candidates differs clearly from a on Precision@5; the guardrail Precision@1 "
        "of c05 falls by 66.0 %"
    )
    # Behind 14 winners too; of more than 12 behind the first 12, the others are counted.
    won = [each | {"better": "candidate"} for each in rows[:14]]
    assert [line.split()[0] for line in verdict_of([*won, *rows[14:]])][12:14] == ["c05", "..."]
    result = verdict_of([*won, *(each | lost for each in rows[14:])])
    assert result[24] == "... and 4 more, 2 of them guardrails that are clearly worse, in the table comparisons"


def test_a_primary_metric_alone_says_that_its_p_value_is_of_a_part_of_the_error() -> None:
    # 0.028 of one test is 0.056 at half of the level of significance.
    alone = row(metric="ap", p_value=0.028, p_adjusted=0.056, n_comparisons=1, family="primary metrics", better=None)
    assert "p = 0.056, as primary metrics have 50 % of the error; " in verdict_of([alone | OPEN])[0]
    (card,) = cards(Figures([mean("a", "ap"), mean("b", "ap")], [alone | OPEN | {"test": "welch"}]))
    assert card.p == "p = 0.056, as primary metrics have 50 % of the error, which also widens the interval"
    assert "of the error" not in verdict_of([alone | OPEN | {"p_value": 0.056}])[0]
    assert "of the error" not in verdict_of([alone | OPEN | {"n_comparisons": 2}])[0]


@pytest.mark.parametrize(("given", "message"), messages("p-values"))
def test_a_p_value_has_the_digits_that_support_the_verb(given: list[float], message: str) -> None:
    p, confidence = given
    assert Finding.of(row(p_adjusted=p, confidence=confidence)).p == message
    # The number as it is read falls on the side of the level that decided.
    number = float(message.split()[-1])
    assert message.startswith("p <") or (number < round(1 - confidence, 9)) == (p < 1 - confidence)


def test_a_verdict_says_that_the_same_pair_was_looked_at_before() -> None:
    single = (
        "Each p-value is that of a single look, so a difference that is shown is less sure than it says; with looks: "
        "any, it would hold at every look"
    )
    sixth = verdict_of([row(look=6), row(look=6, segment="country=de"), row(look=6, metric="ap@10")])
    assert sixth[-1] == f"This is look 6: the pair was compared on 5 earlier dates. {single}"
    assert [line.partition(":")[0] for line in sixth[:-1]] == ["b beats a on NDCG@10", "b beats a on MAP@10"]
    later = verdict_of([row(look=2), row(look=1, experiment_id="c")])
    assert later[-1] == f"This is look 2 at b against a: the pair was compared on 1 earlier date. {single}"
    second = verdict_of([row(look=2)])
    assert second[-1] == f"This is look 2: the pair was compared on 1 earlier date. {single}"
    # Bounds of several looks are of data that grow.
    bounds = {f"sequential_{name}": 0.1 for name in ("ci_low", "ci_high", "relative_ci_low", "relative_ci_high")}
    (*_, apart) = verdict_of([row(look=2, looks="any", **bounds)])
    assert apart.startswith("This is look 2, and no comparison.period is set: ")
    for first in ({"look": 1}, {"look": None}, {}):
        assert not any("look" in line for line in verdict_of([row(**first)]))
    at_any = verdict_of([row(look=6, looks="any", period_from="2026-11-08", **bounds)])
    assert [line.rpartition(", ")[2] for line in at_any] == ["valid at every look"]


def test_a_verdict_on_several_tests_says_once_which_look_it_is() -> None:
    said = verdict_of([row(look=2, test_name=name) for name in ("ranker", "theme")])
    assert [line.startswith("This is look 2: ") for line in said].count(True) == 1


def test_a_verdict_beyond_the_plan_speaks_of_no_p_value_and_of_no_bounds() -> None:
    note = "not tested, since this is look 15 and 14 are planned"
    beyond = row(look=15, looks="15 of 14, pocock", p_sequential=None, p_adjusted=None, better=None, note=note)
    result = verdict_of([{**beyond, "period_from": "2026-11-08", "n_days": 15}])
    assert result == [f"b against a on NDCG@10: {note}"]


def test_a_verdict_leaves_the_missing_dates_of_a_period_to_the_sentence_about_the_period() -> None:
    gap, note = "2 of 4 days are not published: 2026-11-09, 2026-11-10", "1 user is in both experiments"
    for result, kept in ((f"{note}; {gap}", f"; {note}"), (gap, "")):
        (line,) = verdict_of([row(note=result)])
        assert line == sentence(row(note=None), parse("ndcg@10")) + kept


def test_a_verdict_says_once_that_its_intervals_are_wider_than_alone() -> None:
    widened = "Intervals are corrected like the p-values, so some are wider than those of one comparison alone"
    wider = row(**OPEN | {"better": None, "p_adjusted": 0.3})
    assert verdict_of([wider, wider, row()])[-1] == widened
    alone = {name: row()[name.removeprefix("adjusted_")] for name in OPEN}
    assert [line for line in verdict_of([row(**alone), row()]) if line.startswith("Intervals")] == []


def printed(rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What stands above the table of ``rankmetrics compare``."""
    print_all(Compared("2026-11-20", 1, rows), "table")
    return capsys.readouterr().out.partition("Users of")[0].splitlines()


def test_a_terminal_says_once_how_p_values_were_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    families = [("ndcg@10", "primary metrics", 2), ("ap@5", "secondary metrics", 6), ("rr", "secondary metrics", 6)]
    rows = [
        row(**PRINTED, metric=metric, family=family, n_comparisons=n, role=family.partition(" ")[0])
        for metric, family, n in families
    ]
    lines = printed(rows, capsys)
    assert [line for line in lines if "Holm" in line] == [
        "p-values after Holm: 2 comparisons of primary metrics, 6 comparisons of secondary metrics"
    ]
    assert all(line.endswith("p < 0.001") for line in lines[:-1]) and len(lines) == 4
    # A program gets sentences that stand alone, and one sentence needs no other.
    assert all("after Holm (" in line for line in verdict_of(rows))
    assert printed(rows[:1], capsys)[0].endswith("p < 0.001 after Holm (2 comparisons)")
    # No sentence about an open comparison names the correction of its p-value.
    unclear = [each | {"better": None, "p_adjusted": 0.3} for each in rows[:1]]
    assert printed(unclear, capsys)[-1] == "p-values after Holm: 2 comparisons of primary metrics"
    wide = [each | OPEN | {"better": None, "p_adjusted": 0.3} for each in rows[:1]]
    lines = printed([*rows, *wide], capsys)
    assert lines[-1].endswith("metrics; intervals are corrected like them")
    assert not any(line.startswith("Intervals are corrected") for line in lines)


def test_a_terminal_has_at_most_five_lines_before_its_table_with_what_limits_and_decides_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    further = [row(**PRINTED, metric=metric, role="secondary") for metric in ("ap@5", "rr", "p@5", "r@5")]
    rows = [row(**PRINTED, metric="ndcg@10", role="primary", look=3), *further]
    last = "... and 4 more sentences: --details prints them"
    starts = ("b beats a on NDCG@10", "This is look 3", "p-values after Holm", last)
    lines = printed(rows, capsys)
    assert len(lines) == 4 and all(map(str.startswith, lines, starts))
    assert len(printed(rows[:1] + rows[3:], capsys)) == 5
    with_details = details.set(True)
    assert len(printed(rows, capsys)) == 7
    details.reset(with_details)
    lost = row(**PRINTED | {"better": "baseline"}, metric="rr@3", role="guardrail")
    assert any("loses to a on MRR@3" in line for line in printed([row(**PRINTED, role="primary"), lost], capsys))
    # Guardrails of candidates that lose anyway do not hide that this is a look of several.
    of_losers = [lost | {"experiment_id": name} for name in "cdefg"]
    assert any(line.startswith("This is look 3") for line in printed([*rows, *of_losers], capsys))


def test_the_best_of_many_candidates_is_in_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    shares = {"b": 0.1, "c": 0.08, "d": 0.06, "e": 0.04, "z": 0.3}
    rows = [row(**PRINTED | {"experiment_id": e, "difference": size}, role="primary") for e, size in shares.items()]
    lines = printed([each | {"relative_difference": 2 * each["difference"]} for each in rows], capsys)
    assert len(lines) == 5 and lines[0].startswith("z beats a on")


def test_the_table_of_compare_has_the_order_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    means = {"mean_baseline": 0.4, "mean_candidate": 0.5}
    rows = [
        row(**PRINTED | means | {"experiment_id": name, "mean_candidate": mean}, metric=metric)
        for name, mean in (("b", 0.5), ("c", 0.9))
        for metric in ("ap@5", "ndcg@10")
    ]
    print_all(Compared("2026-11-20", 1, rows, metrics=[parse("ndcg@10"), parse("ap@5")]), "table")
    cells = [line.split("│")[1:4:2] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    order = [("c", "NDCG@10"), ("c", "MAP@5"), ("b", "NDCG@10"), ("b", "MAP@5")]
    assert [(name.strip(), rest.strip()) for name, rest in cells] == order


def test_where_several_candidates_have_no_winner_the_first_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    unclear = {**PRINTED, **OPEN, "better": None, "p_adjusted": 0.3, "role": "primary"}
    rows = [row(**unclear), row(**unclear | {"experiment_id": "c"})]
    assert printed(rows, capsys)[0] == "No clear winner yet: neither candidate differs clearly from a on NDCG@10"
    assert printed([*rows, row(**PRINTED, experiment_id="d", role="primary")], capsys)[0].startswith("d beats a on")
    assert printed(rows[:1], capsys)[0].startswith("b against a on NDCG@10: no difference shown")


def test_an_interval_of_earlier_rows_that_contradicts_the_decision_is_not_shown() -> None:
    unclear = sentence(row(better=None, p_adjusted=0.3), parse("ndcg@10"))
    assert "+10.0 %, p = 0.300" in unclear and "(+8.0" not in unclear
    # Read beside newer rows, they have the new columns, without a value.
    beside = sentence(row(**dict.fromkeys(OPEN)), parse("ndcg@10"))
    assert "+10.0 % (+8.0 to +12.0), p < 0.001" in beside
    sure = sentence(row(ci_low=-0.01, relative_ci_low=-0.02), parse("ndcg@10"))
    assert "+10.0 %, p < 0.001" in sure and " to " not in sure


@pytest.mark.parametrize(("design", "shown"), [("paired", "12/3/5"), ("independent", "-")])
def test_only_users_of_both_experiments_have_wins(design: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(design=design, test="t", wins=12, ties=3, losses=5)]
    print_all(Compared("2026-11-20", 1, rows), "table")
    (line,) = (line for line in capsys.readouterr().out.splitlines() if f" {design} " in line)
    assert line.strip(" │").split("│")[2].strip() == "NDCG@10", "the metric as people call it"
    assert line.strip(" │").split("│")[-1].strip() == shown
