"""Draw docs/pictures/result.svg: the table that ``make run`` prints, from what it wrote to out/demo."""

import re
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console

from rankmetrics_spark import sinks
from rankmetrics_spark.local import local_session
from rankmetrics_spark.output import result_rows, table

if __name__ == "__main__":
    written, picture = sys.argv[1:3]
    rows = result_rows(sinks.read(local_session("local[1]"), f"{written}/experiment_metrics"))
    console = Console(record=True, width=112, file=StringIO())
    console.print(table([row for row in rows if row["segment"] in ("all", "device=desktop", "device=mobile")]))
    # Without the web fonts: a picture fetches nothing.
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make run"), flags=re.DOTALL)
    Path(picture).write_text(svg, encoding="utf-8")
