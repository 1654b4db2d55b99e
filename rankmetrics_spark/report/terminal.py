"""A run's result on a terminal: the verdict, then one line per experiment, then where the effect differs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_lowercase

from rich.table import Table
from rich.text import Text

from rankmetrics_spark import config as cfg, findings as fd, metrics as mx, schemas as sch, words
from rankmetrics_spark.report import assets, console, formats, overview, story, verdict
from rankmetrics_spark.report.figures import Figures, in_words, over_what, period_means

#: Up to so many tests have a table each.
MOST_TESTS = 5


@in_words
def print_result(figures: Figures, every_segment: bool = False) -> None:
    """The table of a result on stdout, and in which segments the effect differs; that of each test where few are."""
    if len(tests := figures.tests) > 1:
        texts = [{"test": name, "state": overview.state_of(own)} for name, own in tests.items()]
        formats.print_texts(texts, ("test", "state"), "tests, the worst news first")
        for own in [*tests.values()][: MOST_TESTS * (len(tests) <= MOST_TESTS)]:
            print_result(own, every_segment)
        return
    if every_segment or not figures.everyone:
        about = console.title(figures.averages)
        formats.print_fitting(lambda some: console.grid(figures.averages, some), figures.metrics, about)
        console.print_percentiles(figures.averages)
        return
    formats.print_fitting(lambda some: table(figures, some), figures.metrics, *explained(figures))
    console.print_percentiles(figures.everyone)
    lines = overview.facts(figures, "terminal", "segments")
    has_segments = any(not mean.is_of_all for mean in figures.averages)
    formats.print_lines([*lines, "--segments prints the means of all segments"] if lines or has_segments else [])


def explained(figures: Figures) -> list[str]:
    """What the numbers and marks of a table of means are."""
    lines = [console.title(figures.averages)]
    baseline, compared = figures.only_baseline, [*figures.differences.values()]
    for found in compared[:1]:
        valid = f" ({found.valid_at})" if found.valid_at else ""
        unknown = ", ? no verdict" if any(each.state == "doubtful" for each in compared) else ""
        lines.append(f"▲ better, ▼ worse than {baseline}, ≈ no difference shown{valid}{unknown}")
        if found.narrower:
            lines.append(f"means are over all {over_what(figures.averages)}; changes are those of {found.narrower}")
    if figures.letters:
        how = assets.WORDS["corrections"][figures.found[0].correction]
        ranges = "" if len(figures.letters) <= len(ascii_lowercase) else "; c-f is c to f"
        lines.append(f"letters behind a mean: the experiments that it is better than ({how}){ranges}")
    of_metrics = fd.by_metric(found for found in compared if found.period_from is not None)
    if any(len({found.means[0] for found in of_metric}) > 1 for of_metric in of_metrics.values()):
        lines.append(assets.said("percentages", baseline=baseline))
    return [*lines, *overview.facts(figures, "terminal", "labels")]


def table(figures: Figures, metrics: Iterable[mx.Metric]) -> Table:
    """One line per experiment, the best first; a column per metric with mean, interval and difference."""
    letters = figures.letters

    def cell(name: str, metric: str, mean: Text) -> Text:
        """The mean with what was found beside it."""
        if not figures.differences:
            marks = figures.beaten.get((name, metric))
            return mean.append(f" {marks}", style=formats.RAISED) if marks else mean
        if name == figures.only_baseline:
            return mean.append(f"{'baseline':>11}", style="dim")
        found = figures.differences.get((name, metric))
        if found is None:
            return mean.append(" " * 11)
        state, change = words.STATES[found.state], found.change(figures.in_percent[metric])
        return mean.append_text(Text(f" {state.mark} {change.text if change else '-':>8}", style=state.colour))

    places = {name: place for place, name in enumerate(figures.best_first)}
    return console.grid(figures.everyone, metrics, cell, letters, places.__getitem__)


def print_verdict(sentences: Sequence[str], style: str = "table", result: Figures | None = None) -> None:
    """The verdict of a run: above the table on stdout, and on stderr where stdout holds JSON or CSV.

    Args:
        sentences: Of the verdict.
        style: Of stdout.
        result: What the verdict is about: its headline comes first, and its correction is said once.
    """
    one = result if result and len(result.tests) < 2 else None
    headline = overview.facts(one, "headline") if one else []
    lines = [*headline, *(verdict.correction_once(sentences, result.found) if result else sentences)]
    if style == "table" and not formats.details.get() and len(lines) > verdict.MOST_LINES:
        topics = [str(card.found.candidate) for card in story.cards(one)[:1]] if one and not headline else []
        first = [line for line in lines if getattr(line, "topic", "") in topics] or lines
        lines = verdict.shortened(lines, first[:1])
    for line in lines:
        formats.print_sentence(line, style == "table")


def print_comparisons(result: Figures, sentences: Sequence[str], about: str = "") -> None:
    """The verdict, whose users these are, and one line per comparison."""
    print_verdict(sentences, result=result)
    formats.print_lines(filter(None, [about]))
    formats.print_texts(comparison_texts(result), OF_NAMES)


def of_comparisons(rows: Sequence[fd.Row], metrics: fd.Metrics = ()) -> Figures:
    """The figures of comparisons alone: their means are those of the rows."""
    means = [
        {sch.EXPERIMENT: side.name, sch.SEGMENT: each.segment, sch.METRIC: each.metric, "mean": side.mean}
        for each in fd.findings(rows)
        for side in each.sides
    ]
    return Figures(means, rows, order=[*map(str, metrics)])


#: The columns of comparisons that are no numbers.
OF_NAMES = ("candidate", "baseline", "segment", "metric", "design", "test")


def comparison_texts(result: Figures) -> list[dict[str, str]]:
    """A record per comparison, those of all users first, as people read it on a terminal and in a notebook."""
    has_segments = not all(each.is_of_all for each in result.found)
    texts = []
    names, measured = [*result.best_first], [*map(str, result.metrics)]

    def place(found: fd.Finding) -> tuple[object, ...]:
        """As ``evaluate`` prints them: the best experiment first, metrics in the order of the run."""
        of = [names.index(name) if name in names else len(names) for name in (found.candidate, found.baseline)]
        return not found.is_of_all, found.segment, *of, measured.index(found.metric)

    for each in sorted(result.found, key=place):
        change, share = each.change(in_percent=False), each.change() if each.is_percentage else None
        # Other users have no win or loss of their own.
        counts = (each.wins, each.ties, each.losses) if each.design == "paired" else ()
        text = {
            "candidate": str(each.candidate),
            "baseline": str(each.baseline),
            **({"segment": each.segment} if has_segments else {}),
            "metric": each.label,
            "design": each.design or "",
            "test": each.test or "-",
            str(words.UNITS) if each.cluster is None else "clusters": f"{each.n_users:,}",
            "means": each.movement or "-",
            "difference": change.plain if change else "-",
            "change": words.Change(share.value, share.unit).plain if share else "-",
            "p adjusted": "-" if each.p_adjusted is None else words.p_text(each.p_adjusted, each.level),
            "wins/ties/losses": "/".join(f"{n:,}" for n in counts) if any(counts) else "-",
        }
        texts.append(text)
    return texts


def print_not_published(record: fd.Row, metrics: fd.Metrics) -> None:
    """The numbers of a run that failed its gates: means, comparisons, and how far each gate is from its limit."""
    means, compared = record.get("means") or (), record.get("comparisons") or ()
    formats.print_sentence("Not published: a gate failed, or the split is off. These are the numbers of the run.")
    print_result(Figures(period_means(means, compared), compared, order=[*map(str, metrics)]))
    if compared:
        print_comparisons(of_comparisons(compared, metrics), record.get("verdict") or ())
    checks = sch.checks_of(record.get("checks") or ())
    print_gates(check for check in checks if check.status == sch.FAIL or check.metric is not None)


def print_gates(checks: Iterable[sch.Check], title: str = "gates and their margins") -> None:
    """A line for each of these checks."""
    texts = []
    shapes = {"observed": ".4g", "limit": ".4g", "margin": "+.4g"}
    for check in checks:
        where = {"gate": check.name, "experiment": str(check.experiment), "segment": check.segment}
        known = {name: sch.number(getattr(check, name)) for name in shapes}
        numbers = {name: "-" if known[name] is None else f"{known[name]:{shape}}" for name, shape in shapes.items()}
        texts.append({**where, "metric": check.metric or "-", **numbers, "status": check.status})
    if texts:
        formats.print_texts(texts, ("gate", "experiment", "segment", "metric", "status"), title)


@dataclass(frozen=True)
class Compared:
    """What ``rankmetrics compare`` prints.

    Attributes:
        date: Evaluation date of the users, or the last one of their period.
        dates: How many evaluation dates there are.
        rows: Of ``comparisons``.
        more: Further tables by name: users with the largest ``losses`` and ``gains``, and the ``decomposition``.
        metrics: The metrics that are compared, in the order of the request or of the run.
        days: The days of the period, if the users are of one.
        outlook: When open comparisons of the period could find an effect, and what some days were stored without.
    """

    date: str
    dates: int
    rows: Sequence[fd.Row]
    more: Mapping[str, Sequence[fd.Row]] = field(default_factory=dict)
    metrics: fd.Metrics = ()
    days: cfg.Days | None = None
    outlook: Sequence[str] = ()

    @property
    def of_day(self) -> str:
        """The date of the users, or their dates, as a note for people."""
        if self.days is not None:
            return f"{words.UNITS} of {self.days.sentence_part}"
        return f"{words.UNITS} of {self.date}" + (f", one of {self.dates} evaluation dates" if self.dates > 1 else "")


def print_all(of: Compared, style: str) -> None:
    """Comparisons and further tables, with the date or the period of their users.

    Args:
        of: Them; CSV holds the first of the further tables instead of the comparisons.
        style: ``table``, ``json`` or ``csv``.
    """
    days, compared = of.days, replace(of_comparisons(of.rows, of.metrics), outlook=of.outlook, days=of.days)
    said = overview.facts(compared, "record")
    period = {sch.PERIOD_FROM: days.first, sch.PERIOD_TO: days.last, sch.N_DAYS: len(days.dates)} if days else {}
    if style == "json":
        result = {"comparisons": of.rows, "verdict": said, **of.more}
        formats.print_json({sch.DATE: of.date, "period": days and {**period, "missing": days.missing}, **result})
    elif style == "csv":
        formats.print_csv([{sch.DATE: of.date, **period, **row} for row in next(iter(of.more.values()), of.rows)])
    else:
        print_comparisons(compared, said, "" if days else f"{words.UNITS:C} of {of.date}.")
        for name, table in of.more.items():
            formats.print_sentence(words.worded(assets.WORDS["tables"][name]))
            console.LIST_PRINTERS[style](list(table))
