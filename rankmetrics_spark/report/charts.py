"""The charts of pages, notebooks and pictures. Needs Altair, of the extra ``report``."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import altair as alt

from rankmetrics_spark.report.assets import LIGHT, file_text, titled, with_colours

#: Of a chart; the page gives a chart of lines its own.
HEIGHT = 220
ROWS = alt.NamedData("rows")

#: What all charts look like: no frame, a faint grid, text in the page's ink.
CONFIG: dict[str, Any] = json.loads(file_text("charts.json"))

_WHO = ("name:experiment", "metric")
_OF_MEAN = (*_WHO, "text:mean", "interval", "users")
_COLOUR, _DASH = alt.Color("colour:N", scale=None), alt.StrokeDash("dash:N", scale=None)
_FILL, _STROKE = alt.Fill("fill:N", scale=None), alt.Stroke("stroke:N", scale=None)
_ACROSS: dict[str, Any] = {"x": alt.X("low:Q", title=None), "x2": "high:Q"}
_UPRIGHT: dict[str, Any] = {"y": alt.Y("low:Q", title=None), "y2": "high:Q"}
_SIGNED = "(abs(datum.value) < 1e-9 ? '0' : format(datum.value, '+~g')) + suffix"
_ZERO = alt.Chart(alt.InlineData([{"zero": 0}])).mark_rule(color="var(--faint)")


def _tips(*fields: str) -> list[alt.Tooltip]:
    """What a mark says when it is pointed at: a field, or a field and its title. See ``titled``."""
    parts = (field.partition(":") for field in fields)
    return [alt.Tooltip(f"{name}:N", title=title or name) for name, _, title in parts]


def _layers(*layers: alt.Chart) -> alt.LayerChart:
    return alt.LayerChart(layer=[*layers], width="container", height=HEIGHT)


def _with_suffix(*layers: alt.Chart) -> alt.LayerChart:
    """Layers whose labels end with a unit that the page sets."""
    chart: alt.LayerChart = _layers(*layers).add_params(alt.param(name="suffix", value=""))
    return chart


def _by_date(**scale: Any) -> alt.X:
    """Dates have no time zone: read and written as UTC, they stay the same everywhere."""
    axis = alt.Axis(format="%-d %b", labelAngle=0, tickCount=6, grid=False)
    return alt.X("date:T", title=None, axis=axis, scale=alt.Scale(type="utc", **scale))


def forest() -> alt.LayerChart:
    """Differences with their intervals, one line per label. Rows: label, value, low, high, fill, stroke, and texts."""
    y = alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=190, grid=False, labelColor="var(--ink)"))
    x = alt.X("value:Q", title=None, axis=alt.Axis(labelExpr=_SIGNED, tickCount=5, labelFlush=False))
    tooltip = _tips(*_WHO, "segment", "difference", "interval", "p:p, corrected", "users", "says:verdict")
    base = alt.Chart(ROWS).encode(y=y)
    line = base.mark_rule(strokeWidth=2, strokeCap="round").encode(**_ACROSS, stroke=_STROKE)
    point = base.mark_point(size=70, strokeWidth=2, opacity=1).encode(x=x, stroke=_STROKE, fill=_FILL, tooltip=tooltip)
    target = base.mark_rule(strokeWidth=18, opacity=0).encode(x="low:Q", x2="high:Q", tooltip=tooltip)
    return _with_suffix(_ZERO.encode(x="zero:Q"), line, point, target)


def cutoffs() -> alt.LayerChart:
    """Means with their intervals by cut-off. Rows: cut, at, name, mean, low, high, colour, dash, and texts.

    Experiments stand side by side: ``cut`` is a little beside the cut-off ``at``.
    """
    axis = alt.Axis(labelAngle=0, labelColor="var(--ink)", grid=False)
    x = alt.X("cut:Q", title="cut-off", axis=axis, scale=alt.Scale(type="log", nice=False, padding=24))
    y = alt.Y("mean:Q", title=None, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=5, format=".3~f"))
    tooltip = _tips(*_OF_MEAN)
    base = alt.Chart(ROWS).encode(x=x, color=_COLOUR)
    line = base.mark_rule(strokeWidth=2, strokeCap="round").encode(**_UPRIGHT)
    point = base.mark_point(filled=True, size=70, opacity=1).encode(y=y, tooltip=tooltip)
    target = base.mark_rule(strokeWidth=16, opacity=0).encode(y="low:Q", y2="high:Q", tooltip=tooltip)
    path = base.mark_line(strokeWidth=1.2, opacity=0.6).encode(y=y, detail="name:N", strokeDash=_DASH)
    return _layers(path, line, point, target)


def one_cutoff() -> alt.LayerChart:
    """Means with their intervals on one scale, a line for each experiment. Rows as of ``cutoffs``."""
    x = alt.X("mean:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5, format="~g"))
    y = alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=300, labelColor="var(--ink)"))
    base = alt.Chart(ROWS).encode(y=y, color=_COLOUR)
    line = base.mark_rule(strokeWidth=2, strokeCap="round").encode(**_ACROSS)
    return _layers(line, base.mark_point(filled=True, size=70, opacity=1).encode(x=x, tooltip=_tips(*_OF_MEAN)))


def distribution() -> alt.LayerChart:
    """Share of the users at or below each value. Rows: name, edge, share, colour, dash, weight, and texts."""
    axis = alt.Axis(format="~g", tickCount=5, grid=False)
    x = alt.X("edge:Q", title="value of a user", axis=axis, scale=alt.Scale(nice=False))
    y = alt.Y("share:Q", title=None, axis=alt.Axis(format=".0%", tickCount=5), scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart(ROWS).encode(x=x, y=y, color=_COLOUR, detail="name:N")
    tooltip = _tips(*_WHO, "upto:users with at most", "text:share", "users")
    line = base.mark_line(strokeJoin="round", interpolate="step-after").encode(
        strokeWidth=alt.StrokeWidth("weight:Q", scale=None), strokeDash=_DASH
    )
    point = base.mark_point(size=120, filled=True, opacity=0).encode(tooltip=tooltip)
    return _layers(line, point)


def changes() -> alt.LayerChart:
    """Users by how much their value changes. Rows: from, to, zero, n, fill, stroke, and texts."""
    labels = "abs(datum.value) < 1e-9 ? '0' : format(datum.value, '+~g')"
    axis = alt.Axis(labelExpr=labels, tickCount=7, grid=False)
    x = alt.X("from:Q", title="change of a user's value", axis=axis, scale=alt.Scale(nice=False, zero=True, padding=4))
    y = alt.Y("n:Q", title=None, axis=alt.Axis(tickCount=4, format=",d", tickMinStep=1), scale=alt.Scale(zero=True))
    tooltip = _tips("what:change", "metric", "users", "share:of all")
    bar = alt.Chart(ROWS).mark_rect(strokeWidth=1)
    return _layers(bar.encode(x=x, x2="to:Q", y=y, y2="zero:Q", fill=_FILL, stroke=_STROKE, tooltip=tooltip))


def trend() -> alt.LayerChart:
    """Means with their intervals by date. Rows: date, name, mean, low, high, colour, alert, and texts."""
    x, tip = _by_date(), _tips("day:date", "alert")
    y = alt.Y("mean:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5, format=".3~f"))
    base = alt.Chart(ROWS).transform_filter("!datum.alert").encode(x=x, color=_COLOUR)
    band = base.mark_area(opacity=0.14).encode(**_UPRIGHT, detail="name:N")
    line = base.mark_line(strokeWidth=2).encode(y=y, detail="name:N", strokeDash=_DASH)
    point = base.mark_point(filled=True, size=45, opacity=1).encode(y=y, tooltip=_tips("day:date", *_OF_MEAN))
    alerts = alt.Chart(ROWS).transform_filter("datum.alert").encode(x=x)
    rule = alerts.mark_rule(strokeDash=[3, 3], color="var(--faint)", strokeWidth=1.5)
    sign = alerts.mark_point(shape="triangle-down", filled=True, size=90, color="var(--ink)", opacity=1)
    return _layers(band, line, point, rule.encode(tooltip=tip), sign.encode(y=alt.value(4), tooltip=tip))


def difference(by: str) -> alt.LayerChart:
    """Differences with their intervals by date. Rows: date, name, value, low, high, colour, texts,
    and the opacities band and rule.

    Bad days are rows with state, from and to instead; they are shaded. By ``days`` since a user's first date, rows have
    a day instead of a date.
    """
    axis = alt.Axis(format="d", labelAngle=0, tickMinStep=1, tickCount=7, grid=False)
    scale = alt.Scale(padding=10, nice=False)
    by_day = alt.X("day:Q", title="days since the user's first date", axis=axis, scale=scale)
    x = _by_date(padding=10) if by == "date" else by_day
    y = alt.Y("value:Q", title=None, axis=alt.Axis(tickCount=5, labelExpr=_SIGNED), scale=alt.Scale(zero=True))
    bad = alt.Chart(ROWS).transform_filter("datum.state").encode(tooltip=_tips("label:date", "alert:what"))
    opacity = alt.Opacity("shade:Q", scale=None)
    shade = bad.mark_rect(color="var(--faint)").encode(x=alt.X("from:T", title=None), x2="to:T", opacity=opacity)
    base = alt.Chart(ROWS).transform_filter("!datum.state").encode(x=x, color=_COLOUR)
    bounds = base.mark_area().encode(**_UPRIGHT, detail="name:N", opacity=alt.Opacity("band:Q", scale=None))
    line = base.mark_line(strokeWidth=2).encode(y=y, detail="name:N", strokeDash=_DASH)
    tooltip = _tips(f"label:{by}", *_WHO, "text:difference", "interval", "means", "users")
    whisker = base.mark_rule(strokeWidth=1.5).encode(**_UPRIGHT, opacity=alt.Opacity("rule:Q", scale=None))
    point = base.mark_point(filled=True, size=45, opacity=1).encode(y=y, tooltip=tooltip)
    name = base.mark_text(align="right", dx=-2, dy=-11).encode(y=y, text="end:N", color=alt.value("var(--ink)"))
    zero = _ZERO.encode(y="zero:Q")
    return _with_suffix(*[shade] * (by == "date"), bounds, zero, line, whisker, point, name)


def templates() -> dict[str, dict[str, Any]]:
    """Name of a chart -> its specification, as the page fills it; dragging moves it, Shift and the wheel zoom."""
    charts = {
        "forest": forest(),
        "cutoffs": cutoffs(),
        "distribution": distribution(),
        "changes": changes(),
        "trend": trend(),
        "byDate": difference("date"),
        "byDay": difference("days"),
    }
    # Whatever theme a notebook has: these templates are kept for other pages.
    with alt.theme.enable("default"):
        specs = {}
        for name, chart in charts.items():
            axes: list[Any] = ["y" if name == "cutoffs" else "x"]
            zoom = alt.selection_interval(bind="scales", encodings=axes, zoom="wheel![event.shiftKey]", name="zoom")
            specs[name] = chart.configure(**CONFIG).add_params(zoom).to_dict()
    # The page embeds its own Vega-Lite, whose version is not that of Altair.
    return {name: {key: value for key, value in spec.items() if key != "$schema"} for name, spec in specs.items()}


# ---- notebooks

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
        rows: As ``cutoffs`` takes them.
        title: Of the chart.
    """
    is_one = len({row["cut"] for row in rows}) == 1
    with alt.theme.enable("default"):
        plain = (one_cutoff() if is_one else cutoffs()).configure(**CONFIG).to_dict()
    spec = with_colours(json.loads(titled(json.dumps(plain))), LIGHT)
    colours = {row["name"]: row["colour"] for row in rows}
    legend = {"title": None, "orient": "top", "symbolSize": 80, "symbolOpacity": 1, "labelLimit": 300}
    who = {"field": "name", "type": "nominal", "sort": None, "legend": legend | {"labelFontSize": 12}}
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(colours))]
    for layer in () if is_one else spec["layer"]:
        layer["encoding"]["color"] = who | {"scale": {"domain": [*colours], "range": [*colours.values()]}}
        if layer["mark"]["type"] == "point":
            layer["encoding"]["shape"] = who | {"scale": {"domain": [*colours], "range": shapes}}
    spec |= {"title": {"text": title, "anchor": "start", "fontSize": 14}} | PICTURE
    spec |= {"height": 26 * len(colours)} if is_one else {}
    spec["datasets"] = {**spec.get("datasets", {}), "rows": [*rows]}
    drawn: alt.LayerChart = Picture.from_dict(spec | {"background": LIGHT["paper"]})
    return drawn
