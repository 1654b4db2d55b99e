"""The split of a difference into mix and change within segments, by hand and on random users."""

import numpy as np
import pytest

from rankmetrics_spark.statistics import Moments, decompose


def segments(*groups: list[list[float]]) -> Moments:
    """Moments of g rows of s segments, each given by its values."""
    each = [[Moments.of(values) for values in row] for row in groups]
    names = ("n", "total", "squares")
    return Moments(*(np.array([[getattr(one, name)[0] for one in row] for row in each], object) for name in names))


def test_the_parts_are_those_of_the_formula() -> None:
    baseline = segments([[0.2, 0.4], [0.8, 0.8]])  # means 0.3 and 0.8, shares 1/2 and 1/2, everyone 0.55
    candidate = segments([[0.5], [0.6, 0.8, 1.0]])  # means 0.5 and 0.8, shares 1/4 and 3/4, everyone 0.725
    mix, within = decompose(baseline, candidate)
    everyone = (0.55 + 0.725) / 2
    assert within[0] == pytest.approx([(1 / 2 + 1 / 4) / 2 * (0.5 - 0.3), 0], abs=1e-15)
    assert mix[0] == pytest.approx([-1 / 4 * (0.4 - everyone), 1 / 4 * (0.8 - everyone)])
    assert (mix + within).sum(axis=-1) == pytest.approx([0.725 - 0.55])


def test_an_experiment_without_users_has_no_parts() -> None:
    mix, within = decompose(segments([[], []]), segments([[0.3], [0.5]]))
    assert np.isnan(mix).all() and np.isnan(within).all()
