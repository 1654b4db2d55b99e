"""The chart of a notebook. Needs Altair, of the extra ``report``."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import altair as alt

from rankmetrics_spark.report.assets import LIGHT, charts, titled

#: Size of a chart in a notebook.
PICTURE = {"width": 600, "height": 260}
#: Marks of experiments, which share few colours.
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")


class Picture(alt.LayerChart):
    """A chart that shows itself as Vega-Lite and as SVG: what a viewer lacks for the one, it has for the other."""

    def _repr_mimebundle_(self, *_: Any, **__: Any) -> dict[str, Any]:
        """The chart under its MIME types; without the HTML of Altair, whose scripts come from a network."""
        spec = self.to_dict()
        version = alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
        vega = f"application/vnd.vegalite.v{version.partition('.')[0]}+json"
        bundle: dict[str, Any] = {vega: spec, "text/plain": spec["title"]["text"]}
        with suppress(ImportError):
            import vl_convert

            bundle["image/svg+xml"] = vl_convert.vegalite_to_svg(spec, vl_version=version)
        return bundle


def picture(rows: Sequence[Mapping[str, Any]], title: str) -> alt.LayerChart:
    """Means with their intervals by cut-off, or of one cut-off on one scale, in plain light colours.

    Args:
        rows: As ``cutoffs`` of charts.json takes them.
        title: Of the chart.
    """
    is_one = len({*map(itemgetter("cut"), rows)}) == 1
    text = titled(json.dumps(charts()["oneCutoff" if is_one else "cutoffs"]))
    for name, colour in LIGHT.items():
        # Only a page has the CSS variables.
        text = text.replace(f"var(--{name})", colour)
    spec = json.loads(text)
    colours = dict(map(itemgetter("name", "colour"), rows))
    legend = {"title": None, "orient": "top", "symbolSize": 80, "symbolOpacity": 1, "labelLimit": 300}
    who = {"field": "name", "type": "nominal", "sort": None, "legend": legend | {"labelFontSize": 12}}
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(colours))]
    for layer in () if is_one else spec["layer"]:
        layer["encoding"]["color"] = who | {"scale": {"domain": [*colours], "range": [*colours.values()]}}
        if layer["mark"]["type"] == "point":
            layer["encoding"]["shape"] = who | {"scale": {"domain": [*colours], "range": shapes}}
    spec |= {"title": {"text": title, "anchor": "start", "fontSize": 14}} | PICTURE
    spec |= {"height": 26 * len(colours)} if is_one else {}
    spec |= {"params": [], "datasets": {"rows": [*rows]}, "background": LIGHT["paper"]}
    drawn: alt.LayerChart = Picture.from_dict(spec)
    return drawn
