"""What spark-submit runs for a scheduler that has the package: ``jobs/evaluate.py`` for others."""

from rankmetrics_spark.cli import evaluate

if __name__ == "__main__":
    evaluate()
