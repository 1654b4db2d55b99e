"""In words: in which segments the effect differs from that among the rest of the users, and what a convention means."""

import json
from collections.abc import Container, Sequence

from rankmetrics_spark import findings as fd, metrics as mx
from rankmetrics_spark.report import assets, beside
from rankmetrics_spark.words import UNIT, WHO, Change, p_value, worded

#: Segments of a column that are named for a candidate.
MOST_NAMED = 5
#: Pairs of experiments that have sentences of their own.
MOST_PAIRS = 6


def sentences_of_segments(rows: Sequence[fd.Row], metric: mx.Metric | None) -> list[str]:
    r"""Where the effect on a metric differs from that among the rest of the users; empty without segments.

    What is the other way round over all users comes first.

    Args:
        rows: Of ``comparisons``.
        metric: The one that decides.

    >>> from rankmetrics_spark.metrics import parse
    >>> row = {"experiment_id": "b", "baseline": "a", "metric": "ndcg@10", "confidence": 0.95, "note": None,
    ...        "correction": "holm", "difference": 0.012, "relative_difference": 0.021, "rest_difference": -0.002,
    ...        "rest_relative_difference": -0.003, "p_rest": 0.001, "p_rest_adjusted": 0.003, "segment": "country=DE"}
    >>> other = row | {"p_rest": 0.4, "p_rest_adjusted": 0.8}
    >>> rows = [row, *(other | {"segment": f"country={name}"} for name in ("FR", "GB"))]
    >>> for line in sentences_of_segments(rows, parse("ndcg@10")):
    ...     print(line.replace("\N{MINUS SIGN}", "-"))
    The effect of b on NDCG@10 differs in country=DE: +0.0120 (+2.1 %) against -0.0020 (-0.3 %) elsewhere (p = 0.003)
    No sign that the effect of b on NDCG@10 differs in the other 2 segments of country
    """
    if metric is None:
        return []
    name, found = str(metric), fd.findings(rows)
    chosen = [each for each in found if not each.is_of_all and each.metric == name and "p_rest" in each.row]
    pairs = {pair: fd.by_columns(of_pair) for pair, of_pair in fd.by_pair(chosen).items()}
    several = len({baseline for _, baseline in pairs}) > 1
    reversed_pairs = beside.reversals(found, {name})
    lines = [line for texts in [*reversed_pairs.values()][:MOST_PAIRS] for line in texts.values()]
    for (candidate, baseline), columns in [*pairs.items()][:MOST_PAIRS]:
        effect = f"the effect of {candidate}{f' against {baseline}' if several else ''} on {fd.label_of(metric)}"
        lines += _of_pair(effect, columns, reversed_pairs.get((candidate, baseline, name), ()))
    more = len(pairs) - MOST_PAIRS
    return [*lines, *([f"The other {more:,} pairs are in the table comparisons (p_rest_adjusted)"] if more > 0 else [])]


def _of_pair(effect: str, columns: dict[str, list[fd.Finding]], reversed_columns: Container[str]) -> list[str]:
    """The sentences of a pair; an effect that is the other way round in a column is not called the same there."""
    lines, still, unknown = [], [], []
    # Tables have their rows in any order.
    for column, found in sorted(columns.items()):
        tested = [(each.p_rest_adjusted, each) for each in found if not each.doubt and each.p_rest_adjusted is not None]
        named = sorted(((p, each.segment, each) for p, each in tested if p < each.level), key=lambda item: item[:2])
        ps = [f"({p_value(p, each.level)})" for p, _, each in named]
        differs = f"{effect[:1].upper()}{effect[1:]} differs"
        if len(tested) < 2:
            unknown += [column] if len(found) > 1 else []
        elif not named:
            still += [] if column in reversed_columns else [f"the {len(tested):,} segments of {column}"]
        elif len(tested) == 2 and len(named) == 2:
            both = [f"{_change(each.difference, each.relative_difference)} in {segment}" for _, segment, each in named]
            lines.append(f"{differs} by {column}: {' against '.join(both)} {ps[0]}")
        else:
            for (_, segment, each), p in [*zip(named, ps, strict=True)][:MOST_NAMED]:
                here = _change(each.difference, each.relative_difference)
                rest = _change(each.rest_difference, each.rest_relative_difference)
                lines.append(f"{differs} in {segment}: {here} against {rest} elsewhere {p}")
            n = len(tested) - len(named)
            if len(named) > MOST_NAMED:
                lines.append(f"{differs} in {len(named) - MOST_NAMED:,} more segments of {column}")
            if n and column not in reversed_columns:
                where = f"the other {n:,} segments of {column}" if n > 1 else f"the other segment of {column}"
                lines.append(f"No sign that {effect} differs in {where}")
    if still:
        lines.append(f"No sign that {effect} differs between {' or '.join(still)}")
    if unknown:
        first = columns[unknown[0]][0]
        why = f"{first.units} are in several of them, or too few in one of the groups"
        why = "it is not tested beside labels of a machine" if first.n_judged is not None else why
        lines.append(f"Not known whether {effect} differs between segments of {' and '.join(unknown)}: {why}")
    return lines


def _change(value: float | None, share: float | None) -> str:
    """Both numbers of the plain test, which is what segments are compared by."""
    return Change(value or 0.0, "").text + ("" if share is None else f" ({Change(100 * share, ' %').text})")


#: Knob of a convention -> its value -> what it means, in the order of the sentences.
_WORDS: dict[str, dict[str, str]] = json.loads(assets.file_text("sentences.json"))
_USED_BY = {"ap_denominator": "ap", "gain": "ndcg", "ideal_pool": "ndcg"}
_WITHOUT_JUDGEMENTS = {"judged": "NDCG compares with the best order of the items that were shown."}


def sentences(text: str, metrics: list[str], by_score: bool, has_judgements: bool) -> list[str]:
    """What a convention means for these metrics.

    >>> sentences("standard;gain=linear;zero_relevant=zero;ties=best;relevant_from=2.0", ["ndcg"], False, False)[1:3]
    ['A grade of 2 or more is relevant.', 'A user without a relevant item counts 0.']
    >>> sentences("standard;unjudged=removed", ["ap"], False, True)[-1]
    'Shown items without a judgement are removed, and the items below move up.'
    >>> for knob in ("ideal_pool=shown", "ap_denominator=hits", "ideal_pool=judged"):
    ...     print(sentences(f"standard;zero_relevant=skip;{knob}", ["r"], False, True)[2])
    A user who was shown no relevant item is left out of every mean, even if one was judged.
    A user who was shown no relevant item is left out of every mean, even if one was judged.
    A user without a relevant item is left out of the mean.
    """
    chosen = dict(part.partition("=")[::2] for part in text.split(";")[1:])
    grade = float(chosen.get("relevant_from", 0))
    origin = assets.said("judged") if has_judgements else assets.said("only_shown")
    relevant = f"A grade of {grade:g} or more is relevant." if grade else "Any grade above 0 is relevant; a click is 1."
    only_shown = chosen.get("ideal_pool") == "shown" or chosen.get("ap_denominator") == "hits"
    lines = []
    for knob, words_of in _WORDS.items():
        value = chosen.get(knob, "")
        is_relevant = _USED_BY.get(knob) in (None, *metrics) and (by_score or knob != "ties")
        words = worded(words_of.get(value, ""))
        if knob == "ideal_pool" and not has_judgements:
            words = _WITHOUT_JUDGEMENTS.get(value, words)
        if (knob, value, has_judgements) == ("zero_relevant", "skip", True) and only_shown:
            words = f"A {UNIT} {WHO} was shown no relevant item is left out of every mean, even if one was judged."
        if is_relevant and words and (has_judgements or knob != "relevant_pool"):
            lines.append(words)
    return [origin, relevant, *lines]
