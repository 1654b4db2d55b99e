"""Draw docs/pictures/result.svg, the table and the verdict of ``make run``, from the output folder of the demo."""

import json
import re
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console

from rankmetrics_spark import sinks
from rankmetrics_spark.report.console import result_rows, table
from rankmetrics_spark.sessions import local_session

if __name__ == "__main__":
    written, picture = sys.argv[1:3]
    rows = result_rows(sinks.read(local_session("local[1]"), f"{written}/experiment_metrics"))
    console = Console(record=True, width=112, file=StringIO())
    console.print(table([row for row in rows if row["segment"] in ("all", "device=desktop", "device=mobile")]))
    record = max(Path(written, "runs").glob("*.json"))
    for line in json.loads(record.read_text(encoding="utf-8"))["verdict"]:
        console.print(line, highlight=False)
    # Remove the web fonts, because a picture must not download anything.
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make run"), flags=re.DOTALL)
    Path(picture).write_text(svg, encoding="utf-8")
