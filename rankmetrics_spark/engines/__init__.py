"""Which engine computes, the sessions of Spark and Sail, and what differs between them."""

from typing import TYPE_CHECKING

from rankmetrics_spark.doors import lazy

if TYPE_CHECKING:
    from rankmetrics_spark.engines.choice import QUICK_JAVA, Choice, choose, separate_output, session_of
    from rankmetrics_spark.engines.python_tables import (
        AnyTable,
        ResultTable,
        column_names,
        python_table,
        result_table,
        spark_table,
        table_of,
    )
    from rankmetrics_spark.engines.sail import laptop_session
    from rankmetrics_spark.engines.sessions import (
        ORDER,
        SETTINGS_OF_ROWS,
        SETTINGS_OF_RUNS,
        all_of,
        engine_of,
        explain_in_notebooks,
        few_rows,
        in_order,
        is_connect,
        is_laptop,
        name_of_engine,
        sail_path,
        session_settings,
        spark_path,
        temporary_folder,
        version_of,
    )
    from rankmetrics_spark.engines.spark import cache_folder, write_cached
    from rankmetrics_spark.engines.sums import SUMS, SumTable, coded, group_means, lists_of, matrix_of, weight_of
    from rankmetrics_spark.engines.tables import (
        REAL,
        TIMES,
        Batches,
        Computed,
        Step,
        as_number,
        as_text,
        check_unambiguous,
        computing,
        in_one_step,
        in_slices,
        own_or_field,
        rows_of,
        schema_text,
        struct_udf,
        text_fields,
        with_fields,
        with_typed_nulls,
    )

__getattr__ = lazy(
    __name__,
    {
        "choice": "Choice QUICK_JAVA choose separate_output session_of",
        "python_tables": "AnyTable ResultTable column_names python_table result_table spark_table table_of",
        "sail": "laptop_session",
        "sessions": (
            "ORDER SETTINGS_OF_ROWS SETTINGS_OF_RUNS all_of engine_of explain_in_notebooks few_rows in_order "
            "is_connect is_laptop name_of_engine sail_path session_settings spark_path temporary_folder version_of"
        ),
        "spark": "cache_folder write_cached",
        "sums": "SUMS SumTable coded group_means lists_of matrix_of weight_of",
        "tables": (
            "Batches Computed REAL TIMES Step as_number as_text check_unambiguous computing own_or_field "
            "in_one_step in_slices rows_of schema_text struct_udf text_fields with_fields with_typed_nulls"
        ),
    },
)
