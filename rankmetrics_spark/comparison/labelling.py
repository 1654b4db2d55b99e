"""Before people judge: how many labels of theirs find which effect, from a pilot that a machine has judged too."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rankmetrics_spark import config as cfg, engines as eng, errors as err, metrics as mx, statistics as st, words
from rankmetrics_spark.comparison import compared, measures as ms, planning, registry, results, table as tables
from rankmetrics_spark.schemas import CONVENTION_HASH, DATE

#: Labels of people that rows of a plan are about, as far as there are so many users.
_SIZES = tuple(first * 10**power for power in range(1, 7) for first in (1, 2, 5))[1:]
#: Users of which a machine that does not help has judged any number.
_NO_LIMIT = 10**12


def _pilot(rows: compared.Compared) -> list[str]:
    judged, texts = rows.judged, []
    for i, (_, tested, _) in enumerate(judged.labels):
        if doubt := judged.doubt(i) or ("" if all(of.h.std() for of in tested) else "people's values do not differ"):
            raise err.InputError(f"the pilot cannot be planned with: {doubt}; allowed: one that has a verdict")
        sides = [(float(of.products[0]), of.of_machine.variance, of.rho * of.helps, of.of_machine.n) for of in tested]
        of_row = rows.keys[i].candidate, judged.numbers["mean_baseline"][i], int(judged.least[i])
        texts.append(json.dumps([*of_row, [of.rho for of in tested], sides]))
    return texts


@dataclass(frozen=True)
class LabelPlan:
    """How many users people have to judge.

    Attributes:
        metric: Name of the metric.
        baseline: The experiment that the other one is compared with.
        candidate: The other one.
        mean: The corrected mean of the baseline.
        n_judged: Users of the pilot whom people judged, of the side that has fewer.
        correlations: Of the values under people's labels and the machine's: of differences of paired users, or in the
            baseline and in the candidate.
        sides: What they are planned with; without a correlation where the machine does not help.
        effect: The effect that was asked for, in the metric's unit, or None.
        confidence: 1 - level of the two-sided test.
        power: Probability of finding the effect.
        units: What people call the users.
    """

    metric: str
    baseline: str
    candidate: str
    mean: float
    n_judged: int
    correlations: Sequence[float]
    sides: Sequence[st.Side]
    effect: float | None
    confidence: float
    power: float
    units: str = field(default_factory=lambda: str(words.UNITS), repr=False)

    @property
    def _of_people(self) -> list[st.Side]:
        return [replace(side, rho=0.0, size=_NO_LIMIT) for side in self.sides]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One per number of users whom people judge (of each side, where these are independent): the smallest effect
        that the test finds with the chosen power, also as a share of the mean, and the same of people's labels alone;
        None where not even the largest change that the metric allows is found.
        """
        largest, rows = min(side.size for side in self.sides), []
        for n in (*(size for size in _SIZES if size < largest), largest):
            row: dict[str, Any] = {"candidate": self.candidate, "n_judged": n}
            for end, sides in (("", self.sides), ("_human", self._of_people)):
                effect = st.smallest_effect(sides, n, self.confidence, self.power)
                found = effect if effect <= mx.parse(self.metric).room(self.mean) else None
                row[f"smallest_effect{end}"] = found
                row[f"smallest_relative_effect{end}"] = found and (found / self.mean if self.mean > 0 else None)
            rows.append(row)
        return rows

    @property
    def labels_needed(self) -> tuple[int | None, int | None]:
        """Users of each side whom people have to judge to find the effect, with the machine and without; None where
        all that it judges are too few.
        """
        test = self.effect or 0.0, self.confidence, self.power
        return st.labels_needed(self.sides, *test), st.labels_needed(self._of_people, *test)

    @property
    def basis(self) -> str:
        """Whether the machine helps, and how sure that is, in words."""
        least, half, parts = 1 / math.sqrt(self.n_judged - 2), 1.96 / math.sqrt(self.n_judged - 3), []
        names = ("their differences",) if len(self.sides) == 1 else (self.baseline, self.candidate)
        for name, rho, side in zip(names, self.correlations, self.sides, strict=True):
            low, high = (math.tanh(math.atanh(min(rho, 1 - 1e-9)) + sign * half) for sign in (-1, 1))
            helps = "helps" if side.rho else "does not help, and labels of people count alone"
            parts.append(f"{rho:.2f} ({low:.2f} to {high:.2f}) in {name}, so it {helps}")
        each = "; by ".join(parts)
        return ms.said("basis", plan=self, each=each, least=least, least_different=st.LEAST_DIFFERENT)

    @property
    def answer(self) -> str:
        """How many labels the effect that was asked for takes, in words; empty if none was."""
        if self.effect is None:
            return ""
        (needed, alone), sides = self.labels_needed, " of each side" * (len(self.sides) > 1)
        share = f" ({100 * self.effect / self.mean:.3g} %)" if self.mean > 0 else ""
        judged = f"{min(side.size for side in self.sides):,} {self.units}{sides} that the machine judges"
        enough = f"found where people judge {needed:,} of" if needed else "not found even where people judge all"
        return (f"with a probability of {100 * self.power:.3g} % a change of {self.effect:.3g}{share} in {self.metric} "
                f"is {enough} {judged}; without it, they have to judge {alone or _NO_LIMIT:,}")  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        needed = dict(zip(("labels_needed", "labels_needed_human"), self.labels_needed, strict=True))
        return {**asdict(self), **needed, "labels": self.rows}


@eng.told_as_read
def plan_labels(
    user_metrics: eng.AnyTable,
    metric: str | mx.Metric,
    baseline: str,
    effect: float | str | None = None,
    users: int | None = None,
    *,
    confidence: float = 0.95,
    power: float = 0.8,
) -> list[LabelPlan]:
    """How many users do people have to judge, and does a machine help? From a pilot; runs a small job at once.

    Where people judge n users, and the machine alone N more, the standard error is at best sqrt(1 - rho**2 * N /
    (n + N)) of that without the machine, whose values have the correlation rho with people's; it is planned with the
    cost of a lambda that is made from n values.

    Args:
        user_metrics: One row per (experiment_id, user_id) of one date, with values under labels of people in a sample,
            and of a machine in all: of an evaluation with both.
        metric: A metric that has a column, such as ``ndcg@10``.
        baseline: The experiment that the others are compared with.
        effect: An effect to find: ``"2%"`` of the baseline's mean, or a number in the metric's unit.
        users: Users of each side whom the machine will judge, if they are not so many as in the pilot.
        confidence: Of the intervals.
        power: Probability of finding the effect.

    Returns:
        One plan per candidate.

    Raises:
        ConfigError: A wrong argument.
        InputError: No machine has judged. From the engine: people judged fewer than 20 users, some in part, or no
            random ones, or their values do not differ.
    """
    if users is not None:
        cfg.count(st.LEAST_JUDGED, _NO_LIMIT)("users", users)
    comparison = cfg.Comparison.of(locals())
    rows = eng.spark_table(user_metrics, "user_metrics")
    table = tables.UserTable.of(rows, [metric])
    table = replace(table, alike=tuple(name for name in (CONVENTION_HASH, DATE) if name in rows.columns))
    name = str(table.metrics[0])
    if not tables.machine_columns(table):
        raise err.InputError(ms.said("no_machine", name=name))
    plans, of_pilot = [], (registry.Statistic(_pilot, ("pilot",), "string", ""),)
    for row in eng.few_rows(results.comparisons(table, comparison, statistics=of_pilot)):
        candidate, mean, n, correlations, parts = json.loads(row["pilot"])
        sides = [st.Side(people, machine, rho, users or size) for people, machine, rho, size in parts]
        target = None if effect is None else planning.effect_of(effect, mean, table.metrics[0])
        plans.append(LabelPlan(name, baseline, candidate, mean, n, correlations, sides, target, confidence, power))
    return sorted(plans, key=lambda plan: plan.candidate)
