"""What a convention means, in words."""

from __future__ import annotations

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
    "unjudged": {
        "removed": "Shown items without a judgement are removed, and the items below move up.",
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
_SAID = (
    *("zero_relevant", "population", "ap_denominator", "gain", "ideal_pool", "relevant_pool", "unjudged", "ties"),
    "duplicates",
)
_BY_SCORE = ("ties",)
_USED_BY = {"ap_denominator": "ap", "gain": "ndcg", "ideal_pool": "ndcg"}
_WITHOUT_JUDGEMENTS = {
    "judged": "NDCG compares with the best order of the items that were shown.",
}


def share(value: float) -> str:
    """A share as people write it: with the digits that they can use.

    >>> [share(value) for value in (0.3811, 0.0047, 0.0002, 0.0, 1.0, 0.99999)]
    ['38 %', '0.5 %', '0.02 %', '0 %', '100 %', '100 %']
    """
    percent = 100 * value
    return (
        f"{percent:.0f} %"
        if percent >= 10 or not value
        else f"{percent:.1f} %"
        if percent >= 0.1
        else f"{percent:.1g} %"
    )


def sentences(text: str, metrics: list[str], by_score: bool, has_judgements: bool) -> list[str]:
    """What a convention means for these metrics.

    >>> sentences("standard;gain=linear;zero_relevant=zero;ties=best;relevant_from=2.0", ["ndcg"], False, False)[1:3]
    ['A grade of 2 or more is relevant.', 'A user without a relevant item counts 0.']
    >>> sentences("standard;unjudged=removed", ["ap"], False, True)[-1]
    'Shown items without a judgement are removed, and the items below move up.'
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
