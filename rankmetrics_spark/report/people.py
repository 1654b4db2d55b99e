"""The people behind a report, and the units of its comparisons: users, or clusters of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rankmetrics_spark.report.figures import Figures

MANY_ON_ONE_SIDE = 0.05
"""Above this share of a side that a paired comparison leaves out, a person is warned; ``auto`` does not pair then."""


@dataclass(frozen=True)
class Population:
    """The people behind the rows; one who is in several experiments is one person.

    Attributes:
        users: Experiment -> its users with a value.
        without_relevant: Experiment -> those of them without a relevant item.
        total: People of all experiments together; None where nobody knows how many are in several.
        design: How the experiments are compared; empty where nothing is compared.
        unit: What people call the units of errors: users, or the clusters that were assigned as a whole.
        units: Experiment -> its units; ``users`` unless they are clusters.
    """

    users: dict[str, int]
    without_relevant: dict[str, int]
    total: int | None
    design: str
    unit: str = "users"
    units: Mapping[str, int] = field(default_factory=dict)

    @property
    def of_clusters(self) -> bool:
        """Whether errors are by cluster."""
        return self.unit != "users"

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
        >>> Population({"a": 600, "b": 600}, {}, None, "paired", "clusters of house", {"a": 150, "b": 150}).text
        '600 users in each of 2 experiments (paired, 150 clusters of house in each).'
        """
        of_clusters = f"{range_text(self.units.values())} {self.unit} in each" if self.of_clusters else ""
        n, design = len(self.users), ", ".join(filter(None, [self.design, of_clusters]))
        design = f" ({design})" if design else ""
        size = range_text(self.users.values())
        word = "user" if {*self.users.values()} == {1} else "users"
        if n == 1:
            return f"{size} {word}."
        if self.total is not None and {*self.users.values()} == {self.total}:
            return f"{size} {word}, the same in {'both' if n == 2 else f'all {n:,}'} experiments{design}."
        if self.total is not None:
            return f"{self.total:,} users in all, {size} in each experiment{design}."
        return f"{size} {word} in each of {n:,} experiments{design}."


def population(figures: Figures) -> Population:
    """Who is behind the rows of all users.

    Comparisons know how many users two experiments share. That gives the number of people where at most one candidate
    has users who are not in the baseline, or where every two experiments were compared and share nobody. Where errors
    are by cluster, comparisons count clusters, so nobody knows how many users are in several experiments.
    """
    users: dict[str, int] = {}
    without: dict[str, int] = {}
    for mean in figures.everyone:
        name = mean.experiment_id
        if mean.n_users >= users.get(name, 0):
            users[name] = mean.n_users
            # The means of a period, which come from its comparisons, do not know it.
            if mean.n_users_with_relevant is not None:
                without[name] = mean.n_users - mean.n_users_with_relevant
    overlap: dict[tuple[str, str], int] = {}
    clusters: dict[str, int] = {}
    for found in figures.compared:
        for side in found.sides if found.cluster else ():
            clusters[side.name] = max(side.n_users, clusters.get(side.name, 0))
        if not clusters and found.n_users_both is not None:
            pair = found.pair[::-1]
            overlap[pair] = max(found.n_users_both, overlap.get(pair, 0))
    designs = {found.design for found in figures.compared if found.design}
    mixture = "some pairs are paired, others independent" if designs else ""
    design = next(iter(designs)) if len(designs) == 1 else mixture
    unit = next((found.units for found in figures.compared if found.cluster), "users")
    return Population(users, without, _total(users, overlap), design, unit, clusters or users)


def on_one_side(figures: Figures) -> tuple[int, float]:
    """Units that paired comparisons leave out since they are in one of both experiments: most of a pair, and the share.

    The share is that of the side that loses more. Units are counted on the metric that decides.
    """
    most, share = 0, 0.0
    for found in filter(figures.decides, figures.compared):
        if found.design == "paired" and (both := found.n_users_both) is not None:
            sides = [both if side.n_users is None else side.n_users for side in found.sides]
            alone = [n - both for n in sides]
            most = max(most, sum(alone))
            share = max(share, *(left / max(1, n) for left, n in zip(alone, sides, strict=True)))
    return most, share


def one_of(unit: str) -> str:
    """One of the units of a comparison.

    >>> one_of("users"), one_of("clusters of house")
    ('user', 'cluster of house')
    """
    return "user" if unit == "users" else unit.replace("clusters", "cluster", 1)


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


def range_text(numbers: Iterable[int]) -> str:
    """Lowest to highest, or the one number that all are.

    >>> range_text([1200, 900]), range_text([5, 5])
    ('900 to 1,200', '5')
    """
    low, high = min(numbers := [*numbers]), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
