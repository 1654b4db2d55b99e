"""The answer of a report in words: its title, its size and how sure it is, and a card for each candidate."""

from typing import Any

import pytest

from rankmetrics_spark import report as rep
from rankmetrics_spark.findings import findings
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import beside, notebook
from tests.helpers.figures import compared, mean, ranked
from tests.helpers.messages import cases


def words(actual: rep.Answer) -> str:
    """What stands below the title."""
    return " ".join(part for part in ("".join(actual.value), actual.change, "".join(actual.detail)) if part)


def title(*rows: dict[str, Any], names: str = "control a b") -> str:
    return "".join(rep.answer(rep.Figures([mean(name) for name in names.split()], rows)).title)


# ---- the title


def test_what_clearly_falls_stands_in_the_title_and_in_the_verdict() -> None:
    won = compared("a", "candidate", 0.1, role="primary")
    guardrail = compared("a", "baseline", -0.085, role="guardrail", metric="p@10")
    others = [
        compared("a", "baseline", change, role="secondary", metric=name)
        for name, change in (("rr", -0.04), ("ndcg@5", -0.09), ("f1@10", -0.01))
    ]
    unclear = compared("a", None, -0.09, role="guardrail", metric="ndcg@10")
    assert title(won, guardrail) == "a beats control on MAP@10, but the guardrail Precision@10 falls by 17.0 %"
    assert title(won, unclear) == title(won) == "a beats control"
    assert title(won, others[0]) == "a beats control on MAP@10, but MRR falls by 8.0 %"
    assert title(won, *others, guardrail) == (
        "a beats control on MAP@10, but the guardrail Precision@10 falls by 17.0 %, NDCG@5 by 18.0 %, and 2 more "
        "metrics are clearly worse"
    )
    # A metric where lower is better is worse when it rises.
    higher = compared("a", "baseline", 0.02, role="guardrail", metric="softmax_loss")
    assert title(won, higher).endswith(" rises by 4.0 %") and "but the guardrail" in title(won, higher)
    assert title(won, compared("b", "baseline", -0.2, role="guardrail", metric="p@10")) == "a beats control"
    line = rep.verdict_of([won, guardrail])[0]
    assert line.startswith("a beats control on MAP@10: ")
    assert line.endswith("; but the guardrail Precision@10 falls by 17.0 %")
    assert "but" not in rep.verdict_of([won | {"better": None}, guardrail])[0]
    # What is open has no winner, and the guardrail is lost all the same.
    open_ = compared("a", None, 0.01, role="primary")
    assert title(open_, guardrail) == (
        "No clear difference between a and control on MAP@10; the guardrail Precision@10 of a falls by 17.0 %"
    )


@pytest.mark.parametrize("winner", ["a", "c"])
def test_of_all_pairs_what_the_winner_loses_is_said_whatever_its_name_is(winner: str) -> None:
    rows = []
    for baseline, candidate in (("a", "b"), ("a", "c"), ("b", "c")):
        sign = (candidate == winner) - (baseline == winner)
        for metric, role, change in (("ap@10", "primary", 0.1 * sign), ("p@1", "guardrail", -0.15 * sign)):
            better = "candidate" if change > 0 else "baseline" if change < 0 else None
            rows.append(compared(candidate, better, change, baseline, metric=metric, role=role))
    loses = "but loses to every other experiment on the guardrail Precision@1"
    assert title(*rows, names="a b c") == f"{winner} beats every other experiment on MAP@10, {loses}"
    # 0.15 of 0.5 is 30 %: less of the candidate that wins, more of the one that loses.
    says = f"; but the guardrail Precision@1 {'falls' if winner == 'c' else 'rises'} by 30.0 %"
    lines = [line for line in rep.verdict_of(rows) if " on MAP@10: " in line]
    assert [line.endswith(says) for line in lines] == [" against " not in line for line in lines]
    assert sum(line.endswith(says) for line in lines) == 2


def test_the_title_says_who_won() -> None:
    better, worse, open_ = compared("a", "candidate", 0.1), compared("b", "baseline", -0.1), compared("b", None, 0.01)
    assert title(better, worse) == "a beats control"
    assert title(better, compared("b", "candidate", 0.2)) == "b beats control"
    assert title(worse, open_ | {"experiment_id": "a"}) == "No candidate beats control"
    both = open_ | {"experiment_id": "a"}, open_
    assert title(*both) == "No clear winner yet: neither candidate differs clearly from control"
    assert title(*both, open_ | {"experiment_id": "c"}).endswith("none of 3 candidates differs clearly from control")
    assert title(open_) == "No clear difference between b and control"
    assert title(worse) == "b loses to control"
    assert title(worse, compared("a", "baseline", -0.2)) == "Every candidate loses to control"
    assert title() == "a has the highest MAP@10"
    note = {"note": "not trustworthy: the users do not follow the planned shares (p = 1e-9)"}
    assert title(better | note, worse | note) == "No verdict: these numbers are not to be trusted"


def test_without_any_test_the_title_distrusts_no_number() -> None:
    few = {"p_adjusted": None, "better": None, "note": "fewer than two users in both experiments"}
    untested = [compared(name, None, 0.1) | few for name in "ab"]
    found = rep.answer(rep.Figures([mean(name) for name in ("control", "a", "b")], untested))
    assert "".join(found.title) == "No verdict: there is no test"
    assert found.sure == ("Fewer than two users in both experiments.",)
    # One of them is in doubt: its reason, not that of the first.
    rows = [untested[0], untested[1] | {"note": "not trustworthy: 1 of 4 days is missing"}]
    found = rep.answer(figures := rep.Figures([*map(mean, ("control", "a", "b"))], rows))
    assert "".join(found.title) == "No verdict: these numbers are not to be trusted"
    assert found.sure == ("Not trustworthy: 1 of 4 days is missing.",)
    assert [fact.level for fact in rep.facts(figures, "record")] == ["none", "warn"]


def test_of_all_pairs_the_one_that_nobody_beats_is_ahead() -> None:
    pairs = [("b", "candidate", 0.1, "a"), ("control", "baseline", -0.1, "a"), ("control", "baseline", -0.2, "b")]
    rows = [compared(*pair) for pair in pairs]
    assert title(*rows) == "b beats every other experiment"
    open_ = [row | {"better": None} for row in rows]
    assert title(*open_) == "No experiment is ahead of all others"
    assert title(rows[0], *open_[1:]) == "b beats 1 of 2 others"


@pytest.mark.parametrize(("better", "changes"), [("a", (0.1, -0.1)), ("b", (-0.1, 0.1))])
def test_the_accent_follows_the_direction_of_the_metric(better: str, changes: tuple[float, float]) -> None:
    # Of a loss, less is better: the candidate whose loss fell.
    rows = [
        compared(name, "candidate" if name == better else "baseline", d, metric="softmax_loss(t=1)")
        for name, d in zip("ab", changes, strict=True)
    ]
    figures = rep.Figures([mean(name, "softmax_loss(t=1)") for name in ("control", "a", "b")], rows)
    assert rep.leader(figures) == better
    actual = rep.payload_of(figures)
    kinds = {actual["experiments"][e]: s for e, s in zip(*(actual["compared"][n] for n in ("e", "state")), strict=True)}
    assert kinds == {better: "better", "ab".replace(better, ""): "worse"}


def test_without_a_winner_nothing_has_the_accent() -> None:
    means = [mean("control"), mean("a"), mean("b")]
    figures = rep.Figures(means, [compared("a", "baseline", -0.1), compared("b", None, 0.01)])
    assert rep.leader(figures) is None and rep.payload_of(figures)["leader"] == -1
    assert rep.LIGHT["accent"] not in {row["colour"] for row in notebook._points(figures, {"ap@10"})}


def test_the_closest_is_the_one_with_the_smallest_difference_whichever_side_it_is_on() -> None:
    # b is 0.1 ahead of a, 0.3 ahead of c. In the pair of b and c, b is the baseline.
    message = "The closest is a. MAP@10 rose from 0.600 (a) to 0.700 (b): +20.0 % (95 % interval +16.0 to +24.0 %)"
    assert words(rep.answer(ranked(0.6, 0.7, 0.4))) == message and rep.answer(ranked(0.6, 0.7, 0.4)).won
    # c is the closest, 0.1 behind b: as a candidate against b it has 2 * -0.1.
    message = "The closest is c. MAP@10 fell from 0.700 (b) to 0.600 (c): -20.0 % (95 % interval -24.0 to -16.0 %)"
    assert words(rep.answer(ranked(0.4, 0.7, 0.6))).replace("\N{MINUS SIGN}", "-") == message
    assert not rep.answer(ranked(0.4, 0.7, 0.6)).won, "the change is one for the worse"
    assert "".join(rep.answer(ranked(0.7, 0.7, 0.4)).title) == "a beats 1 of 2 others"
    assert "".join(rep.answer(ranked(0.7, 0.7, 0.4)).sure).endswith(" 1 other beats as many.")


def test_pairs_that_could_not_be_tested_do_not_count_as_compared() -> None:
    figures = ranked(0.5, 0.51, 0.49)
    rows = [
        {**row, "p_adjusted": None, "note": "no users with relevant items in c"} if row["experiment_id"] == "c" else row
        for row in figures.comparisons
    ]
    assert rep.answer(rep.Figures(figures.means, rows)).sure == ("1 of 3 pairs were compared.",)
    assert rep.answer(figures).sure == ("3 pairs were compared.",)
    order = "MAP@10: no pair of the 3 experiments differs clearly"
    metrics = [parse("ap@10")]
    doubtful = [r | ({"p_adjusted": 0.001, "note": f"not trustworthy: {r['note']}"} if r["note"] else {}) for r in rows]
    for unsure in (rows, doubtful):
        assert beside.sentences_of_order(findings(unsure), metrics) == [f"{order}, and 2 of 3 have no verdict"]
    assert beside.sentences_of_order(figures.found, metrics) == [order]


# ---- how large, how sure, and the cards


def test_the_answer_says_how_large_and_how_sure_the_difference_is() -> None:
    actual = rep.answer(rep.Figures([mean("control"), mean("a")], [compared("a", "candidate", 0.1)]))
    assert words(actual) == "MAP@10 rose from 0.500 (control) to 0.600 (a): +20.0 % (95 % interval +16.0 to +24.0 %)"
    assert "".join(actual.sure) == "Chance alone would almost never give this (p < 0.001, corrected for 3 comparisons)."


@pytest.mark.parametrize(("metric", "better", "change", "moved"), cases("means that move"))
def test_a_mean_rises_or_falls_whether_better_or_worse(metric: str, better: str, change: float, moved: str) -> None:
    row = compared("a", better, change, metric=metric)
    actual = rep.answer(rep.Figures([mean("control", metric), mean("a", metric)], [row]))
    assert words(actual).replace("\N{MINUS SIGN}", "-").startswith(moved)
    assert actual.won == (better == "candidate")


@pytest.mark.parametrize(
    ("p", "often"), [(0.01, "rarely give this (p = 0.010"), (0.0009, "almost never give this (p < ")]
)
def test_chance_is_almost_never_the_cause_only_below_what_a_p_value_shows(p: float, often: str) -> None:
    actual = rep.answer(rep.Figures([mean("control"), mean("a")], [compared("a", "candidate", 0.1, p_adjusted=p)]))
    assert "".join(actual.sure).startswith(f"Chance alone would {often}")


def test_an_open_answer_says_what_the_test_would_have_found() -> None:
    # 0.04 / 0.5 = 8 %, after the correction.
    row = compared("a", None, 0.01, p_adjusted=0.18, adjusted_minimum_detectable_effect=0.04, power=0.9)
    actual = rep.answer(rep.Figures([mean("control"), mean("a")], [row]))
    assert words(actual) == "MAP@10 is 0.500 in control and 0.510 in a: +2.0 % (95 % interval \u22122.0 to +6.0 %)"
    assert "".join(actual.sure) == (
        "Chance alone could explain this (p = 0.180, corrected for 3 comparisons). "
        "The test would have found changes of 8.0 % or more with a probability of 90 %."
    )
    few = rep.Figures([mean("control"), mean("a")], [row | {"adjusted_minimum_detectable_effect": 0.6}])
    assert "are too few to find even the largest possible change with a prob" in "".join(rep.answer(few).sure)


def test_an_answer_without_a_winner_is_about_what_is_open_not_about_a_loser() -> None:
    rows = [compared("a", "baseline", -0.1), compared("b", None, 0.01, p_adjusted=0.18)]
    actual = rep.answer(rep.Figures([mean("control"), mean("a"), mean("b")], rows))
    assert words(actual).startswith("MAP@10 is 0.500 in control and 0.510 in b: +2.0 %")
    says = "1 candidate is worse, 1 shows no clear difference"
    assert "".join(actual.sure).startswith(f"{says}. Chance alone could explain this (p = 0.180")
    more = rep.Figures([mean("control")], [*rows, compared("c", None, 0.01, p_adjusted=0.18)])
    assert "".join(rep.answer(more).sure).startswith("1 candidate is worse, 2 show no clear difference. ")
    doubted = compared("d", None, 0.01, p_adjusted=0.18, note="not trustworthy: 1 of 4 days is missing")
    known = rep.Figures([mean("control")], [*rows, doubted])
    assert "".join(rep.answer(known).sure).startswith(f"{says}, 1 has no verdict. ")


def test_a_card_counts_what_the_metrics_say() -> None:
    rows = [compared("a", better, 0.1, metric=name) for name, better in
            (("ap@10", "candidate"), ("rr", "candidate"), ("p@10", None))]  # fmt: skip
    (card,) = rep.cards(rep.Figures([mean("control"), mean("a")], rows))
    assert card.others == "better on 2 of 3 metrics, no difference shown on 1"
    (card,) = rep.cards(rep.Figures([mean("control"), mean("a")], rows[:1]))
    assert card.others == "better on the only metric"


def test_where_lower_is_better_the_lowest_mean_comes_first() -> None:
    rows = [mean("a", "softmax_loss(t=1)", 2.0), mean("b", "softmax_loss(t=1)", 1.0)]
    figures = rep.Figures(rows)
    assert figures.experiments == ["b", "a"]
    assert "".join(rep.answer(figures).title) == "b has the lowest Softmax loss (t = 1)"


def test_one_experiment_has_nothing_to_be_compared_with() -> None:
    actual = rep.answer(rep.Figures([mean("only")]))
    assert ("".join(actual.title), actual.change) == ("MAP@10 of only is 0.500", "0.5000")
    assert actual.sure == ("There is one experiment, so nothing to compare it with.",) and not actual.won


def test_the_primary_metric_decides_else_the_largest_cut_off_of_the_first_metric() -> None:
    names = ("ndcg@10", "ap@5", "ap@10")
    rows = [mean("a", metric) for metric in names]
    config = {"metrics": ["ap@5", "ap@10", "ndcg@10"]}
    assert str(rep.Figures(rows, record={"config": config}).primary) == "ap@10"
    of_config = config | {"comparison": {"primary": ["ndcg@10"]}}
    assert str(rep.Figures(rows, record={"config": of_config}).primary) == "ndcg@10"
    roles = dict(zip(names, ("secondary", "primary", "guardrail"), strict=True))
    of_rows = [compared("b", None, 0.1) | {"metric": name, "role": role} for name, role in roles.items()]
    assert str(rep.Figures(rows, of_rows, record={"config": config}).primary) == "ap@5"


def test_a_card_without_a_relative_difference_shows_the_difference_itself() -> None:
    (card,) = rep.cards(rep.Figures([mean("a")], [compared("a", "candidate", 0.1, mean_baseline=0.0)]))
    assert card.change
    assert (card.difference, card.change.interval) == ("+0.1000", "+0.0800 to +0.1200")
    nan = float("nan")
    row = compared("a", None, nan, mean_baseline=nan, p_adjusted=nan, note="no users")
    (card,) = rep.cards(rep.Figures([mean("a")], [row]))
    assert (card.found.state, card.difference, card.change, card.found.note) == ("doubtful", "-", None, "no users")


def test_cards_share_an_axis_so_they_share_a_unit() -> None:
    means = [mean("a"), mean("b")]
    rows = [compared("a", "candidate", 0.1), compared("b", "candidate", 0.1, mean_baseline=0.0)]
    assert [card.difference for card in rep.cards(rep.Figures(means, rows))] == ["+0.1000", "+0.1000"]
