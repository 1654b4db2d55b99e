"""What a reader of a row of ``comparisons`` has to know: who is left out, who is counted twice, and CUPED."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc
from scipy.stats import fisher_exact

from rankmetrics_spark import config as cfg, statistics as st, words
from rankmetrics_spark.comparison import adjusted, daily, hard, measures as ms
from rankmetrics_spark.schemas import EVERYONE, NOT_TRUSTED, OTHERS_LEFT_OUT, SMALL_RATIO_P, share

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared

#: Fewer users with a value other than 0, or than 1, in an experiment, or that differs in a pair: no test over looks.
HITS_OF_LOOKS = 10


def notes(rows: Compared) -> list[str | None]:
    """(g,) what a reader of each row has to know; first why it has no test, or why its test cannot be trusted."""
    heavy = _heavy(rows) if rows.by_ratio else {}
    # By how much at least the candidate is above the baseline, where that is known by two bounds.
    plain = ~rows.paired & ~rows.decided_by_cuped & ~rows.hard.decides
    least = st.least_share(rows.moments, rows.arms[0]["hits"], rows.highest, rows.families.strictest_levels)
    each = enumerate(zip(rows.doubts, np.where(plain, least, np.nan).tolist(), strict=True))
    return [
        "; ".join(filter(None, (doubt, _left_out_of_all(rows, i)))) if doubt else _remarks(rows, i, heavy.get(i), more)
        for i, (doubt, more) in each
    ]


def _remarks(rows: Compared, i: int, heavy: str | None, least: float) -> str | None:
    """What a reader of the test has to know."""
    if rows.paired[i]:
        parts = _all_but(rows, i, int(rows.n_both[i]))
        of_users = f"without {' and '.join(parts)}, {words.WHO} are not in both experiments" if parts else None
    else:
        of_users = _overlap(rows, i)
    said = [of_users, _left_out_of_all(rows, i), heavy, rows.judged.remark(i) if rows.question.machine else None]
    alone = []
    for place in ms.SIDES:
        if n := rows.totals.count(rows.keys[i].arm(place, "alone")._replace(segment=EVERYONE)):
            alone.append(f"{words.counted(n)} of {rows.keys[i][place]}")
    if alone:
        has = f"without one value of {rows.request.cluster} count as clusters of their own"
        said.append(f"{' and '.join(alone)} {has}")
    if rows.question.earlier and not rows.decided_by_cuped[i]:
        cuped, paired = rows.adjusted, rows.paired[i]
        if not cuped.n_before[i]:
            why = f"no {words.UNIT} has an earlier value" + (" in both experiments" if paired else "")
        elif not cuped.spread[i] > 0:
            same = f"a {words.UNIT} has the same earlier value in both experiments"
            why = same if paired else "all earlier values are equal"
        elif cuped.earlier_p[i] < adjusted.SMALL_EARLIER_P:
            why = f"the experiments differed before already (p = {cuped.earlier_p[i]:.2g})"
        else:
            skewed = f"{rows.hard.found[0][i]} decides, since t does not hold for so few hits or so skewed values"
            why = skewed if rows.hard.decides[i] else f"too few {words.UNITS}"
        said.append(f"CUPED is not used: {why}")
    said.append(_strata(rows, i) if rows.request.strata else None)
    if rows.deciding.standard_error[i] == 0 and np.isnan(rows.deciding.ci_low[i]):
        alike = "have the same difference" if rows.paired[i] else "of an experiment have one value"
        why = f"all {rows.units} {alike}"
        if rows.decided_by_cuped[i]:
            why = f"earlier values explain all that differs between {rows.units}"
        said.append(f"no interval, since {why}")
    share = rows.deciding_relative
    # Exact bounds of users who are all alike, and of rates, have no share.
    has_interval = np.isfinite(rows.deciding.ci_low[i]) and rows.deciding.standard_error[i] > 0
    has_interval &= not np.isnan(rows.hard.skewness[i])
    if has_interval and np.isnan(share.ci_low[i]) and np.isfinite(share.difference[i]):
        close = f"the mean of {rows.keys[i].baseline} is too close to 0 for an interval in percent"
        more = f": {rows.keys[i].candidate} is at least {int(100 * least):,} % above it" if least > 0 else ""
        said.append(close + more)
    said.append(rows.question.days.gap if rows.question.days else None)
    if rows.request.looks != "one" and rows.hard.decides[i] and not rows.decided_by_cuped[i]:
        said.append(ms.said("no_interval_of_looks", test=rows.hard.found[0][i]))
    elif np.isnan(rows.hard.skewness[i]) and np.isnan(rows.deciding.ci_low[i]) and not rows.hard.unbounded[i]:
        who = f"{rows.units} whose values differ" if rows.paired[i] else f"{rows.units} with a hit"
        where = "" if rows.paired[i] else " expected in the smaller experiment"
        n = rows.hard.expected[i]
        said.append(f"no interval before {hard.FEW_HITS} {who}{where}, and {n:.3g} {'is' if n == 1 else 'are'}")
    return "; ".join(filter(None, said)) or None


def _strata(rows: Compared, i: int) -> str | None:
    """How many users the strata leave out, or why they do not decide."""
    if not rows.decided_by_cuped[i]:
        alike = f"all {rows.units} of an experiment have one value"
        why = f"{words.UNITS} are compared with themselves" if rows.paired[i] else alike
        if rows.hard.decides[i] and not rows.paired[i]:
            why = f"{rows.hard.found[0][i]} decides, since t does not hold for these values"
        return f"strata are not used: {why}"
    if n := int(rows.n_users[i] - rows.adjusted.n_before[i]):
        return f"without {n:,} {rows.units} in strata of one experiment only"
    return None


def _heavy(rows: Compared) -> dict[int, str]:
    """Row -> how many users with equally many lists an experiment is worth, where a few users have most of them."""
    said: dict[int, str] = {}
    units, by_lists = rows.units, rows.request.mean_over == "lists"
    for i, key in enumerate(rows.keys):
        each = zip(ms.SIDES, rows.hard.effective, rows.hard.uneven, strict=True)
        both = rows.hard.unbounded[i] and not (rows.hard.uneven[0][i] or rows.hard.uneven[1][i])
        parts = [f"as {worth[i]:.0f} equal ones in {key[place]}" for place, worth, uneven in each if uneven[i] or both]
        if parts:
            said[i] = f"a few {units} have most of the {'lists' if by_lists else words.UNITS}, so that all count "
            said[i] += f"{' and '.join(parts)}: "
            more = f"; a {'lower ' if rows.request.cap else ''}comparison.cap makes one possible"
            permuted = f"all {units} were permuted, and there is no interval{more}"
            said[i] += permuted if rows.hard.unbounded[i] else "chance alone gives small p-values too often"
    return said


def _left_out_of_all(rows: Compared, i: int) -> str | None:
    """How many users of each experiment are left out because they are in another one too."""
    parts = []
    for place in ms.SIDES:
        key = rows.keys[i].arm(place, "shared")._replace(segment=EVERYONE)
        if n := rows.totals.count(key):
            users = rows.totals.count(key._replace(kind="arm"))
            parts.append(f"{n:,} of the {n + users:,} {_of(rows)} {rows.keys[i][place]}")
    return f"without {' and '.join(parts)}, {words.WHO} are in more than one experiment" if parts else None


def _all_but(rows: Compared, i: int, both: int) -> list[str]:
    """How many users each experiment has beside so many, where it has some."""
    sizes = {place: rows.count(i, place, "n") for place in ms.SIDES}
    return [f"{n - both:,} of the {n:,} {_of(rows)} {rows.keys[i][place]}" for place, n in sizes.items() if n > both]


def _of(rows: Compared) -> str:
    """The units of an experiment whose name follows."""
    return f"{words.UNITS} of" if rows.request.cluster is None else f"{rows.units} in"


def _overlap(rows: Compared, i: int) -> str | None:
    """How many users a test of independent users takes for different ones, and what that does to it."""
    shared = int(rows.both["both"][i])
    if not shared:
        return None
    who = f"1 {rows.unit} is" if shared == 1 else f"{shared:,} {rows.units} are"
    covariance = float(rows.pair.covariance[i])
    width = "too wide" if covariance > 0 else "too narrow" if covariance < 0 else ""
    text = f"{who} in both experiments and counted as different ones" + (f": the interval is {width}" if width else "")
    # Where most users of a side are in both, the others may be why the means differ. Where experiments share a few
    # users only, everybody else is in one of them.
    sizes, parts = ([rows.count(i, place, "n") for place in ms.SIDES], _all_but(rows, i, shared))
    if not parts or 2 * shared < min(sizes):
        return text
    who = f"{' and '.join(parts)} {'is' if sum(sizes) == 2 * shared + 1 else 'are'} in one experiment only"
    return f"{text}; {who}, which may be why the means differ (design: paired leaves them out)"


def too_few_hits(rows: Compared, i: int) -> str:
    """Why a row has no test over several looks yet."""
    needs = f"no test yet: several looks need {HITS_OF_LOOKS} {rows.units}"
    if rows.paired[i]:
        n = rows.both["higher"][i] + rows.both["lower"][i]
        return f"{needs} whose values differ, and there {'is' if n == 1 else 'are'} {n}"
    few = []
    for name, what in (("hits", "a hit"), ("misses", "a value other than 1")):
        found = {str(rows.keys[i][place]): rows.count(i, place, name) for place in ms.SIDES}
        counts = " and ".join(f"{each} has {n}" for each, n in found.items() if n < HITS_OF_LOOKS)
        few += [f"{needs} with {what} in each experiment, and {counts}"] if counts else []
    return few[0]


# ---- doubts


def doubts(rows: Compared) -> list[str | None]:
    """(g,) why a row has no test, or why its test cannot be trusted."""
    told = {**daily.doubts_of_mix(rows), **_different_users(rows), **_different_flags(rows)}
    return [_doubt(rows, i, told.get(i, "")) for i in range(len(rows.keys))]


#: Sum of an experiment -> what is wrong with it, and whether it is wrong to have some.
_PROBLEMS = {
    "users": ("no users", False),
    "n": ("no users with a value", False),
    "beyond": (f"values above {st.LARGEST_SUMMAND:.2g}, which cannot be summed,", True),
}


def _doubt(rows: Compared, i: int, told: str) -> str | None:
    """Why a row has no test, or why its test cannot be trusted."""
    experiments = {place: str(rows.keys[i][place]) for place in ms.SIDES}
    for name, (text, forbidden) in _PROBLEMS.items():
        if wrong := [each for place, each in experiments.items() if (rows.count(i, place, name) > 0) is forbidden]:
            flag = f" with {rows.request.trigger}" if rows.request.trigger and name == "users" else ""
            text = text.replace("with a value", "that people judged") if rows.question.machine else text
            return f"{text.replace('users', rows.units)}{flag} in {' and '.join(wrong)}"
    silent = {each: place for place, each in experiments.items() if not rows.count(i, place, "with_relevant")}
    if len(silent) == 2:
        return f"no {rows.units} with relevant items in {' and '.join(silent)}"
    off = f"the {rows.units} do not follow the planned shares (p = {rows.sample_ratio_p:.2g})"
    why = off if rows.sample_ratio_p < SMALL_RATIO_P else _different_triggering(rows, i)
    why = why or rows.uneven[i] or told
    if rows.request.strata and not (rows.paired[i] or rows.decided_by_cuped[i]):
        within, plain, error = rows.adjusted.estimate, rows.plain, rows.plain.standard_error[i]
        # Where users of an experiment are all alike, strata are no matter.
        if np.isnan(within.p_value[i]) and within.standard_error[i] + error != 0:
            why = why or ms.said("no_stratum", units=rows.units)
        elif abs(mix := plain.difference[i] - within.difference[i]) > error > 0 and not rows.request.covariates:
            why = why or ms.said("strata_mix", mix=mix, error=error)
        elif rows.adjusted.earlier_p[i] < adjusted.SMALL_EARLIER_P:
            why = why or "the experiments differed before already, so nothing is compared within strata"
    if silent and not why:
        why = _without_a_hit(rows, i, *silent.popitem())
    untrusted = f"{NOT_TRUSTED}: {why}" if why else None
    if rows.question.machine and (unjudged := rows.judged.doubt(i)):
        return unjudged
    return _untested(rows, i, untrusted) if np.isnan(rows.deciding.p_value[i]) else untrusted


def _untested(rows: Compared, i: int, untrusted: str | None) -> str:
    """Why two experiments that could be compared have no p-value."""
    plan = rows.request.looks
    if plan != "one" and not np.isnan(rows.single.p_value[i]):
        # Beyond the plan and with few hits there is no test, but a broken split is worth knowing.
        if untrusted or not rows.hits_suffice[i]:
            return untrusted or too_few_hits(rows, i)
        if isinstance(plan, cfg.PlannedLooks) and (look := plan.look or rows.look[i]):
            return f"not tested, since this is look {look} and {plan.planned} are planned"
        return "not tested, since looks are planned and the number of this look is not known"
    if rows.unresolved[i]:
        return "the values differ too little from one another for a test"
    if rows.paired[i]:
        n = "fewer than two" if rows.n_users[i] else "no"
        if rows.request.only_changed and rows.n_both[i]:
            return f"{n} {rows.units} have different lists in the two experiments"
        others = ", and only_changed compares no others" if rows.request.only_changed else ""
        return f"{n} {rows.units} in both experiments{others}"
    few = [str(rows.keys[i][place]) for place in ms.SIDES if rows.count(i, place, "n") < 2]
    return f"fewer than two {rows.units} in {' and '.join(few)}"


def _different_users(rows: Compared) -> dict[int, str]:
    """Row -> that its experiments have a value for different shares of their users, or of the lists of these.

    Where that holds for all users of a pair, the rows of its segments are about different users as well.
    """
    everyone = [key._replace(segment=EVERYONE) for key in rows.keys]
    found: dict[int, str] = {}
    for keys in (everyone, rows.keys):
        p, has, of_lists = analysed(rows, keys)
        for i in np.flatnonzero(p < SMALL_RATIO_P).tolist():
            if keys is everyone or i not in found:
                found[i] = _words_of_shares(rows, i, [float(each[i]) for each in has], bool(of_lists[i]))
    return found


def analysed(rows: Compared, keys: Sequence[ms.Key]) -> tuple[st.Floats, list[st.Floats], st.Bools]:
    """Are the same shares analysed: p-values, shares with a value in both, and whether these are of a user's lists."""
    # Users of both experiments; those with a list without a value; shares of these lists, and their squares.
    users = [of_arm["users"].astype(float) for of_arm in rows.totals.sides("arm", keys)]
    lacking = rows.totals.sides("left_out", keys)
    some = [left["users"].astype(float) for left in lacking]
    sums = [(left.real("t"), left.real("tt")) for left in lacking]
    pairs = rows.totals.of("left_out_pair", keys)
    more, squares = pairs.real("t"), pairs.real("tt")
    # Of users who have a value in one of both experiments only, this is McNemar's test. It sees most where the same
    # users are in both, also in a row that is independent because they rarely have a value in each.
    of_pairs = chdtrc(1, np.square(more) / np.where(squares > 0, squares, 1.0))
    p = np.where(rows.paired, of_pairs, np.minimum(of_pairs, st.left_out_p(users, some, sums)))
    has = [1 - left / np.maximum(n, 1) for (left, _), n in zip(sums, users, strict=True)]
    return p, has, (sums[0][0] < some[0]) | (sums[1][0] < some[1])


ALL_COUNT = "use a convention and a metric that count all of them, such as zero_relevant: zero"


def trigger_rates(rows: Compared) -> tuple[st.Floats, list[st.Floats]]:
    """Have the same shares of the users of both the trigger's flag: p-values, and these shares."""
    others = [sums["users"].astype(float) for sums in rows.untriggered.arms]
    users = [sums["users"] + other for sums, other in zip(rows.arms, others, strict=True)]
    shares = [1 - other / np.maximum(n, 1) for other, n in zip(others, users, strict=True)]
    return st.left_out_p(users, others, [(other, other) for other in others]), shares


def _different_flags(rows: Compared) -> dict[int, str]:
    """Row -> that its experiments have the trigger's flag for different shares, or that the other users differ too.

    Where that holds for all users of a pair, it is said of the rows of its segments as well.
    """
    flag, found = rows.request.trigger, dict[int, str]()
    if flag is None:
        return found
    p_rates, shares = trigger_rates(rows)
    p_others, place = rows.untriggered.single.p_value, {key: i for i, key in enumerate(rows.keys)}
    for i, key in enumerate(rows.keys):
        for at in (i, place.get(key._replace(segment=EVERYONE), i)):
            ours, theirs = (share(each[at]) for each in shares)
            if p_others[at] < SMALL_RATIO_P:
                rule = "set it wherever lists could differ"
                found[i] = f"{words.UNITS} without {flag} differ too (p = {p_others[at]:.2g}): {rule}"
            if p_rates[at] < SMALL_RATIO_P:
                found[i] = ms.said("different_flags", ours=ours, theirs=theirs, key=key, flag=flag, p=p_rates[at])
    return found


def _words_of_shares(rows: Compared, i: int, has: Sequence[float], of_lists: bool) -> str:
    digits = next((digits for digits in range(2, 9) if len({f"{share:.{digits}f}" for share in has}) > 1), 9)
    low, high = (f"{100 * share:.{digits - 2}f} %" for share in has)
    baseline, candidate = (rows.keys[i][place] for place in ms.SIDES)
    units, cluster = rows.units, rows.request.cluster
    who = f"{low} of the {units} of {baseline} and {high} of those of {candidate}"
    if of_lists:
        units = "lists" if cluster is None else str(words.UNITS)
        whose = f"a {words.UNIT}'s lists" if cluster is None else f"the {words.UNITS} of a cluster of {cluster}"
        who = f"on average, {low} of {whose} in {baseline} and {high} in {candidate}"
    which = f"only {units} with a value in both" if rows.paired[i] and not of_lists else f"different {units}"
    return f"{who} have a value (p < {SMALL_RATIO_P:g}); {OTHERS_LEFT_OUT} {which} are compared; {ALL_COUNT}"


def _different_triggering(rows: Compared, i: int) -> str:
    """That the arms have a list for different shares of their assigned users; empty where chance may explain it."""
    if not rows.assigned:
        return ""
    names, table = [rows.keys[i][place] for place in ms.SIDES], []
    for name in names:
        key = ms.Key("arm", "", name, EVERYONE, rows.keys[i].metric)
        shown = rows.totals.count(key) + rows.totals.count(key._replace(kind="untriggered"))
        table.append([shown, max(rows.assigned.get(name, 0) - shown, 0)])
    p = fisher_exact(table).pvalue
    if p >= SMALL_RATIO_P:
        return ""
    ours, theirs = (f"{share(one / (one + other))}" for one, other in table)
    who = f"{ours} of the {words.UNITS} {words.WHO} are assigned to {names[0]} and {theirs} of those of {names[1]}"
    return f"{who} have a list (p = {p:.2g}): the triggering is not the same, so these are different {words.UNITS}"


def _without_a_hit(rows: Compared, i: int, name: str, place: int) -> str:
    """That chance does not explain why no user of an experiment has a relevant item; empty where it may."""
    other = sum(ms.SIDES) - place
    hits, n = (rows.count(i, other, sums) for sums in ("with_relevant", "n"))
    if fisher_exact([[hits, n - hits], [0, rows.count(i, place, "n")]]).pvalue >= daily.SMALL_P:
        return ""
    return ms.said("no_hit", unit=rows.unit, name=name, part=share(hits / n), other=rows.keys[i][other])
