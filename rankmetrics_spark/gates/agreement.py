"""How a machine's labels agree with those of people on the same items, and what is refused of them."""

from collections import Counter
from dataclasses import replace
from math import sqrt

from rankmetrics_spark import errors as err, schemas as sch
from rankmetrics_spark.gates.limits import Findings, said
from rankmetrics_spark.road import LabelCounts

AGREEMENT = "judge_agreement"


def with_agreement(found: Findings, counts: LabelCounts, scaled: bool) -> Findings:
    """The findings with the check of a judge; ``scaled``: whether it is said how grades of the two correspond.

    Raises:
        InputError: People judged an item that the machine did not, or the two have different highest grades.
    """
    n = sum(counts.values())
    if lacking := sum(count for (_, machine), count in counts.items() if machine is None):
        raise err.InputError(said("no_label", lacking=lacking, n=n))
    highest = [max((pair[i] or 0.0 for pair in counts), default=0.0) for i in (0, 1)]
    if highest[0] != highest[1] and not scaled:
        raise err.InputError(said("two_scales", highest=highest))
    check = agreement(counts)
    of_each = [replace(check, experiment=name) for name in found.counts]
    return replace(found, checks=(*found.checks, *of_each), notes=(*found.notes, check.sentence.rstrip(".")))


def agreement(counts: LabelCounts) -> sch.Check:
    """Cohen's kappa with a 95 % interval that takes items for independent ones, and the grades of both.

    >>> check = agreement({(0.0, 0.0): 45, (0.0, 1.0): 15, (1.0, 0.0): 25, (1.0, 1.0): 15})
    >>> print(check.sentence.replace(". P", ".\\nP"))
    The machine agrees with people on 60.0% of 100 items (kappa 0.13, -0.08 to 0.34).
    People -> machine: 0 -> 0: 45, 0 -> 1: 15, 1 -> 0: 25, 1 -> 1: 15.
    """
    n, people, machine = sum(counts.values()), Counter[float | None](), Counter[float | None]()
    for (ours, theirs), count in counts.items():
        people[ours] += count
        machine[theirs] += count
    same = sum(count for (ours, theirs), count in counts.items() if ours == theirs) / max(n, 1)
    chance = sum(people[grade] * machine[grade] for grade in people) / max(n, 1) ** 2
    if chance == 1 or not n:
        return sch.Check(AGREEMENT, sch.NOT_CHECKED, f"All of {n:,} items that people judged have one grade")
    kappa, half = (same - chance) / (1 - chance), 1.96 * sqrt(same * (1 - same) / n) / (1 - chance)
    table = ", ".join(f"{ours:g} -> {theirs:g}: {counts[ours, theirs]:,}" for ours, theirs in sorted(counts))
    text = said("agreement", same=same, n=n, kappa=kappa, low=kappa - half, high=kappa + half, table=table)
    return sch.Check(AGREEMENT, sch.OK, text, observed=kappa)
