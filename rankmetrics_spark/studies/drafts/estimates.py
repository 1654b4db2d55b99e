"""Sums by pair of rankers -> preferences with intervals and tests, a check of the draft, and a sentence per pair."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rankmetrics_spark import config as cfg, errors as err, metrics as mx, schemas as sch, statistics as st
from rankmetrics_spark.schemas import is_unknown
from rankmetrics_spark.studies.drafts import credits
from rankmetrics_spark.studies.frame import MOST_FAULTY, TABLES, said
from rankmetrics_spark.words import UNIT, UNITS, p_value

#: Columns of the result -> their types.
COLUMNS = {**TABLES["interleaving"], **dict.fromkeys(credits.LOG_COUNTS, "long"), "sentence": "string"}
#: A p-value of the draft below this one: the slots are not drawn by fair coins.
LOPSIDED = 0.001
#: Characters of the name of a ranker in a sentence.
LONGEST_NAME = 60
#: The sentence names a larger share of rows that are left out.
MANY_LEFT_OUT = 0.01


@dataclass(frozen=True)
class Preferences(cfg.Section):
    """Who made the lists of a log, and how the preferences are told: see ``interleaving``."""

    team: str | None = cfg.key("team", cfg.text)
    ranks: Mapping[str, str] = cfg.key({}, cfg.two_ranks)
    baseline: str | None = cfg.key(None, cfg.text)
    confidence: float = cfg.key(0.95, cfg.number(0, 1, inclusive=False))
    power: float = cfg.key(0.8, cfg.number(0, 1, inclusive=False))
    effect: float | None = cfg.key(None, cfg.number(0, 0.5, inclusive=False, share=True))
    correction: str = cfg.key("holm", cfg.choice(*st.CORRECTIONS))
    tuning_users: int = cfg.key(10_000, cfg.count(2, 10**12))
    looks: str = cfg.key("one", cfg.choice("one", "any"))
    max_invalid_fraction: float = cfg.key(MOST_FAULTY, cfg.number(0, 1, inclusive=True))

    def __post_init__(self) -> None:
        """Checks the fields, then that the baseline is one of two rankers with ranks."""
        super().__post_init__()
        err.check_known("ranker", [self.baseline] if self.ranks else [], self.ranks, "baseline")


def preference_rows(totals: credits.Totals, request: Preferences) -> sch.Rows:
    """Return a row per pair of rankers; without a pair one row that says why, and counts.

    Raises:
        ConfigError: The baseline drafted nothing.
    """
    names = [one for one, other in totals if one is not None and other is None]
    err.check_known("ranker", [request.baseline] if names else [], sorted(names), "baseline")
    counts = totals.get((None, None), np.zeros(len(credits.LOG_COUNTS)))
    of_log = dict(zip(credits.LOG_COUNTS, map(int, counts), strict=True))
    place = {name: at for at, name in enumerate(credits.Draft(request.baseline).order(names))}
    pairs = sorted((place[one], place[other], one, other) for one, other in totals if one is not None and other)
    about = {name: getattr(request, name) for name in ("looks", "confidence", "power", "effect")}
    about |= {"credit": "balanced" if request.ranks else "team", **of_log}
    if not pairs:
        why = "No row names a ranker, so nothing is compared."
        if len(names) == 1:
            why = f"There is one ranker, {_shown(names[0])}, so nothing to compare it with."
        elif names:
            why = said("no_pair", n=len(names))
        words = " ".join(filter(None, (_left_out_in_words(of_log), why)))
        return [{"ranker_a": names[0] if len(names) == 1 else None, **about, "sentence": words}]
    table = np.stack([totals[one, other] for _, _, one, other in pairs])
    numbers = _numbers(table, request)
    rows: sch.Rows = [
        {"ranker_a": one, "ranker_b": other, **about, **{name: values[at] for name, values in numbers.items()}}
        for at, (_, _, one, other) in enumerate(pairs)
    ]
    return [row | {"sentence": sentence(row, _n_compared(numbers["p_value"], request))} for row in rows]


def _n_compared(p_values: Any, request: Preferences) -> int:
    """How many p-values are corrected together."""
    return sum(not is_unknown(p) for p in p_values) if request.correction != "none" else 1


def _numbers(table: st.Whole, request: Preferences) -> dict[str, Sequence[Any]]:
    """Return the columns of the pairs, from (g, c) sums, as ``PAIR_SUMS`` names them."""
    sums = st.Sums(credits.PAIR_SUMS, table)
    counts = {name: sums[name].tolist() for name in (*credits.LIST_COUNTS, *credits.USER_COUNTS)}
    users, n = sums.moments("v", "n_users"), sums["n_users"].astype(float)
    test, rule = st.paired_t(users, request.confidence), st.AnyLook(request.tuning_users, 1 - request.confidence)
    looks, any_look = st.over_looks(test, sums["n_users"], rule, request.confidence), request.looks == "any"
    decides = looks if any_look else test
    power, compared = request.power, _n_compared(test.p_value, request)
    design = st.Design((1.0,), request.confidence, power, request.tuning_users, compared)
    # Users who are all alike do not say how many would show what.
    error = np.where(test.standard_error > 0, test.standard_error, np.nan)
    stated = replace(test, difference=np.full(len(n), request.effect or np.nan), standard_error=error)
    needed = st.users_needed(n, stated.difference, error, 1 - design.level, power)
    needed = rule.users_needed(stated, n, design.level, power) if any_look else needed
    shares, p_draft = draft_check(table)
    return {
        **counts,
        "lists_tied": (sums["n_lists_clicked"] - sums["lists_a"] - sums["lists_b"]).tolist(),
        "preference": test.difference.tolist(),
        **{name: getattr(test, name).tolist() for name in ("ci_low", "ci_high", "p_value")},
        "p_adjusted": st.adjusted_p_values(decides.p_value, request.correction).tolist(),
        "p_sign": [*map(sign_test, counts["users_a"], counts["users_b"], counts["n_users"])],
        **{f"sequential_{name}": getattr(looks, name).tolist() for name in ("ci_low", "ci_high")},
        "p_sequential": looks.p_value.tolist(),
        "smallest_effect": design.smallest_effects(n, np.square(error) * n)[any_look].tolist(),
        "users_needed": needed.tolist(),
        "tuning_users": [request.tuning_users] * len(table),
        "draft_shares": shares,
        "p_draft": p_draft.tolist(),
    }


def sign_test(n_a: int, n_b: int, n: int) -> float | None:
    """The exact two-sided sign test of the users who prefer one of two, out of n: 1 if nobody does, None without users.

    >>> sign_test(0, 5, 6)  # 2 * (1 / 2) ** 5
    0.0625
    """
    # Imported here: it takes long, and the Python workers that add up clicks do not need it.
    from scipy.stats import binomtest

    if not n_a + n_b:
        return 1.0 if n else None
    return float(binomtest(n_b, n_a + n_b, 0.5).pvalue)


def draft_check(table: st.Whole) -> tuple[list[list[float]], mx.Floats]:
    """Check that fair coins drew the slots: at each rank, half of the slots of a pair are those of each ranker.

    Returns the shares of ranker_b at each rank down to the last one with a slot, and (g,) p-values: of a chi-square
    test at each rank the smallest one, times the ranks that have a slot (Bonferroni).
    """
    at = len(credits.LIST_COUNTS)
    slots = table[:, at : at + 2 * credits.CHECKED_RANKS].astype(float).reshape(len(table), 2, credits.CHECKED_RANKS)
    both = slots.sum(axis=1)
    shares = np.divide(slots[:, 1], both, out=np.full(both.shape, np.nan), where=both > 0)
    p = st.sample_ratio_p(np.moveaxis(slots, 1, 2), [0.5, 0.5])
    smallest = np.where(both > 0, p, np.inf).min(axis=1)
    n_ranks = (both > 0).sum(axis=1)
    last = credits.CHECKED_RANKS - np.argmax(both[:, ::-1] > 0, axis=1)
    p_draft = np.where(n_ranks > 0, np.minimum(1.0, smallest * np.maximum(n_ranks, 1)), np.nan)
    return [row[:end].tolist() if n else [] for row, end, n in zip(shares, last, n_ranks, strict=True)], p_draft


# ---- sentences


def sentence(row: sch.Row, n_pairs: int) -> str:
    """What a row says, in words that people decide from; its p-value is corrected for ``n_pairs``."""
    lopsided, p = "", row["p_draft"]
    if not is_unknown(p) and p < LOPSIDED:
        furthest = max((abs(share - 0.5), -at) for at, share in enumerate(row["draft_shares"]) if not is_unknown(share))
        rank = 1 - furthest[1]
        a, b = _shown(row["ranker_a"]), _shown(row["ranker_b"])
        share, chance = _percent(row["draft_shares"][rank - 1]), f"= {p:.1g}" if p >= 1e-9 else "< 1e-9"
        lopsided = said("lopsided", rank=rank, b=b, share=share, a=a, chance=chance)
    few = not (is_unknown(row["effect"]) or row["smallest_effect"] <= 0.5)
    pilot = said("small_pilot", wanted=_percent(0.5 + row["effect"]), n=row["n_users"]) if few else ""
    return " ".join(filter(None, (lopsided, _left_out_in_words(row), _answer(row, n_pairs), pilot)))


def _answer(row: sch.Row, n_pairs: int) -> str:
    a, b, n = _shown(row["ranker_a"]), _shown(row["ranker_b"]), row["n_users"]
    if not n:
        lists = f"the {row['n_lists']:,} lists" if row["n_lists"] > 1 else "the one list"
        return f"No click counts for {a} or {b} in {lists} that both are in, so nothing says which one is better."
    won = f"Lists that {b} won: {row['lists_b']:,}, that {a} won: {row['lists_a']:,}, ties: {row['lists_tied']:,}"
    if n == 1:
        return f"Only 1 {UNIT} clicked on items of {a} or {b}, too few for an interval. {won}."
    alpha = round(1 - row["confidence"], 12)
    corrected = f", corrected for {n_pairs} pairs" if n_pairs > 1 else ""
    ahead, other, sign = (b, a, 1) if row["preference"] >= 0 else (a, b, -1)
    share = _percent(0.5 + sign * row["preference"])
    any_look = row["looks"] == "any"
    level = f"{100 * row['confidence']:.10g} % interval{' at every look' if any_look else ''}"
    interval = _bounds(row, "sequential_ci" if any_look else "ci", sign)
    spread = f"{level} {interval}" if interval else f"the same for each {UNIT}, so there is no interval"
    summary = f"on average, {ahead} won {share} of a {UNIT}'s lists with a click, ties counted half ({spread})"
    p, is_clear = p_value(row["p_adjusted"], alpha), row["p_adjusted"] < alpha
    first = f"{ahead} beats {other}" if is_clear else f"No clear preference between {a} and {b}"
    chance = f"Chance alone {'would rarely give' if is_clear else 'could explain'} this ({p}{corrected})."
    every_look = _bounds(row, "sequential_ci", sign)
    wait = ""
    if is_clear and alpha <= row["p_sequential"]:
        wait = "It does not hold for a test that people look at more than once"
        wait += f": at every look, the interval is {every_look}." if every_look else "."
    least = row["smallest_effect"]
    is_planned = not (is_unknown(least) or (is_clear and (is_unknown(row["effect"]) or least > 0.5)))
    find = _with_power(row) if is_planned else ""
    return " ".join(filter(None, (f"{first}: {summary}.", chance, find, wait, f"{won}; {UNITS}: {n:,}.")))


def _with_power(row: sch.Row) -> str:
    """What so many users find, and how many find the effect that was asked for."""
    is_few, power = row["smallest_effect"] > 0.5, f"with a probability of {100 * row['power']:.3g} %"
    find = f"find {_percent(np.ceil(1000 * round(0.5 + row['smallest_effect'], 9)) / 1000)} or more"
    if is_few or is_unknown(row["effect"]):
        enough = f"too few to find even 100.0 % {power}" if is_few else f"enough to {find} {power}"
        return f"{row['n_users']:,} {UNITS} are {enough}."
    takes = f"{_percent(0.5 + row['effect'])} takes about {row['users_needed']:,.0f} {UNITS}"
    return f"{takes} to be found {power}; {row['n_users']:,} {find}."


def _bounds(row: sch.Row, name: str, sign: int) -> str:
    """The interval of the share of the ranker that is ahead."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    # Without a spread, the t interval is a point or nothing.
    if is_unknown(low) or is_unknown(high) or low == high:
        return ""
    ends = sorted(0.5 + sign * bound for bound in (low, high))
    return " to ".join(f"{100 * min(1.0, max(0.0, end)):.1f}" for end in ends) + " %"


def _shown(name: str) -> str:
    """The name of a ranker in a sentence: on one line, and not longer than one."""
    return err.printable(name) if len(name) <= LONGEST_NAME else f"{err.printable(name[:LONGEST_NAME])}..."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _left_out_in_words(row: sch.Row) -> str:
    """Rows that are left out, where they are so many that people have to know."""
    n_rows, left_out = row["n_rows"], (row["n_faulty_rows"], row["n_repeated"])
    faults, repeats = (_percent(n / n_rows) if n > MANY_LEFT_OUT * n_rows else "" for n in left_out)
    sentences = faults and said("faults_left_out", share=faults), repeats and said("repeats_left_out", share=repeats)
    return " ".join(filter(None, sentences))


def counts_in_words(row: sch.Row) -> str:
    """What became of the rows of the log, from any row of the result.

    >>> counts = {"n_rows": 1200, "n_faulty_rows": 3, "n_repeated": 0, "n_lists_of_log": 120}
    >>> counts_in_words(counts | {"n_rows_without_team": 20, "n_clicks_without_team": 1})
    '1,200 rows in 120 lists; left out: 3 faulty, 0 repeated; rows without a ranker: 20, clicks on them: 1'
    """
    return said("counts", row=row)
