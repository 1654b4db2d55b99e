"""The Spark settings of every contender."""

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    # The benchmark runs the garbage collector before each run. Without this minimum the heap would shrink, and the next
    # contender would spend time on growing it again.
    "spark.driver.extraJavaOptions": "-Xms2g",
    "spark.sql.shuffle.partitions": "8",
    # By default an aggregation that collects lists sorts its input above 128 groups. The project's job raises this
    # limit for itself, so for a fair comparison every contender gets the higher limit.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    # Room for the generated code of all contenders. With the default of 100 entries they would push each other's code
    # out of the cache and compile it again in every round.
    "spark.sql.codegen.cache.maxEntries": "5000",
}
