"""The answer of a report in words: who won, by how much, how sure that is, candidate by candidate."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankmetrics_spark import findings as fd, metrics as mx, schemas as sch, words
from rankmetrics_spark.report import beside, trust, verdict
from rankmetrics_spark.report.figures import Figures, once


class Id(str):
    """A name from the data, in a sentence: shown as it is, and set apart."""


#: A sentence; names from the data are ``Id``.
Words = tuple[str, ...]


@dataclass(frozen=True)
class Card:
    """A candidate against its baseline, on the primary metric.

    Attributes:
        found: The comparison.
        change: The difference; None without one, and where it cannot be trusted. All cards have one unit.
        others: How the metrics agree, in words.
        but: What clearly falls although the candidate wins, in words.
        is_turned: Whether it tells of the baseline, against the candidate.
    """

    found: fd.Finding
    change: words.Change | None
    others: str
    but: str = ""
    is_turned: bool = False

    def seen_from(self, name: str) -> "Card":
        """The same as told of this experiment, in the unit of the metric: shares are of other means from there."""
        is_turned = name == self.found.baseline
        return replace(self, change=self.change and self.found.shown.change(1 - 2 * is_turned), is_turned=is_turned)

    @property
    def other(self) -> str:
        """The experiment of the pair that it does not tell of."""
        return self.found.candidate if self.is_turned else self.found.baseline

    @property
    def state(self) -> str:
        """One of ``STATES``."""
        state = self.found.state
        return {"better": "worse", "worse": "better"}.get(state, state) if self.is_turned else state

    @property
    def means(self) -> str:
        """From which mean to which."""
        means = self.found.means_in_words or ()
        return " \N{RIGHTWARDS ARROW} ".join(means[::-1] if self.is_turned else means)

    @property
    def difference(self) -> str:
        """The difference in words."""
        return self.change.text if self.change else "-"

    @property
    def size(self) -> float:
        """The difference, 0 without one."""
        return self.change.value if self.change else 0.0

    @property
    def interval(self) -> str:
        """The interval with its level; empty without one."""
        interval, valid = self.change.interval if self.change else "", self.found.valid_at
        valid = f", {valid}" if valid else ""
        return f"{words.percent(self.found.confidence)} interval {interval}{valid}" if interval else ""

    @property
    def p(self) -> str:
        """The corrected p-value with the number of comparisons that it is corrected for; empty without a test."""
        found, n = self.found, self.found.n_comparisons or 1
        if found.p_adjusted is None or found.doubt:
            return ""
        corrected = "not corrected" if found.correction == "none" else "corrected"
        text = (f", {corrected} for {n:,} comparisons" if n > 1 else "") + verdict.part_of_error(found)
        text += ", which also widens the interval" if found.is_widened else ""
        return ", ".join(filter(None, (f"{found.p}{text}", found.adjusted_by)))

    @property
    def users(self) -> str:
        """How the users are compared, and how many there are."""
        found = self.found
        whose = f" {found.whose}" if found.whose else f", {found.narrower}" if found.narrower else ""
        return f"{f'{found.design}, ' if found.design else ''}{found.n_users:,} {found.units}{whose}"

    @property
    def smallest(self) -> str:
        """What could have been found, where nothing was; empty elsewhere."""
        found = f"changes of {self.detectable} or more would have been found{self.found.with_power}"
        return (self.found.too_few or found) if self.found.state == "open" and self.detectable else ""

    @property
    def detectable(self) -> str:
        """The change that the test would have found; empty where it is unknown."""
        return self.found.detectable(self.change is not None and bool(self.change.unit))


@dataclass(frozen=True)
class Answer:
    """The first thing that people read.

    Attributes:
        title: Who won.
        change: By how much; empty where nothing won or was compared.
        value: What stands before the change: the means on the metric that decides.
        detail: What stands after it: the interval.
        sure: How sure that is.
        won: Whether the change is one for the better.
        level: ``none`` where nothing was tested, ``warn`` where the numbers cannot be trusted.
        names_metric: Whether the title says on which metric.
    """

    title: Words
    change: str = ""
    value: Words = ()
    detail: Words = ()
    sure: Words = ()
    won: bool = True
    level: words.Level = "ok"
    names_metric: bool = False


# ---- candidate by candidate


@once
def cards(figures: Figures) -> list[Card]:
    """One per pair that the primary metric compares: winners first, then by the size of the difference."""
    metric = figures.primary
    if metric is None:
        return []
    chosen = [*filter(figures.decides, figures.compared)]
    in_percent, pairs, result = fd.all_percentages(chosen), fd.by_pair(figures.compared), []
    for found in chosen:
        pair = pairs[found.pair]
        states = [each.state for each in pair]
        (top, n), *rest = ((state.word, states.count(name)) for name, state in words.STATES.items() if name in states)
        of = f"{n} of {len(pair)} metrics" if len(pair) > 1 else "the only metric"
        others = ", ".join([f"{top} on {of}", *(f"{word} on {n}" for word, n in rest)])
        result.append(Card(found, None if found.doubt else found.change(in_percent), others, beside.but(found, pair)))
    sign = 1.0 if metric.higher_is_better is False else -1.0
    order = list(words.STATES)
    return sorted(result, key=lambda card: (order.index(card.found.state), sign * card.size, *card.found.pair))


# ---- the answer

#: Level of a comparison that decides nothing -> what the answer says of it.
_NO_VERDICT = {"none": "there is no test", "warn": "these numbers are not to be trusted"}


@once
def answer(figures: Figures) -> Answer:
    """Who won, by how much, and how sure that is."""
    metric, comparisons = figures.primary, cards(figures)
    if metric is None:
        return Answer((f"There are no {words.UNITS} to compare",))
    if figures.is_empty:
        check = "Check clicks and grades (source.columns.relevance, events, judgements) and convention.relevant_from."
        return Answer(("Nobody has a relevant item, so there is nothing to compare",), sure=(check,), level="none")
    if not comparisons:
        return _not_compared(figures, metric)
    if metric.higher_is_better is None:
        return Answer((f"{fd.label_of(metric)} has no better direction",), sure=("The differences are below.",))
    if all(card.found.state == "doubtful" for card in comparisons):
        found = next((card.found for card in comparisons if card.found.trust == "warn"), comparisons[0].found)
        p, says = found.sample_ratio_p, _NO_VERDICT[found.trust]
        is_off = found.trust == "warn" and p is not None and p < sch.SMALL_RATIO_P
        why = trust.split_is_off(figures) if is_off else _sentence(found.note)
        return Answer((f"No verdict: {says}",), sure=(why,), level=found.trust)
    if len(figures.baselines) > 1:
        # Every pair was compared: which one is beaten by none, and beats the most?
        ahead, could_be = _ahead(comparisons), beside.sentence_of_best(card.found for card in comparisons)
        best = (f" {could_be}.",) if could_be else ()
        if not ahead:
            n_tested = sum(card.found.state != "doubtful" for card in comparisons)
            of = "" if n_tested == len(comparisons) else f" of {len(comparisons):,}"
            says = f"{n_tested:,}{of} pairs were compared."
            return Answer(("No experiment is ahead of all others",), sure=(says, *best))
        winner, others = next(iter(ahead)), len(figures.experiments) - 1
        losers, lost = beside.beaten_text(ahead[winner], others), beside.but_of_all(figures.compared, winner, others)
        closest = closest_of(comparisons, winner)
        loser = (closest.found.winner or ("", ""))[1]
        # A change is that of the candidate: of the winner against the closest, or of the closest against the winner.
        change, value, interval = _numbers(fd.label_of(metric), closest)
        equals = sum(n == ahead[winner] for n in ahead.values()) - 1
        also = f" {equals:,} {'other beats' if equals == 1 else 'others beat'} as many." if equals else ""
        value = ("The closest is " if ahead[winner] == others else "The closest of them is ", Id(loser), ". ", *value)
        sure, won = (*_chance(closest), also, *best), closest.found.state == "better"
        losers += f" on {fd.label_of(metric)}, {lost}" if lost else ""
        return Answer((Id(winner), f" beats {losers}"), change, value, interval, sure, won, names_metric=bool(lost))
    open_pairs = {card.found.pair for card in comparisons if card.found.state == "open"}
    lost = beside.lost_guardrails(found for found in figures.compared if found.pair in open_pairs)
    return _of_candidates(metric, comparisons, lost)


def headline(figures: Figures) -> list[str]:
    """The answer on the metric that decides, of several comparisons or of a single experiment, in a line.

    Empty where the first sentence of a verdict is it.

    >>> headline(Figures([]))
    []
    """
    compared, said = cards(figures), answer(figures)
    if figures.primary is None:
        return []
    if len(figures.experiments) == 1 and said.change:
        return [f"{''.join(said.title)} ({''.join(said.detail)}). {''.join(said.sure)}"]
    is_won = bool(compared) and compared[0].found.state == "better"
    if figures.primary.higher_is_better is None or len(compared) < 2 or (is_won and figures.only_baseline):
        return []
    return ["".join(said.title) + ("" if said.names_metric else f" on {fd.label_of(figures.primary)}")]


def leader(figures: Figures) -> str | None:
    """The experiment that the answer names as better; None where it names none."""
    metric, comparisons = figures.primary, cards(figures)
    if metric is None or metric.higher_is_better is None:
        return None
    if len(figures.baselines) > 1:
        return next(iter(_ahead(comparisons)), None)
    return comparisons[0].found.candidate if comparisons and comparisons[0].found.state == "better" else None


def _of_candidates(metric: mx.Metric, results: list[Card], lost: str) -> Answer:
    """All candidates were compared with one baseline; those that are open lost some guardrails."""
    best, name = results[0], fd.label_of(metric)
    also_lost = (f" on {name}; {lost}",) if lost else ()
    counts = {state: sum(card.found.state == state for card in results) for state in words.STATES}
    baseline, candidate, numbers = Id(best.found.baseline), Id(best.found.candidate), _numbers(name, best)
    if best.found.state == "better":
        more = counts["better"] - 1
        beat = "candidate beats" if more == 1 else "candidates beat"
        also: Words = (f" {more:,} more {beat} ", baseline, " as well.") if more else ()
        title: Words = (candidate, " beats ", baseline, *([f" on {name}, {best.but}"] if best.but else []))
        return Answer(title, *numbers, (*_chance(best), *also), names_metric=bool(best.but))
    if len(results) == 1 and best.found.state == "open":
        title = ("No clear difference between ", candidate, " and ", baseline, *also_lost)
        return Answer(title, *numbers, _chance(best), won=False, names_metric=bool(lost))
    if counts["worse"] == len(results):
        every: Words = (candidate, " loses to ") if len(results) == 1 else ("Every candidate loses to ",)
        return Answer((*every, baseline), *numbers, _chance(best), won=False)
    open_card = next((card for card in results if card.found.state == "open"), best)
    sure = _chance(open_card)
    title = ("No candidate beats ", baseline, *also_lost)
    if counts["open"] == len(results):
        text = "neither candidate differs" if len(results) == 2 else f"none of {len(results):,} candidates differs"
        title = (f"No clear winner yet: {text} clearly from ", baseline, *also_lost)
    else:
        (n, says), *rest = ((n, words.STATES[state].says(n)) for state, n in counts.items() if n)
        parts = [f"{n:,} {'candidate' if n == 1 else 'candidates'} {says}", *map("{0[0]:,} {0[1]}".format, rest)]
        sure = (f"{', '.join(parts)}. ", *sure)
    return Answer(title, *_numbers(name, open_card), sure, won=False, names_metric=bool(lost))


def _numbers(name: str, card: Card) -> tuple[str, Words, Words]:
    """The change, what stands before it and what stands after it."""
    found, (candidate, baseline) = card.found, map(Id, card.found.pair)
    name += found.among
    interval = (f"({card.interval})",) if card.interval else ()
    if found.means_in_words is None or found.adjusted_by:
        # The means are those without CUPED, or strata, so they do not add up to the change.
        size = f" {found.movement}," if card.change and card.change.unit and found.movement else ""
        return card.difference, (f"{name} of ", candidate, " against ", baseline, f":{size}"), interval
    before, after = found.means_in_words
    if found.state == "open" or before == after:
        return card.difference, (f"{name} is {before} in ", baseline, f" and {after} in ", candidate, ":"), interval
    movement = f" {'rose' if card.size > 0 else 'fell'} from {before} (", baseline, f") to {after} (", candidate, "):"
    return card.difference, (name, *movement), interval


def _chance(card: Card) -> Words:
    """Whether chance alone explains the difference, in words."""
    note = _sentence(card.found.note)
    if not card.p:
        return (note,) if note else ()
    also = f" {note}" if note else ""
    if card.found.state == "open":
        power = f" The test would have found changes of {card.detectable} or more{card.found.with_power}."
        if card.found.too_few:
            power = f" {card.found.n_users:,} {card.found.units} are {card.found.too_few}."
        return (f"Chance alone could explain this ({card.p}).{power if card.detectable else ''}{also}",)
    frequency = "almost never" if (card.found.p_adjusted or 0.0) < words.least_p(card.found.level) else "rarely"
    return (f"Chance alone would {frequency} give this ({card.p}).{also}",)


def _distance(card: Card) -> float:
    """The size of a difference, not in percent of baselines that differ."""
    return abs(card.found.tested.value or 0.0)


def closest_of(comparisons: Sequence[Card], winner: str) -> Card:
    """Of the pairs that an experiment wins, the one with the smallest difference."""
    return min((card for card in comparisons if (card.found.winner or ("",))[0] == winner), key=_distance)


def of_one(comparisons: Sequence[Card], name: str) -> list[Card]:
    """Where all pairs were compared: those of one experiment, the closest first."""
    return sorted((card for card in comparisons if name in card.found.pair), key=_distance)


def _ahead(comparisons: Sequence[Card]) -> dict[str, int]:
    """Experiments that are beaten by none -> how many they beat; those that beat the most first."""
    won = [card.found.winner for card in comparisons if card.found.winner and card.found.state != "doubtful"]
    beaten, victories = {loser for _, loser in won}, Counter(winner for winner, _ in won)
    return dict(sorted(((name, n) for name, n in victories.items() if name not in beaten), key=lambda x: (-x[1], x[0])))


def _not_compared(figures: Figures, metric: mx.Metric) -> Answer:
    """Nothing was compared: the best mean."""
    best, n = figures.experiments[0], len(figures.experiments)
    mean = next((mean for mean in figures.everyone if figures.decides(mean) and mean.experiment_id == best), None)
    if mean is None or mean.mean is None:
        return Answer(("No experiment has a value",))
    interval = ""
    if mean.ci_low is not None:
        interval = f", {words.percent(mean.confidence or 0.0)} interval {mean.ci_low:.4f} to {mean.ci_high:.4f}"
    word = "lowest" if metric.higher_is_better is False else "highest"
    title: Words = (Id(best), f" has the {word} {fd.label_of(metric)}")
    sure = "Nothing was compared, so nothing says whether this is more than chance. Set comparison.baseline."
    if n == 1:
        # Short on the first line; the line below has all digits.
        title = (f"{fd.label_of(metric)} of ", Id(best), f" is {mean.mean:.3f}")
        sure = "There is one experiment, so nothing to compare it with."
    units = words.counted(mean.n_users)
    if mean.mean_over == "lists":
        units = f"{mean.n_lists:,} lists of {units}"
    return Answer(title, f"{mean.mean:.4f}", detail=(f"mean over {units}{interval}",), sure=(sure,), won=False)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""
