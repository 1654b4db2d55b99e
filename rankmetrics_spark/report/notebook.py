"""A result in a notebook and in MLflow: a small table as HTML, a tidy frame, a chart; metrics and parameters of a run.

The chart needs the extra ``report``, and MLflow the extra ``mlflow``.
"""

import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.table import Table

from rankmetrics_spark import errors as err, findings as fd, metrics as mx, schemas as sch
from rankmetrics_spark.report import assets, formats, html, overview, story, terminal, verdict
from rankmetrics_spark.report.figures import Figures, Mean, in_words, level_of, over_what

if TYPE_CHECKING:
    import altair as alt

#: Experiments in the table of a notebook.
MOST_LINES = 20
#: Comparisons in the table of a notebook.
MOST_COMPARED = 1_000
#: Column of the summary -> the field of a mean, where that has another name.
SUMMARY = {"experiment": "experiment_id", "segment": "segment", "metric": "metric", "users": "n_users"}
#: Characters of an experiment's name in a key; stores of MLflow take 250 for the whole key.
LONGEST_KEY = 180


@in_words
def summary(figures: Figures) -> pd.DataFrame:
    """One row per experiment, segment and metric: users, mean, interval and, if compared, the difference."""
    if figures.n_means > len(figures.means):
        warnings.warn(assets.said("part_of_summary", n=len(figures.means), figures=figures), stacklevel=5)
    for check in figures.of_log:
        if check.status == sch.FAIL:
            warnings.warn(check.sentence, err.QualityWarning, stacklevel=5)
    columns = SUMMARY | {name: name for name in ("mean", "ci_low", "ci_high")}
    order = {str(metric): place for place, metric in enumerate(figures.metrics)}

    def place(mean: Mean) -> tuple[bool, int, int]:
        """All users first, then as everywhere."""
        return not mean.is_of_all, order[mean.metric], figures.places[mean.experiment_id]

    means = [[getattr(mean, field) for field in columns.values()] for mean in sorted(figures.averages, key=place)]
    table = pd.DataFrame(means, columns=[*columns])
    if not figures.only_baseline:
        return table
    of_changed = any(found.among for found in figures.found)
    keys = {"experiment": "candidate", "segment": "segment", "metric": "metric"}
    rows = [
        {name: getattr(found, field) for name, field in keys.items()}
        | {"baseline": found.baseline, "difference": found.tested.value}
        | {"relative_difference": found.tested_share.value, "p_adjusted": found.p_adjusted, "better": found.better}
        # Beside means over all users, where the difference is that of the users whose lists changed.
        | {name: found.row.get(name) for name in (sch.SHARE_CHANGED, sch.DILUTED[0]) if of_changed}
        for found in figures.found
    ]
    return table.merge(pd.DataFrame(rows), how="left", on=[*keys])


@in_words
def as_html(figures: Figures) -> str:
    """The answer and one line per experiment, for all users; every name is text. Several tests have one each."""
    if len(parts := [*figures.tests.values()]) > 1:
        return "".join(map(as_html, parts[:MOST_LINES])) + _hidden(len(parts) - MOST_LINES, "tests; see summary()")
    said = fd.grouped(overview.facts(figures, "notebook"), lambda fact: fact.part)
    answer = {"sure": "", **{fact.topic: "".join(map(_text, fact.words)) for fact in said["answer"]}}
    change = f"<b>{answer['change']}</b>" if "change" in answer else ""
    lead = " ".join(filter(None, (answer.get("value"), change, answer.get("detail"))))
    turned = "".join(f'<div style="margin-bottom:.8em">{_text(line)}</div>' for line in said.get("turned", ()))
    key = "<br>".join(_text(line) for line in terminal.explained(figures))
    hidden = _hidden(len(figures.experiments) - MOST_LINES, "experiments; see summary()")
    table = _table(terminal.table(figures, figures.metrics), MOST_LINES) + hidden
    bad, fine = said.get("bad", ()), sum(check.level == "ok" for check in overview.facts(figures, "page", "fine"))
    items = "".join(f"<li><b>{escape(check.topic)}</b>: {escape(err.printable(check))}</li>" for check in bad)
    checked = f'<ul style="margin:.6em 0;padding-left:1.2em">{items}</ul>' if bad else ""
    if bad or fine:
        state = "; ".join([f"{fine} {'check is' if fine == 1 else 'checks are'} fine", *said.get("left_out", ())])
        checked += f'<div style="{_SOFT}">{state}</div>'
    parts_of_page = answer | {"lead": lead, "turned": turned, "table": table, "key": key, "checked": checked}
    return assets.file_text("notebook.html").strip().format(**parts_of_page)


_SOFT = "opacity:.75"
_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"


def compared_html(rows: Sequence[Mapping[str, Any]], size: int = 0) -> str:
    """Comparisons: the verdict, as a terminal has it, and a line for each, those of all users first.

    Args:
        rows: Of ``comparisons``: all of those of all users.
        size: How many rows the table has, where these are not all.
    """
    sentences = verdict.correction_once(overview.facts(Figures((), rows), "terminal", "verdict"), fd.findings(rows))
    lines = "".join(f"<div>{escape(err.printable(line))}</div>" for line in sentences)
    texts = terminal.comparison_texts(terminal.of_comparisons(rows))[:MOST_COMPARED]
    table = _table(formats.grid_of(texts, terminal.OF_NAMES), MOST_COMPARED)
    hidden = _hidden(max(size, len(rows)) - len(texts))
    return f'<div style="font-family:system-ui,sans-serif;max-width:70em">{lines}{table}{hidden}</div>'


def _hidden(n: int, what: str = "rows are in the table") -> str:
    return f'<div style="{_SOFT}">{n:,} more {what}</div>' if n > 0 else ""


def _text(part: str) -> str:
    text = escape(err.printable(part))
    return f"<bdi>{text}</bdi>" if isinstance(part, story.Id) else text


def _table(grid: Table, most: int) -> str:
    """The first lines of a table as a terminal has it."""
    sides = [column.justify for column in grid.columns]
    head, *cells = ([escape(" ".join(cell.plain.split())) for cell in row] for row in formats.cells_of(grid))
    lines = [[f"<b>{text}</b>" for text in head], *([f"<bdi>{text}</bdi>" for text in row] for row in cells[:most])]
    shown = "".join(f"<tr>{''.join(map(_cell, line, sides))}</tr>" for line in lines)
    return f'<table style="{_TABLE}">{shown}</table>'


def _cell(content: str, align: str) -> str:
    style = f"text-align:{align};padding:.25em .8em;border-bottom:1px solid #8884;white-space:nowrap"
    return f'<td style="{style}">{content}</td>'


@in_words
def plot(figures: Figures, metric: str | None = None) -> "alt.LayerChart":
    """The means of a metric with their intervals, for all users; of the metric that decides unless one is named."""
    by_name, chosen = {str(m): m for m in figures.metrics}, set[str]()
    text = metric if metric is not None else figures.primary.name if figures.primary else ""
    query = text.strip().lower().removeprefix("mean ").replace(" ", "_").replace("-", "_")
    with suppress(err.ConfigError):
        chosen = {str(each) for each in figures.metrics if each == mx.parse(query)}
    with suppress(err.ConfigError):  # without a cut-off, a text names all of them
        chosen = chosen or {str(each) for each in figures.metrics if each.name == mx.parse(f"{query}@1").name}
    if not chosen:
        raise err.ConfigError(err.unknown("metric", text, sorted({*by_name, *(m.name for m in by_name.values())})))
    try:
        from rankmetrics_spark.report import charts
    except ImportError as error:
        raise err.ConfigError(f"plot needs {error.name}, which is not installed; run: {assets.INSTALL_PAGE}") from error
    first = by_name[min(chosen)]
    label = fd.label_of(first) if len(chosen) == 1 else fd.label_of(first).partition("@")[0]
    level, units = level_of(figures.averages, "intervals"), over_what(figures.averages)
    title = f"{label}: mean over {units}{f', with {level}' if level else ''}"
    return charts.picture(_points(figures, chosen), title)


def _points(figures: Figures, chosen: set[str]) -> list[dict[str, Any]]:
    """The marks of the metrics, by cut-off and experiment."""
    by_name = {str(metric): metric for metric in figures.metrics}
    order, better = figures.places, story.leader(figures)
    # The accent is for the better one, ink for the baseline that all others are compared with.
    colours = dict.fromkeys(order, assets.LIGHT["faint"])
    colours |= {figures.only_baseline: assets.LIGHT["ink"]} if figures.only_baseline else {}
    colours |= {better: assets.LIGHT["accent"]} if better else {}
    means = sorted(figures.everyone, key=lambda mean: (mx.cut_of(by_name[mean.metric]), order[mean.experiment_id]))
    return [
        {
            "cut": by_name[mean.metric].cut or "all",
            "place": order[mean.experiment_id],
            "name": err.printable(mean.experiment_id),
            "metric": fd.label_of(by_name[mean.metric]),
            "mean": mean.mean,
            "low": mean.mean if mean.ci_low is None else mean.ci_low,
            "high": mean.mean if mean.ci_high is None else mean.ci_high,
            "colour": colours[mean.experiment_id],
            "text": f"{mean.mean:.4f}",
            "interval": "-" if mean.ci_low is None else f"{mean.ci_low:.4f} to {mean.ci_high:.4f}",
            "users": f"{mean.n_users:,}",
        }
        for mean in means
        if mean.metric in chosen and mean.mean is not None
    ]


# ---- MLflow


def log_run(figures: Figures, report: str | Path | None = None) -> dict[str, float]:
    """Log to the active run, or to a new one, which is then ended; return the metrics."""
    try:
        import mlflow
    except ImportError as error:
        raise err.ConfigError(f"log_to_mlflow needs mlflow; run: {err.installation('mlflow')}") from error
    metrics = logged_metrics(figures)
    with mlflow.start_run() if mlflow.active_run() is None else nullcontext():
        mlflow.log_metrics(metrics)
        mlflow.log_params(logged_parameters(figures))
        if report is not None:
            mlflow.log_artifact(str(report))
        elif assets.has_page_libraries():
            with tempfile.TemporaryDirectory() as folder:
                mlflow.log_artifact(str(html.write_page(figures, Path(folder, "report.html"))))
    return metrics


def logged_metrics(figures: Figures) -> dict[str, float]:
    """Key of MLflow -> value: means as ``ndcg_at_10/EXPERIMENT``, differences as ``ndcg_at_10_difference/EXPERIMENT``.

    Bounds of intervals have ``_ci_low`` and ``_ci_high`` before the slash.

    Characters that MLflow refuses become ``_``; where two names then are the same, the second one gets a number.

    >>> row = {"segment": "all", "metric": "ap@10", "mean": 0.5}
    >>> logged_metrics(Figures([row | {"experiment_id": name} for name in ("a", "b(1)", "b[1]")]))
    {'ap_at_10/a': 0.5, 'ap_at_10/b_1_': 0.5, 'ap_at_10/b_1__2': 0.5}
    """
    names: dict[str, str] = {}
    for name in figures.experiments:
        key = base = re.sub(r"[^\w\-. ]", "_", name)[:LONGEST_KEY].strip(". ") or "_"
        while key in names.values():
            key = f"{base}_{1 + sum(other_key.startswith(base) for other_key in names.values())}"
        names[name] = key
    columns = {str(metric): metric.column for metric in figures.metrics}
    metrics: dict[str, float | None] = {}
    for mean in figures.everyone:
        for part, value in (("", mean.mean), ("_ci_low", mean.ci_low), ("_ci_high", mean.ci_high)):
            metrics[f"{columns[mean.metric]}{part}/{names[mean.experiment_id]}"] = value
    for (experiment, metric), found in figures.differences.items():
        # Who sorts runs by p reads no note.
        p = None if found.doubt else found.p_adjusted
        numbers = zip(("difference", "difference_ci_low", "difference_ci_high"), found.tested, strict=True)
        for name, value in (*numbers, ("p_adjusted", p)):
            metrics[f"{columns[metric]}_{name}/{names[experiment]}"] = value
    return {key: value for key, value in metrics.items() if value is not None}


def logged_parameters(figures: Figures) -> dict[str, str]:
    """What the values depend on."""
    run = {"run_id": figures.record["run_id"]} if "run_id" in figures.record else {}
    conventions = sorted({mean.convention for mean in figures.averages})
    baseline = {"baseline": figures.only_baseline} if figures.only_baseline else {}
    period = dict(zip((sch.PERIOD_FROM, sch.PERIOD_TO), figures.period or (), strict=False))
    return {"convention": ", ".join(conventions), **baseline, **period, **run}
