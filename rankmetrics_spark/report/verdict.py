"""The answer in words: one sentence per comparison."""

import math
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from rankmetrics_spark import config as cfg, findings as fd, metrics as mx, schemas as sch
from rankmetrics_spark.report import assets, beside
from rankmetrics_spark.words import STATES, UNIT, UNITS, Fact

if TYPE_CHECKING:
    from rankmetrics_spark.comparison import Outlook


#: Comparisons that have a sentence at most, and guardrails that are lost beyond them; ``comparisons`` holds all.
MOST_SENTENCES = 12

#: Topics of what limits a verdict, and of metrics that do not decide; of one that does, the topic is its candidate.
LIMITS, LOST, FURTHER = "what limits the answer", "lost guardrails", "further metrics"
#: Lines of a verdict on a terminal, unless every sentence is asked for.
MOST_LINES = 5


def verdict_of(rows: Sequence[fd.Row], metrics: fd.Metrics = (), more: int = 0) -> list[str]:
    """What the comparisons of all users say: the order on primary metrics, these, then differences that are shown.

    What is the other way round in every segment follows at once. ``sentences_of_period`` names the missing dates.
    """
    if len(tests := fd.by_test(rows)) > 1:
        of_tests = sorted(tests.values(), key=lambda own: fd.NEWS.index(fd.news_of(fd.findings(own))))
        most = MOST_SENTENCES if len(tests) <= MOST_SENTENCES else 1
        # What they all say, such as which look it is, stands there once.
        return [*dict.fromkeys(line for own in of_tests for line in verdict_of(own, metrics, more)[:most])]
    found = fd.findings(rows)
    everyone = fd.of_all(found)
    names = {str(metric): metric for metric in metrics}
    names |= {name: mx.parse(name) for name in fd.by_metric(everyone) if name not in names}
    order = {name: place for place, name in enumerate(names)}
    primary = fd.primary_names(everyone) or {str(mx.deciding([*names.values()]))}

    def place(each: fd.Finding) -> tuple[Any, ...]:
        """What decides first, then what is shown; of many, the surest first."""
        p = fd.p_or_last(each.row) if len(everyone) > MOST_SENTENCES else 0.0
        pair = str(each.candidate), str(each.baseline)
        return each.metric not in primary, each.better is None, p, *pair, order[each.metric]

    in_order = sorted(everyone, key=place)
    pairs = fd.by_pair(everyone)
    said, rest = _first(in_order, primary, more)
    turned = beside.reversals(found, primary)
    lines: list[str] = []
    for each in said:
        also = beside.but(each, pairs[pair := each.pair])
        text, brief, withheld = ("; ".join(filter(None, [said, also])) for said in sentence_of(each))
        topic = LOST if each.is_lost_guardrail else FURTHER if each.metric not in primary else str(each.candidate)
        lines.append(Fact(text, each.trust, topic, brief=brief, withheld=withheld))
        lines += [Fact(line, "warn", LIMITS) for line in turned.get((*pair, each.metric), {}).values()]
    means = units_of_means([each for each in in_order if each.metric == in_order[0].metric])
    margins = beside.sentences_of_margins(in_order)
    of_primary = (each for each in in_order if each.metric in primary)
    diluted = [*dict.fromkeys(filter(None, map(beside.sentence_of_dilution, of_primary)))][:MOST_SENTENCES]
    wide = [Fact(WIDENED, brief="")] if any(each.is_widened for each in said) else []
    decided = [metric for name, metric in names.items() if name in primary]
    by_metric = fd.by_metric(everyone)
    best = [beside.sentence_of_best(by_metric.get(str(metric), ())) for metric in decided]
    order_lines = [*filter(None, best), *beside.sentences_of_order(everyone, decided)]
    looks = [Fact(line, "warn", LIMITS) for line in sentences_of_looks(everyone)]
    return [*order_lines, *lines, *rest, *margins, *diluted, *means, *wide, *looks]


def _first(found: Sequence[fd.Finding], primary: Container[str], more: int) -> tuple[list[fd.Finding], list[str]]:
    """The sorted comparisons that have a sentence, and how many others there are, with ``more`` that were not read.

    Where not all have one, lost guardrails do, before primary metrics that show nothing.
    """

    def place(each: fd.Finding) -> int:
        """What is shown of primary metrics, then the lost guardrails."""
        return 0 if each.metric in primary and each.better is not None else 1 if each.is_lost_guardrail else 2

    ordered = sorted(found, key=place) if len(found) > MOST_SENTENCES else found
    late = [each for each in ordered[MOST_SENTENCES:] if each.is_lost_guardrail]
    said, n_lost = [*ordered[:MOST_SENTENCES], *late[:MOST_SENTENCES]], len(late[MOST_SENTENCES:])
    lost = f", {n_lost:,} of them guardrails that are clearly worse" if n_lost else ""
    n_more = len(found) - len(said) + more
    return said, [f"... and {n_more:,} more{lost}, in the table comparisons"] if n_more else []


#: What a verdict says where ``widened``.
WIDENED = "Intervals are corrected like the p-values, so some are wider than those of one comparison alone"


#: Experiments whose numbers of lists and users are named.
MOST_UNITS = 4


def units_of_means(found: Sequence[fd.Finding]) -> list[str]:
    """Which mean the comparisons of a metric are about, and which unit; nothing where both are users.

    >>> row = {"mean_over": "lists", "baseline": "a", "experiment_id": "b", "n_lists_baseline": 10234,
    ...        "n_users_baseline": 2011, "n_lists_candidate": 9871, "n_users_candidate": 1987}
    >>> def said(row): return units_of_means([fd.Finding.of(row)])
    >>> said(row)
    ['Means are over lists, and errors by user: 10,234 lists of 2,011 users in a, 9,871 lists of 1,987 users in b']
    >>> said(row | {"mean_over": "users"}), said({}), units_of_means([])
    ([], [], [])
    >>> of_clusters = {"cluster": "household", "n_members_baseline": 2011, "n_members_candidate": 1987}
    >>> said(row | of_clusters | {"mean_over": "users", "n_users_baseline": 803, "n_users_candidate": 797})
    ['Errors are by household: 803 clusters of 2,011 users in a, 797 clusters of 1,987 users in b']
    """
    counts: dict[str, str] = {}
    by_lists, cluster = any(each.over_lists for each in found), next((each.cluster for each in found), None)
    for side in (side for each in found if by_lists or cluster for side in each.sides):
        parts = [f"{side.n_lists:,} lists"] if by_lists else []
        parts += [f"{side.n_users:,} {'clusters' if cluster else UNITS}"]
        parts += [f"{side.n_members:,} {UNITS}"] if cluster else []
        counts[side.name] = f"{' of '.join(parts)} in {side.name}"
    more = f", and {len(counts) - MOST_UNITS:,} more experiments" if len(counts) > MOST_UNITS else ""
    named = ", ".join([*counts.values()][:MOST_UNITS])
    what = "Means are over lists, and errors" if by_lists else "Errors are"
    return [f"{what} by {cluster or UNIT}: {named}{more}"] if counts else []


def sentences_of_period(days: cfg.Days | None) -> list[str]:
    """Over which days a verdict is, and which of them are missing; empty for a single date."""
    return [] if days is None else [Fact(f"The comparisons are over {days.sentence_part}", "warn", LIMITS)]


def sentences_of_looks(found: Sequence[fd.Finding]) -> list[str]:
    """What more than one look at the same pairs means for a verdict; empty where nothing limits it.

    Earlier looks limit p-values of a single look. Data that do not add up, and users who return, limit several looks.

    Args:
        found: Of all users.

    >>> def said(*rows): return [line.partition(". ")[0] for line in sentences_of_looks([*map(fd.Finding.of, rows)])]
    >>> def row(name, look): return {"baseline": "a", "experiment_id": name, "look": look}
    >>> said(row("b", 6))
    ['This is look 6: the pair was compared on 5 earlier dates']
    >>> said(row("b", 2), row("c", 2))
    ['This is look 2: the pairs were compared on 1 earlier date']
    >>> said(row("b", 3), row("c", 1), row("b", 1))
    ['This is look 3 at b against a: the pair was compared on 2 earlier dates']
    >>> [line.partition(":")[0] for line in said({"looks": "any", "look": 6})]
    ['This is look 6, and no comparison.period is set']
    >>> six = {"looks": "6 of 14, pocock", "look": 6, "period_from": "2026-11-08", "n_days": 6, "p_sequential": 0.2}
    >>> said(six)
    ['The bounds of planned looks count on users who are new at each look']
    >>> beyond_the_plan = six | {"looks": "15 of 14, pocock", "p_sequential": None}
    >>> said(row("b", 1), row("c", None), six | {"looks": "any"}, {"looks": "any", "look": 1}, beyond_the_plan)
    []
    """
    lines = []
    by_look = sorted(found, key=lambda each: each.look or 1)
    single = {each.pair: each.look or 1 for each in by_look if each.looks is None}
    if (most := max(single.values(), default=1)) > 1:
        pairs = [pair for pair, look in single.items() if look == most]
        where = "" if len(pairs) == len(single) else f" at {pairs[0][0]} against {pairs[0][1]}"
        who = "the pairs were" if len(pairs) > 1 and not where else "the pair was"
        dates = f"{most - 1} earlier date{'s' if most > 2 else ''}"
        lines.append(assets.said("earlier_looks", most=most, where=where, who=who, dates=dates))
    over_looks = [each for each in found if each.looks is not None]
    if (apart := max((each.look or 1 for each in over_looks if each.period_from is None), default=1)) > 1:
        lines.append(assets.said("looks_without_period", apart=apart))
    planned = (each.n_days or 1 for each in over_looks if each.looks != "any" and each.p_sequential is not None)
    if (days := max(planned, default=1)) > 1:
        lines.append(assets.said("returning_users", days=days))
    return lines


def outlook_sentence(outlook: "Outlook") -> str:
    """When an open comparison could find an effect, in words that promise nothing.

    >>> from types import SimpleNamespace
    >>> case = SimpleNamespace(candidate="b", baseline="a", metric="ndcg@10", effect=0.0125, relative_effect=0.025,
    ...                        limit="", days=20, users=24_310, furthest=28, last_effect=0.0112,
    ...                        has_new_users=True, looks=None, power=0.8)
    >>> outlook_sentence(case)  # doctest: +NORMALIZE_WHITESPACE
    'b against a on NDCG@10: if users keep arriving as they do, a change of 2.5 % takes about 20 more days or
    fewer (about 24,000 users, looked at once) to be found with a probability of 80 %'
    """
    share, size = outlook.relative_effect, f"{outlook.effect:.3g}"
    effect = size if share is None else f"{100 * share:.3g} %"
    limit = f", {outlook.limit}" if outlook.limit else ""
    takes = f"a change of {effect}{limit}{',' if limit else ''} takes about {_days(outlook.days or 0)}"
    users = f"about {round(outlook.users, min(1 - math.floor(math.log10(max(outlook.users, 1))), 0)):,} {UNITS}"
    chance = fd.Finding({}, power=outlook.power).with_power
    looks = {None: "looked at once", "any": "valid at every look"}.get(outlook.looks, "valid at planned looks")
    last = outlook.last_effect if share is None else 100 * share * outlook.last_effect / outlook.effect
    find = f"find{'s' if outlook.furthest == 1 else ''} changes of {_never_rounded_down(last)}"
    find += " or more" if share is None else " % or more"
    if outlook.days and outlook.has_new_users:
        # The new users are a lower bound.
        fewer = " or fewer" if outlook.days > 1 else ""
        text = f"if {UNITS} keep arriving as they do, {takes}{fewer} ({users}, {looks}) to be found{chance}"
    elif outlook.days:
        text = f"no new {UNITS} arrive; if the same ones keep coming, {takes} ({looks}) to be found{chance}"
    elif outlook.has_new_users:
        text = f"if {UNITS} keep arriving as they do, {_days(outlook.furthest)} {find}{chance}, perhaps smaller ones "
        text += f"too; {effect}{limit}{',' if limit else ''} takes {users}"
    else:
        text = f"no new {UNITS} arrive; {_days(outlook.furthest)} of the same ones {find}{chance}, but "
        text += f"not a change of {effect}{limit}"
    return f"{outlook.candidate} against {outlook.baseline} on {fd.label_of(mx.parse(outlook.metric))}: {text}"


def _never_rounded_down(effect: float) -> str:
    """Two digits of an effect that is large enough.

    >>> _never_rounded_down(2.801), _never_rounded_down(0.0112), _never_rounded_down(0.05), _never_rounded_down(118)
    ('2.9', '0.012', '0.05', '120')
    """
    digits = 1 - math.floor(math.log10(effect))
    return f"{round(math.ceil(round(effect * 10.0**digits, 6)) / 10.0**digits, max(digits, 0)):.15g}"


def _days(n: int) -> str:
    return "1 more day" if n == 1 else f"{n} more days"


def sentence(row: fd.Row, metric: mx.Metric) -> str:
    """One comparison in words.

    >>> row = {"experiment_id": "b", "baseline": "a", "note": None, "better": "candidate", "mean_baseline": 0.5,
    ...        "mean_candidate": 0.55, "difference": 0.05, "relative_difference": 0.1, "relative_ci_low": 0.08,
    ...        "relative_ci_high": 0.12, "ci_low": 0.04, "ci_high": 0.06, "p_adjusted": 0.00002, "correction": "holm",
    ...        "n_comparisons": 4, "confidence": 0.95, "n_users": 2000, "adjusted_minimum_detectable_effect": 0.01}
    >>> print(sentence(row, mx.parse("ndcg@10")))
    b beats a on NDCG@10: 0.500 → 0.550, +10.0 % (+8.0 to +12.0), p < 0.001 after Holm (4 comparisons)
    >>> unclear = {"better": None, "p_adjusted": 0.3, "adjusted_minimum_detectable_effect": None,
    ...            "adjusted_relative_ci_low": -0.08, "adjusted_relative_ci_high": 0.28,
    ...            "adjusted_ci_low": -0.04, "adjusted_ci_high": 0.14}
    >>> print(sentence(row | unclear, mx.parse("ap")))
    b against a on MAP: no difference shown, 0.500 → 0.550, +10.0 % (-8.0 to +28.0), p = 0.300
    >>> of_looks = {"sequential_relative_ci_low": 0.07, "sequential_relative_ci_high": 0.13,
    ...             "sequential_ci_low": 0.03, "sequential_ci_high": 0.07, "looks": "any", "test": "welch"}
    >>> sentence(row | of_looks, mx.parse("ndcg@10")).partition(" % ")[2]
    '(+7.0 to +13.0), p < 0.001 after Holm (4 comparisons), valid at every look'
    """
    return sentence_of(fd.Finding.of({**row, sch.METRIC: str(metric)}))[0]


#: What a planned look is that nobody can read.
NO_LOOK = "not published, so no look of the plan"


def sentence_of(found: fd.Finding) -> tuple[str, str, str]:
    """One comparison in words; where it is said elsewhere how its p-value is corrected; and of a withheld run."""
    on = f"on {found.label}{found.among}"
    against = f"{found.candidate} against {found.baseline} {on}"
    if found.state == "doubtful":
        return (f"{against}: {found.remark or 'not tested'}",) * 3
    change, p = change_in_words(found), found.p
    also = f"; {found.remark}" if found.remark else ""
    at, error = found.valid_at, part_of_error(found)
    both = [f"{error}{f', {look}' if at else ''}" for look in (at, at if found.looks == "any" else NO_LOOK)]
    if found.better is None:
        after = "" if found.correction == "none" or found.n_comparisons == 1 else " (after the correction)"
        least, is_better = found.detectable(), mx.parse(found.metric).higher_is_better
        judged = f", of whom people judged {found.n_judged:,}," if found.n_judged else ""
        enough = f"enough to find changes of {least} or more{found.with_power}"
        could = f"; {found.n_users:,} {found.units}{judged} are {found.too_few or enough}{after}" if least else ""
        says = STATES["open"].word if is_better is not None else "neither direction is better"
        text, withheld = (f"{against}: {says}, {change}, {p}{valid}{could}{also}" for valid in both)
        return text, text, withheld
    verb = "beats" if found.better == "candidate" else "loses to"
    says = f"{found.candidate} {verb} {found.baseline} {on}: {change}, {p}"
    text, withheld = (f"{says}{correction_of(found)}{valid}{also}" for valid in both)
    return text, f"{says}{both[0]}{also}", withheld


def change_in_words(found: fd.Finding) -> str:
    """From which value to which, by how much, and how sure that is."""
    change = found.change()
    parts = [found.movement, change.plain if change else "-"]
    if found.adjusted_by:
        # Without a percentage, the difference is said once.
        parts = [*parts[: 1 if change and change.unit else 0], f"{parts[1]} {found.adjusted_by}"]
    return ", ".join(filter(None, parts))


def correction_of(found: fd.Finding) -> str:
    """How a p-value was corrected; empty where a metric is alone in its family, since nothing changes then.

    >>> [correction_of(fd.Finding({}, n_comparisons=n, correction="holm")) for n in (4, 1)]
    [' after Holm (4 comparisons)', '']
    """
    n = found.n_comparisons or 1
    return f" {assets.WORDS['corrections'][found.correction]} ({n} comparisons)" if n > 1 else ""


def part_of_error(found: fd.Finding) -> str:
    """What else than a number of comparisons makes a p-value larger: the family has a part of the error only.

    >>> row = {"p_value": 0.028, "p_adjusted": 0.056, "n_comparisons": 1, "family": "primary metrics"}
    >>> [part_of_error(fd.Finding.of(row | more)) for more in ({}, {"p_adjusted": 0.028}, {"n_comparisons": None})]
    [', as primary metrics have 50 % of the error', '', '']
    """
    p, adjusted = found.tested_p, found.p_adjusted
    # Of several comparisons, the correction for their number says why.
    if found.n_comparisons != 1 or not p or adjusted is None or not p * (1 + 1e-6) < adjusted < 1:
        return ""
    family = f"{found.family} metrics" if found.family == "all but primary" else found.family
    return f", as {family} have {sch.share(p / adjusted)} of the error"


def correction_once(sentences: Sequence[str], found: Sequence[fd.Finding]) -> list[str]:
    """The sentences of a verdict for people, who read once how the p-values were corrected.

    >>> each = fd.Finding({}, n_comparisons=4, correction="holm", family="secondary metrics")
    >>> fact = Fact("b beats a, p < 0.001 after Holm (4 comparisons)", brief="b beats a, p < 0.001")
    >>> for line in correction_once([fact, fact], [each, each]):
    ...     print(line)
    b beats a, p < 0.001
    b beats a, p < 0.001
    p-values after Holm: 4 comparisons of secondary metrics
    >>> correction_once([fact], [each])
    ['b beats a, p < 0.001 after Holm (4 comparisons)']
    """
    corrected = [each for each in fd.of_all(found) if correction_of(each)]
    brief = [Fact(line.brief, line.level, line.topic) if isinstance(line, Fact) else line for line in sentences]
    if not corrected or sum(short not in ("", line) for short, line in zip(brief, sentences, strict=True)) == 1:
        return [*sentences]
    in_order = sorted(corrected, key=lambda each: each.role != sch.PRIMARY)
    counts = dict.fromkeys(f"{each.n_comparisons} comparisons of {each.family or 'all metrics'}" for each in in_order)
    also = "; intervals are corrected like them" if "" in brief else ""
    how = assets.WORDS["corrections"][corrected[0].correction]
    return [*filter(None, brief), f"p-values {how}: {', '.join(counts)}{also}"]


def shortened(lines: Sequence[str], first: Sequence[str] = ()) -> list[str]:
    """``MOST_LINES`` lines of a verdict, in their order; the last one says how many are behind ``--details``.

    The line that comes ``first`` stays, then what limits the answer, what decides, and lost guardrails; sentences about
    further metrics go.

    >>> further = [Fact(f"b beats a on metric {i}", topic=FURTHER) for i in range(3)]
    >>> caveat, others = Fact("This is look 2", "warn", LIMITS), [f"c{i} beats a" for i in range(5)]
    >>> shortened([*others[:2], *further, caveat])
    ['c0 beats a', 'c1 beats a', 'This is look 2', '... and 3 more sentences: --details prints them']
    >>> shortened([*others, caveat], ["c4 is the best"])
    ['c4 is the best', 'c0 beats a', 'c1 beats a', 'This is look 2', '... and 3 more sentences: --details prints them']
    """
    rest = [line for line in lines if line not in first]
    rank = {FURTHER: 3, LOST: 2, LIMITS: 0}
    ranks = [rank.get(getattr(line, "topic", ""), 1) for line in rest]
    in_order = sorted((place for place in range(len(rest)) if ranks[place] < 3), key=ranks.__getitem__)
    kept = sorted(in_order[: MOST_LINES - 1 - len(first)])
    more = f"... and {len(rest) - len(kept)} more sentences: --details prints them"
    return [*first, *(rest[place] for place in kept), more]
