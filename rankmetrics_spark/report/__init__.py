"""What people read: tables and sentences of a terminal, of a page, and of a notebook."""

from typing import TYPE_CHECKING

from rankmetrics_spark.doors import lazy

if TYPE_CHECKING:
    from rankmetrics_spark.report.assets import INSTALL_PAGE, check_page_libraries, has_page_libraries
    from rankmetrics_spark.report.charts import templates
    from rankmetrics_spark.report.console import (
        CONVENTION_PRINTERS,
        LIST_PRINTERS,
        accounting,
        compared_rows,
        paths_text,
        print_conventions,
        print_list,
        print_table,
        result_rows,
        table,
        tie_warnings,
    )
    from rankmetrics_spark.report.differences import Change, p_value
    from rankmetrics_spark.report.examples import with_examples
    from rankmetrics_spark.report.figures import Examples, Figures, period_means, seconds_of
    from rankmetrics_spark.report.formats import (
        ANY_WIDTH,
        DOCUMENT_STYLES,
        RESULT_TABLES,
        blocks,
        document,
        folded,
        print_csv,
        print_json,
        result_object,
        safe_cells,
    )
    from rankmetrics_spark.report.histograms import change_rows, change_steps
    from rankmetrics_spark.report.html import MOST_BYTES, block, check_page_file, data_of, page, write_page
    from rankmetrics_spark.report.notebook import (
        as_html,
        compared_html,
        log_run,
        logged_metrics,
        logged_parameters,
        plot,
        summary,
    )
    from rankmetrics_spark.report.over_time import difference_rows, print_over_time, sentences_over_time
    from rankmetrics_spark.report.overview import further_sentences, newer_failures, status_line, what_else
    from rankmetrics_spark.report.palette import LIGHT
    from rankmetrics_spark.report.payload import payload_of
    from rankmetrics_spark.report.periods import (
        figures_of_frames,
        figures_of_output,
        figures_of_period,
        figures_of_run,
        merged_record,
        notes_of_runs,
        outlook_of,
        period_of,
        shown_rows,
    )
    from rankmetrics_spark.report.read import (
        FolderTables,
        everyone_and_largest,
        figures_of,
        format_of,
        local_tables,
        spark_tables,
    )
    from rankmetrics_spark.report.sentences import sentences_of_segments
    from rankmetrics_spark.report.story import Answer, answer, cards, leader
    from rankmetrics_spark.report.terminal import (
        Shown,
        print_all,
        print_gates,
        print_not_published,
        print_result,
        print_verdict,
    )
    from rankmetrics_spark.report.trust import check_rows, checks, without_relevant
    from rankmetrics_spark.report.verdict import (
        MOST_SENTENCES,
        outlook_sentence,
        sentence,
        sentences_of_period,
        verdict_of,
    )

__getattr__ = lazy(
    __name__,
    {
        "assets": "INSTALL_PAGE check_page_libraries has_page_libraries",
        "palette": "LIGHT",
        "charts": "templates",
        "differences": "Change p_value",
        "console": (
            "CONVENTION_PRINTERS LIST_PRINTERS accounting compared_rows paths_text "
            "print_conventions print_list print_table result_rows table tie_warnings"
        ),
        "examples": "with_examples",
        "figures": "Examples Figures period_means seconds_of",
        "histograms": "change_rows change_steps",
        "html": "MOST_BYTES block check_page_file data_of page write_page",
        "formats": (
            "ANY_WIDTH DOCUMENT_STYLES RESULT_TABLES blocks document folded print_csv print_json "
            "result_object safe_cells"
        ),
        "notebook": "as_html compared_html log_run logged_metrics logged_parameters plot summary",
        "over_time": "difference_rows print_over_time sentences_over_time",
        "overview": "further_sentences newer_failures status_line what_else",
        "payload": "payload_of",
        "periods": (
            "figures_of_frames figures_of_output figures_of_period figures_of_run merged_record notes_of_runs "
            "outlook_of period_of shown_rows"
        ),
        "read": "FolderTables everyone_and_largest figures_of format_of local_tables spark_tables",
        "sentences": "sentences_of_segments",
        "story": "Answer answer cards leader",
        "terminal": "Shown print_all print_gates print_not_published print_result print_verdict",
        "trust": "check_rows checks without_relevant",
        "verdict": "MOST_SENTENCES outlook_sentence sentence sentences_of_period verdict_of",
    },
)
