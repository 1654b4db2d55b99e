"""How experiments are compared: one description for a config file, for ``evaluate`` and for ``compare``."""

# A section is frozen, so one default may serve every config.
# ruff: noqa: RUF009

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rankmetrics_spark import errors as err, metrics as mx, schemas as sch
from rankmetrics_spark.config import fields as fd, options
from rankmetrics_spark.config.days import Period, PlannedLooks, looks

MOST_REPLICATES = 100_000
MOST_COVARIATES = 8
GATE = "the limit of a gate"


@dataclass(frozen=True)
class Resampling(fd.Section, at="comparison.randomization"):
    """How often the users are resampled.

    Attributes:
        replicates: How many times the users are resampled.
        seed: Chooses the random numbers; the same seed gives the same bits anywhere.
    """

    replicates: int = fd.key(9_999, fd.count(99, MOST_REPLICATES))
    seed: int = fd.key(1, fd.count(0, 2**63 - 1))


@dataclass(frozen=True)
class Bootstrap(Resampling, at="comparison.bootstrap"):
    """Bootstrap intervals of the means and of the differences."""

    replicates: int = fd.key(1_000, fd.count(99, MOST_REPLICATES))


@dataclass(frozen=True)
class AaCheck(Resampling, at="comparison.aa_check"):
    """Tests between arms that differ by chance alone: how often they find a difference."""

    replicates: int = fd.key(1_000, fd.count(99, MOST_REPLICATES))


@dataclass(frozen=True)
class Cuped(options.SectionWithOptions, at="comparison.cuped"):
    """Variance reduction with the values that the users had before the experiment: one of three is given.

    Attributes:
        date: Evaluation date of the pre-period; its ``user_metrics`` lie in the same output.
        before: ``exposure``: the lists of users before their exposure to each test.
        days: Of how many days before the exposure these lists are.
    """

    date: str | None = fd.key(None, fd.day)
    column: str | None = options.option("covariate")
    before: str | None = fd.key(None, fd.choice("exposure"))
    days: int = fd.key(14, fd.count(1, 366))


def _margins(path: str, value: object) -> dict[str, float | str]:
    """Metric -> its margin: a number in its unit, or a text such as ``1%`` of the baseline's mean."""
    if not isinstance(value, Mapping) or not value:
        raise fd.refuse(path, value, "a mapping of metrics to their margins, such as {ndcg@10: 1%, p@10: 0.005}")
    return {str(_metric(path, name)): _size(f"{path}.{name}", margin) for name, margin in value.items()}


def _size(path: str, value: object) -> float | str:
    """How large a difference is, in a metric's unit or as a text such as ``1%``."""
    in_percent = isinstance(value, str) and value.strip().endswith("%")
    size = mx.number_in(str(value).strip().removesuffix("%"))
    if not 0 < size < (100 if in_percent else 1e300):
        allowed = "a number above 0 in the unit of the metric, or a percentage such as 1%, below 100%"
        raise fd.refuse(path, value, allowed)
    return f"{size:g}%" if in_percent else size


def _effect(path: str, value: object) -> Mapping[str, float | str] | float | str:
    """One size for all metrics, or that of each."""
    return _margins(path, value) if value and isinstance(value, Mapping) else _size(path, value)


def _cap(path: str, value: object) -> float:
    """A share of the users, or the cap itself."""
    plain = fd.fraction(value)
    size = float(plain) if isinstance(plain, (int, float)) and not isinstance(plain, bool) else 0.0
    if not 0 < size < 1e18 or size == 1:
        allowed = "a share of the users such as 0.99, who are not above it, or the cap itself, a number above 1"
        raise fd.refuse(path, value, allowed)
    return size


#: By how much planned shares may miss 1, since 0.333 is written for a third.
SHARES_WITHIN = 0.001


def shares(path: str, value: object) -> dict[str, float]:
    """Experiment -> its planned share of the users: fractions of at most 1 in all, or weights of 1 and more."""
    if not isinstance(value, Mapping) or len(value) < 2:
        raise fd.refuse(path, value, "a mapping of at least two experiments to their planned shares")
    positive = fd.number(0, 1e12, inclusive=False, share=True)
    planned = {fd.text(path, name): float(positive(f"{path}.{name}", share)) for name, share in value.items()}
    if min(planned.values()) < 1 and round(sum(planned.values()) - 1, 9) > SHARES_WITHIN:
        allowed = f"fractions that add up to at most 1 (within {SHARES_WITHIN}), or weights of 1 and more"
        raise fd.refuse(path, value, f"{allowed}; these add up to {sum(planned.values()):.4g}")
    return planned


def _each(read: fd.Read) -> fd.Read:
    """The items of a list, each once."""

    def read_items(path: str, value: object) -> object:
        return tuple(dict.fromkeys(read(f"{path}[{i}]", item) for i, item in enumerate(fd.listed(path, value))))

    return read_items


def _covariates(path: str, value: object) -> tuple[str, ...]:
    """Names of columns or metrics."""
    if len(names := fd.names(path, value)) > MOST_COVARIATES:
        raise fd.refuse(path, value, f"at most {MOST_COVARIATES} covariates")
    return names


def _metric(path: str, value: object) -> mx.Metric:
    return value if isinstance(value, mx.Metric) else fd.parsed(path, mx.parse, fd.text(path, value))


@dataclass(frozen=True)
class Comparison(options.SectionWithOptions, at="comparison"):
    """Which experiments are compared, and how.

    Attributes:
        baseline: The experiment that the others are compared with.
        pairs: Who is compared: with the baseline, or every pair.
        candidates: Only these are compared with the baseline; empty = all.
        correction: Correction of the p-values for the number of comparisons.
        ranks: Which ranks each experiment may have among all, jointly at the confidence level; with all pairs.
        simultaneous: Intervals of a family cover jointly; they and the p-values are of ``correction: bonferroni``.
        primary: The metrics that decide; by default the first gate's, else the first at its largest cut-off; no
            guardrail.
        guardrails: Metrics that must not get worse.
        families: ``split`` = roles of metrics and segment columns are corrected apart, ``one`` = all rows together.
        primary_share: Share of the level of significance for the primary metrics; all other comparisons share the rest.
        margin: Metric -> how much worse is no harm: ``1%`` of the baseline's mean, or a number in its unit.
        effect: The difference that the test is to find: ``1%`` of the baseline's mean, a number, or these by metric.
        design: ``paired`` (users in both), ``independent`` (all, Welch), ``auto`` (paired where at least 95 % are in
            both).
        shared_users: ``drop`` leaves users of more than one experiment out; every comparison is ``independent`` then.
        cap: The most lists of a user that count with ``mean_over: lists``, or the largest value: a share or a number.
        strata: Columns that split the users, or ``date``: users are compared within these strata only.
        covariates: More that explains values: metrics or columns of earlier users, or columns of these.
        wilcoxon: Paired comparisons get the p-value of Wilcoxon's signed rank test.
        randomization: Paired comparisons get the p-value of the sign-flip test: true, or its keys.
        bootstrap: Every mean and difference gets a bootstrap interval: true, or its keys.
        aa_check: How often the t test finds a difference where there is none: true, or its keys.
        shares: Planned share of the users of each experiment, for the check of the sample ratio.
        power: Probability of finding the minimum detectable effect.
        min_users: Segments with fewer users in an experiment are not compared.
        cuped: Variance reduction with values from before the experiment.
        looks: Looks that intervals and p-values hold for: one, any number at a growing test, or a plan.
        tuning_users: Users at which the intervals over any looks are tightest; fixed before the test.
        period: A run compares the users of these dates: those that are published, and its own.
        target: Means of the ``population`` of which the users are a sample, or, beside a machine, of ``these_queries``.
    """

    baseline: str | None = fd.key(None, fd.text)
    pairs: str = fd.key("baseline", fd.choice("baseline", "all"))
    candidates: tuple[str, ...] = fd.key((), _each(fd.text))
    confidence: float = options.option("confidence")
    correction: str = fd.key("holm", fd.choice("holm", "bonferroni", "fdr_bh", "none"))
    simultaneous: bool = fd.key(False, fd.flag)
    ranks: bool = fd.key(False, fd.flag)
    primary: tuple[mx.Metric, ...] = fd.key((), _each(_metric))
    guardrails: tuple[mx.Metric, ...] = fd.key((), _each(_metric))
    families: str = fd.key("split", fd.choice("split", "one"))
    primary_share: float | None = fd.key(None, fd.number(0, 1, inclusive=False))
    margin: Mapping[str, float | str] | None = fd.key(None, _margins)
    effect: Mapping[str, float | str] | float | str | None = fd.key(None, _effect)
    design: str = fd.key("auto", fd.choice("auto", "paired", "independent"))
    shared_users: str = fd.key("keep", fd.choice("keep", "drop"))
    mean_over: str = options.option("mean_over")
    cluster: str | None = options.option("cluster")
    only_changed: bool = options.option("only_changed")
    trigger: str | None = options.option("trigger")
    cap: float | None = fd.key(None, _cap)
    strata: tuple[str, ...] = fd.key((), fd.names)
    covariates: tuple[str, ...] = fd.key((), _covariates)
    wilcoxon: bool = fd.key(False, fd.flag)
    randomization: Resampling | None = fd.key(None, fd.switched(Resampling))
    bootstrap: Bootstrap | None = fd.key(None, fd.switched(Bootstrap))
    aa_check: AaCheck | None = fd.key(None, fd.switched(AaCheck))
    shares: Mapping[str, float] | None = fd.key(None, shares)
    power: float = fd.key(0.8, fd.number(0, 1, inclusive=False))
    min_users: int = fd.key(0, fd.count(0, 10**12))
    cuped: Cuped | None = fd.key(None, fd.section(Cuped))
    looks: str | PlannedLooks = fd.key("one", looks)
    tuning_users: int = fd.key(10_000, fd.count(2, 10**12))
    period: Period | None = fd.key(None, fd.section(Period))
    target: str = fd.key("population", fd.choice("population", "these_queries"))
    #: What each test of the assignments has of its own: ``OfTest`` by name.
    tests: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    #: The limits of a run.
    gates: "tuple[Gate, ...]" = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        """Checks the fields, then that they fit together."""
        super().__post_init__()
        check_units(self)
        if both := [metric for metric in self.primary if metric in self.guardrails]:
            raise fd.refuse(self.path_of("guardrails"), str(both[0]), "metrics other than the primary ones")
        if self.baseline in self.candidates:
            raise fd.refuse(self.path_of("candidates"), self.baseline, "experiments other than the baseline")

    @property
    def is_requested(self) -> bool:
        """Whether anything is compared."""
        baselines = (self.baseline, *(test.baseline for test in self.tests.values()))
        return self.pairs == "all" or any(name is not None for name in baselines)

    def roles(self, metrics: Sequence[mx.Metric]) -> dict[str, str]:
        """Metric -> primary, guardrail or secondary.

        Raises:
            ConfigError: A primary metric or a guardrail is not among the metrics.
        """
        names = {metric: str(metric) for metric in metrics}
        for name in ("primary", "guardrails", "margin", "effect"):
            given = getattr(self, name)
            if given and not isinstance(given, (str, float)):
                err.check_known("metric", map(str, given), [*names.values()], self.path_of(name))
        primary = self.primary or (mx.deciding([metric for metric in metrics if metric not in self.guardrails]),)
        roles = {metric: sch.PRIMARY if metric in primary else sch.SECONDARY for metric in metrics}
        return {names[each]: role for each, role in (roles | dict.fromkeys(self.guardrails, sch.GUARDRAIL)).items()}

    def size_of(self, name: str, metric: str) -> tuple[float | None, bool]:
        """The ``margin`` or ``effect`` of a metric, and whether it is a share of the baseline's mean.

        >>> Comparison.read({"margin": {"nDCG@10": "1 %"}}).size_of("margin", "ndcg@10")
        (0.01, True)
        """
        given = getattr(self, name)
        size = given.get(metric) if isinstance(given, Mapping) else given
        return (float(size.removesuffix("%")) / 100, True) if isinstance(size, str) else (size, False)

    def sizes(self, metric: str, segment: str, candidate: str) -> list[tuple[float, bool, str]]:
        """What is to be found: the margin, the effect, and what gates forbid, each as in ``size_of``, with its name."""
        stated = {"margin": "the margin", "effect": "the stated effect"}
        found = [(*self.size_of(key, metric), name) for key, name in stated.items()]
        for gate in self.gates:
            if (str(gate.metric), gate.segment) == (metric, segment) and gate.experiment in (None, candidate):
                found += [(gate.max_drop, False, GATE), (gate.max_relative_drop, True, GATE)]
        return [(size, is_share, name) for size, is_share, name in found if size]


@dataclass(frozen=True)
class Gate(fd.Section, at="gates"):
    """A limit that a metric has to keep; a run that fails one writes nothing and ends with exit code 5.

    Attributes:
        metric: One of the metrics of the run.
        min: The mean of every experiment must be at least this; for a metric where lower is better, at most.
        max_drop: How much worse a candidate may be.
        max_relative_drop: The same as a share of the baseline's mean, such as 0.01 or 1%.
        segment: The label of a segment, such as ``country=de``.
        experiment: Only this experiment; by default every one.
        on: The mean or difference, the worse bound of its interval, or (``clear``) the better bound that is shown.
        trusted: Fails too where the test is not trustworthy, or there is none.
    """

    metric: mx.Metric = fd.key(None, _metric)
    min: float | None = fd.key(None, fd.number(-1e300, 1e300, inclusive=True))
    max_drop: float | None = fd.key(None, fd.number(0, 1e300, inclusive=True))
    max_relative_drop: float | None = fd.key(None, fd.number(0, 1e300, inclusive=True, share=True))
    segment: str = fd.key(sch.EVERYONE, fd.text)
    experiment: str | None = fd.key(None, fd.text)
    # With CUPED, the difference and its interval are those of CUPED.
    on: str = fd.key("point", fd.choice("point", "bound", "clear"))
    trusted: bool = fd.key(False, fd.flag)

    @property
    def compares(self) -> bool:
        """Whether the gate needs a comparison with the baseline."""
        return self.trusted or self.max_drop is not None or self.max_relative_drop is not None


def check_units(comparison: Comparison, cuped: bool = False) -> None:
    """Refuse what works with one value per user where lists or clusters are the units; ``cuped``: given elsewhere.

    Raises:
        ConfigError: Names the unit and the first of these keys.
    """
    given = vars(comparison) | ({"cuped": True} if cuped else {})
    fd.check_rules("units", given, comparison.paths_of_fields())


def check_machine(comparison: Comparison, machine: bool, *more: str) -> None:
    """Refuse what has no rule for users whom a machine has judged, and ``more`` that is given beside them.

    Raises:
        ConfigError: Names the first of them.
    """
    given = vars(comparison) | {"machine": machine, "more": more[0] if more else ""}
    fd.check_rules("machine", given, comparison.paths_of_fields())


def gates(path: str, value: object) -> tuple[Gate, ...]:
    """A list of gates, or a single one."""
    items = [value] if isinstance(value, (Mapping, Gate)) else value
    if not isinstance(items, (list, tuple)):
        raise fd.refuse(path, value, "a list of mappings such as {metric: ndcg@10, max_drop: 0.01}")
    read = fd.section(Gate)
    return tuple(read(f"{path}[{i}]", item) for i, item in enumerate(items))  # type: ignore[misc]


def check_cuped(comparison: Comparison, evaluation_date: str) -> None:
    """Refuse a period of nothing, and a date for CUPED that is not before the run, or before its period.

    Raises:
        ConfigError: Names the field and both dates.
    """
    facts = {"is_requested": comparison.is_requested, "evaluation_date": evaluation_date}
    fd.check_rules("cuped", vars(comparison) | facts, comparison.paths_of_fields())


def check_experiments(comparison: Comparison, known: Sequence[str]) -> None:
    """Refuse names of experiments that the log does not have, and shares that leave users over.

    Raises:
        ConfigError: Names the field, the experiment and the nearest known one.
    """
    named = {"baseline": [comparison.baseline], "candidates": comparison.candidates, "shares": comparison.shares or ()}
    for place, names in named.items():
        err.check_known("experiment", names, sorted(known), comparison.path_of(place))
    planned = sum((comparison.shares or {}).values())
    if comparison.shares and planned < 1 - SHARES_WITHIN and set(known) == set(comparison.shares):
        at = comparison.path_of("shares")
        raise err.ConfigError.of("shares_left_over", at=at, planned=planned, within=SHARES_WITHIN)


def with_primary(comparison: Comparison, metrics: Sequence[mx.Metric], limits: Sequence[Gate]) -> Comparison:
    """The comparison with the gates, and with its tests the first one's metric as primary, unless others are given.

    Raises:
        ConfigError: A primary metric or a guardrail is not among the metrics.
    """

    def gated(own: Any, limits: Sequence[Gate]) -> Any:
        guardrails = own.guardrails or comparison.guardrails
        first = tuple(gate.metric for gate in limits if gate.metric not in guardrails)[:1]
        return replace(own, primary=first) if first and not own.primary else own

    if not comparison.primary:
        tests = {name: gated(own, own.gates) for name, own in comparison.tests.items()}
        comparison = replace(gated(comparison, limits), tests=tests)
    comparison.roles(metrics)
    return replace(comparison, gates=tuple(limits))


def check_gates(limits: Sequence[Gate], metrics: Sequence[mx.Metric], comparison: Comparison) -> None:
    """Refuse gates that this run cannot check.

    Raises:
        ConfigError: A metric is not computed, or there is no baseline to drop from.
    """
    for gate in limits:
        if gate.metric not in metrics:
            raise err.ConfigError.of("gate_not_computed", problem=err.unknown("metric", gate.metric, map(str, metrics)))
        if gate.compares and comparison.baseline is None and not comparison.tests:
            raise err.ConfigError.of("gate_without_baseline", metric=gate.metric)
