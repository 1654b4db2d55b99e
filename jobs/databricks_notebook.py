# Databricks notebook source
# MAGIC %md
# MAGIC # Which ranking experiment is better, and how sure is that?
# MAGIC
# MAGIC This notebook evaluates the impressions of a table, writes the results, and shows which experiment is ahead,
# MAGIC with charts of means, differences and users. The widgets set the table, the metrics and the output, or name a
# MAGIC config file. Their values have the same format as in a config file; those that are empty change nothing.
# MAGIC
# MAGIC It runs on a cluster (Databricks Runtime 14.3 or newer) and on serverless compute.

# COMMAND ----------

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Databricks defines these names in every notebook.
    from databricks.sdk.runtime import dbutils, display, displayHTML, spark

# The output of `make wheel`, relative to this notebook in a Git folder or a bundle. A path in a volume works too.
dbutils.widgets.text("package", "../dist", "0 Wheel of rankmetrics_spark, or its folder")
package = dbutils.widgets.get("package")
package = str(next(Path(package).glob("rankmetrics_spark-*.whl"), package))

# COMMAND ----------

# MAGIC %pip install --quiet "$package[report]"

# COMMAND ----------

from contextlib import suppress
from html import escape

from rankmetrics_spark import run
from rankmetrics_spark.config import load
from rankmetrics_spark.errors import RankmetricsError
from rankmetrics_spark.metrics import PRESETS
from rankmetrics_spark.report import accounting, figures_of_run, page

dbutils.widgets.text("config", "", "1 Config file (empty: none); what is empty below stays as it says")
dbutils.widgets.text("source", "main.default.impressions", "2 Impressions: catalog.schema.table")
dbutils.widgets.text("where", "", "3 Filter (SQL; {date} is the evaluation date)")
dbutils.widgets.text("columns", "", "4 Columns, such as {experiment: variant, relevance: clicked}")
dbutils.widgets.text("segments", "", "5 Columns of segments, such as [country, device]")
dbutils.widgets.text("metrics", "", "6 Metrics (by default ap@5, ap@10, ndcg@5, ndcg@10)")
dbutils.widgets.combobox("convention", "", ["", *PRESETS], "7 Convention (by default standard)")
dbutils.widgets.text("output", "main.rankmetrics", "8 Results: catalog.schema, or /Volumes/...")
dbutils.widgets.text("date", "", "9 Evaluation date (by default today; yesterday, -2)")
dbutils.widgets.text("time_zone", "", "10 Time zone of today (by default UTC)")
dbutils.widgets.text("baseline", "", "11 Baseline (by default nothing is compared)")
dbutils.widgets.text("period", "", "12 Days compared as one, such as {from: 2026-11-08}")
dbutils.widgets.text("gates", "", "13 Gates, such as [{metric: ndcg@10, max_drop: 0.01}]")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Evaluate
# MAGIC The table is read once. The results go into the tables `user_metrics`, `experiment_metrics`, `comparisons`,
# MAGIC `checks`, `quarantine` and `runs` of a schema, or into a folder as Parquet. They replace only earlier results of
# MAGIC the same experiments and date. If a gate fails, nothing is published.

# COMMAND ----------

KEYS = {
    "source": "source.table",
    "where": "source.where",
    "columns": "source.columns",
    "segments": "source.segments",
    "metrics": "metrics",
    "convention": "convention",
    "date": "evaluation_date",
    "time_zone": "time_zone",
    "baseline": "comparison.baseline",
    "period": "comparison.period",
    "gates": "gates",
}

given = {name: value for name in ("config", "output", *KEYS) if (value := dbutils.widgets.get(name).strip())}
words = ["source.path=null"] * ("source" in given)
words += [f"{key}={given[name]}" for name, key in KEYS.items() if name in given]
if output := given.get("output"):
    of_sink = ("path", "table") if "/" in output else ("table", "path")
    words += [f"sink.{of_sink[0]}={output}", f"sink.{of_sink[1]}=null"]
    words += [f"sink.format={'parquet' if '/' in output else 'delta'}"]

try:
    config = load(given.get("config", {}), words)
    outcome = run(spark, config, lambda step: print(step, "..."))
except RankmetricsError as mistake:
    # The message names the wrong widget value. A traceback through the package would hide it.
    raise mistake.with_traceback(None) from None

print(*accounting(outcome.record), f"run record: {outcome.record_path}", sep="\n")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The answer
# MAGIC What the run found, with one line per experiment. `outcome.summary()` has every segment, as a pandas frame.

# COMMAND ----------

displayHTML(outcome._repr_html_())
display(outcome.summary())

# COMMAND ----------

# MAGIC %md
# MAGIC ## The tables
# MAGIC Where the results are, with links into Catalog Explorer.

# COMMAND ----------

address = ""
with suppress(Exception):  # not every session shows its settings
    address = f"https://{spark.conf.get('spark.databricks.workspaceUrl')}"


def linked(place: str) -> str:
    """A place as a link, if it is a table of a catalog or lies in a volume."""
    if place.startswith("/Volumes/"):
        path = f"volumes/{place.removeprefix('/Volumes/')}"
    elif "/" not in place:
        path = place.replace(".", "/")
    else:
        return escape(place)
    return f'<a href="{address}/explore/data/{escape(path)}" target="_blank">{escape(place)}</a>'


rows = ((name, outcome.record["tables"][name]["rows"], place) for name, place in outcome.paths["tables"].items())
lines = (f"<tr><td>{name}</td><td>{n:,}</td><td>{linked(place)}</td></tr>" for name, n, place in rows)
displayHTML(f"<table><tr><th>table</th><th>rows</th><th>place</th></tr>{''.join(lines)}</table>")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The report
# MAGIC Charts, checks and tables: the page that `rankmetrics report` writes. It loads nothing from a network.

# COMMAND ----------

displayHTML(page(figures_of_run(spark, config, outcome.record)))
