"""What limits the trust in a result: a check each, with what was found in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rankmetrics_spark.config import Days
from rankmetrics_spark.report.figures import Figures, Row, first_of, label_of
from rankmetrics_spark.report.verdict import p_text
from rankmetrics_spark.schemas import BASELINE, DATE, EXPERIMENT, METRIC, N_USERS, N_USERS_WITH_RELEVANT, number

FEW_USERS = 100
"""Below so many users in an experiment, a person is warned."""
MANY_FAULTY = MANY_TIED = 0.01
"""Above this share of faulty rows or of tied scores, a person is warned."""
FEW_JUDGED = 0.1
SMALL_RATIO_P = 0.001
MOST_SHARES = 6
"""Experiments whose shares of the users are named."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        level: ``ok``, ``warn`` (the answer may be wrong) or ``none`` (not looked at).
        title: What was looked at.
        text: What was found.
    """

    level: Literal["ok", "warn", "none"]
    title: str
    text: str


def checks(figures: Figures) -> list[Check]:
    """What was looked at, what weakens the answer first."""
    order = ("warn", "ok", "none")
    return sorted(_all(figures), key=lambda check: order.index(check.level))


def newer_failures(figures: Figures, most: int = 3) -> list[str]:
    """The dates after the one that is shown whose run failed, in words, the newest first."""
    last = figures.days.dates[-1] if figures.days else figures.record.get(DATE)
    shown = str(last or next((row.get(DATE) for row in figures.means), ""))
    failed = [record for record in figures.history if record.get("error") and str(record.get(DATE)) > shown]
    # A run that was refused may have no date.
    dated = sorted((str(record[DATE]), record["error"]) for record in failed if str(record.get(DATE))[:1].isdigit())
    lines = [f"The run of {date} failed, so nothing newer than {shown} is shown: {_message(error)}"
             for date, error in dated[::-1]]  # fmt: skip
    left_out = len(lines) - most
    more = "1 more run of a newer date" if left_out == 1 else f"{left_out:,} more runs of newer dates"
    return lines[:most] + ([f"{more} failed."] if left_out > 0 else [])


def _message(error: Any) -> str:
    return str(error["message"] if isinstance(error, Mapping) else error)


def _all(figures: Figures) -> Iterator[Check]:
    if figures.days:
        yield _days(figures.days, figures.record)
    yield from _users(figures)
    yield _split(figures)
    if not figures.record:
        yield Check("none", "Run record", "There is none, so the rows that came in are not known.")
        return
    yield _rows(figures.record)
    yield from _ties(figures.record)
    yield from _judged(figures.record)
    for warning in (figures.record.get("quality") or {}).get("warnings", ()):
        yield Check("warn", "Quality of the log", _sentence(warning))


def _days(days: Days, record: Row) -> Check:
    """Whether every day of the period is there, with the record of its run."""
    title, n = "Days of the period", record.get("n_runs", 0)
    if days.gap:
        return Check("warn", title, f"{days.gap}. The numbers are about the other days.")
    if record and n < len(days.dates):
        return Check("warn", title, f"All are published; the rows that came in are known of {n} of {days.length} days.")
    return Check("ok", title, "All are published.")


def _users(figures: Figures) -> Iterator[Check]:
    """How many people there are, and how many of them have nothing to find."""
    people = population(figures)
    if not people.users:
        return
    fewest = min(people.users, key=lambda name: (people.users[name], str(name)))
    n = people.users[fewest]
    if n < FEW_USERS:
        few = "1 user, too few for an interval" if n == 1 else f"only {n:,} users, so intervals are rough"
        yield Check("warn", "Number of users", f"{fewest} has {few}. {people.text}")
    else:
        yield Check("ok", "Number of users", people.text)
    yield _without_relevant(figures, people)


def _without_relevant(figures: Figures, people: Population) -> Check:
    """How many users have nothing to find, and how they count."""
    title, rule = "Users without a relevant item", _rule(figures)
    if rule == "skip":
        # They have no value, so they are not among the users.
        counts = [count for count in figures.record.get("experiments", {}).values() if count.get("lists")]
        shares = [count.get("no_relevant", 0) / count["lists"] for count in counts]
        of, effect = "lists", "; their users are left out of the mean"
    else:
        shares = [without / max(1, people.users[name]) for name, without in people.without_relevant.items()]
        of, effect = "users", f"; {_COUNTED[rule]}{_without_them(figures)}" if rule in _COUNTED else ""
    if not shares:
        return Check("none", title, "They are left out of the mean.")
    of_each = "" if len(shares) == 1 else " of each experiment"
    level: Literal["ok", "warn"] = "warn" if max(shares) > 0.5 else "ok"
    return Check(level, title, f"{_percent(*shares)} of the {of}{of_each} had no relevant item{effect}.")


def without_relevant(figures: Figures) -> tuple[str, str]:
    """What is counted, and how many there are: people once, and a range where nobody knows who is in several."""
    if _rule(figures) == "skip":
        counts = figures.record.get("experiments", {}).values()
        return "lists without a relevant item", f"{sum(count.get('no_relevant', 0) for count in counts):,}"
    people = population(figures)
    title, numbers = "users without a relevant item", people.without_relevant.values()
    if people.total == sum(people.users.values()):
        return title, f"{sum(numbers):,}"
    return f"{title}, in each experiment", _range(numbers)


@dataclass(frozen=True)
class Population:
    """The people behind the rows; one who is in several experiments is one person.

    Attributes:
        users: Experiment -> its users with a value.
        without_relevant: Experiment -> those of them without a relevant item.
        total: People of all experiments together; None where nobody knows how many are in several.
        design: How the experiments are compared; empty where nothing is compared.
    """

    users: dict[str, int]
    without_relevant: dict[str, int]
    total: int | None
    design: str

    @property
    def text(self) -> str:
        """How many people there are.

        >>> two = {"a": 943, "b": 943}
        >>> Population(two, {}, 943, "paired").text
        '943 users, the same in both experiments (paired).'
        >>> Population(two, {}, 1886, "independent").text
        '1,886 users in all, 943 in each experiment (independent).'
        >>> Population({"a": 5, "b": 7, "c": 6}, {}, None, "independent").text
        '5 to 7 users in each of 3 experiments (independent).'
        """
        n, design = len(self.users), f" ({self.design})" if self.design else ""
        size = _range(self.users.values())
        if n == 1:
            return f"{size} users."
        if self.total is not None and {*self.users.values()} == {self.total}:
            return f"{size} users, the same in {'both' if n == 2 else f'all {n:,}'} experiments{design}."
        if self.total is not None:
            return f"{self.total:,} users in all, {size} in each experiment{design}."
        return f"{size} users in each of {n:,} experiments{design}."


def population(figures: Figures) -> Population:
    """Who is behind the rows of all users.

    Comparisons know how many users two experiments share. That gives the number of people where at most one candidate
    has users who are not in the baseline, or where every two experiments were compared and share nobody.
    """
    users: dict[str, int] = {}
    without: dict[str, int] = {}
    for row in figures.everyone:
        name = row[EXPERIMENT]
        if row[N_USERS] >= users.get(name, 0):
            users[name], without[name] = row[N_USERS], row[N_USERS] - row[N_USERS_WITH_RELEVANT]
    overlap: dict[tuple[str, str], int] = {}
    for row in figures.compared:
        if (n_both := row.get("n_users_both")) is not None:
            pair = row[BASELINE], row[EXPERIMENT]
            overlap[pair] = max(n_both, overlap.get(pair, 0))
    designs = {str(row.get("design")) for row in figures.compared if row.get("design")}
    mixture = "some pairs are paired, others independent" if designs else ""
    return Population(users, without, _total(users, overlap), next(iter(designs)) if len(designs) == 1 else mixture)


def _total(users: dict[str, int], overlap: dict[tuple[str, str], int]) -> int | None:
    """People of all experiments together; None where the shared users of two of them do not tell."""
    if len(users) < 2:
        return sum(users.values())
    for center in dict.fromkeys(baseline for baseline, _ in overlap):
        others = [name for name in users if name != center]
        overlaps = [overlap.get((center, name), overlap.get((name, center))) for name in others]
        outside = [users[name] - n for name, n in zip(others, overlaps, strict=True) if n is not None]
        if len(outside) == len(others) and sum(n > 0 for n in outside) <= 1:
            return users[center] + sum(outside)
    pairs = {frozenset(pair) for pair in overlap}
    if len(pairs) == len(users) * (len(users) - 1) // 2 and not any(overlap.values()):
        return sum(users.values())
    return None


def _range(numbers: Iterable[int]) -> str:
    """Lowest to highest, or the one number that all are.

    >>> _range([1200, 900]), _range([5, 5])
    ('900 to 1,200', '5')
    """
    low, high = min(numbers := [*numbers]), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _percent(*shares: float) -> str:
    """A share, or the range of several, with the digits that people read.

    >>> _percent(0.3811), _percent(0.154, 0.171), _percent(0.004)
    ('38 %', '15 to 17 %', '0.4 %')
    """
    low, high = (f"{100 * share:.{0 if share >= 0.1 or not share else 1}f}" for share in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


_COUNTED = {"zero": "they count as 0", "one": "they count as 1"}
"""``zero_relevant`` of a convention -> how users without a relevant item count."""


def _rule(figures: Figures) -> str:
    """``zero_relevant`` of the convention; empty where it is not known."""
    text = str((figures.record.get("convention") or {}).get("text", ""))
    return dict(part.partition("=")[::2] for part in text.split(";")).get("zero_relevant", "")


def _without_them(figures: Figures) -> str:
    """What the mean would be without the users who have no relevant item."""
    metric, name = figures.primary, figures.experiments[0]
    row = first_of(figures.everyone, **{EXPERIMENT: name, METRIC: str(metric)})
    if metric is None or row is None:
        return ""
    mean, mean_with_relevant = number(row.get("mean")), number(row.get("mean_with_relevant"))
    if mean is None or mean_with_relevant is None or mean == mean_with_relevant:
        return ""
    return f" (without them {label_of(metric)} of {name} is {mean_with_relevant:.3f} instead of {mean:.3f})"


def _split(figures: Figures) -> Check:
    """Whether the users are split as planned."""
    title = "Split of the users"
    ratio = next((number(row.get("sample_ratio_p")) for row in figures.compared), None)
    if ratio is not None:
        p = p_text(ratio, SMALL_RATIO_P)
        if ratio < SMALL_RATIO_P:
            return Check("warn", title, f"Users are not split as planned (p {p}). There is no verdict.")
        return Check("ok", title, f"As planned (p = {p}).")
    people = population(figures)
    if people.design == "paired":
        return Check("none", title, "Not checked: the same users are in the experiments that are compared.")
    shares, total = "", sum(people.users.values())
    if 1 < len(people.users) <= MOST_SHARES:
        shares = " Seen: " + " / ".join(f"{100 * n / max(1, total):.1f}" for n in people.users.values()) + " %."
    return Check("none", title, f"Not checked, since the planned split is unknown.{shares}")


def _rows(record: Row) -> Check:
    rows = record["rows"]
    share = rows["quarantined"] / max(1, rows["in"])
    if not rows["quarantined"]:
        return Check("ok", "Faulty rows", f"None of {rows['in']:,}.")
    text = f"{rows['quarantined']:,} of {rows['in']:,} rows ({share:.2%}) were faulty and are left out."
    return Check("warn" if share > MANY_FAULTY else "ok", "Faulty rows", text)


def _ties(record: Row) -> Iterator[Check]:
    counts = [count for count in record.get("experiments", {}).values() if count.get("evaluated")]
    share = sum(count.get("tied", 0) for count in counts) / max(1, sum(count["evaluated"] for count in counts))
    by_score = record.get("config", {}).get("rank_by") == "score"
    if share > 0:
        text = f"{share:.1%} of the rows share their score with another of their list."
        yield Check("warn" if share > MANY_TIED else "ok", "Ties", text)
    elif by_score:
        yield Check("ok", "Ties", "No two items of a list have the same score.")


def _judged(record: Row) -> Iterator[Check]:
    counts: list[dict[str, Any]] = list(record.get("experiments", {}).values())
    beyond = sum(count.get("beyond_judgements", 0) for count in counts)
    if beyond:
        text = f"{beyond:,} lists show more relevant items than the judgements hold; their values stop at 1."
        yield Check("warn", "Judgements", text)
    if not record.get("judgements"):
        return
    lists, n_judged = (sum(count[name] for count in counts) for name in ("lists", "judged_lists"))
    share = n_judged / max(1, lists)
    level: Literal["ok", "warn"] = "warn" if share < FEW_JUDGED else "ok"
    yield Check(level, "Judged lists", f"{share:.1%} of the lists belong to a user with judgements.")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


_WORDS: dict[str, dict[str, str]] = {
    "ap_denominator": {
        "min(m,k)": "AP divides by the number of relevant items, at most the cut-off.",
        "m": "AP divides by the number of relevant items, whatever the cut-off.",
        "hits": "AP divides by the number of relevant items above the cut-off.",
        "k": "AP divides by the cut-off.",
        "min(L,k)": "AP divides by the length of the list, at most the cut-off.",
    },
    "zero_relevant": {
        "zero": "A user without a relevant item counts 0.",
        "skip": "A user without a relevant item is left out of the mean.",
        "one": "A user without a relevant item counts 1.",
    },
    "population": {
        "shown": "Means are over the users who were shown a list.",
        "judged": "Means are over the users with judgements.",
        "both": "Means are over the users with a list and with judgements.",
        "either": "Means are over the users with a list or with judgements.",
    },
    "gain": {
        "linear": "The gain of a grade is the grade itself.",
        "exponential": "The gain of a grade g is 2^g - 1.",
        "binary": "Every relevant item has a gain of 1.",
    },
    "ideal_pool": {
        "judged": "NDCG compares with the best order of all judged items.",
        "shown": "NDCG compares with the best order of the items that were shown.",
        "constant_k": "NDCG compares with a list of relevant items down to the cut-off.",
    },
    "relevant_pool": {
        "shown": "Only relevant items that were shown count among those that could be found.",
    },
    "ties": {
        "item_desc": "Items with equal scores are ordered by their id, descending.",
        "item_asc": "Items with equal scores are ordered by their id, ascending.",
        "position": "Items with equal scores stay in the order of their ranks.",
        "expected": "Items with equal scores count with the mean over all of their orders.",
        "best": "Items with equal scores stand in their best order.",
        "worst": "Items with equal scores stand in their worst order.",
    },
    "duplicates": {
        "refuse": "A list that holds an item twice is refused.",
        "best_rank": "Of an item that is in a list twice, the best rank counts.",
        "highest_grade": "Of an item that is in a list twice, the highest grade counts.",
        "count": "An item that is in a list twice counts twice.",
    },
}
_SAID = ("zero_relevant", "population", "ap_denominator", "gain", "ideal_pool", "relevant_pool", "ties", "duplicates")
_BY_SCORE = ("ties",)
_USED_BY = {"ap_denominator": "ap", "gain": "ndcg", "ideal_pool": "ndcg"}
_WITHOUT_JUDGEMENTS = {
    "judged": "NDCG compares with the best order of the items that were shown.",
}


def sentences(text: str, metrics: list[str], by_score: bool, has_judgements: bool) -> list[str]:
    """What a convention means for these metrics.

    >>> sentences("standard;gain=linear;zero_relevant=zero;ties=best;relevant_from=2.0", ["ndcg"], False, False)[1:3]
    ['A grade of 2 or more is relevant.', 'A user without a relevant item counts 0.']
    """
    chosen = dict(part.partition("=")[::2] for part in text.split(";")[1:])
    grade = float(chosen.get("relevant_from", 0))
    origin = (
        "The judgements say which items are relevant."
        if has_judgements
        else "Only items that were shown are known: a relevant item that no list showed does not count."
    )
    relevant = f"A grade of {grade:g} or more is relevant." if grade else "Any grade above 0 is relevant; a click is 1."
    return [origin, relevant, *_knobs(chosen, metrics, by_score, has_judgements)]


def _knobs(chosen: dict[str, str], metrics: list[str], by_score: bool, has_judgements: bool) -> list[str]:
    lines = []
    for knob in _SAID:
        value = chosen.get(knob, "")
        is_relevant = _USED_BY.get(knob) in (None, *metrics) and (by_score or knob not in _BY_SCORE)
        words = _WORDS[knob].get(value)
        if knob == "ideal_pool" and not has_judgements:
            words = _WITHOUT_JUDGEMENTS.get(value, words)
        if is_relevant and words and (has_judgements or knob != "relevant_pool"):
            lines.append(words)
    return lines
