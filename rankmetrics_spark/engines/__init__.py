"""Which engine computes, the sessions of Spark and Sail, and what differs between them."""

from typing import TYPE_CHECKING

from rankmetrics_spark.doors import lazy

if TYPE_CHECKING:
    from rankmetrics_spark.engines.cache import cache_folder, write_cached
    from rankmetrics_spark.engines.choice import QUICK_JAVA, Choice, choose, separate_output, session_of
    from rankmetrics_spark.engines.driver import all_of, explain_in_notebooks, few_rows
    from rankmetrics_spark.engines.means import group_means, weight_of
    from rankmetrics_spark.engines.python_tables import AnyTable, python_table, spark_table, with_display
    from rankmetrics_spark.engines.sail import laptop_session
    from rankmetrics_spark.engines.settings import SETTINGS_OF_ROWS, SETTINGS_OF_RUNS, session_settings
    from rankmetrics_spark.engines.tables import (
        REAL,
        Batches,
        Computed,
        Step,
        as_number,
        as_text,
        check_unambiguous,
        computing,
        own_or_field,
        struct_udf,
        text_fields,
        with_fields,
    )
    from rankmetrics_spark.engines.which import (
        ORDER,
        engine_of,
        in_order,
        is_laptop,
        name_of_engine,
        sail_path,
        version_of,
    )

__getattr__ = lazy(
    __name__,
    {
        "cache": "cache_folder write_cached",
        "choice": "Choice QUICK_JAVA choose separate_output session_of",
        "driver": "all_of explain_in_notebooks few_rows",
        "means": "group_means weight_of",
        "python_tables": "AnyTable python_table spark_table with_display",
        "sail": "laptop_session",
        "settings": "SETTINGS_OF_ROWS SETTINGS_OF_RUNS session_settings",
        "tables": (
            "Batches Computed REAL Step as_number as_text check_unambiguous computing own_or_field "
            "struct_udf text_fields with_fields"
        ),
        "which": "ORDER engine_of in_order is_laptop name_of_engine sail_path version_of",
    },
)
