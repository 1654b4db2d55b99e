"""What "the same work" means for DuckDB and Polars, and what they share: the checks of a row, and the estimates.

* Every row gets the reason why it is faulty, or none; faulty rows are counted by experiment and reason.
* A repeated item is left out (the highest grade stays, then the best rank), then a repeated rank (the highest grade
  stays). They are counted. As in the project, the search compares relevant rows, and all rows of a list in which a rank
  may repeat, or that is ranked by score. Only lists in which something may repeat are read a second time.
* Twelve metrics per user, and their sums and those of their squares in whole multiples of 2**-60. Such sums do not
  depend on the order of the rows.
* Means, standard deviations, means of users with a relevant item, and t-intervals, from these sums. Equal values
  have no interval.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from scipy.stats import t as student

UNIT = 2**60
LARGEST_RANK = 2**31 - 1
MASK_RANKS = 63
"""Up to here the ranks of a list are compared as bits of one integer."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Work:
    """One evaluation.

    Attributes:
        relevance: Column with the grades.
        by_score: Whether lists are ranked by score, equal scores by descending item; otherwise ranks are given.
        items: Whether repeated items are looked for. Without it, ranks by position do not read the items.
    """

    relevance: str = "relevance"
    by_score: bool = False
    items: bool = True

    @property
    def reads_item(self) -> bool:
        return self.items or self.by_score


DEFAULT = Work()
IGNORING = Work(items=False)
REAL_VALUED = Work(relevance="gain")
BY_SCORE = Work(by_score=True)


def reasons(work: Work, relevance_is_real: bool) -> list[tuple[str, str, str]]:
    """(reason, column, check) of every check of a row, in order: the first that fails is the reason."""
    result = [("null_experiment", "experiment", "null"), ("empty_experiment", "experiment", "empty")]
    result.append(("null_user", "user", "null"))
    if work.reads_item:
        result.append(("null_item", "item", "null"))
    if work.by_score:
        result += [("null_score", "score", "null"), ("nan_score", "score", "nan")]
    else:
        result.append(("null_position", "position", "null"))
        result += [("position_below_1", "position", "low"), ("position_too_large", "position", "large")]
    result.append(("null_relevance", work.relevance, "null"))
    if relevance_is_real:
        result += [("nan_relevance", work.relevance, "nan"), ("infinite_relevance", work.relevance, "infinite")]
    return result


def estimates(users: int, with_relevant: int, repeated: int, sums: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """The numbers of an experiment from its counts and, per metric, the sum and the sum of squares in ``UNIT``."""
    result = {"n_users": float(users), "n_users relevant": float(with_relevant), "n_repeated": float(repeated)}
    for name, (total, squares) in sums.items():
        result[name] = float(Fraction(total, UNIT * users))
        if with_relevant:
            result[f"{name} relevant"] = float(Fraction(total, UNIT * with_relevant))
        if users > 1:
            variance = (Fraction(squares, UNIT) - Fraction(total, UNIT) ** 2 / users) / (users - 1)
            # Squares are rounded, so that equal values seem to differ a little.
            rounding = (1 + 4 * result[name]) / UNIT + result[name] ** 2 * 2.0**-52
            result[f"{name} std"] = math.sqrt(variance) if variance > rounding else 0.0
            if half := float(student.ppf((1 + CONFIDENCE) / 2, users - 1)) * result[f"{name} std"] / math.sqrt(users):
                result[f"{name} low"], result[f"{name} high"] = result[name] - half, result[name] + half
    return result
