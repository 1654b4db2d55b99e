"""Evaluate an impression log: ``spark-submit --py-files rankmetrics_spark.zip jobs/evaluate.py --config FILE``."""

from rankmetrics_spark.cli import evaluate

if __name__ == "__main__":
    evaluate()
