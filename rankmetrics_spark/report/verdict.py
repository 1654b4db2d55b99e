"""The answer in words: one sentence per comparison."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.config import without_gap
from rankmetrics_spark.metrics import Metric, deciding, parse
from rankmetrics_spark.report import differences
from rankmetrics_spark.report.beside import but, is_lost_guardrail, reversals, sentence_of_margin
from rankmetrics_spark.report.figures import label_of, over_lists, primary_names

if TYPE_CHECKING:
    from rankmetrics_spark.comparison import Outlook
    from rankmetrics_spark.config import Days

Row = Mapping[str, Any]

MOST_SENTENCES = 12
"""Comparisons that have a sentence at most, and guardrails that are lost beyond them; ``comparisons`` holds all."""

CORRECTIONS = {
    "holm": "after Holm",
    "bonferroni": "after Bonferroni",
    "fdr_bh": "after Benjamini-Hochberg",
    "tukey": "after Tukey",
    "none": "without correction",
}
"""Correction of p-values -> how a sentence names it."""


def deciding_of(rows: Sequence[Row], metrics: Sequence[Metric]) -> Metric | None:
    """The metric that decides: the first primary one of these comparisons, in the order of ``metrics``."""
    names = primary_names(rows)
    return next((metric for metric in metrics if str(metric) in names), deciding(metrics) if metrics else None)


def verdict_of(rows: Sequence[Row], metrics: Sequence[Metric] = (), more: int = 0) -> list[str]:
    """What the comparisons of all users say: the order on primary metrics, these, then differences that are shown.

    What is the other way round in every segment follows at once. ``sentences_of_period`` names the missing dates.
    """
    everyone: list[Row] = [
        {**row, "note": without_gap(row["note"])} for row in rows if row[sch.SEGMENT] == sch.EVERYONE
    ]
    names = {str(metric): metric for metric in metrics}
    names |= {name: parse(name) for name in dict.fromkeys(row[sch.METRIC] for row in everyone) if name not in names}
    order = {name: place for place, name in enumerate(names)}
    primary = primary_names(everyone) or {str(deciding([*names.values()]))}
    sorted_rows = sorted(
        everyone,
        key=lambda row: (
            row[sch.METRIC] not in primary,
            row["better"] is None,
            differences.p_or_last(row) if len(everyone) > MOST_SENTENCES else 0.0,
            str(row[sch.EXPERIMENT]),
            str(row[sch.BASELINE]),
            order[row[sch.METRIC]],
        ),
    )
    pairs: dict[tuple[Any, Any], list[Row]] = {}
    for row in everyone:
        pairs.setdefault((row[sch.EXPERIMENT], row[sch.BASELINE]), []).append(row)
    said, rest = _first(sorted_rows, primary, more)
    turned, lines = reversals(rows, primary), []
    for row in said:
        also = but(row, pairs[row[sch.EXPERIMENT], row[sch.BASELINE]])
        lines.append("; ".join(filter(None, [sentence(row, names[row[sch.METRIC]]), also])))
        lines += turned.get((row[sch.EXPERIMENT], row[sch.BASELINE], row[sch.METRIC]), {}).values()
    means = units_of_means([row for row in sorted_rows if row[sch.METRIC] == sorted_rows[0][sch.METRIC]])
    margins = [*filter(None, map(sentence_of_margin, sorted_rows))][:MOST_SENTENCES]
    of_primary = (row for row in sorted_rows if row[sch.METRIC] in primary)
    diluted = [*dict.fromkeys(filter(None, map(differences.sentence_of_dilution, of_primary)))][:MOST_SENTENCES]
    wide = [WIDENED] if any(map(differences.widened, said)) else []
    decided = [metric for name, metric in names.items() if name in primary]
    order_lines = differences.sentences_of_order(everyone, decided)
    return [*order_lines, *lines, *rest, *margins, *diluted, *means, *wide, *sentences_of_looks(everyone)]


def _first(rows: Sequence[Row], primary: Container[str], more: int) -> tuple[list[Row], list[str]]:
    """The sorted comparisons that have a sentence, and how many others there are, with ``more`` that were not read.

    Where not all have one, lost guardrails do, before primary metrics that show nothing.
    """

    def place(row: Row) -> int:
        """What is shown of primary metrics, then the lost guardrails."""
        return 0 if row[sch.METRIC] in primary and row["better"] is not None else 1 if is_lost_guardrail(row) else 2

    ordered = sorted(rows, key=place) if len(rows) > MOST_SENTENCES else rows
    late = [*filter(is_lost_guardrail, ordered[MOST_SENTENCES:])]
    said, n_lost = [*ordered[:MOST_SENTENCES], *late[:MOST_SENTENCES]], len(late[MOST_SENTENCES:])
    lost = f", {n_lost:,} of them guardrails that are clearly worse" if n_lost else ""
    n_more = len(rows) - len(said) + more
    return said, [f"... and {n_more:,} more{lost}, in the table comparisons"] if n_more else []


WIDENED = "Intervals are corrected like the p-values, so some are wider than those of one comparison alone"
"""What a verdict says where ``widened``."""


MOST_UNITS = 4
"""Experiments whose numbers of lists and users are named."""


def units_of_means(rows: Sequence[Row]) -> list[str]:
    """Which mean the comparisons of a metric are about, and which unit; nothing where both are users.

    >>> row = {"mean_over": "lists", "baseline": "a", "experiment_id": "b", "n_lists_baseline": 10234,
    ...        "n_users_baseline": 2011, "n_lists_candidate": 9871, "n_users_candidate": 1987}
    >>> units_of_means([row])
    ['Means are over lists, and errors by user: 10,234 lists of 2,011 users in a, 9,871 lists of 1,987 users in b']
    >>> units_of_means([row | {"mean_over": "users"}]), units_of_means([{}]), units_of_means([])
    ([], [], [])
    >>> of_clusters = {"cluster": "household", "n_members_baseline": 2011, "n_members_candidate": 1987}
    >>> units_of_means([row | of_clusters | {"mean_over": "users", "n_users_baseline": 803, "n_users_candidate": 797}])
    ['Errors are by household: 803 clusters of 2,011 users in a, 797 clusters of 1,987 users in b']
    """
    counts: dict[str, str] = {}
    by_lists, cluster = over_lists(rows), next((row.get(sch.CLUSTER) for row in rows), None)
    for row in rows if by_lists or cluster else ():
        for name, side in ((row[sch.BASELINE], "baseline"), (row[sch.EXPERIMENT], "candidate")):
            parts = [f"{row[f'n_lists_{side}']:,} lists"] if by_lists else []
            parts += [f"{row[f'n_users_{side}']:,} {'clusters' if cluster else 'users'}"]
            parts += [f"{row[f'n_members_{side}']:,} users"] if cluster else []
            counts[name] = f"{' of '.join(parts)} in {name}"
    more = f", and {len(counts) - MOST_UNITS:,} more experiments" if len(counts) > MOST_UNITS else ""
    named = ", ".join([*counts.values()][:MOST_UNITS])
    what = "Means are over lists, and errors" if by_lists else "Errors are"
    return [f"{what} by {cluster or 'user'}: {named}{more}"] if counts else []


def units_of(row: Row) -> str:
    """What people call the units of a comparison.

    >>> units_of({}), units_of({"cluster": "household"})
    ('users', 'clusters of household')
    """
    return "users" if row.get(sch.CLUSTER) is None else f"clusters of {row[sch.CLUSTER]}"


def sentences_of_period(days: Days | None) -> list[str]:
    """Over which days a verdict is, and which of them are missing; empty for a single date."""
    return [] if days is None else [f"The comparisons are over {days.sentence_part}"]


def sentences_of_looks(rows: Sequence[Row]) -> list[str]:
    """What more than one look at the same pairs means for a verdict; empty where nothing limits it.

    Earlier looks limit p-values of a single look. Data that do not add up, and users who return, limit several looks.

    Args:
        rows: Of ``comparisons``, of all users.

    >>> def row(name, look): return {"baseline": "a", "experiment_id": name, "look": look}
    >>> sentences_of_looks([row("b", 6)])[0].partition(". ")[0]
    'This is look 6: the pair was compared on 5 earlier dates'
    >>> sentences_of_looks([row("b", 2), row("c", 2)])[0].partition(". ")[0]
    'This is look 2: the pairs were compared on 1 earlier date'
    >>> sentences_of_looks([row("b", 3), row("c", 1)])[0].partition(". ")[0]
    'This is look 3 at b against a: the pair was compared on 2 earlier dates'
    >>> [line.partition(":")[0] for line in sentences_of_looks([{"looks": "any", "look": 6}])]
    ['This is look 6, and no comparison.period is set']
    >>> six = {"looks": "6 of 14, pocock", "look": 6, "period_from": "2026-11-08", "n_days": 6, "p_sequential": 0.2}
    >>> [line.partition(".")[0] for line in sentences_of_looks([six])]
    ['The bounds of planned looks count on users who are new at each look']
    >>> beyond_the_plan = six | {"looks": "15 of 14, pocock", "p_sequential": None}
    >>> no_limit = [six | {"looks": "any"}, {"looks": "any", "look": 1}, beyond_the_plan]
    >>> sentences_of_looks([row("b", 1), row("c", None), *no_limit])
    []
    """
    lines = []
    single = {
        (row[sch.EXPERIMENT], row[sch.BASELINE]): row.get("look") or 1 for row in rows if row.get(sch.LOOKS) is None
    }
    most = max(single.values(), default=1)
    if most > 1:
        pairs = [pair for pair, look in single.items() if look == most]
        where = "" if len(pairs) == len(single) else f" at {pairs[0][0]} against {pairs[0][1]}"
        who = "the pairs were" if len(pairs) > 1 and not where else "the pair was"
        dates = f"{most - 1} earlier date{'s' if most > 2 else ''}"
        lines.append(
            f"This is look {most}{where}: {who} compared on {dates}. Each p-value is that of a single look, so a "
            "difference that is shown is less sure than it says; with looks: any, it would hold at every look"
        )
    over_looks = [row for row in rows if row.get(sch.LOOKS) is not None]
    apart = [row.get("look") or 1 for row in over_looks if row.get("period_from") is None]
    if max(apart, default=1) > 1:
        lines.append(
            f"This is look {max(apart)}, and no comparison.period is set: a verdict over several looks needs data that "
            "grow from look to look, not a new date each time"
        )
    planned = [row for row in over_looks if row[sch.LOOKS] != "any" and not sch.is_unknown(row.get("p_sequential"))]
    days = max((row.get("n_days") or 1 for row in planned), default=1)
    if days > 1:
        lines.append(
            "The bounds of planned looks count on users who are new at each look. If many of them return on several of "
            f"the {days} days, up to 9 instead of 5 of 100 tests without a difference 'beat'; looks: any has no such "
            "limit"
        )
    return lines


def outlook_sentence(outlook: Outlook) -> str:
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
    users = f"about {round(outlook.users, min(1 - math.floor(math.log10(max(outlook.users, 1))), 0)):,} users"
    chance = differences.with_power(outlook.power)
    looks = {None: "looked at once", "any": "valid at every look"}.get(outlook.looks, "valid at planned looks")
    last = outlook.last_effect if share is None else 100 * share * outlook.last_effect / outlook.effect
    find = f"find{'s' if outlook.furthest == 1 else ''} changes of {_never_rounded_down(last)}"
    find += " or more" if share is None else " % or more"
    if outlook.days and outlook.has_new_users:
        # The new users are a lower bound.
        fewer = " or fewer" if outlook.days > 1 else ""
        text = f"if users keep arriving as they do, {takes}{fewer} ({users}, {looks}) to be found{chance}"
    elif outlook.days:
        text = f"no new users arrive; if the same ones keep coming, {takes} ({looks}) to be found{chance}"
    elif outlook.has_new_users:
        text = f"if users keep arriving as they do, {_days(outlook.furthest)} {find}, perhaps smaller ones too; "
        text += f"{effect}{limit}{',' if limit else ''} takes {users} to be found{chance}"
    else:
        text = f"no new users arrive; {_days(outlook.furthest)} of the same ones {find}{chance}, but "
        text += f"not of {effect}{limit}"
    return f"{outlook.candidate} against {outlook.baseline} on {label_of(parse(outlook.metric))}: {text}"


def _never_rounded_down(effect: float) -> str:
    """Two digits of an effect that is large enough.

    >>> _never_rounded_down(2.801), _never_rounded_down(0.0112), _never_rounded_down(0.05), _never_rounded_down(118)
    ('2.9', '0.012', '0.05', '120')
    """
    digits = 1 - math.floor(math.log10(effect))
    return f"{round(math.ceil(round(effect * 10.0**digits, 6)) / 10.0**digits, max(digits, 0)):.15g}"


def _days(n: int) -> str:
    return "1 more day" if n == 1 else f"{n} more days"


def valid_at(row: Row) -> str:
    """The looks that interval and p-value of a row hold for; empty for a single one, and beyond the plan.

    >>> valid_at({"looks": "any"}), valid_at({"looks": "6 of 14, pocock"}), valid_at({"looks": None}), valid_at({})
    ('valid at every look', 'valid at look 6 of 14', '', '')
    >>> valid_at({"looks": "15 of 14, pocock"}), valid_at({"looks": "? of 14, pocock"})
    ('', '')
    """
    looks = row.get(sch.LOOKS)
    if looks is None or looks == "any":
        return "valid at every look" if looks else ""
    look, _, planned = (of := looks.split(",")[0]).partition(" of ")
    return f"valid at look {of}" if look.isdigit() and int(look) <= int(planned) else ""


def sentence(row: Row, metric: Metric) -> str:
    """One comparison in words.

    >>> row = {"experiment_id": "b", "baseline": "a", "note": None, "better": "candidate", "mean_baseline": 0.5,
    ...        "mean_candidate": 0.55, "difference": 0.05, "relative_difference": 0.1, "relative_ci_low": 0.08,
    ...        "relative_ci_high": 0.12, "ci_low": 0.04, "ci_high": 0.06, "p_adjusted": 0.00002, "correction": "holm",
    ...        "n_comparisons": 4, "confidence": 0.95, "n_users": 2000, "adjusted_minimum_detectable_effect": 0.01}
    >>> print(sentence(row, parse("ndcg@10")))
    b beats a on NDCG@10: 0.500 → 0.550, +10.0 % (+8.0 to +12.0), p < 0.001 after Holm (4 comparisons)
    >>> unclear = {"better": None, "p_adjusted": 0.3, "adjusted_minimum_detectable_effect": None,
    ...            "adjusted_relative_ci_low": -0.08, "adjusted_relative_ci_high": 0.28,
    ...            "adjusted_ci_low": -0.04, "adjusted_ci_high": 0.14}
    >>> print(sentence(row | unclear, parse("ap")))
    b against a on MAP: no difference shown, 0.500 → 0.550, +10.0 % (-8.0 to +28.0), p = 0.300
    >>> of_looks = {"sequential_relative_ci_low": 0.07, "sequential_relative_ci_high": 0.13,
    ...             "sequential_ci_low": 0.03, "sequential_ci_high": 0.07, "looks": "any", "test": "welch"}
    >>> sentence(row | of_looks, parse("ndcg@10")).partition(" % ")[2]
    '(+7.0 to +13.0), p < 0.001 after Holm (4 comparisons), valid at every look'
    """
    candidate, baseline = row[sch.EXPERIMENT], row[sch.BASELINE]
    name = f"{label_of(metric)}{sch.among_changed(row)}"
    note = row["note"] or ""
    if sch.is_unknown(row["p_adjusted"]) or sch.doubt_of(row):
        return f"{candidate} against {baseline} on {name}: {note or 'not tested'}"
    change, p = differences.change_in_words(row), differences.p_value(row)
    also = f"; {note}" if note else ""
    valid = f"{part_of_error(row)}{f', {valid_at(row)}' if valid_at(row) else ''}"
    if row["better"] is None:
        effect = differences.detectable(row)
        after = "" if row["correction"] == "none" or row["n_comparisons"] == 1 else " (after the correction)"
        enough = f"{row['n_users']:,} {units_of(row)} are enough"
        could = (
            f"; {enough} to find changes of {effect} or more{differences.with_power(row.get(sch.POWER))}{after}"
            if effect
            else ""
        )
        says = "no difference shown" if metric.higher_is_better is not None else "neither direction is better"
        return f"{candidate} against {baseline} on {name}: {says}, {change}, {p}{valid}{could}{also}"
    verb = "beats" if row["better"] == "candidate" else "loses to"
    return f"{candidate} {verb} {baseline} on {name}: {change}, {p}{correction_of(row)}{valid}{also}"


def correction_of(row: Row) -> str:
    """How a p-value was corrected; empty where a metric is alone in its family, since nothing changes then.

    >>> correction_of({"n_comparisons": 4, "correction": "holm"}), correction_of({"n_comparisons": 1})
    (' after Holm (4 comparisons)', '')
    """
    n = row.get("n_comparisons") or 1
    return f" {CORRECTIONS[row['correction']]} ({n} comparisons)" if n > 1 else ""


def part_of_error(row: Row) -> str:
    """What else than a number of comparisons makes a p-value larger: the family has a part of the error only.

    >>> row = {"p_value": 0.028, "p_adjusted": 0.056, "n_comparisons": 1, "family": "primary metrics"}
    >>> part_of_error(row), part_of_error(row | {"p_adjusted": 0.028}), part_of_error({})
    (', as primary metrics have 50 % of the error', '', '')
    """
    alone = "p_value" if sch.is_unknown(row.get("p_sequential")) else "p_sequential"
    p, adjusted = (sch.number(sch.of_test(row, name)) if name in row else None for name in (alone, "p_adjusted"))
    # Of several comparisons, the correction for their number says why.
    if row.get("n_comparisons") != 1 or not p or adjusted is None or not p * (1 + 1e-6) < adjusted < 1:
        return ""
    family = f"{row['family']}".replace("all but primary", "all but primary metrics")
    return f", as {family} have {sch.share(p / adjusted)} of the error"


def correction_once(sentences: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """The sentences of a verdict for people, who read once how the p-values were corrected.

    >>> row = {"n_comparisons": 4, "correction": "holm", "family": "secondary metrics"}
    >>> for line in correction_once(["b beats a, p < 0.001 after Holm (4 comparisons)"] * 2, [row, row]):
    ...     print(line)
    b beats a, p < 0.001
    b beats a, p < 0.001
    p-values after Holm: 4 comparisons of secondary metrics
    >>> correction_once(["b beats a, p < 0.001 after Holm (4 comparisons)"], [row])
    ['b beats a, p < 0.001 after Holm (4 comparisons)']
    """
    shown = [row for row in rows if correction_of(row) and row.get(sch.SEGMENT, sch.EVERYONE) == sch.EVERYONE]
    families = {correction_of(row): row for row in shown}
    if not shown or sum(any(text in line for text in families) for line in sentences) == 1:
        return [*sentences]
    counts = dict.fromkeys(
        f"{row['n_comparisons']} comparisons of {row.get('family') or 'all metrics'}"
        for row in sorted(shown, key=lambda row: row.get(sch.ROLE) != sch.PRIMARY)
    )
    words = CORRECTIONS[next(iter(families.values()))["correction"]]
    also = "; intervals are corrected like them" if WIDENED in sentences else ""
    plain = []
    for line in sentences:
        for text in families:
            line = line.replace(text, "")
        plain.append(line)
    return [*(line for line in plain if line != WIDENED), f"p-values {words}: {', '.join(counts)}{also}"]
