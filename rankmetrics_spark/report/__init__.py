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
    from rankmetrics_spark.report.html import (
        INSTALL_PAGE,
        MOST_BYTES,
        check_page_file,
        check_page_libraries,
        has_page_libraries,
        page,
        write_page,
    )
    from rankmetrics_spark.report.mlflow import log_run, parameters, values
    from rankmetrics_spark.report.notebook import as_html, plot, summary
    from rankmetrics_spark.report.palette import LIGHT
    from rankmetrics_spark.report.payload import payload_of
    from rankmetrics_spark.report.read import (
        FolderTables,
        everyone_and_largest,
        figures_of,
        figures_of_run,
        format_of,
        local_tables,
        spark_tables,
    )
    from rankmetrics_spark.report.story import Answer, answer, cards, leader
    from rankmetrics_spark.report.terminal import Shown, print_all, print_result, print_verdict
    from rankmetrics_spark.report.trust import checks, without_relevant
    from rankmetrics_spark.report.verdict import MOST_SENTENCES, Change, p_value, sentence, verdict_of

__getattr__ = lazy(
    __name__,
    {
        "charts": "templates",
        "palette": "LIGHT",
        "console": (
            "CONVENTION_PRINTERS LIST_PRINTERS PRINTERS accounting compared_rows paths_text "
            "print_conventions print_list print_table result_rows safe_cells table tie_warnings"
        ),
        "display": "figures_of_frames",
        "figures": "ANY_WIDTH Figures blocks deciding printable seconds_of",
        "html": "INSTALL_PAGE MOST_BYTES check_page_file check_page_libraries has_page_libraries page write_page",
        "mlflow": "log_run parameters values",
        "notebook": "as_html plot summary",
        "payload": "payload_of",
        "read": "FolderTables figures_of figures_of_run format_of local_tables spark_tables everyone_and_largest",
        "story": "Answer answer cards leader",
        "terminal": "Shown print_all print_result print_verdict",
        "trust": "checks without_relevant",
        "verdict": "Change MOST_SENTENCES p_value sentence verdict_of",
    },
)
