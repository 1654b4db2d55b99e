"""The columns of ``comparisons``, in their order: a function is a statistic, and its docstring is what the docs say."""

from dataclasses import replace
from typing import Any

import numpy as np

from rankmetrics_spark import schemas as sch, statistics as st
from rankmetrics_spark.comparison import families, measures as ms, table as tables
from rankmetrics_spark.comparison.compared import INDEPENDENT, PAIRED, Compared
from rankmetrics_spark.comparison.notes import analysed, notes
from rankmetrics_spark.comparison.registry import statistic

PAIRED_T, WELCH = "paired t", "welch"
Texts = list[str | None]


@statistic(sch.EXPERIMENT, sch.BASELINE, sch.SEGMENT, sch.METRIC, type="string")
def names(rows: Compared) -> tuple[Texts, ...]:
    """The candidate, what it is compared with, the users, and the metric."""
    fields = ("candidate", "baseline", "segment", "metric")
    return tuple([getattr(key, name) for key in rows.keys] for name in fields)


@statistic(type="string")
def design(rows: Compared) -> list[str]:
    """`paired`: the users who are in both, by the difference of each user. `independent`: all users of each side,
    Welch's test. `auto` is paired where at least 95 % of the users of each side are in both; all segments of a pair
    follow its users as a whole.
    """
    return [PAIRED if paired else INDEPENDENT for paired in rows.paired]


@statistic(type="string")
def test(rows: Compared) -> Texts:
    """The test that decides: `paired t`, `welch`, `cuped` or `strata`; `permutation`, `boschloo`, `sign flips` or, in
    segments, `hall` where t does not hold (see "Few hits"); null without one. `p_adjusted`, `better`, verdict, gates,
    `minimum_detectable_effect` and `users_needed` follow it.
    """
    by = sch.STRATA if rows.request.strata else sch.CUPED
    decides = zip(rows.deciding.p_value, rows.decided_by_cuped, rows.hard.found[0], rows.paired, strict=True)
    return [
        None if np.isnan(p) else by if cuped else hard or (PAIRED_T if paired else WELCH)
        for p, cuped, hard, paired in decides
    ]


@statistic(type="long")
def n_users(rows: Compared) -> st.Ints:
    """Users of the test: of both sides together where it is independent."""
    # Those whom a machine has judged, and people have not, are in the test too.
    ours, theirs, both = rows.judged.n_others
    return rows.n_users + np.where(rows.paired, both, ours + theirs)


@statistic("mean_baseline", "mean_candidate")
def means(rows: Compared) -> tuple[st.Floats, ...]:
    """Means of these users."""
    if rows.question.machine:
        return tuple(rows.judged.numbers[name] for name in ("mean_baseline", "mean_candidate"))
    each = zip((rows.pair.baseline, rows.pair.candidate), rows.moments, rows.arms, strict=True)
    # Without its values that are too large, the mean of an experiment would be another one.
    return tuple(
        np.where(sums["beyond"] > 0, np.nan, np.where(rows.paired, both.mean, mine.mean)) for both, mine, sums in each
    )


@statistic("difference", "relative_difference", "ci_low", "ci_high", "p_value")
def tested(rows: Compared) -> tuple[st.Floats, ...]:
    """Candidate - baseline; the same as a share of the baseline, null where the baseline's mean is 0; interval at
    `confidence` and p-value of Student's t of the differences, or of Welch's t, whether it decides or not; without a
    spread, an exact interval or none.
    """
    plain = rows.estimate
    return plain.difference, rows.relative.difference, plain.ci_low, plain.ci_high, plain.p_value


@statistic()
def p_adjusted(rows: Compared) -> st.Floats:
    """Corrected over the rows of its `family` that have a p-value."""
    return rows.p_adjusted


@statistic("wins", "ties", "losses", type="long")
def wins(rows: Compared) -> tuple[list[int | None], ...]:
    """Users in both whose value is better, equal or worse in the candidate; null where people judged them with unequal
    probabilities, since some then stand for more users than others.
    """
    both, higher, lower = (rows.both[name] for name in ("both", "higher", "lower"))
    worse = np.array([rows.question.directions.get(key.metric) is False for key in rows.keys])
    counts = np.where(worse, lower, higher), both - higher - lower, np.where(worse, higher, lower)
    return tuple([n if same else None for n, same in zip(each.tolist(), rows.alike, strict=True)] for each in counts)


@statistic(type="string")
def better(rows: Compared) -> Texts:
    """`candidate` or `baseline` where `p_adjusted < 1 - confidence`, by the direction of the metric; null otherwise,
    and where `note` begins with `not trustworthy`, though `p_adjusted` and the intervals have their numbers there.
    """
    winners: Texts = [None] * len(rows.keys)
    for i in np.flatnonzero(rows.decided).tolist():
        direction = rows.question.directions.get(rows.keys[i].metric)
        if direction is not None and not rows.doubts[i]:
            winners[i] = "candidate" if bool(rows.deciding.difference[i] > 0) == direction else "baseline"
    return winners


@statistic(type="string")
def note(rows: Compared) -> Texts:
    """Why there is no test, or why it cannot be trusted; how many users of each side a paired test leaves out; how many
    users are in both sides of an independent test, and whether that makes its interval too wide or too narrow; how many
    users `shared_users: drop` leaves out; whether a few users have most of the lists; why CUPED was asked for and does
    not decide; why there is no interval in percent; which dates of a period are not published. It ends the sentence of
    the verdict.
    """
    return notes(rows)


@statistic(type="long")
def look(rows: Compared) -> list[int | None]:
    """The number of this look at the metric of the pair: 1 + the earlier dates of this output on which it was compared,
    in a period those of the period. Null where earlier dates are not known. `p_value` is that of a single look.
    """
    return rows.look


@statistic()
def confidence(rows: Compared) -> st.Floats:
    """Of every interval of the row."""
    return np.full(len(rows.keys), rows.request.confidence)


@statistic("correction", "family", sch.ROLE, type="string")
def correction(rows: Compared) -> tuple[list[str], ...]:
    """How `p_adjusted` was corrected; the comparisons that were corrected together: `primary metrics`, `guardrails`,
    `secondary metrics` (candidates by metrics, all users), or `segments of country` (candidates by metrics by values);
    and what the metric is: `primary`, `guardrail` or `secondary`.
    """
    return [rows.request.correction] * len(rows.keys), rows.families.names, rows.roles


@statistic("n_comparisons", "n_users_baseline", "n_users_candidate", "n_users_both", type="long")
def counts(rows: Compared) -> tuple[st.Ints, ...]:
    """How many comparisons the family has; users of each side who have a value, and of both, also where only those
    with changed lists are compared.
    """
    n = rows.arms[0]["n"], rows.arms[1]["n"], rows.n_both
    return rows.families.n_tested, *(each + more for each, more in zip(n, rows.judged.n_others, strict=True))


@statistic(type="string")
def mean_over(rows: Compared) -> Texts:
    """`users`: every user counts once, with the mean over their lists. `lists`: every list counts once, and the user
    stays the unit of errors: standard error, intervals and p-values are those of the delta method over users.
    """
    return ["lists" if rows.request.mean_over == "lists" else "users"] * len(rows.keys)


@statistic("n_lists_baseline", "n_lists_candidate", type="long", needs="lists")
def lists(rows: Compared) -> tuple[st.Ints, ...]:
    """Lists of each side that have a value; a user who was judged and shown nothing counts as one empty list."""
    kinds = (rows.totals.sides(kind, rows.keys) for kind in ("arm_lists", "machine"))
    return tuple(sum(sums.ratio("y", "n").lists for sums in side).astype(np.int64) for side in zip(*kinds, strict=True))


@statistic("effective_users_baseline", "effective_users_candidate", needs="lists")
def effective_users(rows: Compared) -> tuple[st.Floats, ...]:
    """How many users with equally many lists those of each side are worth: (Σ n)² / Σ n² (Kish 1965), with at most
    `cap` lists each. Below 50 a permutation of the users decides where a few of them have most of the lists, or
    make most of the error.
    """
    return tuple(rows.hard.effective)


@statistic(needs="cap")
def cap(rows: Compared) -> st.Floats:
    """Lists of a user that count at most; without `mean_over: lists`, the largest value that counts, of metrics without
    an upper bound. Means, differences and numbers of lists of the row are those with it.
    """
    columns, caps = {f"{tables.CAP}{metric.column}": str(metric) for metric in rows.question.metrics}, {}
    for key in rows.totals.sums:
        if key.kind == ms.ALIKE and key.metric in columns:
            caps[columns[key.metric]] = float(str(key.candidate))
    return np.array([caps.get(key.metric, np.nan) for key in rows.keys])


@statistic(sch.CLUSTER, type="string", needs="cluster")
def cluster(rows: Compared) -> Texts:
    """The column whose values are the units of errors instead of the users. Then `n_users` and its kin, `wins`, `ties`,
    `losses`, `users_needed`, `min_users`, `tuning_users` and the sample ratio count clusters. See "Which unit".
    """
    return [rows.request.cluster] * len(rows.keys)


@statistic("n_members_baseline", "n_members_candidate", type="long", needs="cluster")
def members(rows: Compared) -> tuple[st.Ints, ...]:
    """Users of these clusters who have a value."""
    return tuple(sums["users"] for sums in rows.totals.sides("members", rows.keys))


@statistic("standard_error", "relative_ci_low", "relative_ci_high")
def errors(rows: Compared) -> tuple[st.Floats, ...]:
    """Of `difference` in the plain test; Fieller's interval of `relative_difference`: it holds 0 where that of
    the difference does; null where the baseline's mean is not clearly above or below 0.
    """
    return rows.estimate.standard_error, rows.relative.ci_low, rows.relative.ci_high


@statistic(*(f"{sch.ADJUSTED}_{name}" for name in sch.BOUNDS))
def adjusted(rows: Compared) -> tuple[st.Floats, ...]:
    """Intervals of the difference and of the relative difference of the test that decides, with `looks` over these
    looks, at the level of the correction: they exclude 0 exactly where `p_adjusted < 1 - confidence`. This is the
    interval that verdict, terminal and page show. See "Intervals".
    """
    of, share = rows.corrected
    return of.ci_low, of.ci_high, share.ci_low, share.ci_high


@statistic()
def effect_size(rows: Compared) -> st.Floats:
    """Cohen's d: of the differences, or with the pooled deviation; null where `wins` is."""
    of_pairs, of_arms = st.effect_size_paired(rows.pair.difference), st.effect_size_independent(*rows.moments)
    return np.where(rows.testable & rows.alike, np.where(rows.paired, of_pairs, of_arms), np.nan)


def _with_spread(rows: Compared) -> st.Estimate:
    """The deciding tests; NaN without a spread, since users who are all alike do not say how many would show what."""
    return rows.deciding.where(rows.deciding.standard_error > 0, st.NO_ESTIMATE)


def _detectable(rows: Compared, confidence: st.Floats | float) -> st.Floats:
    tested, n, level = _with_spread(rows), rows.n_users, 1 - confidence
    critical = rows.by_look(lambda rule: rule.critical(n, tested.df, level)) if rows.has("looks") else None
    return st.minimum_detectable_effect(tested.standard_error, tested.df, confidence, rows.request.power, critical)


@statistic("minimum_detectable_effect")
def detectable(rows: Compared) -> st.Floats:
    """The true difference that this test alone, without a correction, finds with probability `power` (0.8). With
    `looks`: at this look. Null without a spread, like `users_needed`.
    """
    return _detectable(rows, rows.request.confidence)


@statistic("adjusted_minimum_detectable_effect")
def adjusted_detectable(rows: Compared) -> st.Floats:
    """The same of the corrected test: at `1 - confidence` divided by `n_comparisons`, which is enough whatever the
    other comparisons show; without a correction, as above. It is what the verdict says.
    """
    return _detectable(rows, 1 - rows.families.strictest_levels)


@statistic(sch.POWER)
def power(rows: Compared) -> st.Floats:
    """That probability: it is asked for as `power`."""
    return np.full(len(rows.keys), rows.request.power)


@statistic()
def users_needed(rows: Compared) -> st.Floats:
    """Users who would show a difference as large as the `margin` of the metric with that probability, by this test
    alone; without a margin, its `effect`, or else the smallest drop that a gate forbids; null without any of these.
    With `looks`: at a look with so many users, or at the last planned look.
    """
    tested, request, n = replace(_with_spread(rows), difference=rows.wanted), rows.request, rows.n_users
    if rows.has("looks"):
        return rows.by_look(lambda rule: rule.users_needed(tested, n, 1 - request.confidence, request.power))
    return st.users_needed(rows.n_users, tested.difference, tested.standard_error, request.confidence, request.power)


@statistic(needs="wilcoxon")
def p_wilcoxon(rows: Compared) -> st.Floats:
    """Wilcoxon's signed rank test, paired rows. Up to 25 differences without zeros and ties it is exact."""
    n, twice_plus, ties, rest = rows.totals.of("ranks", rows.keys).table.astype(object).T
    p = st.signed_rank(n, twice_plus, ties * ms.TIES_UNIT + rest, rows.both["both"].astype(object) - n)
    return np.where(rows.testable & rows.paired, p, np.nan)


#: Sums of replicates are cut off at 2**-30 per user; below these, too much of the difference would be cut off.
_FINEST_ERROR, _FINEST_DIFFERENCE = 2.0**-22, 2.0**-20


def _resampled(rows: Compared) -> st.Bools:
    """(g,) whether a row has a t test, and replicates that are fine enough for its difference."""
    error, difference = rows.estimate.standard_error, np.abs(rows.estimate.difference)
    still = (error == 0) & ((difference == 0) | (difference >= _FINEST_DIFFERENCE))
    return np.asarray(still | (error >= _FINEST_ERROR))


@statistic(needs="randomization")
def p_randomization(rows: Compared) -> st.Floats:
    """Random signs of the differences, paired rows."""
    p = np.full(len(rows.keys), np.nan)
    for i in np.flatnonzero(_resampled(rows) & rows.paired).tolist():
        if (replicates := rows.replicates("flips", i)) is not None:
            sums = st.weighted_totals(replicates)[0]
            p[i] = st.sign_flip_p(sums[-1:], sums[None, :-1])[0]
    return p


@statistic("bootstrap_ci_low", "bootstrap_ci_high", needs="bootstrap")
def bootstrap(rows: Compared) -> st.Floats:
    """Interval of the difference from users drawn again, null without a spread; also for every mean, in
    `experiment_metrics`.
    """
    bounds = np.full((2, len(rows.keys)), np.nan)
    # Users who are all alike, drawn again, are the same users.
    for i in np.flatnonzero(_resampled(rows) & (rows.estimate.standard_error > 0)).tolist():
        ours, theirs = (rows.replicates("bootstrap_arm", i, place) for place in ms.SIDES)
        if rows.paired[i]:
            pair = rows.replicates("bootstrap_pair", i)
            ours, theirs = (None, None) if pair is None else (pair[:, ::2], pair[:, 1:])
        if ours is not None and theirs is not None:
            part, means = slice(i, i + 1), families.replicate_means(theirs) - families.replicate_means(ours)
            bounds[:, part] = families.interval(means[None], rows.estimate.difference[part], rows.request.confidence)
    return bounds


@statistic(needs="aa_check")
def aa_share(rows: Compared) -> st.Floats:
    """Share of p-values below `1 - confidence` when users change sides at random. Far from 0.05 means that the t test
    does not fit the data. The sides of independent rows are of equal size there, so it says less about arms of very
    different sizes.
    """
    share, level = np.full(len(rows.keys), np.nan), 1 - rows.request.confidence
    n, squares = rows.both["both"].astype(float), rows.both.real("dd")
    for i in np.flatnonzero(_resampled(rows)).tolist():
        replicates = rows.replicates("aa_paired" if rows.paired[i] else "aa_independent", i)
        if replicates is None:
            continue
        sums = st.weighted_totals(replicates)
        if rows.paired[i]:
            share[i] = st.aa_share_paired(n[i : i + 1], squares[i : i + 1], sums[:1, :-1], level)[0]
        else:
            share[i] = st.aa_share_independent([*sums[:, -1]], sums[:, :-1], level)
    return share


@statistic("sample_ratio_p", needs="shares")
def sample_ratio(rows: Compared) -> Any:
    """Chi-square test of the users of the experiments against their planned shares: fractions that add up to 1 (within
    0.001; less where an experiment is not named), or weights of 1 and more. Below 0.001 there is no verdict.
    """
    return np.full(len(rows.keys), rows.sample_ratio_p)


@statistic(sch.TEST_NAME, type="string", needs="assigned")
def test_name(rows: Compared) -> Texts:
    """The test that the two experiments are arms of; null where the assignments have arms alone."""
    tests = (str(key.candidate).partition(sch.NAME_OF_ARM)[0] for key in rows.keys)
    return [name if rows.question.by_test else None for name in tests]


@statistic("n_assigned_baseline", "n_assigned_candidate", type="long", needs="assigned")
def n_assigned(rows: Compared) -> tuple[list[int | None], ...]:
    """Users who are assigned to each of the two, with a list or without; the sample ratio is about them."""
    return tuple([rows.assigned.get(key[place]) for key in rows.keys] for place in ms.SIDES)


@statistic("share_with_value_baseline", "share_with_value_candidate", "p_share_with_value", needs="left_out")
def with_value(rows: Compared) -> tuple[st.Floats, ...]:
    """Shares of the users of both (of their lists, where these are several) that have a value, and the p-value that
    they are equal: Pearson's chi-square, Fisher's exact test for few; McNemar's test of the same users. The others are
    left out; below 0.001 there is no verdict. Where `zero_relevant: skip` leaves them out, it is the share with a hit.
    """
    p, has, _ = analysed(rows, rows.keys)
    some = (has[0] < 1) | (has[1] < 1)
    return tuple(np.where(some, each, np.nan) for each in (*has, p))


@statistic(*(f"{name}_per_assigned" for name in ("difference", *sch.BOUNDS[:2], "p_value")), needs="everyone")
def per_assigned(rows: Compared) -> tuple[st.Floats, ...]:
    """The difference over all assigned users, its interval and p-value (Welch, not corrected): 0 for a user without a
    list. Of sums of gain (`cg`, `dcg`) over all users; null where no list is no value, as for AP and NDCG, and with
    `trigger`. Without
    `assignments`, over all users of the log: 0 for one whom `zero_relevant: skip` leaves out.
    """
    left, everyone = rows.totals.sides("left_out", rows.keys), n_assigned(rows)
    if not rows.assigned:
        everyone = tuple(of["users"].tolist() for of in rows.arms)
    of_arms = [
        replace(of, n=np.array([max(assigned or 0, own) for assigned, own in zip(n, of.n, strict=True)], object))
        for of, n in zip(rows.moments, everyone, strict=True)
    ]
    welch = st.welch(of_arms[0], of_arms[1], rows.request.confidence)
    # Left out are whole users, and not some of their lists.
    whole = np.logical_and.reduce([each.real("t") == each["users"] for each in left])
    skips = {str(metric) for metric in rows.question.metrics if metric.definition.zero_policy}
    some = whole & (left[0]["users"] + left[1]["users"] > 0)
    zero = [key.metric.partition("@")[0] in _OF_GAIN if rows.assigned else key.metric in skips for key in rows.keys]
    of_all = np.array([key.segment == sch.EVERYONE for key in rows.keys])
    defined = np.array(zero) & of_all & (some | bool(rows.assigned)) & ~rows.paired & (not rows.by_ratio)
    defined &= rows.request.trigger is None
    numbers = (welch.difference, welch.ci_low, welch.ci_high, welch.p_value)
    return tuple(np.where(defined, each, np.nan) for each in numbers)


_OF_GAIN = ("cg", "dcg")
_OF_CUPED = ("difference", "ci_low", "ci_high", "p_value", "variance_reduction", "standard_error", *sch.RELATIVE)


@statistic(*(f"{sch.CUPED}_{name}" for name in _OF_CUPED), needs="earlier")
def cuped(rows: Compared) -> tuple[st.Floats, ...]:
    """The same numbers less what the users' values from before the experiment explain; see "CUPED"."""
    return _adjusted(rows)


@statistic(*(f"{sch.STRATA}_{name}" for name in _OF_CUPED if name != "variance_reduction"), needs="strata")
def strata(rows: Compared) -> tuple[st.Floats, ...]:
    """The same numbers of users within strata, without a share of variance; see "Strata"."""
    numbers = zip(_OF_CUPED, _adjusted(rows), strict=True)
    return tuple(np.where(rows.paired, np.nan, each) for name, each in numbers if name != "variance_reduction")


def _adjusted(rows: Compared) -> tuple[st.Floats, ...]:
    """Numbers of CUPED's test, or of that within strata."""
    test, of = rows.adjusted, rows.adjusted.estimate
    share = families.intervals_at(rows.request.confidence, of, test.denominator)[1]
    numbers = (of.difference, of.ci_low, of.ci_high, of.p_value, test.reduction, of.standard_error)
    in_shares = (share.difference, share.ci_low, share.ci_high)
    return tuple(np.where(rows.testable & ~rows.unresolved, each, np.nan) for each in (*numbers, *in_shares))


@statistic(*(f"{sch.SPARSE}_{name}" for name in ("p_value", *sch.BOUNDS)), needs="sparse")
def sparse(rows: Compared) -> tuple[st.Floats, ...]:
    """P-value and intervals of the test that decides where t does not hold (see `test` and "Few hits"), not corrected;
    null where t decides. Of users with very different numbers of lists there is no interval, unless a `cap` makes them
    alike.
    """
    of, share = rows.deciding, rows.deciding_relative
    numbers = (rows.single.p_value, of.ci_low, of.ci_high, share.ci_low, share.ci_high)
    decides = rows.hard.decides & ~rows.decided_by_cuped
    return tuple(np.where(decides, each, np.nan) for each in numbers)
