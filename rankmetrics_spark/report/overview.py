"""Everything that a run says, in one list; the status line, what else moved, segments that differ, lines of tests."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from rankmetrics_spark import findings as fd, metrics as mx, schemas as sch
from rankmetrics_spark.report import beside, console, over_time, story, trust, verdict
from rankmetrics_spark.report.figures import Figures, in_words
from rankmetrics_spark.words import STATES, UNITS, Change, Fact, counted, judged_apart, p_text, p_value, worded

#: Metrics that a sentence names.
MOST_NAMED = 4
#: Above this share of a side that a paired comparison leaves out, a person is warned; ``auto`` does not pair then.
MANY_ON_ONE_SIDE = 0.05


@in_words
def facts(figures: Figures, where: str = "", *parts: str) -> list[Fact]:
    """Everything that a run says, in one order; or what people read of it in one place. Only what is asked for is made.

    Args:
        figures: Of one test, or of none.
        where: One of the places of ``_PARTS``; empty for all.
        parts: Names of ``_PARTS``; without one, all.
    """
    made: list[Fact] = []
    for part, (maker, places) in _PARTS.items():
        if where in ("", *places.split()) and part in (parts or _PARTS):
            also = {"part": part, "where": places.split()}
            made += [Fact(text, **{**getattr(text, "__dict__", {}), **also}) for text in maker(figures)]
    return made


def status_line(figures: Figures) -> list[Fact]:
    """What a person looks at before they believe a number: users, gates, sample ratio, look."""
    checks = trust.looked_at(figures)
    people, items = figures.people, []
    if people.users:
        total, each = people.total, f"{people.size} {UNITS} in each experiment"
        items = [Fact(each if total is None else counted(total), "ok")]
    # Gates limit values, and say nothing of who the users are.
    states = [check.status for check in checks if check.name in trust.GATES and check.status != sch.NOT_CHECKED]
    failed, warned, n = states.count(sch.FAIL), states.count(sch.WARN), len(states)
    kept = "the gate is kept" if n == 1 else f"all {n:,} gates are kept"
    if not states:
        items.append(Fact("gates not checked here" if figures.config.get("gates") else "no gates", "none"))
    elif failed or warned:
        bad = f"{failed} of {n} gates failed" if failed else f"{warned} of {n} gates warned"
        items.append(Fact(bad, "fail" if failed else "warn"))
    elif any(found.doubt for found in figures.compared):
        items.append(Fact(f"{kept}, but by numbers that are not to be trusted", "warn"))
    else:
        items.append(Fact(kept, "ok"))
    apart = {check.experiment for check in checks if check.name == "judged_difference" and check.status == sch.WARN}
    if judged := [check for check in checks if check.name == "judged_top_rate" and check.experiment in apart]:
        shares = {str(check.experiment): check.observed or 0.0 for check in judged}
        items.append(Fact(judged_apart(mx.parse(judged[0].metric or "").cut, shares), "warn"))
    if any(check.name == "population_difference" for check in checks):
        items.append(Fact(f"the population has different {UNITS}", "warn"))
    return [*items, _split(figures), *filter(None, [trust.look_of(figures)])] if figures.compared else items


def weak_checks(checks: Sequence[Fact], is_verdict: bool) -> list[Fact]:
    """The checks that did not pass, by name, but for those that the line names already.

    >>> weak_checks([Fact("", "warn", "Ties"), Fact("", "fail", "Books"), Fact("", topic="Segments")], True)
    ['Ties and Books weaken the answer']
    """
    bad = dict.fromkeys(check.topic for check in checks if check.level in ("fail", "warn"))
    *topics, last = [topic for topic in bad if topic not in ("Gates", worded(trust.SPLIT), "Looks")] or [""]
    if not last:
        return []
    names = f"{', '.join(topics)} and {last}" if topics else last
    says = f"weaken{'' if topics else 's'} the answer" if is_verdict else "did not pass"
    return [Fact(f"{names} {says}", "warn", "checks")]


def _split(figures: Figures) -> Fact:
    """Whether users, or the clusters that were assigned, are where they should be."""
    ratio, people = figures.sample_ratio_p, figures.people
    if ratio is None and people.design == "paired":
        n, share = figures.on_one_side
        if not n:
            return Fact(f"same {people.unit} on both sides", "ok")
        are = f"{people.one} is" if n == 1 else f"{people.unit} are"
        return Fact(f"{n:,} {are} on one side only, and left out", "ok" if share <= MANY_ON_ONE_SIDE else "warn")
    if ratio is None:
        return Fact(f"split of {people.unit} not checked", "none")
    if ratio >= sch.SMALL_RATIO_P:
        return Fact(f"{people.unit} split as planned (p = {p_text(ratio, sch.SMALL_RATIO_P)})", "ok")
    return Fact(f"split of {people.unit} is off (p {p_text(ratio, sch.SMALL_RATIO_P)})", "fail")


def newer_failures(figures: Figures, most: int = 3) -> list[str]:
    """The dates after the one that is shown whose run failed, in words, the newest first."""
    last = figures.days.dates[-1] if figures.days else figures.record.get(sch.DATE)
    shown, lines = str(last or next((row.get(sch.DATE) for row in figures.means), "")), []
    for record in sorted(figures.history, key=lambda record: str(record.get(sch.DATE)), reverse=True):
        date, error = str(record.get(sch.DATE)), record.get("error")
        # A run that was refused may have no date; one that has published may have withheld a test.
        if error and date > shown and date[:1].isdigit() and record.get("outcome") != "done":
            text = str(error["message"] if isinstance(error, Mapping) else error)
            lines.append(f"The run of {date} failed, so nothing newer than {shown} is shown: {text}")
    left_out = len(lines) - most
    more = "1 more run of a newer date" if left_out == 1 else f"{left_out:,} more runs of newer dates"
    return lines[:most] + ([f"{more} failed."] if left_out > 0 else [])


# ---- what else moved


def what_else(card: story.Card, pair: Sequence[fd.Finding], of_pairs: bool = False) -> story.Words:
    """How the other metrics of a candidate moved: what contradicts the answer first, then guardrails, the rest counted.

    Args:
        card: The candidate that the answer is about.
        pair: Its comparisons of all users, of every metric.
        of_pairs: Whether other pairs are compared too.
    """
    others = [each for each in pair if each.metric != card.found.metric]
    if not others or all(each.state == "doubtful" for each in [card.found, *others]):
        return ()
    contrary = "better" if card.found.state == "worse" else "worse"

    def contrary_first(each: fd.Finding) -> tuple[bool, bool, float]:
        return each.state != contrary, not each.is_guardrail, -abs(each.tested_share.value or 0.0)

    moved = (each for each in others if each.is_guardrail or each.state in ("better", "worse"))
    said = sorted(moved, key=contrary_first)[:MOST_NAMED]
    parts, rest = [*map(_moved, said)], [each for each in others if each not in said]
    for state, words in STATES.items():
        n = sum(each.state == state for each in rest)
        parts += [f"{n:,} other {'metric' if n == 1 else 'metrics'} {words.says(n, 'clear change')}"] if n else []
    against: story.Words = (" against ", story.Id(card.found.baseline)) if of_pairs else ()
    return ("What else moved in ", story.Id(card.found.candidate), *against, f": {'; '.join(parts)}.")


def _moved(each: fd.Finding) -> str:
    """A metric, what it does, and by how much; of a guardrail with its interval."""
    change = each.change()
    interval = f", {change.interval}" if change and change.interval and each.is_guardrail else ""
    size = f" ({change.text}{interval})" if change else ""
    role = "the guardrail " if each.is_guardrail else ""
    return f"{role}{each.label} {STATES[each.state].says(1, 'clear change')}{size}"


# ---- segments whose effect differs

#: Segments of a column that are named for a candidate.
MOST_SEGMENTS = 5
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
            both = [f"{_size(each)} in {segment}" for _, segment, each in named]
            lines.append(f"{differs} by {column}: {' against '.join(both)} {ps[0]}")
        else:
            for (_, segment, each), p in [*zip(named, ps, strict=True)][:MOST_SEGMENTS]:
                lines.append(f"{differs} in {segment}: {_size(each)} against {_size(each, 'rest_')} elsewhere {p}")
            n = len(tested) - len(named)
            if len(named) > MOST_SEGMENTS:
                lines.append(f"{differs} in {len(named) - MOST_SEGMENTS:,} more segments of {column}")
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


def _size(found: fd.Finding, prefix: str = "") -> str:
    """Both numbers of the plain test, which is what segments are compared by."""
    value, share = found.further(prefix).value, found.further(f"{prefix}relative_").value
    return Change(value or 0.0, "").text + ("" if share is None else f" ({Change(100 * share, ' %').text})")


# ---- the page of several tests or days: a line for each, the worst news first, and the way to its own page


def state_of(figures: Figures) -> str:
    """The state in words."""
    return STATES[fd.news_of(figures.found)].word if figures.found else "-"


def title_of_tests(figures: Figures) -> str:
    """The title of the page of several tests."""
    return f"{len(figures.tests):,} tests of {figures.record.get(sch.DATE) or 'a ranking'}"


def lines_of(parts: Mapping[str, Figures], page: str, lost: Mapping[str, str]) -> list[dict[str, Any]]:
    """A line of the page of several tests, or days, for each: the lost ones, then the worst news first.

    Args:
        parts: The figures of each.
        page: Name of the file beside which their pages are.
        lost: A day whose run has published nothing -> why not.
    """
    lines = []
    for name, own in parts.items():
        said, status = [*facts(own, "record", "verdict"), "Nothing is compared."][0], facts(own, "status")
        n_bad = sum(fact.level in ("warn", "fail") for fact in status)
        line = {"name": name, "state": state_of(own), "said": said, "facts": status}
        line["page"] = page and name_of_page(page, name)
        lines.append((fd.NEWS.index(fd.news_of(own.found)), -n_bad, line))
    first = [{"name": day, "state": "not published", "said": said} for day, said in lost.items()]
    return [*first, *(line for *_, line in sorted(lines, key=lambda line: line[:2]))]


def name_of_page(page: str, test: str) -> str:
    """The file of a test beside the page of all.

    >>> name_of_page("report.html", "new/layout")
    'report.new%2Flayout.html'
    """
    stem, dot, suffix = page.rpartition(".")
    return f"{stem or suffix}.{quote(test, safe='')}{dot if stem else ''}{suffix if stem else ''}"


# ---- everything that a run says


def _refused(figures: Figures) -> list[str]:
    if figures.record.get("outcome") != "failed":
        return []
    return [f"Not published: {(figures.record.get('error') or {}).get('message', '')}"]


def _also(figures: Figures) -> list[Fact]:
    """What else moved in the candidate that the answer is about."""
    cards, pairs, of_pairs = story.cards(figures), fd.by_pair(figures.compared), len(figures.baselines) > 1
    ahead = story.leader(figures) if of_pairs else None
    named = story.closest_of(cards, ahead) if ahead else cards[0] if cards and not of_pairs else None
    said = what_else(named, pairs[named.found.pair], of_pairs) if named else ()
    return [Fact(said)] if said else []


def _of_answer(figures: Figures) -> list[Fact]:
    said = story.answer(figures)
    parts = {name: getattr(said, name) for name in ("title", "value", "change", "detail", "sure")}
    return [Fact(words, said.level if said.won else "none", name) for name, words in parts.items() if words]


def _verdict(it: Figures) -> list[str]:
    return verdict.verdict_of(it.comparisons, it.metrics or [*map(mx.parse, it.order)], it.n_unread)


#: Part of what a run says -> what makes it, and the places in which people read it.
_PARTS: dict[str, tuple[Callable[[Figures], Iterable[str]], str]] = {
    "status": (status_line, "status"),
    "weak": (lambda it: weak_checks(trust.checks(it), story.answer(it).level == "ok"), "status"),
    "newer": (newer_failures, "page"),
    "refused": (_refused, "page"),
    "headline": (story.headline, "headline"),
    "answer": (_of_answer, "page notebook"),
    "also": (lambda it: _also(it.drawn), "page"),
    "turned": (lambda it: beside.sentences_of_reversals(it.found, it.primary_name), "page notebook"),
    "verdict": (_verdict, "terminal record"),
    "outlook": (lambda it: [Fact(x, topic="won" * story.answer(it).won) for x in it.outlook], "page terminal record"),
    "period": (lambda it: verdict.sentences_of_period(it.days), "terminal record"),
    "order": (lambda it: beside.sentences_of_order(it.compared, it.metrics), "page"),
    "margins": (lambda it: beside.sentences_of_margins(it.compared), "page"),
    "bad": (lambda it: [check for check in trust.checks(it) if check.level in ("fail", "warn")], "page notebook"),
    "fine": (lambda it: [check for check in trust.checks(it) if check.level in ("ok", "none")], "page"),
    "left_out": (trust.left_out, "notebook"),
    "no_course": (lambda it: it.no_course and [it.no_course], "page"),
    "over_time": (lambda it: over_time.sentences_over_time(it.over_time, it.metrics, it.primary), "page"),
    "labels": (trust.of_labels, "terminal notebook"),
    "segments": (lambda it: sentences_of_segments(it.comparisons, it.primary), "terminal page"),
    "notes": (lambda it: console.accounting(it.record) if it.record else (), "terminal"),
}
