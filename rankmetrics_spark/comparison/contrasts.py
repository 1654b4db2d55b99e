"""Further questions about a row of ``comparisons``: against a margin, and in a segment against the other users."""

from collections import Counter

import numpy as np

from rankmetrics_spark import schemas as sch, statistics as st
from rankmetrics_spark.comparison import families, hard, measures as ms, notes, registry as reg
from rankmetrics_spark.comparison.compared import Compared, testable

EQUIVALENT, NO_WORSE = "equivalent", "no worse"


@reg.statistic(sch.LOOKS, type="string", needs="looks")
def looks(rows: Compared) -> list[str | None]:
    """The looks that the row holds for: `any`, or such as `6 of 14, obrien_fleming`. `better`, `p_adjusted`, verdict,
    gates with `on: bound`, `minimum_detectable_effect` and `users_needed` follow it.
    """
    plan = rows.request.looks
    if isinstance(plan, str):
        return [plan] * len(rows.keys)
    return [f"{plan.look or number or '?'} of {plan.planned}, {plan.spending}" for number in rows.look]


@reg.statistic("p_sequential", *(f"{sch.SEQUENTIAL}_{name}" for name in sch.BOUNDS), needs="looks")
def sequential(rows: Compared) -> tuple[st.Floats, ...]:
    """P-value and intervals of the test that decides (see `test`) that hold for these looks; see "Looking every day".
    Where t does not hold, it is the p-value of `test` over these looks, without an interval; beyond the planned looks
    there is none.
    """
    of, share = rows.deciding, rows.deciding_relative
    return of.p_value, of.ci_low, of.ci_high, share.ci_low, share.ci_high


@reg.statistic(type="long", needs="looks")
def tuning_users(rows: Compared) -> list[int | None]:
    """With `looks: any`, the users at which the intervals are tightest; fixed before the test."""
    return [rows.request.tuning_users if rows.request.looks == "any" else None] * len(rows.keys)


@reg.statistic(sch.PERIOD_FROM, sch.PERIOD_TO, type="string", needs="period")
def period(rows: Compared) -> tuple[list[str | None], ...]:
    """The dates of the users: a user counts with the mean over their lists of all these dates."""
    days, size = rows.question.days, len(rows.keys)
    return ([days.first] * size, [days.last] * size) if days else ([None] * size, [None] * size)


@reg.statistic(type="long", needs="period")
def n_days(rows: Compared) -> st.Ints:
    """Dates of the period that are published."""
    return np.full(len(rows.keys), len(rows.question.days.dates) if rows.question.days else 0)


_MARGINS = ("margin", "relative_margin", "worst_case", "relative_worst_case", "p_no_worse", "p_equivalent")


@reg.statistic(*_MARGINS, needs="margin")
def margins(rows: Compared) -> tuple[st.Floats, ...]:
    """The margin of the metric, in its unit or as a share of the baseline's mean; how much worse the candidate may be
    at this confidence, in the same unit (below 0: it is better; null where nobody knows); one-sided p-value of the test
    that it is no worse than the margin; p-value of the two one-sided tests (TOST) that the difference is within the
    margin on both sides. Not corrected.
    """
    size, in_shares = rows.margins
    # A share of nothing, or of less, is no margin.
    sound = rows.testable & ~rows.unresolved & ~np.isnan(size) & (~in_shares | (rows.denominator.mean > 0))
    sides = ([np.where(sound, each, np.nan) for each in _side(rows, size, in_shares, sign)] for sign in (1, -1))
    (p_above, most_below), (p_below, most_above) = sides
    directions = [rows.question.directions.get(key.metric) for key in rows.keys]
    higher, lower = (np.array([each is direction for each in directions], bool) for direction in (True, False))
    p = np.where(higher, p_above, np.where(lower, p_below, np.nan))
    worst = np.where(higher, most_below, np.where(lower, most_above, np.nan))
    absolute, share = np.where(in_shares, np.nan, size), np.where(in_shares, size, np.nan)
    worst_of_each = (np.where(np.isnan(each), np.nan, worst) for each in (absolute, share))
    return absolute, share, *worst_of_each, p, np.maximum(p_above, p_below)


@reg.statistic(type="string", needs="margin")
def within_margin(rows: Compared) -> list[str | None]:
    """`equivalent` where `p_equivalent`, else `no worse` where `p_no_worse` is below (1 - `confidence`) / 2, so that it
    agrees with the interval; null where neither is shown.
    """
    *_, no_worse, equivalent = margins(rows)
    level = (1 - rows.request.confidence) / 2
    shown = zip(equivalent < level, no_worse < level, rows.doubts, strict=True)
    return [None if doubt else EQUIVALENT if both else NO_WORSE if one else None for both, one, doubt in shown]


def _side(rows: Compared, size: st.Floats, in_shares: st.Bools, sign: int) -> tuple[st.Floats, st.Floats]:
    """(g,) one-sided p-values of being within the margin below (1) or above (-1), and how far it may be there."""
    confidence, shift, (baseline, candidate) = rows.request.confidence, sign * size, rows.moments
    share = st.with_share(rows.single, rows.single_denominator, shift, confidence)
    # Welch's degrees of freedom are those of the scaled baseline.
    welchs = st.welch(baseline, candidate, confidence, 1 - shift)
    share = share.where(rows.paired | rows.decided_by_cuped | rows.question.machine, welchs)
    test = share.where(in_shares, st.shifted(rows.single, shift, confidence, np.nan))
    at_look = rows.at_looks(test)

    critical = st.critical_value(share.df, confidence)
    if rows.has("looks"):
        at_rule = rows.by_look(lambda rule: rule.critical(rows.n_users, share.df, 1 - confidence))
        critical = np.maximum(at_rule, critical)
    # Fieller's bounds are those of the test of a share. They are unknown where the baseline is not clearly above 0, and
    # without a spread, unless the difference is certain.
    skewness = rows.hard.skewness
    bounds = st.bent(critical, skewness), -st.bent(-critical, skewness)
    ratio = st.fieller(rows.single.within(*bounds), bounds[0], rows.single_denominator, bounds[1])
    name = "ci_low" if sign > 0 else "ci_high"
    unknown = np.isnan(rows.deciding.ci_low) | ~(rows.single_denominator.mean > 0)
    of_share = np.where(unknown, np.nan, getattr(ratio, name))
    worst = -sign * np.where(in_shares, of_share, getattr(rows.deciding, name))
    # Without an interval by t or Hall, nothing is known of a margin.
    by_t = (skewness == 0) | rows.has("looks")
    p_moving = np.where(by_t, st.one_sided_p(at_look, sign), st.skewed_p(test, skewness, sign))
    worst = np.where(np.isnan(skewness), np.nan, worst)
    # Without a spread there is no t: of a pair without a difference, not in shares of a baseline with a spread either.
    mean = np.where(in_shares, rows.single_denominator.mean, 1.0)
    p, exact = hard.side_of_margin(rows, size * mean, sign)
    still = rows.single.standard_error == 0
    return np.where(still, p, p_moving), np.where(still, exact / mean, worst)


@reg.statistic("trigger", type="string", needs="trigger")
def trigger(rows: Compared) -> list[str | None]:
    """The column with the flag of the users whom the row tests."""
    return [rows.request.trigger] * len(rows.keys)


@reg.statistic("share_triggered_baseline", "share_triggered_candidate", "p_share_triggered", "p_untriggered",
           needs="trigger")  # fmt: skip
def triggered(rows: Compared) -> tuple[st.Floats, ...]:
    """Share of the users of each side who have the flag, and the p-value that the two are equal (Pearson's chi-square,
    Fisher's test for few); p-value that the other users do not differ in the metric, by the test that fits them. Below
    0.001 in one of the two there is no verdict.
    """
    p, shares = notes.trigger_rates(rows)
    return *shares, p, rows.untriggered.single.p_value


@reg.statistic(sch.SHARE_CHANGED, *sch.DILUTED, needs="chosen")
def diluted(rows: Compared) -> tuple[st.Floats, ...]:
    """With the first, share of the users of both whose lists differ: the row tests these. And the effect over all
    users of both, to which the others add 0: `difference` times that share, with the paired t interval of these
    differences and zeros, at `confidence`. With `trigger`, the same over all users of the two who have a value, with
    Welch's t and the delta method; no interval where that of `difference` is not one by t.
    """
    if rows.request.trigger is not None:
        some, others = (own[0]["n"] + own[1]["n"] for own in (rows.arms, rows.untriggered.arms))
        whole = st.diluted(rows.plain, some, some + others, rows.request.confidence)
        known = rows.testable & ~(rows.hard.decides & ~rows.hard.dense)
        bounds = (np.where(known, each, np.nan) for each in (whole.ci_low, whole.ci_high))
        difference = np.where(np.isnan(whole.standard_error), np.nan, whole.difference)
        return np.full(len(rows.keys), np.nan), difference, *bounds
    changed, n = rows.pair.difference, rows.n_both.astype(object)
    everyone = st.paired_t(st.Moments(n, changed.total, changed.squares), rows.request.confidence)
    shares = rows.n_users / np.where(rows.n_both == 0, np.nan, rows.n_both)
    numbers = (everyone.difference, everyone.ci_low, everyone.ci_high)
    return shares, *(np.where(rows.testable, each, np.nan) for each in numbers)


@reg.statistic(*sch.REST, *sch.FROM_REST, "p_rest", "p_rest_adjusted", needs="segments")
def against_rest(rows: Compared) -> tuple[st.Floats, ...]:
    """Does the effect differ in this segment? `rest_difference` is the difference among all other users of the column,
    `from_rest` = `difference` - `rest_difference`, with its interval and p-value: Welch's test of two groups of
    users, or of four where the design is independent. `p_rest_adjusted` is corrected over the candidates and values of
    the column, for primary metrics, guardrails and secondary ones apart. Null for all users, and where the lists of a
    user are in several segments.
    """
    everyone = [key._replace(segment=sch.EVERYONE) for key in rows.keys]

    def rest(of_arm: str, of_pair: str) -> tuple[st.Sums, ...]:
        """Sums of all users less those of the row: of baseline, candidate and both."""
        of_keys = ((*rows.totals.sides(of_arm, keys), rows.totals.of(of_pair, keys)) for keys in (everyone, rows.keys))
        return tuple(whole - own for whole, own in zip(*of_keys, strict=True))

    *arms, both = rest("arm", "pair")
    tested = rows.testable & testable(arms) & ~rows.unresolved & _has_rest(rows) & (not rows.question.machine)
    if rows.has("looks"):
        tested &= rows.enough_hits(arms, both)
    *summed, of_users = rest("arm_lists", "pair_lists") if rows.by_ratio else (*arms, both)
    first, second = map(families.arm_moments, summed)
    of_arms, of_both = (first, second), families.pair_moments(of_users)
    confidence = rows.request.confidence
    paired = st.welch(of_both.difference, rows.pair.difference, confidence)
    independent = st.difference_of_differences(of_arms, rows.moments, confidence)
    n = np.where(rows.paired, both["both"], arms[0]["n"] + arms[1]["n"])
    apart = rows.at_looks(paired.where(rows.paired, independent), rows.n_users + n)

    difference = np.where(rows.paired, of_both.difference.mean, of_arms[1].mean - of_arms[0].mean)
    baseline = np.where(rows.paired, of_both.baseline.mean, of_arms[0].mean)
    from_rest = (apart.difference, apart.ci_low, apart.ci_high, apart.p_value)
    numbers = (difference, difference / st.nonzero(baseline), *from_rest)
    *shown, p = (np.where(tested, each, np.nan) for each in numbers)
    return *shown, p, _adjusted(rows, p)


def _has_rest(rows: Compared) -> st.Bools:
    """(g,) whether each user of the two is in one segment of the column, so that the other users are the rest."""
    columns = {key.segment: sch.segment_columns(key.segment) for key in rows.totals.sums}
    users = Counter[tuple[ms.Key, str]]()
    for key, sums in rows.totals.sums.items():
        # Their sums begin with a number of users.
        if key.kind in ("arm", "pair") and key.segment != sch.EVERYONE:
            users[key._replace(segment=sch.EVERYONE), columns[key.segment]] += int(sums[0])

    rests = np.zeros(len(rows.keys), bool)
    for i, key in enumerate(rows.keys):
        if key.segment != sch.EVERYONE:
            whole = key._replace(segment=sch.EVERYONE)
            column = columns.get(key.segment) or sch.segment_columns(key.segment)
            counted = [whole] if rows.paired[i] else [whole.arm(place) for place in ms.SIDES]
            rests[i] = all(users[each, column] == rows.totals.count(each) for each in counted)
    return rests


def _adjusted(rows: Compared, p_values: st.Floats) -> st.Floats:
    """(g,) p-values, corrected over the rows of a column and a role.

    Two segments that are the rest of each other ask one question, which counts once.
    """
    adjusted = np.full(len(p_values), np.nan)
    # (g,) what a row asks; the same for the only two segments of a column.
    labels: dict[tuple[object, ...], set[str]] = {}
    for key in rows.totals.sums:
        if key.kind == "arm":
            labels.setdefault((key.candidate, key.metric, sch.segment_columns(key.segment)), set()).add(key.segment)
    questions: list[tuple[object, ...]] = []
    for key in rows.keys:
        column = sch.segment_columns(key.segment)
        names = set().union(*(labels.get((key[place], key.metric, column), ()) for place in ms.SIDES))
        questions.append((key.baseline, key.candidate, key.metric, column if len(names) == 2 else key.segment))
    families: dict[object, dict[tuple[object, ...], int]] = {}
    for i, key in enumerate(rows.keys):
        family: object = "all" if rows.request.families == "one" else (sch.segment_columns(key.segment), rows.roles[i])
        families.setdefault(family, {}).setdefault(questions[i], i)
    for family in families.values():
        places = [*family.values()]
        adjusted[places] = st.adjusted_p_values(p_values[places], rows.request.correction)
    first = {questions[i]: i for family in families.values() for i in family.values()}
    return np.where(np.isnan(p_values), np.nan, adjusted[[first[question] for question in questions]])


# ---- ranks of all experiments


@reg.statistic("rank_low", "rank_high", "rank_low_baseline", "rank_high_baseline", type="long", needs="ranks")
def ranks(rows: Compared) -> tuple[list[int | None], ...]:
    """The best and the worst rank that the candidate, and the baseline, may have among all experiments of a segment and
    metric; 1 is the best. All true ranks are in these bounds with probability `confidence`: the largest t of all pairs
    that chance gives decides who is above whom (10,000 draws of a multivariate t, by steps; Mogstad, Romano, Shaikh,
    Wilhelm 2024). It is the plain test, at a single look; a pair without one, or where t does not hold, shows nothing.
    """
    sides = [[rows.ranks.get((key.segment, key.metric, key[place])) for key in rows.keys] for place in ms.SIDES[::-1]]
    return tuple([bounds and bounds[end] for bounds in side] for side in sides for end in (0, 1))


@reg.statistic("could_be_best", "could_be_best_baseline", type="boolean", needs="ranks")
def could_be_best(rows: Compared) -> tuple[list[bool | None], ...]:
    """Whether rank 1 is among them: the experiments for which this holds include the best one."""
    low, _, low_baseline, _ = ranks(rows)
    return tuple([None if rank is None else rank == 1 for rank in each] for each in (low, low_baseline))


# ---- labels of people and of a machine

_OF_PEOPLE = ("mean_baseline", "mean_candidate", "difference", "standard_error", *sch.BOUNDS[:2], "p_value")


@reg.statistic(*(f"{name}_human" for name in _OF_PEOPLE), needs="machine")
def human(rows: Compared) -> tuple[st.Floats, ...]:
    """The same numbers of the users whom people judged, under their labels alone; `wins`, `ties`, `losses` and
    `effect_size` are of these as well.
    """
    of = rows.of_people
    means = (rows.judged.numbers[f"mean_{side}_human"] for side in ("baseline", "candidate"))
    return *means, of.difference, of.standard_error, of.ci_low, of.ci_high, of.p_value


_OF_MACHINE = ("mean_baseline_machine", "mean_candidate_machine", "difference_machine", "p_value_machine")


@reg.statistic(*_OF_MACHINE, needs="machine")
def machine(rows: Compared) -> tuple[st.Floats, ...]:
    """The same of all users under the labels of the machine alone, which nobody has checked. Differences of the
    corrected means need not be the corrected difference: each has a `lambda` of its own.
    """
    return *(rows.judged.numbers[name] for name in _OF_MACHINE[:3]), rows.judged.machine.p_value


_SLOPES = ("lambda", "lambda_baseline", "lambda_candidate")
_BIAS = (*(f"{name}_{side}_machine" for name in ("bias", "p_bias") for side in ("baseline", "candidate")),
         "p_bias_machine")  # fmt: skip


@reg.statistic(*_SLOPES, *_BIAS, needs="machine")
def slopes(rows: Compared) -> tuple[st.Floats, ...]:
    """How much of the machine's labels is used, from 0 (people's alone) to 1, on average over the judged users: in the
    difference of paired rows (of all pairs together with `pairs: all`), and in each mean. By how much the machine
    overrates each side's judged users, with the p-values (t) that it does not, and, last, that it overrates both sides
    alike; null without a spread.
    """
    return tuple(rows.judged.numbers[name] for name in (*_SLOPES, *_BIAS))


@reg.statistic("n_judged_baseline", "n_judged_candidate", "n_judged", type="long", needs="machine")
def judged(rows: Compared) -> tuple[st.Ints, ...]:
    """Users of each side whom people judged, and those of the test: below 20 of a side there is no verdict."""
    n = [sums["n"] for sums in rows.arms]
    return *n, np.where(rows.paired, rows.both["both"], n[0] + n[1])
