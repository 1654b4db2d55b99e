# Databricks notebook source
# MAGIC %md
# MAGIC # Which ranking experiment is better, and how sure is that?
# MAGIC
# MAGIC This notebook evaluates the impressions of a table, writes the results, and shows the means with their intervals
# MAGIC and the distribution over users. The widgets set the table, the metrics and the output. Their values have the
# MAGIC same format as in a config file.
# MAGIC
# MAGIC It runs on a cluster (Databricks Runtime 14.3 or newer) and on serverless compute.

# COMMAND ----------

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Databricks defines these names in every notebook.
    from databricks.sdk.runtime import dbutils, display, spark

# The output of `make wheel`, relative to this notebook in a Git folder or a bundle. A path in a volume works too.
dbutils.widgets.text("package", "../dist", "0 Wheel of rankmetrics_spark, or its folder")
package = dbutils.widgets.get("package")
package = str(next(Path(package).glob("rankmetrics_spark-*.whl"), package))

# COMMAND ----------

# MAGIC %pip install --quiet $package

# COMMAND ----------

import math
from collections.abc import Callable
from itertools import accumulate

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from pyspark.sql import functions as F

from rankmetrics_spark import run
from rankmetrics_spark.config import from_mapping
from rankmetrics_spark.config.document import override
from rankmetrics_spark.errors import RankmetricsError
from rankmetrics_spark.metrics import PRESETS, Metric
from rankmetrics_spark.metrics.names import DIRECTIONS
from rankmetrics_spark.report.console import accounting, result_rows

dbutils.widgets.text("source", "main.default.impressions", "1 Impressions: catalog.schema.table")
dbutils.widgets.text("where", "", "2 Filter (SQL; {date} is the evaluation date)")
dbutils.widgets.text("columns", "{experiment: experiment_id, relevance: relevance}", "3 Columns, by role")
dbutils.widgets.text("metrics", "ap@5, ap@10, ndcg@5, ndcg@10", "4 Metrics")
dbutils.widgets.combobox("convention", "standard", list(PRESETS), "5 Convention")
dbutils.widgets.text("output", "main.rankmetrics", "6 Results: catalog.schema, or /Volumes/...")
dbutils.widgets.text("date", "", "7 Evaluation date (empty: today; yesterday, -2)")
dbutils.widgets.text("time_zone", "UTC", "8 Time zone of today")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Evaluate
# MAGIC The table is read once. The results go into the tables `user_metrics`, `experiment_metrics`, `quarantine` and
# MAGIC `runs` of a schema, or into a folder as Parquet. They replace only earlier results of the same experiments and
# MAGIC date.

# COMMAND ----------

KEYS = {
    "source": "source.table",
    "where": "source.where",
    "columns": "source.columns",
    "metrics": "metrics",
    "convention": "convention",
    "date": "evaluation_date",
    "time_zone": "time_zone",
}

output = dbutils.widgets.get("output").strip()
document: dict[str, object] = {"sink": {"path": output} if "/" in output else {"format": "delta", "table": output}}

try:
    for widget, key in KEYS.items():
        if value := dbutils.widgets.get(widget).strip():
            document = override(document, f"{key}={value}")
    config = from_mapping(document)
    outcome = run(spark, config, lambda step: print(step, "..."))
except RankmetricsError as mistake:
    # The message names the wrong widget value. A traceback through the package would hide it.
    raise mistake.with_traceback(None) from None

print(*accounting(outcome.record), f"run record: {outcome.record_path}", sep="\n")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The means
# MAGIC One row per experiment, segment and metric, with the confidence interval of the mean over users. The best
# MAGIC experiment of a metric comes first.

# COMMAND ----------

# Key: higher_is_better. Ascending order of sign * mean puts the best experiment first.
SIGN = {True: -1, False: 1, None: 0}

shown = ["experiment_id", "segment", "metric", "n_users", "mean", "ci_low", "ci_high", "confidence", "convention"]
signed = F.coalesce(
    *(F.when(F.col("metric") == str(m), F.col("mean") * SIGN[m.higher_is_better]) for m in config.metrics)
)
best_first = signed.asc_nulls_last()
display(outcome.experiment_metrics.select(shown).orderBy("segment", "metric", best_first, "experiment_id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Means and intervals
# MAGIC Overlapping intervals do not prove that there is no difference.

# COMMAND ----------

MOST = 6  # experiments in a plot; the table has all
everyone = result_rows(outcome.experiment_metrics.where("segment = 'all'"))
means = [row for row in everyone if row["mean"] is not None]


def ranking(metric: Metric) -> list[str]:
    """The experiments, the best mean of a metric first; in the order of names if neither direction is better."""
    found = {row["experiment_id"]: row["mean"] for row in means if row["metric"] == str(metric)}
    sign = SIGN[metric.higher_is_better]
    names = {row["experiment_id"] for row in means}
    return sorted(names, key=lambda name: (name not in found, sign * found.get(name, 0), name))


first = config.metrics[0]
ranked = ranking(first)
drawn = ranked[:MOST]
color = {name: f"C{place}" for place, name in enumerate(drawn)}


def panels(draw: Callable[[Axes, Metric], None], height: float, title: str) -> None:
    """A figure with one panel per metric, two per row."""
    rows = math.ceil(len(config.metrics) / 2)
    figure, grid = plt.subplots(rows, 2, figsize=(11, rows * height), squeeze=False, layout="constrained")
    for axes, metric in zip(grid.flat, config.metrics, strict=False):
        draw(axes, metric)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid.flat[len(config.metrics) :]:
        axes.remove()
    if named := grid.flat[0].get_legend_handles_labels()[0]:
        figure.legend(handles=named, loc="outside lower center", ncols=min(3, len(named)), frameon=False)
    chosen = "the first" if first.higher_is_better is None else f"by {first} the best"
    left_out = f"; {chosen} {MOST} of {len(ranked)} experiments" if len(ranked) > MOST else ""
    figure.suptitle(title + left_out)
    plt.show()


def draw_means(axes: Axes, metric: Metric) -> None:
    found = {row["experiment_id"]: row for row in means if row["metric"] == str(metric)}
    for place, name in enumerate(drawn[::-1]):
        if row := found.get(name):
            low, high = (math.nan if row[end] is None else row[end] for end in ("ci_low", "ci_high"))
            axes.plot([low, high], [place, place], color=color[name], linewidth=2, marker="|", markersize=9)
            axes.plot(row["mean"], place, "o", color=color[name])
            axes.annotate(f"{row['mean']:.4f}", (row["mean"], place), (0, 7), textcoords="offset points", ha="center")
    sizes = {name: row["n_users"] for name, row in found.items()}
    axes.set_yticks(range(len(drawn)), [f"{name}\n{sizes.get(name, 0):,} users" for name in drawn[::-1]])
    axes.set_ylim(-0.5, len(drawn) - 0.4)
    axes.margins(x=0.15)
    axes.grid(axis="x", alpha=0.3)
    axes.set_title(metric.headline)
    axes.set_xlabel(f"mean over users, {DIRECTIONS[metric.higher_is_better]} (the axis may not start at 0)")


if means:
    confidence = f"{means[0]['confidence']:.0%} intervals, convention {means[0]['convention']}"
    panels(draw_means, 1.3 + 0.5 * len(drawn), f"Means over users with {confidence}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Users
# MAGIC The same mean can come from many users at 0 and many at 1. The lower a line, the more users have high values.

# COMMAND ----------

STEPS = 20
columns = {str(metric): F.col(metric.column) for metric in config.metrics}
users = outcome.user_metrics.where(F.col("experiment_id").isin(drawn))


def ends() -> dict[str, tuple[float, float]]:
    """The lowest and highest edge of the steps of each metric: 0 and 1, or further if there are values beyond."""
    found = users.agg(*(end(column) for column in columns.values() for end in (F.min, F.max))).first() or ()
    pairs = zip(columns, found[::2], found[1::2], strict=True)
    return {metric: (min(0.0, low or 0.0), max(1.0, high or 0.0)) for metric, low, high in pairs}


def counted(between: dict[str, tuple[float, float]]) -> dict[tuple[str, str, int], int]:
    """(experiment, metric, step) -> the number of users whose value is in this step."""
    cells = [
        F.struct(
            F.lit(metric).alias("metric"),
            F.least(F.floor((column - low) / (high - low) * STEPS), F.lit(STEPS - 1)).alias("step"),
        )
        for (metric, column), (low, high) in zip(columns.items(), between.values(), strict=True)
    ]
    rows = users.select("experiment_id", F.inline(F.array(*cells))).where("step is not null")
    found = rows.groupBy("experiment_id", "metric", "step").count().collect()
    return {(row[0], row[1], row[2]): row[3] for row in found}


def draw_users(axes: Axes, metric: Metric) -> None:
    low, high = between[str(metric)]
    edges = [low + step * (high - low) / STEPS for step in range(STEPS + 1)]
    for name in drawn:
        found = [counts.get((name, str(metric), step), 0) for step in range(STEPS)]
        shares = [number / max(1, sum(found)) for number in accumulate(found)]
        axes.stairs(shares, edges, baseline=None, color=color[name], linewidth=1.8, label=name)
    axes.set_xlim(low, high)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.grid(alpha=0.3)
    axes.set_xlabel(f"{metric} of a user, {DIRECTIONS[metric.higher_is_better]}")
    axes.set_ylabel("users at or below")


if means:
    between = ends()
    counts = counted(between)
    panels(draw_users, 3, f"Share of users at or below each value, in {STEPS} steps")
