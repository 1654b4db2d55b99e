"""What limits the trust in a result: a check each, with what was found in words."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from rankmetrics_spark import findings as fd, metrics as mx, schemas as sch
from rankmetrics_spark.report import assets, verdict
from rankmetrics_spark.report.figures import Figures, in_words, once
from rankmetrics_spark.words import UNIT, UNITS, WHO, Fact, p_text, p_value, worded

#: Below so many users in an experiment, a person is warned.
FEW_USERS = 100
#: The same of clusters, where errors are by cluster.
FEW_CLUSTERS = 20
#: Above this share of faulty rows or of tied scores, a person is warned.
MANY_FAULTY = MANY_TIED = 0.01
FEW_JUDGED = 0.1
#: Above this share of users without a relevant item, a person is warned.
MANY_WITHOUT = 0.5
#: Experiments whose shares of the users are named.
MOST_SHARES = 6


NO_VERDICT = "There is no verdict."
_BAD: tuple[Literal["fail", "warn"], ...] = ("fail", "warn")
_RATES = "Rates of the log"
SPLIT = "Split of the users"
#: Title -> the names of its checks, in the order of the page.
_NAMES: dict[str, list[str]] = json.loads(assets.file_text("trust.json"))
#: Names of the checks that are gates.
GATES = _NAMES["Gates"]
#: Name of a check -> its title; every other name is that of a rate.
_TITLES = {name: title for title, names in _NAMES.items() for name in names}
_UNKNOWN = "There is none, so the rows that came in are not known."
_NOT_PUBLISHED = "There is none: these numbers were not published by a run."
_MOST_SENTENCES = 6
#: What is compared of users whom people judged and of the others, beside the machine's values.
_SAMPLE = {"shown": "the length of their lists", "segments": "segments"}


@once
def checks(figures: Figures) -> list[Fact]:
    """What was looked at, what weakens the answer first: from the rows of ``checks``, where they were written.

    There is a line for each thing that failed or warned, and one for each title where nothing did.
    """
    groups: dict[str, dict[str, dict[str, None]]] = {}
    for check in looked_at(figures):
        if check.name in _TITLES or check.status != sch.NOT_CHECKED:
            group = groups.setdefault(_TITLES.get(check.name, _RATES), {})
            group.setdefault(check.status, {})[check.sentence] = None
    counts = _counts(figures).values()
    lists, outside = (sum(count.get(name, 0) for count in counts) for name in ("lists_outside", "rows_outside"))
    but = f"; except {lists:,} lists ({outside:,} rows) of {UNITS} without judgements, {WHO} are outside the population"
    books = f"Every row and every list of the log is in a table, in each experiment{but if lists else ''}."
    lines = []
    for name in sorted(groups, key=[*_NAMES, _RATES].index):
        group, title = groups[name], worded(name)
        for level in _BAD:
            sentences = [*group.get(level, ())]
            lines += [Fact(_words(title, [text]), level, title) for text in sentences[:_MOST_SENTENCES]]
            if (more := len(sentences) - _MOST_SENTENCES) > 0:
                lines.append(Fact(f"{more:,} more in the table checks.", level, title))
        # Of a gate, what kept its limits is said as well.
        if title != "Gates" and not {*_BAD}.isdisjoint(group):
            continue
        if sch.OK in group:
            sentences = [*group[sch.OK]]
            more = 0 if title == "Books" else len(sentences) - _MOST_SENTENCES
            text = books if title == "Books" else _words(title, sentences)
            lines.append(Fact(text + (f" {more:,} more in the table checks." if more > 0 else ""), "ok", title))
        elif sch.NOT_CHECKED in group:
            lines.append(Fact(_words(title, [*group[sch.NOT_CHECKED]]), "none", title))
    if any(line.topic == "Judged items" and line.level in _BAD for line in lines):
        lines += figures.unjudged[:_MOST_SENTENCES] or [Fact(assets.said("ask_unjudged"), "none", "Unjudged items")]
    if look := look_of(figures):
        said = verdict.sentences_of_looks(figures.compared)
        if not said or any(found.looks for found in figures.compared):
            said = [look[:1].upper() + look[1:], *said]
        lines.append(Fact(f"{'. '.join(said)}.", look.level, "Looks"))
    if not figures.record:
        lines.append(Fact(_NOT_PUBLISHED if figures.of_log else _UNKNOWN, "none", "Run record"))
    return sorted(lines, key=lambda check: ("fail", "warn", "ok", "none").index(check.level))


def look_of(figures: Figures) -> Fact | None:
    """Which look at the comparisons it is; None where nobody counts them."""
    look = max((found.look or 0 for found in figures.compared), default=0)
    planned = next((found for found in figures.compared if found.looks is not None), None)
    if planned and planned.looks == "any":
        return Fact(f"look {look or 1}, valid at every look")
    if planned and planned.looks:
        text = f"look {planned.looks.split(',')[0]}"
        if planned.look is not None and planned.looks.startswith("?"):
            return Fact(verdict.NO_LOOK, "warn")
        return Fact(text) if planned.valid_at else Fact(f"{text} planned ones, not tested", "warn")
    if look > 1:
        return Fact(f"look {look}, and p is that of one look", "warn")
    return Fact("first look") if look else None


def looked_at(figures: Figures) -> list[sch.Check]:
    """What was checked: as it was written, else what the tables and the record say."""
    return sch.checks_of(figures.checks) or check_rows(figures)


def left_out(figures: Figures) -> list[str]:
    """How many rows were left out, where they are few enough; empty where none were, or where it is a warning."""
    faulty = (check for check in looked_at(figures) if check.name == "faulty_rate" and check.status == sch.OK)
    return [check.sentence.rstrip(".") for check in faulty if check.observed][:1]


def _words(title: str, texts: Sequence[str]) -> str:
    """Sentences of the page; one that begins with the name of an experiment keeps its first letter."""
    has_capitals = title in ("Quality of the log", "Judged lists", "Judged items", "Grades")
    shown = (text.rstrip(".") + "." for text in texts[:_MOST_SENTENCES])
    return " ".join(text[:1].upper() + text[1:] if has_capitals else text for text in shown)


# ---- the rows


@in_words
def check_rows(figures: Figures, others: Sequence[sch.Check] = ()) -> list[sch.Check]:
    """What the tables and the record of a date, or of a period, say about themselves: rows of ``checks``.

    A check of the whole log has a row in each experiment, with the number of that experiment where it has one.

    Args:
        figures: Means, comparisons and record.
        others: Rows that are known already; what the record says of them is not said twice.
    """
    rows: list[sch.Check] = []
    if figures.tests:
        return [row for own in figures.tests.values() for row in check_rows(own, others)]
    names, record, days = dict.fromkeys([*figures.experiments, *_counts(figures)]), figures.record, figures.days
    if days:
        status, text, n_known, n = sch.OK, "All are published.", record.get("n_runs", len(days.dates)), len(days.dates)
        if days.gap:
            status, text = sch.WARN, f"{days.gap}. The numbers are about the other days."
        elif record and n_known < n:
            status = sch.WARN
            text = f"All are published; the rows that came in are known of {n_known} of {days.length} days."
        if figures.uneven:
            status, text = sch.WARN, " ".join([text, *(f"{sentence}." for sentence in figures.uneven)])
        margin = float(n - days.length)
        rows += [sch.Check("days", status, text, name, float(n), float(days.length), margin) for name in names]
    rows += [*figures.of_log, *_users(figures), *_split(figures), *of_machine(figures)]
    if record:
        rows += [*_rows(figures, [*names]), *judged(figures)]
        sentences = {check.sentence for check in others}
        warnings = (record.get("quality") or {}).get("warnings", ())
        rows += [sch.Check("log", sch.WARN, text, name) for text in warnings if text not in sentences for name in names]
    return rows


def _counts(figures: Figures) -> dict[str, dict[str, Any]]:
    """Experiment -> what was counted of it; without the rows that have none."""
    counts = figures.record.get("experiments") or {}
    return {name: count for name, count in counts.items() if name not in (None, sch.NULL_PARTITION)}


def _users(figures: Figures) -> Iterator[sch.Check]:
    """How many people there are, how many of them have nothing to find, and whether these differ by experiment."""
    told: set[str] = set()
    people = figures.people
    few_clusters = people.cluster and any(n < FEW_CLUSTERS for n in people.units.values())
    limit, one, unit = (FEW_CLUSTERS, people.one, people.unit) if few_clusters else (FEW_USERS, UNIT, UNITS)
    counts = people.units if few_clusters else people.users
    small = sorted((n, name) for name, n in counts.items() if n < limit)
    lead, everyone = "", people.text if counts else ""
    if small:
        n, name = small[0]
        few = f"1 {one}, too few for an interval" if n == 1 else f"only {n:,} {unit}, so intervals are rough"
        more = "1 more has" if len(small) == 2 else f"{len(small) - 1:,} more have"
        others = f"; {more} fewer than {limit}" if len(small) > 1 else ""
        lead = f"{name} has {few}{others}. "
    for name, n in counts.items():
        yield _at_least("n_users", float(n), float(limit), (lead if n < limit else "") + everyone, name)
    if people.users:
        yield from _without_relevant(figures)
    first = figures.primary_name
    for found in sorted(figures.compared, key=lambda it: (sch.OTHERS_LEFT_OUT not in it.why, it.metric != first)):
        # Once for an experiment: the metrics of a run leave out the same users, or nearly so.
        p, names = found.p_share_with_value, [name for name in found.pair[::-1] if name not in told]
        if sch.OTHERS_LEFT_OUT in found.why:
            status, text = sch.WARN, f"{found.why}. {NO_VERDICT}"
        elif p is not None:
            both = (found.share_with_value_baseline, found.share_with_value_candidate)
            low, high = (sch.share(each or 0.0) for each in both)
            # Another doubt may have come first, so the number decides.
            status = sch.WARN if p < sch.SMALL_RATIO_P else sch.OK
            who = f"{low} of {found.baseline} and {high} of {found.candidate}"
            text = f"{who} have a value ({p_value(p, sch.SMALL_RATIO_P)}); the others are left out."
        else:
            continue
        told.update(names)
        numbers = () if p is None else (p, sch.SMALL_RATIO_P, p - sch.SMALL_RATIO_P)
        yield from (sch.Check("users_left_out", status, f"{found.label}: {text}", name, *numbers) for name in names)
    yield from _trigger(figures)


def _trigger(figures: Figures) -> Iterator[sch.Check]:
    """Whether the users who are compared were chosen by the same rule, and the others do not differ."""
    limit = sch.SMALL_RATIO_P
    of_trigger = [found for found in figures.compared if found.trigger is not None]
    for found in sorted(of_trigger, key=lambda it: not figures.decides(it)):
        shares = (found.share_triggered_baseline, found.share_triggered_candidate)
        low, high = (sch.share(each or 0.0) for each in shares)
        who = f"{low} of the {UNITS} of {found.baseline} and {high} of those of {found.candidate}"
        who, others = f"{who} have {found.trigger}", f"{found.label}: {UNITS} without {found.trigger}"
        for name, p, told, ok, bad in (
            ("trigger_rate", found.p_share_triggered, who, "", ""),
            ("untriggered", found.p_untriggered, others, " do not differ", " differ too"),
        ):
            if p is not None:
                text = f"{told}{bad} ({p_value(p, limit)}). {NO_VERDICT}"
                text = text if p < limit else f"{told}{ok} ({p_value(p, limit)})."
                yield from (_at_least(name, p, limit, text, each) for each in found.pair[::-1])


def _without_relevant(figures: Figures) -> Iterator[sch.Check]:
    """How many users have nothing to find, and how they count."""
    rule, people = _rule(figures), figures.people
    if rule == "skip":
        # They have no value, so they are not among the users.
        counts = _counts(figures)
        lists = {name: count.get("lists", 0) - count.get("lists_outside", 0) for name, count in counts.items()}
        shares = {name: counts[name].get("no_relevant", 0) / n for name, n in lists.items() if n}
        of, effect = "lists", f"; their {UNITS} are left out of the mean"
    else:
        shares = {name: without / max(1, people.users[name]) for name, without in people.without_relevant.items()}
        of, effect = str(UNITS), f"; {_COUNTED[rule]}" if rule in _COUNTED else ""
        metric, first = figures.primary, figures.experiments[0]
        known = (mean for mean in figures.everyone if mean.experiment_id == first and figures.decides(mean))
        mean, others = next(((each.mean, each.mean_with_relevant) for each in known), (None, None))
        if effect and metric and mean is not None and others is not None and mean != others:
            effect += f" (without them {fd.label_of(metric)} of {first} is {others:.3f} instead of {mean:.3f})"
    if not shares:
        for name in people.users if rule == "skip" else ():
            yield sch.Check("users_without_relevant", sch.NOT_CHECKED, "They are left out of the mean.", name)
        return
    of_each = "" if len(shares) == 1 else " of each experiment"
    low, high = (f"{100 * share:.{0 if share >= 0.1 or not share else 1}f}" for share in
                 (min(shares.values()), max(shares.values())))  # fmt: skip
    text = f"{low if low == high else f'{low} to {high}'} % of the {of}{of_each} had no relevant item{effect}."
    for name, share in shares.items():
        yield _at_most("users_without_relevant", share, MANY_WITHOUT, text, name)


def _at_most(name: str, value: float, limit: float, text: str, experiment: str) -> sch.Check:
    return sch.Check(name, sch.WARN if value > limit else sch.OK, text, experiment, value, limit, limit - value)


def _at_least(name: str, value: float, limit: float, text: str, experiment: str) -> sch.Check:
    return sch.Check(name, sch.WARN if value < limit else sch.OK, text, experiment, value, limit, value - limit)


#: ``zero_relevant`` of a convention -> how users without a relevant item count.
_COUNTED = {"zero": "they count as 0", "one": "they count as 1"}


def _rule(figures: Figures) -> str:
    """``zero_relevant`` of the convention; empty where it is not known."""
    text = str((figures.record.get("convention") or {}).get("text", ""))
    return dict(part.partition("=")[::2] for part in text.split(";")).get("zero_relevant", "")


def _split(figures: Figures) -> Iterator[sch.Check]:
    """Whether the users are split as planned."""
    people, ratio, limit = figures.people, figures.sample_ratio_p, sch.SMALL_RATIO_P
    if ratio is not None:
        status, fact = sch.OK, f"As planned (p = {p_text(ratio, limit)})"
        text = f"{fact}."
        if ratio < limit:
            status, fact, text = sch.WARN, _off(figures), f"{split_is_off(figures)} {NO_VERDICT}"
        for name in people.users or figures.experiments:
            yield sch.Check("sample_ratio", status, text, name, ratio, limit, ratio - limit, fact=fact)
        return
    total, whose = sum(people.units.values()), f" of the {people.unit}" if people.cluster else ""
    text = f"Not checked: the same {people.unit} are in the experiments that are compared."
    if figures.on_one_side[0]:
        text = f"Not checked: only {people.unit} of both experiments are compared."
    if people.design != "paired":
        shares = " / ".join(f"{100 * n / max(1, total):.1f}" for n in people.units.values())
        seen = f" Seen: {shares} %{whose}." if 1 < len(people.units) <= MOST_SHARES else ""
        text = f"Not checked, since the planned split is unknown.{seen}"
    for name in people.users:
        yield sch.Check("sample_ratio", sch.NOT_CHECKED, text, name)


def split_is_off(figures: Figures) -> str:
    """That the users do not follow the planned shares, and what to do."""
    return f"{_off(figures)}. Find the cause before you read the numbers."


def _off(figures: Figures) -> str:
    """That the users do not follow the planned shares; with both shares where they are known."""
    ratio, people, units = figures.sample_ratio_p, figures.people, figures.people.units
    planned = (figures.config.get("comparison") or {}).get("shares") or {}
    names = [name for name in units if name in planned]
    off = ""
    if names and len(names) <= MOST_SHARES:
        both = ([each[name] for name in names] for each in (units, planned))
        actual, expected = ([100 * size / sum(sizes) for size in sizes] for sizes in both)
        off = f": {' / '.join(f'{x:.1f}' for x in actual)} % instead of {' / '.join(f'{x:.4g}' for x in expected)} %"
    p = "" if ratio is None else f" (p {p_text(ratio, sch.SMALL_RATIO_P)})"
    return f"The split of {f'the {people.unit}' if people.cluster else UNITS} is off{off}{p}"


def _rows(figures: Figures, names: Sequence[str]) -> Iterator[sch.Check]:
    """How many rows were left out, whether rows read are rows evaluated and left out, and how many are tied."""
    rows, counts = figures.record["rows"], _counts(figures)
    whole = rows["quarantined"] / max(1, rows["in"])
    text = f"{rows['quarantined']:,} of {rows['in']:,} rows ({whole:.2%}) were faulty and are left out."
    if not rows["quarantined"]:
        text = f"None of {rows['in']:,}."
    for name in names:
        count = counts.get(name, {})
        n, n_left_out, n_evaluated = (count.get(key) for key in ("rows", "quarantined", "evaluated"))
        share = whole if n is None or n_left_out is None else n_left_out / max(1, n)
        yield _at_most("faulty_rate", share, MANY_FAULTY, text, name)
        if n is not None and n_left_out is not None and n_evaluated is not None:
            n_outside = count.get("rows_outside", 0)
            outside = f" ({n_outside:,} of {UNITS} outside the population)" if n_outside else ""
            of_books = f"{n:,} rows in = {n_evaluated:,} evaluated{outside} + {n_left_out:,} left out"
            n_booked = n_evaluated + n_left_out
            status, margin = sch.OK if n_booked == n else sch.FAIL, float(-abs(n_booked - n))
            yield sch.Check("books_rows", status, of_books, name, float(n_booked), float(n), margin)
    with_rows = {name: count for name, count in counts.items() if count.get("evaluated")}
    n_tied, n = (sum(count.get(key, 0) for count in with_rows.values()) for key in ("tied", "evaluated"))
    if n_tied or figures.config.get("rank_by") == "score":
        text = "No two items of a list have the same score."
        if n_tied:
            text = f"{n_tied / n:.1%} of the rows share their score with another of their list."
        for name, count in with_rows.items():
            yield _at_most("tied_rate", count.get("tied", 0) / count["evaluated"], MANY_TIED, text, name)


def judged(figures: Figures) -> Iterator[sch.Check]:
    """Whether the judgements know the lists, and all relevant items of them."""
    counts = _counts(figures)
    if beyond := sum(count.get("beyond_judgements", 0) for count in counts.values()):
        text = f"{beyond:,} lists show more relevant items than the judgements hold; their values stop at 1."
        for name, count in counts.items():
            yield _at_most("beyond_judgements", float(count.get("beyond_judgements", 0)), 0.0, text, name)
    if not figures.record.get("judgements"):
        return
    n_lists, n_judged = (sum(count.get(key, 0) for count in counts.values()) for key in ("lists", "judged_lists"))
    text = f"{n_judged / max(1, n_lists):.1%} of the lists belong to a {UNIT} with judgements."
    if by_machine := any(mean.mean_machine is not None for mean in figures.everyone):
        text = assets.said("judged_by_machine", part=n_judged / max(1, n_lists))
    for name, count in counts.items():
        if count.get("lists"):
            check = _at_least("judged_rate", count["judged_lists"] / count["lists"], FEW_JUDGED, text, name)
            yield replace(check, status=sch.OK) if by_machine else check


def of_machine(figures: Figures) -> Iterator[sch.Check]:
    """How much a machine overrates each experiment, and whether the users whom people judged are like the others."""
    told, limit = set[tuple[str, str]](), sch.SMALL_RATIO_P
    for mean in (each for each in figures.everyone if each.mean_machine is not None):
        name, label = mean.experiment_id, fd.label_of(mx.parse(mean.metric))
        if (bias := mean.bias_machine) is not None:
            p = mean.p_bias_machine
            off = f"{abs(bias):.4f} {'higher' if bias > 0 else 'lower'} than people"
            text = f"{name}: the machine rates {label} {off}{'' if p is None else f' ({p_value(p, 0.05)})'}"
            yield sch.Check("judge_bias", sch.OK, text, name, bias, metric=mean.metric)
        for kind, what in {"values": f"the machine's {label}", **_SAMPLE}.items():
            if (name, what) in told:
                continue
            told.add((name, what))
            p, both = mean.row.get(f"p_sample_{kind}"), f"{UNITS} that people judged and the others"
            status, says = sch.NOT_CHECKED, f"not known whether {both} are alike in {what}"
            if p is not None:
                status, says = sch.OK, f"{both} are alike in {what} ({p_value(p, limit)}), which proves nothing"
                if p < limit:
                    status, says = sch.WARN, f"{both} differ in {what} ({p_value(p, limit)}). {NO_VERDICT}"
            margin, metric = None if p is None else p - limit, mean.metric if kind == "values" else None
            yield sch.Check(f"sample_{kind}", status, f"{name}: {says}", name, p, limit, margin, metric=metric)


def of_labels(figures: Figures) -> list[str]:
    """What the machine's labels did to the metric that decides, for people at a terminal; empty without a machine."""
    rows = (check for check in of_machine(figures) if check.metric == figures.primary_name)
    of_metric = [check.sentence for check in rows if check.name == "judge_bias"]
    means = filter(figures.decides, figures.everyone)
    judged = (f"{each.n_judged or 0:,} of {each.n_users:,} {UNITS}" for each in means)
    return [f"people judged {next(judged)}, and a machine all: {'; '.join(of_metric)}"] if of_metric else []
