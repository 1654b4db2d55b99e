"""The Spark settings that every contender gets."""

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    # The heap is collected before each run; one that shrank then would grow again on the time of the next contender.
    "spark.driver.extraJavaOptions": "-Xms2g",
    "spark.sql.shuffle.partitions": "8",
    # From 128 groups on, an aggregation that collects lists would sort its input. Anyone who measures such a thing
    # finds this setting soon, so every contender gets it; the project's own job sets it for itself.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    # Room for the generated code of all contenders. With the default of 100 entries each would find its own thrown out
    # by the others, and compile it anew in every round.
    "spark.sql.codegen.cache.maxEntries": "5000",
}
