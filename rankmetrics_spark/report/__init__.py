"""What people read: tables and sentences of a terminal, of a page, and of a notebook."""

from typing import TYPE_CHECKING

from rankmetrics_spark.doors import lazy

if TYPE_CHECKING:
    from rankmetrics_spark.report.charts import templates
    from rankmetrics_spark.report.console import (
        CONVENTION_PRINTERS,
        LIST_PRINTERS,
        PRINTERS,
        accounting,
        compared_rows,
        paths_text,
        print_conventions,
        print_list,
        print_table,
        result_rows,
        safe_cells,
        table,
        tie_warnings,
    )
    from rankmetrics_spark.report.display import figures_of_frames
    from rankmetrics_spark.report.figures import ANY_WIDTH, Figures, blocks, deciding, printable, seconds_of
    from rankmetrics_spark.report.html import MOST_BYTES, check_page_file, page, write_page
    from rankmetrics_spark.report.mlflow import log_run, parameters, values
    from rankmetrics_spark.report.notebook import as_html, plot, summary
    from rankmetrics_spark.report.palette import LIGHT
    from rankmetrics_spark.report.payload import payload_of
    from rankmetrics_spark.report.read import figures_of, figures_of_run, format_of, local_tables, spark_tables
    from rankmetrics_spark.report.read_by_arrow import FolderTables
    from rankmetrics_spark.report.scripts import INSTALL_PAGE, check_page_libraries, has_page_libraries
    from rankmetrics_spark.report.story import Answer, answer, cards, leader
    from rankmetrics_spark.report.tables import everyone_and_largest
    from rankmetrics_spark.report.terminal import Shown, print_all, print_result, print_verdict
    from rankmetrics_spark.report.trust import checks, without_relevant
    from rankmetrics_spark.report.verdict import MOST_SENTENCES, Change, p_value, sentence, verdict_of

__getattr__ = lazy(
    __name__,
    {
        "charts": "templates",
        "console": (
            "CONVENTION_PRINTERS LIST_PRINTERS PRINTERS accounting compared_rows paths_text "
            "print_conventions print_list print_table result_rows safe_cells table tie_warnings"
        ),
        "display": "figures_of_frames",
        "figures": "ANY_WIDTH Figures blocks deciding printable seconds_of",
        "html": "MOST_BYTES check_page_file page write_page",
        "mlflow": "log_run parameters values",
        "notebook": "as_html plot summary",
        "palette": "LIGHT",
        "payload": "payload_of",
        "read": "figures_of figures_of_run format_of local_tables spark_tables",
        "read_by_arrow": "FolderTables",
        "scripts": "INSTALL_PAGE check_page_libraries has_page_libraries",
        "story": "Answer answer cards leader",
        "tables": "everyone_and_largest",
        "terminal": "Shown print_all print_result print_verdict",
        "trust": "checks without_relevant",
        "verdict": "Change MOST_SENTENCES p_value sentence verdict_of",
    },
)
