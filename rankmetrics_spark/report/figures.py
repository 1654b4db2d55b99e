"""What a report shows: small tables of one evaluation date, as plain rows, for the page and the notebook."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, wraps
from typing import Any, NamedTuple

from rankmetrics_spark import config as cfg, findings as fd, metrics as mx, schemas as sch, words
from rankmetrics_spark.report import beside

#: Steps in which the values of users are counted.
STEPS = 20


@dataclass(frozen=True)
class Mean:
    """One row of ``experiment_metrics``, whose columns have the names of the fields; what is no number is None.

    Attributes:
        row: The whole row, with None for what is no number; it may have percentiles.
    """

    row: sch.Row = field(repr=False)
    experiment_id: str = ""
    segment: str = sch.EVERYONE
    metric: str = ""
    convention: str = ""
    n_users: int = 0
    n_users_with_relevant: int | None = None
    n_users_without_list: int | None = None
    mean: float | None = None
    std: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    confidence: float | None = None
    mean_with_relevant: float | None = None
    mean_human: float | None = None
    mean_machine: float | None = None
    bias_machine: float | None = None
    p_bias_machine: float | None = None
    n_judged: int | None = None
    n_repeated: int | None = None
    mean_over: str = "users"
    n_lists: int | None = None

    @property
    def is_of_all(self) -> bool:
        """Whether it is about all users."""
        return self.segment == sch.EVERYONE

    @property
    def half(self) -> str:
        """Half of its interval in words; empty without one.

        >>> Mean({}, mean=0.5, ci_low=0.4).half, Mean({}, mean=0.5).half
        ('± 0.1000', '')
        """
        return "" if self.mean is None or self.ci_low is None else f"± {self.mean - self.ci_low:.4f}"


#: Columns of ``experiment_metrics`` that people see, in their order.
MEAN_COLUMNS = [each.name for each in fields(Mean)][1:]


def means_of(rows: Iterable[sch.Row]) -> list[Mean]:
    """Rows of ``experiment_metrics`` as means."""
    return [Mean(row, **cells) for row, cells in sch.typed(rows, MEAN_COLUMNS)]


def over_lists(means: Iterable[Mean]) -> bool:
    """Whether these means are over lists instead of users."""
    return any(each.mean_over == "lists" for each in means)


def over_what(means: Iterable[Mean]) -> str:
    """What these means are over: users, or lists."""
    return "lists" if over_lists(means) else str(words.UNITS)


def level_of(means: Iterable[Mean], what: str) -> str:
    """The level of confidence of these means, with what it is of; empty without intervals."""
    return next((f"{words.percent(each.confidence)} {what}" for each in means if each.confidence), "")


class UserChange(NamedTuple):
    """What a user has of a metric in the baseline and in another experiment.

    ``size`` is how much they lost or gained, as ``kind`` says; without a kind, it is the difference.
    """

    metric: str
    experiment_id: str
    user_id: str
    value_baseline: float
    value_candidate: float
    size: float
    kind: str = ""


class ListedItem(NamedTuple):
    """An item of the first ranks of a user's list, which is one of several, has a label and so many items."""

    experiment_id: str
    user_id: str
    label: str
    which: int
    size: int
    rank: int
    item: str
    grade: float | None
    relevant: bool


@dataclass(frozen=True)
class Examples:
    """What a page shows of single users.

    Attributes:
        changes: Users who lost and gained most, of the metric that decides first.
        n_changes: How many there are, where some have no lists.
        lists: First ranks of these users.
        missed: Relevant items that no list shows to a user, with their grades, and how many such items there are.
        topics: The change of every user of both experiments, where they are few.
        of_queries: Whether the users are the queries of a test collection.
        baseline: The experiment whose lists are on the left.
        others: Of all pairs, how many experiments are on the right, and how many there are beside the baseline.
        is_ahead: Of all pairs, whether the baseline is ahead of the others; else it has the best mean.
        note: Why there is nothing to show, in words.
    """

    changes: Sequence[UserChange]
    n_changes: int = 0
    lists: Sequence[ListedItem] = ()
    missed: Sequence[tuple[str, str, float, int]] = ()
    topics: Sequence[UserChange] = ()
    of_queries: bool = False
    baseline: str = ""
    others: tuple[int, int] | None = None
    is_ahead: bool = False
    note: str = ""

    @property
    def users(self) -> list[str]:
        """Those who lost and gained most."""
        return [*dict.fromkeys(change.user_id for change in self.changes)]

    @property
    def experiments(self) -> list[str]:
        """Those whose lists are shown, the baseline first."""
        return [self.baseline, *dict.fromkeys(change.experiment_id for change in self.changes)]


#: For functions whose texts are about what their figures are about: users, or queries.
in_words = words.about(lambda figures, *_, **__: figures.unit)


def once(maker: Callable[["Figures"], words.T]) -> Callable[["Figures"], words.T]:
    """Makes a function of figures one that is called once for the same figures."""

    @wraps(maker)
    def made(figures: "Figures") -> words.T:
        """What the figures keep."""
        kept: dict[Any, words.T] = vars(figures).setdefault("_kept", {})
        return kept[maker] if maker in kept else kept.setdefault(maker, in_words(maker)(figures))

    return made


@dataclass(frozen=True)
class Population:
    """The people behind the rows; one who is in several experiments is one person.

    Attributes:
        users: Experiment -> its users with a value.
        without_relevant: Experiment -> those of them without a relevant item.
        total: People of all experiments together; None where nobody knows how many are in several.
        design: How the experiments are compared; empty where nothing is compared.
        cluster: The column of the clusters that were assigned as a whole; empty where users are the units of errors.
        units: Experiment -> its units; ``users`` unless they are clusters.
    """

    users: dict[str, int]
    without_relevant: dict[str, int]
    total: int | None
    design: str
    cluster: str = ""
    units: Mapping[str, int] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """What people call the units of errors: users, or the clusters."""
        return f"clusters of {self.cluster}" if self.cluster else str(words.UNITS)

    @property
    def one(self) -> str:
        """What people call one of them."""
        return f"cluster of {self.cluster}" if self.cluster else str(words.UNIT)

    @property
    def size(self) -> str:
        """Users of an experiment, from the fewest to the most."""
        return words.range_text(self.users.values())

    @property
    def text(self) -> str:
        """How many people there are.

        >>> two = {"a": 943, "b": 943}
        >>> Population(two, {}, 943, "paired").text
        '943 users, the same in both experiments (paired).'
        >>> Population(two, {}, 1886, "independent").text
        '1,886 users in all, 943 in each experiment (independent).'
        >>> Population({"a": 5, "b": 7, "c": 6}, {}, None, "independent").text
        '5 to 7 users in each of 3 experiments (independent).'
        >>> Population({"a": 600, "b": 600}, {}, None, "paired", "house", {"a": 150, "b": 150}).text
        '600 users in each of 2 experiments (paired, 150 clusters of house in each).'
        """
        of_clusters = f"{words.range_text(self.units.values())} {self.unit} in each" if self.cluster else ""
        n, design = len(self.users), ", ".join(filter(None, [self.design, of_clusters]))
        design = f" ({design})" if design else ""
        word = words.UNIT if {*self.users.values()} == {1} else words.UNITS
        if n == 1:
            return f"{self.size} {word}."
        if self.total is not None and {*self.users.values()} == {self.total}:
            return f"{self.size} {word}, the same in {'both' if n == 2 else f'all {n:,}'} experiments{design}."
        if self.total is not None:
            return f"{self.total:,} {words.UNITS} in all, {self.size} in each experiment{design}."
        return f"{self.size} {word} in each of {n:,} experiments{design}."


@dataclass(frozen=True)
class Figures:
    """The small tables behind a report.

    Attributes:
        means: Rows of ``experiment_metrics`` of the date.
        comparisons: Rows of ``comparisons`` of the date.
        users: Users per (experiment_id, metric, step), with the edges ``low`` and ``high`` of the step.
        user_changes: Users per (experiment_id, baseline, metric, step) of paired comparisons: how much a value changes
            from the baseline to the experiment, step 0 where it stays; ``low`` and ``high`` bound the metric.
        record: The run record; empty if there is none.
        trend: Rows of ``experiment_metrics`` for all users, of every date.
        over_time: Differences by date, or by days since a user's first date: rows of ``effect_over_time``.
        no_course: Why a period has no differences over time, in words.
        history: A run record per date.
        n_means: Rows of ``experiment_metrics`` of the date, where ``means`` lacks some segments.
        n_comparisons: Rows of ``comparisons`` of the date, where ``comparisons`` lacks some segments.
        order: The metrics in the order of the run, where there is no record that says it.
        days: The days of the period, where the tables are about one; ``record`` is that of all of its runs then.
        outlook: When open comparisons of the period could find an effect, in words.
        uneven: Which metrics and segments some of its days were stored without, in words.
        checks: Rows of ``checks`` of the date; empty where nothing was written, or about a period.
        examples: Users who lost and gained most, with their lists; None unless asked for.
        of_log: What the gates say of a log that no run has read: there is no record, and nothing was written.
        test: The test that they are of, where they are those of one of several.
        unjudged: What labels of unjudged items could change; empty unless asked for.
        told_of: What the texts are about where there is no record: ``user`` or ``query``, as where they were made.
        n_unread: Comparisons of all users that were not read.
    """

    means: Sequence[sch.Row]
    comparisons: Sequence[sch.Row] = ()
    users: Sequence[sch.Row] = ()
    user_changes: Sequence[sch.Row] = ()
    record: sch.Row = field(default_factory=dict)
    trend: Sequence[sch.Row] = ()
    over_time: Sequence[sch.Row] = ()
    no_course: str = ""
    history: Sequence[sch.Row] = ()
    n_means: int = 0
    n_comparisons: int = 0
    order: Sequence[str] = ()
    days: cfg.Days | None = None
    outlook: Sequence[str] = ()
    uneven: Sequence[str] = ()
    checks: Sequence[sch.Row] = ()
    examples: Examples | None = None
    of_log: Sequence[sch.Check] = ()
    test: str | None = None
    unjudged: Sequence[words.Fact] = ()
    told_of: str = field(default_factory=words.unit_now)
    n_unread: int = 0

    @property
    def unit(self) -> str:
        """What the texts are about."""
        return str(self.config.get("unit") or self.told_of)

    @cached_property
    def tests(self) -> "dict[str, Figures]":
        """The figures of each test, the worst news first; empty for those of one, and where there are no tests."""
        names = {*fd.by_test(self.means), *fd.by_test(self.comparisons)} if self.test is None else ()
        parts = {name: self._of_test(name) for name in sorted(names)}
        return dict(sorted(parts.items(), key=lambda part: fd.NEWS.index(fd.news_of(part[1].found))))

    def _of_test(self, name: str) -> "Figures":
        def own(rows: Iterable[sch.Row]) -> list[sch.Row]:
            """The rows of the arms of the test."""
            return [row for row in rows if str(row.get(sch.EXPERIMENT)).startswith(name + sch.NAME_OF_ARM)]

        asked = {key: value for key, value in (self.config.get("tests") or {}).get(name, {}).items() if value}
        shares = {f"{name}{sch.NAME_OF_ARM}{arm}": share for arm, share in (asked.get("shares") or {}).items()}
        compared = {**(self.config.get("comparison") or {}), **asked, "shares": shares}
        counts = (self.record.get("experiments") or {}).items()
        own_counts = {arm: count for arm, count in counts if str(arm).startswith(name + sch.NAME_OF_ARM)}
        of_record = {"config": {**self.config, "comparison": compared}, "experiments": own_counts}
        names = ("means", "comparisons", "users", "user_changes", "trend", "over_time", "checks")
        parts: dict[str, Any] = {each: own(getattr(self, each)) for each in names}
        record = {**self.record, **of_record} if self.record else {}
        return replace(self, **parts, record=record, n_means=0, n_comparisons=0, test=name)

    @cached_property
    def metrics(self) -> list[mx.Metric]:
        """The metrics in the order of the run, then by name: ap@5 before ap@10, the uncut metric last."""
        order = {name: place for place, name in enumerate(self.config.get("metrics") or self.order)}
        metrics = {name: mx.parse(name) for name in {mean.metric for mean in self.averages}}

        def place(name: str) -> tuple[int, str, float]:
            return order.get(name, len(order)), name.partition("@")[0], mx.cut_of(metrics[name])

        return [metrics[name] for name in sorted(metrics, key=place)]

    @cached_property
    def best_first(self) -> list[str]:
        """The experiments, the best mean of the primary metric first."""
        sign = -1.0 if self.primary is None or self.primary.higher_is_better is not False else 1.0
        names = {mean.experiment_id for mean in self.averages}
        means = {mean.experiment_id: mean.mean for mean in self.everyone if self.decides(mean)}
        return sorted(names, key=lambda name: (means.get(name) is None, sign * (means.get(name) or 0.0), str(name)))

    @cached_property
    def experiments(self) -> list[str]:
        """The same, the only baseline first."""
        return sorted(self.best_first, key=lambda name: self.baselines != [name])

    @cached_property
    def places(self) -> dict[str, int]:
        """Experiment -> its place among them."""
        return {name: place for place, name in enumerate(self.experiments)}

    @cached_property
    def baselines(self) -> list[str]:
        """What the candidates are compared with."""
        return list(dict.fromkeys(found.baseline for found in self.found))

    @cached_property
    def averages(self) -> list[Mean]:
        """What the rows of ``means`` say."""
        return means_of(self.means)

    @cached_property
    def everyone(self) -> list[Mean]:
        """The means of all users."""
        return [mean for mean in self.averages if mean.is_of_all]

    @cached_property
    def is_empty(self) -> bool:
        """Whether nobody has a relevant item, so that no metric says anything."""
        return bool(self.everyone) and not any(mean.n_users_with_relevant != 0 or mean.mean for mean in self.everyone)

    @cached_property
    def drawn(self) -> "Figures":
        """What a page draws: nothing where there is no relevant item, on this and on every other date."""
        is_blank = self.is_empty and not any(mean.mean for mean in means_of(self.trend))
        blank: dict[str, Any] = {"means": (), "comparisons": (), "users": (), "user_changes": (), "trend": ()}
        return replace(self, **blank, over_time=(), n_means=0, n_comparisons=0) if is_blank else self

    @cached_property
    def found(self) -> list[fd.Finding]:
        """What the comparisons say."""
        return fd.findings(self.comparisons)

    @cached_property
    def compared(self) -> list[fd.Finding]:
        """What those of all users say."""
        return fd.of_all(self.found)

    @property
    def only_baseline(self) -> str | None:
        """What every other experiment is compared with, if it is one experiment."""
        return self.baselines[0] if len(self.baselines) == 1 else None

    @cached_property
    def differences(self) -> dict[tuple[str, str], fd.Finding]:
        """(experiment, metric) -> its comparison with the only baseline, for all users."""
        return {(each.candidate, each.metric): each for each in self.compared if self.only_baseline is not None}

    @cached_property
    def losers(self) -> dict[str, dict[str, list[str]]]:
        """Metric -> experiment -> those that it is better than; empty unless every pair is compared."""
        of_metric = fd.by_metric(self.compared)
        return {name: beside.losers_of(of_metric.get(name, ())) for name in map(str, self.metrics)}

    @cached_property
    def letters(self) -> dict[str, str]:
        """Experiment -> its letter, the best one first; empty unless every pair is compared."""
        places = enumerate(self.best_first if any(self.losers.values()) else ())
        return {name: beside.letter_of(place) for place, name in places}

    @cached_property
    def beaten(self) -> dict[tuple[str, str], str]:
        """(experiment, metric) -> the letters of those that it is better than."""
        of_each = ((name, metric, others) for metric, of in self.losers.items() for name, others in of.items())
        return {(name, metric): beside.raised(others, self.letters) for name, metric, others in of_each}

    @cached_property
    def in_percent(self) -> dict[str, bool]:
        """Metric -> whether these are all in percent: a column has one unit."""
        return {metric: fd.all_percentages(found) for metric, found in fd.by_metric(self.differences.values()).items()}

    @property
    def sample_ratio_p(self) -> float | None:
        """Below ``SMALL_RATIO_P``, the users do not follow the planned shares."""
        return self.compared[0].sample_ratio_p if self.compared else None

    def decides(self, found: fd.Finding | Mean) -> bool:
        """Whether it is about the metric that decides."""
        return found.metric == self.primary_name

    @property
    def period(self) -> tuple[str, str] | None:
        """The first and the last date of the period that the comparisons are about; None for a single date."""
        first = next(iter(self.found), None)
        return (first.period_from, first.period_to) if first and first.period_from and first.period_to else None

    @property
    def config(self) -> sch.Row:
        """The config of the run, as its record holds it; empty without a record."""
        config: sch.Row = self.record.get("config") or {}
        return config

    @cached_property
    def primary(self) -> mx.Metric | None:
        """The metric that decides."""
        return self.deciding_of(self.metrics)

    def deciding_of(self, metrics: Sequence[mx.Metric]) -> mx.Metric | None:
        """Of these, the first primary one of the comparisons, or of the run's config."""
        names = fd.primary_names(self.found) or (self.config.get("comparison") or {}).get("primary") or ()
        return next((metric for metric in metrics if str(metric) in names), mx.deciding(metrics))

    @cached_property
    def primary_name(self) -> str:
        """The name of the metric that decides; empty without one."""
        return str(self.primary or "")

    @cached_property
    def people(self) -> Population:
        """Who is behind the rows of all users.

        Comparisons know how many users two experiments share. That gives the number of people where at most one
        candidate has users who are not in the baseline, or where every two experiments were compared and share nobody.
        Where errors are by cluster, comparisons count clusters, so nobody knows how many users are in several
        experiments.
        """
        users: dict[str, int] = {}
        without: dict[str, int] = {}
        for mean in self.everyone:
            name = mean.experiment_id
            if mean.n_users >= users.get(name, 0):
                users[name] = mean.n_users
                # The means of a period, which come from its comparisons, do not know it. People judged some users only,
                # if a machine judged the rest.
                if mean.n_users_with_relevant is not None and mean.mean_machine is None:
                    without[name] = mean.n_users - mean.n_users_with_relevant
        overlap: dict[tuple[str, str], int] = {}
        clusters: dict[str, int] = {}
        for found in self.compared:
            for side in found.sides if found.cluster else ():
                clusters[side.name] = max(side.n_users, clusters.get(side.name, 0))
            if not clusters and found.n_users_both is not None:
                pair = found.pair[::-1]
                overlap[pair] = max(found.n_users_both, overlap.get(pair, 0))
        designs = {found.design for found in self.compared if found.design}
        design = "some pairs are paired, others independent" if len(designs) > 1 else "".join(designs)
        cluster = next((found.cluster for found in self.compared if found.cluster), "")
        return Population(users, without, _total(users, overlap), design, cluster, clusters or users)

    @property
    def on_one_side(self) -> tuple[int, float]:
        """Units that paired comparisons leave out, as they are in one of both experiments: most of a pair, the share.

        The share is that of the side that loses more. Units are counted on the metric that decides.
        """
        most, share = 0, 0.0
        for found in filter(self.decides, self.compared):
            if found.design == "paired" and (both := found.n_users_both) is not None:
                sides = [both if side.n_users is None else side.n_users for side in found.sides]
                alone = [n - both for n in sides]
                most = max(most, sum(alone))
                share = max(share, *(left / max(1, n) for left, n in zip(alone, sides, strict=True)))
        return most, share


def _total(users: dict[str, int], overlap: dict[tuple[str, str], int]) -> int | None:
    """People of all experiments together; None where the shared users of two of them do not tell."""
    if len(users) < 2:
        return sum(users.values())
    for center in dict.fromkeys(baseline for baseline, _ in overlap):
        others = [name for name in users if name != center]
        overlaps = [overlap.get((center, name), overlap.get((name, center))) for name in others]
        outside = [users[name] - n for name, n in zip(others, overlaps, strict=True) if n is not None]
        if len(outside) == len(others) and sum(n > 0 for n in outside) <= 1:
            return users[center] + sum(outside)
    pairs = {frozenset(pair) for pair in overlap}
    if len(pairs) == len(users) * (len(users) - 1) // 2 and not any(overlap.values()):
        return sum(users.values())
    return None


def period_means(rows: Sequence[dict[str, Any]], comparisons: Sequence[sch.Row]) -> Sequence[dict[str, Any]]:
    """The means that the comparisons of a period are about, without margins; without a period, ``rows``.

    >>> row = {"experiment_id": "b", "baseline": "a", "segment": "all", "metric": "ap", "confidence": 0.95,
    ...        "period_from": "2026-11-08", "period_to": "2026-11-21", "mean_baseline": 0.4, "mean_candidate": 0.5,
    ...        "n_users_baseline": 10, "n_users_candidate": 12}
    >>> [(mean["experiment_id"], mean["n_users"], mean["mean"]) for mean in period_means([{"convention": "x"}], [row])]
    [('a', 10, 0.4), ('b', 12, 0.5)]
    """
    found = fd.findings(comparisons)
    if not rows or not found or found[0].period_from is None:
        return rows
    of_all = dict.fromkeys(rows[0]) | {sch.CONVENTION: rows[0][sch.CONVENTION]}
    means: dict[tuple[str, ...], dict[str, Any]] = {}
    for each in found:
        for side in each.sides:
            names = {sch.EXPERIMENT: side.name, sch.SEGMENT: each.segment, sch.METRIC: each.metric}
            # Of clusters, a comparison counts clusters as its users.
            n = side.n_users if each.cluster is None else side.n_members
            more = {sch.N_USERS: n, "mean": side.mean, sch.PERIOD_FROM: each.period_from, sch.PERIOD_TO: each.period_to}
            means.setdefault((*names.values(),), of_all | names | more)
    return [*means.values()]


def seconds_of(record: Mapping[str, Any]) -> float | None:
    """How long a run took; the record of a run that was killed has only its steps.

    >>> seconds_of({"total_seconds": 3.5, "seconds": {"a": 2, "b": 2}}), seconds_of({"seconds": {"a": 2, "b": 1.5}})
    (3.5, 3.5)
    """
    steps = record.get("seconds")
    seconds: float | None = record.get("total_seconds", round(sum(steps.values()), 3) if steps else None)
    return seconds
