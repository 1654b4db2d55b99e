"""What stands beside a verdict: margins, what is clearly lost, the order, what is the other way round in segments."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from string import ascii_lowercase

from rankmetrics_spark import metrics as mx, schemas as sch
from rankmetrics_spark.findings import Finding, by_columns, by_comparison, by_metric, label_of, of_all
from rankmetrics_spark.words import UNIT, UNITS, Change, counted, percent


def sentence_of_margin(found: Finding) -> str:
    """Whether a candidate is shown to be no worse than a margin; empty without a margin.

    Margins are not corrected. So only a row whose verdict says so is said to be above, or clearly below.

    >>> row = {"experiment_id": "b", "baseline": "a", "metric": "ndcg@10", "within_margin": "no worse", "margin": None,
    ...        "relative_margin": 0.01, "relative_worst_case": 0.0042, "p_no_worse": 0.001, "confidence": 0.95,
    ...        "better": None}
    >>> def said(row): return sentence_of_margin(Finding.of(row))
    >>> said(row)
    'NDCG@10 of b is no more than 1 % below that of a: shown, at most 0.4 % below'
    >>> open_row = row | {"within_margin": None, "relative_worst_case": 0.0213, "p_no_worse": 0.2}
    >>> said(open_row)
    'NDCG@10 of b is no more than 1 % below that of a: not shown, it may be 2.1 % below'
    >>> said(open_row | {"p_no_worse": 0.99, "better": "baseline"})
    'NDCG@10 of b is clearly more than 1 % below that of a, by up to 2.1 %'
    >>> above = row | {"within_margin": "equivalent", "relative_worst_case": -0.002, "better": "candidate"}
    >>> said(above)
    'NDCG@10 of b and a are within 1 % of each other: shown, b is at least 0.2 % above'
    >>> said(above | {"better": None, "share_changed": 0.12})
    'NDCG@10 of b and a are within 1 % of each other among the 12 % of users whose lists changed: shown'
    >>> said(row | {"note": "not trustworthy: the users do not follow the planned shares"})
    'NDCG@10 of b is no more than 1 % below that of a: not tested, since these numbers are not to be trusted'
    """
    factor, unit, size, worst = 100, " %", found.relative_margin, found.relative_worst_case
    if size is None:
        factor, unit, size, worst = 1, "", found.margin, found.worst_case
    if size is None:
        return ""
    margin, is_better, among = f"{factor * size:g}{unit}", mx.parse(found.metric).higher_is_better, found.among
    below, above = ("above", "below") if is_better is False else ("below", "above")
    subject, shown = f"{found.label} of {found.candidate}", found.within_margin
    limit = f"{subject} is no more than {margin} {below} that of {found.baseline}{among}"
    if shown == "equivalent" or is_better is None:
        limit = f"{subject} and {found.baseline} are within {margin} of each other{among}"
    if found.doubt:
        return f"{limit}: not tested, since these numbers are not to be trusted"
    if found.p_no_worse is None and shown is None:
        return f"{limit}: {'not tested' if found.p_equivalent is None else 'not shown'}"
    text = "" if worst is None else Change(factor * abs(worst), unit).unsigned
    is_below = worst is not None and worst >= 0
    is_beyond = 1 - (found.p_no_worse or 0.0) < found.level / 2
    if shown is None and is_beyond and found.better == "baseline":
        by = f", by up to {text}" if is_below else ""
        return f"{subject} is clearly more than {margin} {below} that of {found.baseline}{among}{by}"
    if shown is None:
        return f"{limit}: not shown{f', it may be {text} {below}' if is_below else ''}"
    if worst is not None and worst < 0:
        least = f", {found.candidate} is at least {text} {above}" if found.better == "candidate" else ""
        return f"{limit}: shown{least}"
    return f"{limit}: shown{f', at most {text} {below}' if is_below else ''}"


#: Sentences about margins, and about changes over all users.
MOST_SENTENCES = 12


def sentences_of_margins(found: Iterable[Finding]) -> list[str]:
    """Whether candidates are shown to be no worse than a margin: a sentence each."""
    return [*filter(None, map(sentence_of_margin, found))][:MOST_SENTENCES]


#: Metrics that are named beside a winner; the others are counted.
MOST_FALLS = 2


def but(found: Finding, pair: Sequence[Finding]) -> str:
    """What the winner of a primary metric clearly loses: guardrails first, then the largest changes.

    Every change is that of the candidate, as in the sentence before: what rises where it loses, a baseline that wins
    has less of.

    Args:
        found: Of a primary metric.
        pair: Those of the candidate and its baseline, of all users.

    >>> row = {"metric": "ndcg@10", "role": "primary", "better": "candidate", "note": None, "mean_baseline": 0.5,
    ...        "difference": -0.05, "relative_difference": -0.1, "relative_ci_low": -0.12, "relative_ci_high": -0.08,
    ...        "ci_low": -0.06, "ci_high": -0.04}
    >>> lost = row | {"metric": "rr", "role": "secondary", "better": "baseline"}
    >>> guardrail = lost | {"metric": "p@10", "role": "guardrail", "relative_difference": -0.03}
    >>> def said(row, *pair): return but(Finding.of(row), [*map(Finding.of, pair)])
    >>> said(row, row, lost, guardrail)
    'but the guardrail Precision@10 falls by 3.0 %, and MRR by 10.0 %'
    >>> said(row | {"share_changed": 0.12}, guardrail)
    'but the guardrail Precision@10 falls by 3.0 %, among the 12 % of users whose lists changed'
    >>> said(row | {"better": "baseline"}, guardrail | {"better": "candidate", "relative_difference": 0.03})
    'but the guardrail Precision@10 rises by 3.0 %'
    >>> said(row | {"better": None}, lost), said(row, row)
    ('', '')
    """
    if found.better is None or found.role not in (None, sch.PRIMARY):
        return ""
    lost = sorted((other for other in pair if other.better not in (None, found.better)), key=_guardrails_first)
    parts, verb = [], ""
    for other in lost[:MOST_FALLS]:
        before, (verb, size) = verb, _moved(other)
        parts.append(f"{_name(other)}{f' {verb}' if verb != before else ''}{size}")
    if more := len(lost) - len(parts):
        is_or_are = "metric is" if more == 1 else "metrics are"
        parts.append(f"{more:,} more {is_or_are} clearly {'worse' if found.better == 'candidate' else 'better'}")
    return f"but {_joined(parts)}{f',{found.among}' if found.among else ''}" if parts else ""


def but_of_all(found: Iterable[Finding], winner: str, n_others: int) -> str:
    """On which metrics the experiment that is ahead of the others clearly loses to some of them: guardrails first.

    Args:
        found: Of all users, of every pair and metric.
        winner: The experiment.
        n_others: How many others there are.

    >>> def finding(candidate, baseline, better, metric="p@1", role="guardrail"):
    ...     return Finding({}, candidate, baseline, metric=metric, role=role, better=better)
    >>> lost = [finding("b", "a", "candidate"), finding("a", "c", "baseline")]
    >>> but_of_all(lost, "a", 2)
    'but loses to every other experiment on the guardrail Precision@1'
    >>> but_of_all([lost[1], finding("b", "a", "candidate", "rr", "secondary")], "a", 2)
    'but loses to 1 of 2 others on the guardrail Precision@1, and to 1 of 2 others on MRR'
    >>> but_of_all(lost, "b", 2)
    ''
    """
    lost = by_metric(each for each in found if each.winner and each.winner[1] == winner)
    metrics = sorted(lost.values(), key=lambda of: (not of[0].is_guardrail, -len(of)))
    parts = [f"to {beaten_text(len(of), n_others)} on {_name(of[0])}" for of in metrics[:MOST_FALLS]]
    more = len(metrics) - len(parts)
    parts += [f"on {more:,} more {'metric' if more == 1 else 'metrics'}"] if more else []
    return f"but loses {_joined(parts)}" if parts else ""


def beaten_text(n: int, n_others: int) -> str:
    """How many of the other experiments.

    >>> beaten_text(2, 2), beaten_text(1, 2)
    ('every other experiment', '1 of 2 others')
    """
    return "every other experiment" if n == n_others else f"{n:,} of {n_others:,} others"


def lost_guardrails(found: Iterable[Finding]) -> str:
    """The guardrail that clearly lost the most, and how many more did; empty where none did.

    >>> row = {"metric": "p@1", "role": "guardrail", "better": "baseline", "note": None, "mean_baseline": 0.5,
    ...        "difference": -0.33, "relative_difference": -0.66, "relative_ci_low": -0.7, "relative_ci_high": -0.6,
    ...        "ci_low": -0.35, "ci_high": -0.3, "experiment_id": "c05"}
    >>> def said(*rows): return lost_guardrails(map(Finding.of, rows))
    >>> said(row), said(row | {"better": None})
    ('the guardrail Precision@1 of c05 falls by 66.0 %', '')
    >>> said(row | {"relative_difference": -0.1}, row, row)
    'the guardrail Precision@1 of c05 falls by 66.0 %, and 2 more are clearly worse'
    """
    lost = sorted((each for each in found if each.is_lost_guardrail), key=_guardrails_first)
    if not lost:
        return ""
    (verb, size), more = _moved(lost[0]), len(lost) - 1
    also = f", and {more:,} more {'is' if more == 1 else 'are'} clearly worse" if more else ""
    return f"{_name(lost[0])} of {lost[0].candidate} {verb}{size}{lost[0].among}{also}"


def _guardrails_first(found: Finding) -> tuple[bool, float]:
    """Sort key: guardrails, then the largest changes."""
    return not found.is_guardrail, -abs(found.tested_share.value or 0.0)


def _moved(found: Finding) -> tuple[str, str]:
    """Whether a metric of the candidate falls or rises, and by how much."""
    change = found.change()
    return "rises" if change and change.value > 0 else "falls", f" by {change.unsigned}" if change else ""


def _name(found: Finding) -> str:
    return f"{'the guardrail ' if found.is_guardrail else ''}{found.label}"


def _joined(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)}{', and ' if first else ''}{last}"


# ---- differences that are the other way round in every segment

#: Candidate, baseline and metric.
Key = tuple[str, str, str]
#: Share of the users who are in segments with a difference; with fewer, these do not speak for all.
LEAST_COVERED = 0.9


def reversals(found: Iterable[Finding], metrics: Collection[str]) -> dict[Key, dict[str, str]]:
    """The comparisons whose difference is shown over all users, and of the other sign in every segment of a column.

    Args:
        found: With those of segments.
        metrics: Names of those that are looked at.

    Returns:
        The column of the segments -> a sentence, for each of these comparisons.

    >>> row = {"experiment_id": "t", "baseline": "a", "metric": "rr@5", "note": None, "design": "independent"}
    >>> whole = row | {"segment": "all", "difference": -0.1, "better": "baseline"}
    >>> parts = [row | {"segment": f"country={name}", "difference": 0.03} for name in ("DE", "FR")]
    >>> for line in reversals(map(Finding.of, [whole, *parts]), {"rr@5"})["t", "a", "rr@5"].values():
    ...     print(line.replace(": ", ":\\n").replace("; ", ";\\n"))
    On MRR@5, t is below a over all users, but above it in each of the 2 segments of country:
    its users are in other segments than those of a, so the difference over all users is one of who they are;
    rankmetrics compare --decompose country splits it
    >>> reversals(map(Finding.of, [whole, parts[0], parts[1] | {"difference": -0.01}]), {"rr@5"})
    {}
    """
    found = [each for each in found if each.metric in metrics]
    said, parts_of = {}, by_comparison(found)
    for key, (whole, *_) in by_comparison(of_all(found)).items():
        # Tables have their rows in any order.
        of_columns = sorted(by_columns([part for part in parts_of[key] if part is not whole]).items())
        texts = {column: _sentence_of_reversal(whole, column, of_column) for column, of_column in of_columns}
        said[key] = {column: text for column, text in texts.items() if text}
    return {key: texts for key, texts in said.items() if texts}


def sentences_of_reversals(found: Iterable[Finding], metric: str) -> list[str]:
    """The sentences of ``reversals`` on one metric."""
    return [line for lines in reversals(found, {metric}).values() for line in lines.values()]


def _sentence_of_reversal(whole: Finding, column: str, parts: Sequence[Finding]) -> str:
    """That the difference is of the other sign in all of these segments; empty where it is not."""
    if whole.better is None or whole.doubt:
        return ""
    known = [part for part in parts if part.tested.value is not None]
    size = whole.tested.value or 0.0
    if len(known) < 2 or not all((part.tested.value or 0.0) * size < 0 for part in known):
        return ""
    if sum(part.n_users for part in known) < LEAST_COVERED * whole.n_users:
        return ""
    there, here = ("below", "above") if size < 0 else ("above", "below")
    some = "" if len(known) == len(parts) else " that have a difference"
    text = f"On {whole.label}, {whole.candidate} is {there} {whole.baseline} over all {UNITS}, but {here} it in each "
    text += f"of the {len(known):,} segments of {column}{some}"
    if whole.design != "independent":
        # The same users are on both sides, so it is not they who differ.
        return text
    text += f": its {UNITS} are in other segments than those of {whole.baseline}, "
    text += f"so the difference over all {UNITS} is one of who they are"
    plain = not whole.over_lists and whole.cluster is None and not whole.among
    # What else compare refuses to split: several columns at once.
    return f"{text}; rankmetrics compare --decompose {column} splits it" if plain and " & " not in column else text


# ---- the order of experiments that were compared with one another, and a change over all users

#: Fewer experiments are one pair, whose sentence says it all.
FEWEST = 3
#: Experiments that have a part of a sentence of their own, and that such a part names.
MOST_NAMED = 6


def losers_of(found: Iterable[Finding]) -> dict[str, list[str]]:
    """Experiment -> those that it is better than on a metric, by the corrected tests.

    Args:
        found: Of all users, on the metric.

    Returns:
        Every compared experiment, in the order of the rows; an empty list where it is better than none. Empty where
        fewer than three are compared with one another.

    >>> pairs = [("a", "b", "candidate"), ("a", "c", None), ("b", "c", "baseline")]
    >>> found = [Finding({}, candidate=y, baseline=x, better=better) for x, y, better in pairs]
    >>> losers_of(found), losers_of(found[:1]), losers_of(found[:2])
    ({'a': [], 'b': ['a', 'c'], 'c': []}, {}, {})
    """
    losers: dict[str, list[str]] = {}
    baselines = set()
    for each in found:
        baselines.add(each.baseline)
        for name in (each.baseline, each.candidate):
            losers.setdefault(name, [])
        if winner := each.winner:
            losers[winner[0]].append(winner[1])
    return losers if len(losers) >= FEWEST and len(baselines) > 1 else {}


def raised(losers: Iterable[str], letters: Mapping[str, str]) -> str:
    """The letters of the experiments that one is better than, in their order; of more than 26, neighbours are a range.

    >>> raised(["old", "older"], {"new": "a", "older": "b", "old": "c"})
    'bc'
    >>> raised([2, 3, 4, 27], {name: letter_of(name) for name in range(28)})
    'c-e,ab'
    """
    order = {name: place for place, name in enumerate(letters)}
    names, places = [*letters.values()], sorted(order[name] for name in losers if name in order)
    if len(names) <= len(ascii_lowercase):
        return "".join(names[place] for place in places)
    runs = ([place for _, place in run] for _, run in groupby(enumerate(places), lambda each: each[1] - each[0]))
    return ",".join(names[run[0]] + (f"-{names[run[-1]]}" if len(run) > 1 else "") for run in runs)


def letter_of(place: int) -> str:
    """What an experiment is called in short.

    >>> letter_of(0), letter_of(25), letter_of(26), letter_of(701), letter_of(702)
    ('a', 'z', 'aa', 'zz', 'aaa')
    """
    before, own = divmod(place, len(ascii_lowercase))
    return (letter_of(before - 1) if before else "") + ascii_lowercase[own]


def sentence_of_best(found: Iterable[Finding]) -> str:
    """Which experiments could be the best on a metric, by their ranks; empty where these are unknown.

    Args:
        found: Of all users, on the metric.

    >>> row = {"metric": "ndcg@10", "baseline": "a", "p_adjusted": 0.9, "confidence": 0.95}
    >>> def said(*lows): return sentence_of_best(
    ...     Finding.of(row | {"experiment_id": name, "mean_candidate": mean, "rank_low": low, "rank_high": 4})
    ...     for name, mean, low in zip("bcd", (0.1, 0.3, 0.2), lows))
    >>> said(1, 1, 2)
    'Any of 2 of the 3 experiments could be the best on NDCG@10 (95 % confidence): c and b'
    >>> said(2, 1, 2), said(1, 1, 1).partition(" could")[0]
    ('Only c of the 3 experiments could be the best on NDCG@10 (95 % confidence)', 'Any of the 3 experiments')
    """
    tested = [each for each in found if each.state != "doubtful"]
    ranks = {name: bounds for each in tested for name, bounds in each.ranks.items()}
    if not ranks:
        return ""
    means = {side.name: side.mean or 0.0 for each in tested for side in each.sides}
    is_lower = mx.parse(tested[0].metric).higher_is_better is False
    best = sorted((name for name in ranks if ranks[name][0] == 1), key=means.__getitem__, reverse=not is_lower)
    more = len(best) - MOST_NAMED
    named = [*map(str, best[:MOST_NAMED]), *([f"{more:,} more"] if more > 0 else [])]
    who, tail = f"Any of {len(best):,} of", f": {', '.join(named[:-1])} and {named[-1]}"
    if len(best) in (1, len(ranks)):
        who, tail = "Any of" if len(best) > 1 else f"Only {best[0]} of", ""
    level = percent(tested[0].confidence)
    return f"{who} the {len(ranks):,} experiments could be the best on {tested[0].label} ({level} confidence){tail}"


def sentences_of_order(found: Iterable[Finding], metrics: Iterable[mx.Metric]) -> list[str]:
    """Which experiments are above which on each metric, where every pair of at least three is compared.

    Args:
        found: Of all users.
        metrics: Those that have a sentence.

    >>> from rankmetrics_spark.metrics import parse
    >>> pairs = [("a", "b", "candidate"), ("a", "c", "candidate"), ("a", "d", None), ("b", "c", None),
    ...          ("b", "d", "baseline"), ("c", "d", None)]
    >>> def found(better): return [Finding({}, baseline=x, candidate=y, metric="ndcg@10", p_adjusted=0.01,
    ...                                    better=better and winner) for x, y, winner in pairs]
    >>> sentences_of_order(found("as it is"), [mx.parse("ndcg@10")])
    ['NDCG@10: b is above a, d; c is above a; no other pair of the 4 experiments differs clearly']
    >>> sentences_of_order(found(None), [mx.parse("ndcg@10")])
    ['NDCG@10: no pair of the 4 experiments differs clearly']
    """
    lines = []
    of_metrics = by_metric(found)
    for metric in metrics:
        of_metric = of_metrics.get(str(metric), [])
        losers = losers_of(of_metric)
        n_tested, n_pairs = sum(each.state != "doubtful" for each in of_metric), len(of_metric)
        if not losers or not n_tested or metric.higher_is_better is None:
            continue
        winners = sorted((name for name in losers if losers[name]), key=lambda name: -len(losers[name]))
        verb = "is above" if metric.higher_is_better else "is better, so lower, than"
        parts = []
        for winner in winners[:MOST_NAMED]:
            beaten, more = losers[winner], len(losers[winner]) - MOST_NAMED
            some = ", ".join([*beaten[:MOST_NAMED], *([f"{more:,} more"] if more > 0 else [])])
            parts.append(f"{winner} {verb} {f'all {len(beaten):,} others' if len(beaten) == len(losers) - 1 else some}")
        more = len(winners) - len(parts)
        parts += [f"{more:,} more {'is' if more == 1 else 'are'} above others"] if more else []
        if sum(map(len, losers.values())) < n_tested or not parts:
            other = "no other pair" if parts else "no pair"
            some = "" if n_tested == n_pairs else f", and {n_pairs - n_tested:,} of {n_pairs:,} have no verdict"
            parts.append(f"{other} of the {len(losers):,} experiments differs clearly{some}")
        lines.append(f"{label_of(metric)}: {'; '.join(parts)}")
    return lines


def sentence_of_dilution(found: Finding) -> str:
    """What a change among the users whose lists differ, or could, is over all users; empty where all users are tested.

    Its interval is that of one plain test. Where something else decides the row, the sentence says so.

    >>> row = {"experiment_id": "b", "baseline": "a", "metric": "ndcg@10", "share_changed": 0.1, "n_users_both": 12000,
    ...        "diluted_difference": 0.004, "diluted_ci_low": 0.001, "diluted_ci_high": 0.007, "confidence": 0.95}
    >>> def said(more): return sentence_of_dilution(Finding.of(row | more))
    >>> said({})
    'Over all 12,000 users, b changes NDCG@10 by +0.0040 (+0.0010 to +0.0070) from a: same lists count as no change'
    >>> said({"looks": "any", "test": "cuped", "correction": "holm", "n_comparisons": 4}).partition(" from ")[0]
    'Over all 12,000 users, b changes NDCG@10 by +0.0040 (+0.0010 to +0.0070; one look, not corrected, without CUPED)'
    >>> said({"share_changed": 0.0})
    'Every user of both a and b gets the same lists in each: there is no change to test'
    >>> said({"diluted_difference": None}), said({"share_changed": None})
    ('', '')
    >>> said({"share_changed": None, "trigger": "could_differ", "share_triggered_candidate": 0.1}).partition(" by ")[0]
    'Over all users, with or without could_differ, b changes NDCG@10'
    """
    change = found.further("diluted_").change()
    if not found.among or change is None:
        return ""
    if found.share_changed == 0:
        pair = f"{found.baseline} and {found.candidate}"
        return f"Every {UNIT} of both {pair} gets the same lists in each: there is no change to test"
    is_corrected = (found.n_comparisons or 1) > 1 and found.correction != "none"
    limits = ["one look"] if found.looks is not None else []
    limits += ["not corrected"] if is_corrected or found.is_widened else []
    limits += sch.ADJUSTED_BY.get(found.test or "", ())[1:]
    who, count = f"Over all {counted(found.n_users_both or 0)}", "same lists"
    if found.trigger is not None:
        who, count = f"Over all {UNITS}, with or without {found.trigger}", "those without it"
    said = f"{who}, {found.candidate} changes {found.label} by {change.limited(*limits)} from {found.baseline}"
    return f"{said}: {count} count as no change"
