# Databricks notebook source
# MAGIC %md
# MAGIC # Which ranking experiment is better, and how sure is that?
# MAGIC
# MAGIC This notebook evaluates the impressions of a table, writes the results, and shows which experiment is ahead,
# MAGIC with charts of means, differences and users. The widgets set the table, the metrics and the output. Their
# MAGIC values have the same format as in a config file.
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

from rankmetrics_spark import run
from rankmetrics_spark.config import from_mapping, override
from rankmetrics_spark.errors import RankmetricsError
from rankmetrics_spark.metrics import PRESETS
from rankmetrics_spark.report import accounting, figures_of_run, page

dbutils.widgets.text("source", "main.default.impressions", "1 Impressions: catalog.schema.table")
dbutils.widgets.text("where", "", "2 Filter (SQL; {date} is the evaluation date)")
dbutils.widgets.text("columns", "{experiment: experiment_id, relevance: relevance}", "3 Columns, by role")
dbutils.widgets.text("metrics", "ap@5, ap@10, ndcg@5, ndcg@10", "4 Metrics")
dbutils.widgets.combobox("convention", "standard", list(PRESETS), "5 Convention")
dbutils.widgets.text("output", "main.rankmetrics", "6 Results: catalog.schema, or /Volumes/...")
dbutils.widgets.text("date", "", "7 Evaluation date (empty: today; yesterday, -2)")
dbutils.widgets.text("time_zone", "UTC", "8 Time zone of today")
dbutils.widgets.text("baseline", "", "9 Baseline (empty: nothing is compared)")
dbutils.widgets.text("period", "", "10 Days compared as one, such as {from: 2026-11-08}")

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
    "baseline": "comparison.baseline",
    "period": "comparison.period",
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
# MAGIC ## The answer
# MAGIC What the run found, with one line per experiment. `outcome.summary()` has every segment, as a pandas frame.

# COMMAND ----------

displayHTML(outcome._repr_html_())
display(outcome.summary())

# COMMAND ----------

# MAGIC %md
# MAGIC ## The report
# MAGIC Charts, checks and tables: the page that `rankmetrics report` writes. It loads nothing from a network.

# COMMAND ----------

displayHTML(page(figures_of_run(spark, config, outcome.record)))
