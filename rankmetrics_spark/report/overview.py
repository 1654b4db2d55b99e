"""What stands around the answer of a page: the status line, what else moved, and the further tests in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report.differences import Change, change_of, p_text, p_value
from rankmetrics_spark.report.figures import Figures, Row, label_of
from rankmetrics_spark.report.people import MANY_ON_ONE_SIDE, Population, on_one_side, one_of, population, range_text
from rankmetrics_spark.report.story import SAYS, Card, Id, Words, state_of
from rankmetrics_spark.report.trust import Level, check_rows
from rankmetrics_spark.report.verdict import units_of, valid_at

GATES = ("min", "max_drop", "max_relative_drop", "trusted")
"""Names of the checks that are gates."""
MOST_NAMED = 3
"""Metrics or experiments that a sentence names."""


@dataclass(frozen=True)
class Status:
    """One item of the status line.

    Attributes:
        level: What it means for the answer.
        text: What it says.
    """

    level: Level
    text: str


def status_line(figures: Figures) -> list[Status]:
    """What a person looks at before they believe a number: users, newer days, gates, sample ratio, look."""
    rows = figures.checks or [check.as_row() for check in check_rows(figures)]
    people, shown, items = population(figures), _last_date(figures), []
    if people.users:
        total, each = people.total, f"{range_text(people.users.values())} users in each experiment"
        items = [Status("ok", each if total is None else "1 user" if total == 1 else f"{total:,} users")]
    # Runs of newer dates that failed have lines of their own.
    newer = [record for record in figures.history if str(record.get(sch.DATE)) > shown and not record.get("error")]
    if newer := [record for record in newer if str(record.get(sch.DATE))[:1].isdigit()]:
        dates = sorted(str(record[sch.DATE]) for record in newer)
        warned = sum(bool((record.get("quality") or {}).get("warnings")) for record in newer)
        text = f"{dates[0]} is newer" if len(dates) == 1 else f"{len(dates)} newer dates up to {dates[-1]}"
        text += f", {'it' if len(dates) == 1 else warned} warned" if warned else ""
        items.append(Status("warn", text))
    # Gates limit values, and say nothing of who the users are.
    states = [row["status"] for row in rows if row["name"] in GATES and row["status"] != sch.NOT_CHECKED]
    failed, warned, n = states.count(sch.FAIL), states.count(sch.WARN), len(states)
    kept = "the gate is kept" if n == 1 else f"all {n:,} gates are kept"
    if not states:
        items.append(Status("none", "gates not checked here" if figures.config.get("gates") else "no gates"))
    elif failed or warned:
        bad = f"{failed} of {n} gates failed" if failed else f"{warned} of {n} gates warned"
        items.append(Status("fail" if failed else "warn", bad))
    elif any(map(sch.doubt_of, figures.compared)):
        items.append(Status("warn", f"{kept}, but by numbers that are not to be trusted"))
    else:
        items.append(Status("ok", kept))
    unlike = next((row for row in rows if row["name"] == "judged_difference" and row["status"] == sch.WARN), None)
    if unlike:
        items.append(Status("warn", str(unlike["sentence"]).partition(";")[0]))
    if not figures.compared:
        return items
    items.append(_split(figures, people))
    look = max(int(row.get("look") or 0) for row in figures.compared)
    looks = next((row["looks"] for row in figures.compared if row.get("looks") is not None), None)
    if looks == "any":
        items.append(Status("ok", f"look {look or 1}, valid at every look"))
    elif looks is not None:
        text = f"look {looks.split(',')[0]}"
        is_planned = valid_at({sch.LOOKS: looks})
        items.append(Status("ok", text) if is_planned else Status("warn", f"{text} planned ones, not tested"))
    elif look > 1:
        items.append(Status("warn", f"look {look}, and p is that of one look"))
    elif look:
        items.append(Status("ok", "first look"))
    return items


def _split(figures: Figures, people: Population) -> Status:
    """Whether users, or the clusters that were assigned, are where they should be."""
    ratio = next((sch.number(row.get("sample_ratio_p")) for row in figures.compared), None)
    if ratio is None and people.design == "paired":
        n, share = on_one_side(figures)
        if not n:
            return Status("ok", f"same {people.unit} on both sides")
        are = one_of(people.unit) + " is" if n == 1 else people.unit + " are"
        return Status("ok" if share <= MANY_ON_ONE_SIDE else "warn", f"{n:,} {are} on one side only, and left out")
    if ratio is None:
        return Status("none", f"split of {people.unit} not checked")
    if ratio >= sch.SMALL_RATIO_P:
        return Status("ok", f"{people.unit} split as planned (p = {p_text(ratio, sch.SMALL_RATIO_P)})")
    return Status("fail", f"split of {people.unit} is off (p {p_text(ratio, sch.SMALL_RATIO_P)})")


def _last_date(figures: Figures) -> str:
    """The date that is shown, of a period its last one; empty where nothing says it."""
    last = figures.days.dates[-1] if figures.days else figures.record.get(sch.DATE)
    return str(last or next((row.get(sch.DATE) for row in figures.means), ""))


def newer_failures(figures: Figures, most: int = 3) -> list[str]:
    """The dates after the one that is shown whose run failed, in words, the newest first."""
    shown = _last_date(figures)
    failed = [record for record in figures.history if record.get("error") and str(record.get(sch.DATE)) > shown]
    # A run that was refused may have no date.
    dated = sorted(
        (str(record[sch.DATE]), record["error"]) for record in failed if str(record.get(sch.DATE))[:1].isdigit()
    )
    failures = [(date, str(error["message"] if isinstance(error, Mapping) else error)) for date, error in dated[::-1]]
    lines = [f"The run of {date} failed, so nothing newer than {shown} is shown: {text}" for date, text in failures]
    left_out = len(lines) - most
    more = "1 more run of a newer date" if left_out == 1 else f"{left_out:,} more runs of newer dates"
    return lines[:most] + ([f"{more} failed."] if left_out > 0 else [])


# ---- what else moved


def what_else(card: Card, pair: Sequence[Row], of_pairs: bool = False) -> Words:
    """How the other metrics of a candidate moved: guardrails one by one, the others counted, what fell by name.

    Args:
        card: The candidate that the answer is about.
        pair: Its comparisons of all users, of every metric.
        of_pairs: Whether other pairs are compared too.
    """
    others = [row for row in pair if row[sch.METRIC] != card.row[sch.METRIC]]
    if all(state_of(row) == "doubtful" for row in [card.row, *others]):
        return ()
    guardrails = [row for row in others if row.get(sch.ROLE) == sch.GUARDRAIL]
    words = {state: one for state, (one, _) in SAYS.items()} | {"open": "shows no clear change"}
    parts = []
    for row in guardrails[:MOST_NAMED]:
        change = change_of(row)
        size = f" ({change.text}{f', {change.interval}' if change.interval else ''})" if change else ""
        parts.append(f"the guardrail {label_of(parse(row[sch.METRIC]))} {words[state_of(row)]}{size}")
    if len(guardrails) > MOST_NAMED:
        parts.append(f"{len(guardrails) - MOST_NAMED:,} more guardrails are in the table of differences")
    rest = [row for row in others if row.get(sch.ROLE) != sch.GUARDRAIL]
    if rest:
        parts.append(_counts(rest, " too" if card.state == "better" else ""))
    if not parts:
        return ()
    text = "; ".join(parts) + "."
    against: Words = (" against ", Id(card.baseline)) if of_pairs else ()
    return ("What else moved in ", Id(card.candidate), *against, f": {text}")


def _counts(rows: Sequence[Row], too: str) -> str:
    """How many metrics are better, open and worse; those that are better are so ``too`` where the primary one is.

    >>> row = {"metric": "p@5", "note": None, "p_adjusted": 0.01, "better": "candidate"}
    >>> _counts([row], " too"), _counts([row, row | {"better": None}], "")
    ('Precision@5 is better too', 'of 2 other metrics, 1 is better, 1 shows no difference')
    >>> doubted = row | {"note": "not trustworthy: 1 of 4 days is missing"}
    >>> _counts([row, doubted, doubted], ""), _counts([doubted], "")
    ('of 3 other metrics, 1 is better, 2 have no verdict', 'Precision@5 has no verdict')
    """
    states = [state_of(row) for row in rows]
    counts = {state: states.count(state) for state in _OF_METRICS if state in states}
    parts = [_OF_METRICS[state][n > 1] for state, n in counts.items()]
    if len(parts) == 1:
        who = label_of(parse(rows[0][sch.METRIC])) if len(rows) == 1 else f"all {len(rows):,} other metrics"
        return f"{who} {parts[0]}{too if 'better' in counts else ''}"
    return f"of {len(rows):,} other metrics, " + ", ".join(map("{:,} {}".format, counts.values(), parts))


_OF_METRICS = SAYS | {"open": ("shows no difference", "show no difference")}
"""State -> what one metric does, and what several do."""


# ---- the further tests


def further_sentences(cards: Sequence[Card]) -> list[str]:
    """What other tests of the same differences say, in words; empty where none was computed."""
    lines, several = [], len({card.baseline for card in cards}) > 1
    for card in cards:
        against = f" against {card.baseline}" if several else ""
        row, who = card.row, f"{card.candidate}{against} on {label_of(parse(card.row[sch.METRIC]))}"
        texts = []
        counts = [row.get(name) for name in ("wins", "losses", "ties")]
        # Both sides have the same users, or clusters of them.
        if row.get("design") == "paired" and None not in counts and any(counts):
            wins, losses, ties = counts
            texts.append(f"better for {wins:,} {units_of(row)}, worse for {losses:,}, the same for {ties:,}")
        plain, cuped, bootstrap = (_bounds(row, prefix) for prefix in ("", "cuped_", "bootstrap_"))
        less = sch.number(row.get("cuped_variance_reduction"))
        if plain and cuped and less is not None:
            before, after = (plain[1] - plain[0]) / 2, (cuped[1] - cuped[0]) / 2
            verb = "narrows" if after < before else "does not narrow"
            decides = "" if row.get("test") == "cuped" else ", and does not decide"
            size = f"from ±{before:.4f} to ±{after:.4f} ({100 * less:.0f} % less variance)"
            texts.append(f"CUPED {verb} the interval of one test {size}{decides}")
        if plain and bootstrap:
            agrees = (bootstrap[0] > 0 or bootstrap[1] < 0) == (plain[0] > 0 or plain[1] < 0)
            mine, others = (Change(ends[0], "", *ends).interval for ends in (bootstrap, plain))
            says = f"the bootstrap interval {mine} {'agrees' if agrees else 'does not agree'} about 0"
            texts.append(f"{says} with that of the t-test ({others})")
        # Tests that need no normal means.
        tests = (("Wilcoxon's test", "p_wilcoxon"), ("random signs", "p_randomization"))
        parts = [f"{name} {p_value(row, column)}" for name, column in tests if sch.number(row.get(column)) is not None]
        texts += [f"without a normal distribution, {' and '.join(parts)} (not corrected)"] if parts else []
        if (share := sch.number(row.get("aa_share"))) is not None:
            finding = f"finds a difference in {100 * share:.1f} % of the tries"
            level = 100 * (1 - row["confidence"])
            texts.append(f"with users on random sides, the test {finding} ({level:.3g} % is right)")
        lines += [f"{who}: {text}" for text in texts]
    return lines


def _bounds(row: Row, prefix: str) -> tuple[float, float] | None:
    low, high = (sch.number(row.get(f"{prefix}ci_{end}")) for end in ("low", "high"))
    return None if low is None or high is None else (low, high)
