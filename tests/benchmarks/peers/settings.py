"""The Spark settings that every contender gets."""

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
    # From 128 groups on, an aggregation that collects lists would sort its input. Anyone who measures such a thing
    # finds this setting soon, so every contender gets it; the project's own job sets it for itself.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
}
