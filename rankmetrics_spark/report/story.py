"""The answer of a report in words: who won, by how much, how sure that is, candidate by candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.report.change import Change, all_percentages, change_of
from rankmetrics_spark.report.figures import Figures, Row, first_of, label_of, number
from rankmetrics_spark.report.verdict import CORRECTIONS, p_value
from rankmetrics_spark.schemas import BASELINE, EXPERIMENT, METRIC, N_USERS

State = Literal["better", "worse", "open", "doubtful"]
"""What the primary metric says of a candidate; ``open`` = no difference shown."""
STATES: dict[State, str] = {
    "better": "better",
    "worse": "worse",
    "open": "no difference shown",
    "doubtful": "not to be trusted",
}


class Id(str):
    """A name from the data, in a sentence: shown as it is, and set apart."""


Words = tuple[str, ...]
"""A sentence; names from the data are ``Id``."""


@dataclass(frozen=True)
class Card:
    """A candidate against its baseline, on the primary metric.

    Attributes:
        candidate: The experiment.
        baseline: What it is compared with.
        state: What the primary metric says.
        change: The difference; None without one. All cards have one unit.
        others: How the metrics agree, in words.
        note: What forbids or weakens the verdict.
        p: The corrected p-value in words.
    """

    candidate: str
    baseline: str
    state: State
    change: Change | None
    others: str
    note: str
    p: str

    @property
    def said(self) -> str:
        """The difference in words."""
        return self.change.text if self.change else "-"

    @property
    def size(self) -> float:
        """The difference, 0 without one."""
        return self.change.value if self.change else 0.0


@dataclass(frozen=True)
class Answer:
    """The first thing that people read.

    Attributes:
        title: Who won.
        change: By how much; empty where nothing won or was compared.
        detail: On which metric, with the interval.
        sure: How sure that is.
        won: Whether the change is one for the better.
    """

    title: Words
    change: str = ""
    detail: Words = ()
    sure: Words = ()
    won: bool = True


def state_of(row: Row) -> State:
    """What a comparison says of its candidate."""
    if number(row["p_adjusted"]) is None or str(row["note"] or "").startswith("not trustworthy"):
        return "doubtful"
    return {"candidate": "better", "baseline": "worse"}.get(row["better"] or "", "open")  # type: ignore[return-value]


# ---- candidate by candidate


def cards(figures: Figures) -> list[Card]:
    """One per pair that the primary metric compares: winners first, then by the size of the difference."""
    metric = figures.primary
    if metric is None:
        return []
    rows = [row for row in figures.compared if row[METRIC] == str(metric)]
    in_percent = all_percentages(rows)
    found = [_card(row, figures, in_percent) for row in rows]
    sign = 1.0 if metric.higher_is_better is False else -1.0
    order = list(STATES)
    return sorted(found, key=lambda card: (order.index(card.state), sign * card.size, card.candidate))


def _card(row: Row, figures: Figures, in_percent: bool) -> Card:
    pair = [
        other for other in figures.compared if (other[EXPERIMENT], other[BASELINE]) == (row[EXPERIMENT], row[BASELINE])
    ]
    return Card(
        candidate=row[EXPERIMENT],
        baseline=row[BASELINE],
        state=state_of(row),
        change=change_of(row, in_percent),
        others=_agreement(pair),
        note=str(row["note"] or ""),
        p=sure_of(row),
    )


def _agreement(pair: Sequence[Row]) -> str:
    """How many metrics say what.

    >>> row = {"note": None, "p_adjusted": 0.01, "better": "candidate"}
    >>> _agreement([row, row, row | {"better": None}])
    'better on 2 of 3 metrics, no difference shown on 1'
    """
    states = [state_of(row) for row in pair]
    counted = [(STATES[state], states.count(state)) for state in STATES if state in states]
    (first, n), *rest = counted
    of = f"{n} of {len(states)} metrics" if len(states) > 1 else "the only metric"
    return ", ".join([f"{first} on {of}", *(f"{name} on {n}" for name, n in rest)])


def sure_of(row: Row) -> str:
    """The corrected p-value with its correction; empty without a test."""
    if number(row["p_adjusted"]) is None:
        return ""
    n = row["n_comparisons"]
    over = f" over {n:,} comparisons" if n and n > 1 else ""
    return f"{p_value(row)} {CORRECTIONS[row['correction']]}{over}"


# ---- the answer


def answer(figures: Figures) -> Answer:
    """Who won, by how much, and how sure that is."""
    metric, found = figures.primary, cards(figures)
    if metric is None:
        return Answer(("There are no users to compare",))
    if not found:
        return _not_compared(figures, metric)
    if metric.higher_is_better is None:
        return Answer((f"{label_of(metric)} has no better direction",), sure=("The differences are below.",))
    if all(card.state == "doubtful" for card in found):
        return Answer(("No verdict: these numbers are not to be trusted",), sure=(_sentence(found[0].note),))
    return _of_pairs(figures, metric, found) if len(figures.baselines) > 1 else _of_candidates(metric, found)


def _of_candidates(metric: Metric, found: list[Card]) -> Answer:
    best = found[0]
    counts = {state: sum(card.state == state for card in found) for state in STATES}
    baseline = Id(best.baseline)
    if best.state == "better":
        more = counts["better"] - 1
        also: Words = (
            (f" {more} more {'candidate beats' if more == 1 else 'candidates beat'} ", baseline, " as well.")
            if more
            else ()
        )
        return Answer((Id(best.candidate), " beats ", baseline), *_numbers(metric, best), (*_chance(best), *also))
    if len(found) == 1 and best.state == "open":
        return Answer(
            ("No difference shown between ", Id(best.candidate), " and ", baseline),
            *_numbers(metric, best),
            _chance(best),
            won=False,
        )
    if counts["worse"] == len(found):
        every = (Id(best.candidate), " loses to ") if len(found) == 1 else ("Every candidate loses to ",)
        return Answer((*every, baseline), *_numbers(metric, best), _chance(best), won=False)
    return Answer(("No candidate beats ", baseline), "", (f"On {label_of(metric)}: {_tally(counts)}.",), _chance(best))


def _numbers(metric: Metric, card: Card) -> tuple[str, Words]:
    interval = card.change.interval if card.change else ""
    return card.said, (f"on {label_of(metric)}" + (f", interval {interval}" if interval else ""),)


def _chance(card: Card) -> Words:
    """How rare such a difference is without a real one, in words."""
    if card.state == "open":
        return (f"By chance alone, a difference of this size is not rare ({card.p}).",)
    rare = "very rare" if "< 0.001" in card.p else "rare"
    also = f" {_sentence(card.note)}" if card.note else ""
    return (f"By chance alone, a difference of this size is {rare} ({card.p}).{also}",)


def _tally(counts: dict[State, int]) -> str:
    return ", ".join(f"{n} {STATES[state]}" for state, n in counts.items() if n)


def _of_pairs(figures: Figures, metric: Metric, found: list[Card]) -> Answer:
    """Every pair was compared: who is beaten by nobody, and beats the most."""
    won = [_winner(card) for card in found]
    beaten = {loser for _, loser in filter(None, won)}
    victories = {name: sum(1 for pair in won if pair and pair[0] == name) for name in figures.experiments}
    ahead = sorted((name for name in victories if name not in beaten and victories[name]), key=lambda n: -victories[n])
    if not ahead:
        return Answer(("No experiment is ahead of all others",), sure=(f"{len(found)} pairs were compared.",))
    first, others = ahead[0], figures.n_experiments - 1
    mine = [card for card, pair in zip(found, won, strict=True) if pair and pair[0] == first]
    what = "every other experiment" if victories[first] == others else f"{victories[first]} of {others} others"
    closest = min(mine, key=lambda card: abs(card.size))
    detail = (f"On {label_of(metric)}, closest to ", Id((_winner(closest) or ("", ""))[1]), f": {closest.said}")
    return Answer((Id(first), f" beats {what}"), "", detail, _chance(closest))


def _winner(card: Card) -> tuple[str, str] | None:
    """Winner and loser of a pair."""
    if card.state == "better":
        return card.candidate, card.baseline
    return (card.baseline, card.candidate) if card.state == "worse" else None


def _not_compared(figures: Figures, metric: Metric) -> Answer:
    best = figures.experiments[0]
    row = first_of(figures.everyone, **{EXPERIMENT: best, METRIC: str(metric)})
    if row is None or number(row["mean"]) is None:
        return Answer(("No experiment has a value",))
    low, high = (number(row[name]) for name in ("ci_low", "ci_high"))
    interval = f", {row['confidence']:.0%} interval {low:.4f} to {high:.4f}" if low is not None else ""
    word = "lowest" if metric.higher_is_better is False else "highest"
    return Answer(
        (Id(best), f" has the {word} {label_of(metric)}"),
        f"{row['mean']:.4f}",
        (f"mean over {row[N_USERS]:,} users{interval}",),
        ("Nothing was compared, so nothing says whether this is more than chance. Set comparison.baseline.",),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""
