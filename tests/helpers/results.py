"""Output folders as runs leave them, made without Spark: what pages and tables of any size are tested with."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import stats

METRICS = ("ap@5", "ap@10", "ndcg@5", "ndcg@10")
TEXT = "standard;ap_denominator=min(m,k);gain=linear;ideal_pool=judged;population=shown;relevant_from=0.0;ties=best"


@dataclass
class Output:
    """An output folder, day by day.

    Attributes:
        path: The folder.
        experiments: The first one is the baseline.
        segments: Names beside ``all``.
        users: Users per experiment.
        further: Columns of ``comparisons`` beside those of the test that decides, the same in every row.
        effects: Experiment -> by how much its values are raised; by default the second one wins and the third loses.
    """

    path: Path
    experiments: Sequence[str] = ("control", "candidate_a", "candidate_b")
    segments: Sequence[str] = ("device=desktop", "device=mobile")
    users: int = 400
    effects: dict[str, float] = field(default_factory=dict)
    note: str | None = None
    metrics: Sequence[str] = METRICS
    further: dict[str, Any] = field(default_factory=dict)

    def write(self, date: str = "2026-11-20", seed: int = 7, **more: Any) -> Path:
        """Write the tables and the record of a date; ``more`` goes into the record."""
        rng = np.random.default_rng(seed)
        values = {name: self._values(rng, place) for place, name in enumerate(self.experiments)}
        for name, users in values.items():
            self._table("user_metrics", name, date, self._users(users))
            self._table("experiment_metrics", name, date, self._means(users))
            if name != self.experiments[0]:
                self._table("comparisons", name, date, self._compared(values[self.experiments[0]], users))
        self._record(date, more)
        return self.path

    def _values(self, rng: np.random.Generator, place: int) -> dict[str, Any]:
        effect = self.effects.get(self.experiments[place], (0.0, 0.09, -0.08)[place] if place < 3 else 0.0)
        values = {
            metric: np.clip(rng.beta(2, 3, self.users) + effect, 0, 1) * (rng.random(self.users) > 0.2)
            for metric in self.metrics
        }
        return values | {"segment": rng.integers(0, max(1, len(self.segments)), self.users)}

    def _users(self, users: dict[str, Any]) -> dict[str, Any]:
        columns = {metric.replace("@", "_at_"): users[metric] for metric in self.metrics}
        return {"user_id": [f"u{i}" for i in range(self.users)], **columns}

    def _parts(self, users: dict[str, Any]) -> list[tuple[str, Any]]:
        everyone = np.ones(self.users, dtype=bool)
        return [("all", everyone), *((name, users["segment"] == i) for i, name in enumerate(self.segments))]

    def _means(self, users: dict[str, Any]) -> dict[str, list[Any]]:
        rows = []
        for segment, chosen in self._parts(users):
            for metric in self.metrics:
                x = users[metric][chosen]
                half = float(stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))
                rows.append(
                    dict(segment=segment, metric=metric, convention="standard", convention_hash="f6792186",
                         n_users=len(x), n_users_with_relevant=int((x > 0).sum()), n_users_without_list=0,
                         mean=float(x.mean()), std=float(x.std(ddof=1)), ci_low=float(x.mean()) - half,
                         ci_high=float(x.mean()) + half, confidence=0.95, mean_with_relevant=None, n_repeated=0)
                )  # fmt: skip
        return _columns(rows)

    def _compared(self, baseline: dict[str, Any], users: dict[str, Any]) -> dict[str, list[Any]]:
        rows = []
        for (segment, mine), (_, theirs) in zip(self._parts(users), self._parts(baseline), strict=True):
            for metric in self.metrics:
                x, y = users[metric][mine], baseline[metric][theirs]
                p = float(stats.ttest_ind(x, y, equal_var=False).pvalue)
                d, half = float(x.mean() - y.mean()), 1.96 * float(np.sqrt(x.var() / len(x) + y.var() / len(y)))
                b = float(y.mean())
                better = ("candidate" if d > 0 else "baseline") if p < 0.01 and not self.note else None
                rows.append(
                    dict(baseline=self.experiments[0], segment=segment, metric=metric, design="independent",
                         n_users=len(x) + len(y), mean_baseline=b, mean_candidate=float(x.mean()), difference=d,
                         relative_difference=d / b, ci_low=d - half, ci_high=d + half, p_value=p, p_adjusted=p,
                         wins=0, ties=0, losses=0, better=better, note=self.note, confidence=0.95,
                         correction="holm", family="of this run", n_comparisons=24, relative_ci_low=(d - half) / b,
                         relative_ci_high=(d + half) / b, sample_ratio_p=1e-9 if self.note else None,
                         minimum_detectable_effect=0.02) | self.further
                )  # fmt: skip
        return _columns(rows)

    def _table(self, table: str, experiment: str, date: str, columns: dict[str, Any]) -> None:
        folder = self.path / table / f"experiment_id={quote(experiment, safe=' ')}" / f"evaluation_date={date}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / "part-0.parquet")

    def _record(self, date: str, more: dict[str, Any]) -> None:
        count = dict(rows=4010, evaluated=4000, quarantined=10, lists=400, no_relevant=80, tied=0, beyond_judgements=0)
        count |= {"judged_lists": 400}
        n = len(self.experiments)
        record = {
            "run_id": f"{date.replace('-', '')}T010203-0a1b2c3d",
            "outcome": "done",
            "started": f"{date}T01:02:03+00:00",
            "evaluation_date": date,
            "config": {"metrics": list(self.metrics), "rank_by": "position", "judgements": None, "gates": []},
            "convention": {"name": "standard", "text": TEXT, "hash": "f6792186"},
            "versions": {"rankmetrics_spark": "0.1.0", "spark": "4.3.0", "python": "3.11"},
            "rows": {"in": 4010 * n, "evaluated": 4000 * n, "quarantined": 10 * n},
            "experiments": dict.fromkeys(self.experiments, count),
            "quarantine_reasons": {"null_item": 10 * n},
            "judgements": None,
            "quality": {"warnings": []},
            "seconds": {"evaluate": 2.5},
            "verdict": [],
        }
        folder = self.path / "runs"
        folder.mkdir(exist_ok=True)
        (folder / f"{record['run_id']}.json").write_text(json.dumps(record | more), encoding="utf-8")


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
