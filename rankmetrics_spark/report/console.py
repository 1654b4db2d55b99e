"""A run's result for people: tables on stdout, and the lines below them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rankmetrics_spark import config as cfg, engines as eng, errors as err, findings as fd, schemas as sch, words
from rankmetrics_spark.metrics import Metric, parse
from rankmetrics_spark.report import assets, figures, formats, trust

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Result rows that are printed at most; the Parquet tables hold all.
MOST_ROWS = 10_000
#: Experiment, metric and mean -> what stands in a table.
Cell = Callable[[str, str, Text], Text]

ORDER = (sch.SEGMENT, sch.METRIC, sch.EXPERIMENT)


# ---- the means


def result_rows(averages: DataFrame | sch.Rows) -> sch.Rows:
    """The averages as plain rows, ordered by segment, metric and experiment; at most ``MOST_ROWS``, all users first."""
    rows = compared_rows(averages)
    known = rows[0] if rows else {}
    parts = (name + part for name in sch.percentiles_in(known) for part in sch.PERCENTILE_PARTS)
    names = [*figures.MEAN_COLUMNS, *(name for name in parts if name in known)]
    return [{name: row.get(name) for name in names} for row in rows]


def compared_rows(comparisons: DataFrame | sch.Rows | None) -> sch.Rows:
    """The comparisons as plain rows, ordered by segment, metric and experiment; at most ``MOST_ROWS``."""

    def order(row: sch.Row) -> list[tuple[bool, str]]:
        """As Spark orders: null first, texts by code point, which is also the order of their UTF-8 bytes."""
        return [(cell is not None, cell or "") for cell in map(row.get, ORDER)]

    if comparisons is None or isinstance(comparisons, list):
        rows = comparisons or []
    else:
        head = comparisons.orderBy(comparisons[sch.SEGMENT] != sch.EVERYONE, *ORDER).limit(MOST_ROWS)
        rows = [row.asDict() for row in eng.few_rows(head)]
    return sorted(sorted(sorted(rows, key=order), key=sch.is_of_segment)[:MOST_ROWS], key=order)


def grid(
    means: Sequence[figures.Mean],
    chosen: Iterable[Metric],
    cell: Cell = lambda experiment, metric, mean: Text.assemble(mean),
    letters: Mapping[str, str] | None = None,
    order: Callable[[str], Any] = str,
) -> Table:
    """One line per experiment and segment, one column per metric.

    Args:
        means: Of ``experiment_metrics``.
        chosen: The metrics.
        cell: Experiment, metric and its mean with half of its interval -> the cell.
        letters: Experiment -> what stands behind its name.
        order: Sort key of the experiments.
    """
    by_name = {str(metric): metric for metric in chosen}
    has_segments = not all(mean.is_of_all for mean in means)
    result = Table()
    for label in ["experiment", *(["segment"] if has_segments else [])]:
        result.add_column(label, overflow="fold")
    if letters:
        result.add_column("letter", no_wrap=True)
    # What means are over: lists as well where these are averaged.
    counts = {str(words.UNITS): "n_users"} | ({"lists": "n_lists"} if figures.over_lists(means) else {})
    for label in counts:
        result.add_column(label, justify="right", no_wrap=True)
    for metric in by_name.values():
        # Letters behind the means are of different numbers, so the means stand below one another on the left.
        result.add_column(escape(metric.headline), justify="left" if letters else "right", no_wrap=True)
    best = best_means(means, by_name)
    groups: dict[tuple[str, str], dict[str, figures.Mean]] = {}
    for mean in sorted(means, key=lambda mean: (not mean.is_of_all, mean.segment, order(mean.experiment_id))):
        groups.setdefault((mean.segment, mean.experiment_id), {})[mean.metric] = mean
    for segment, lines in groupby(groups.items(), key=lambda item: item[0][0]):
        for (_, name), cells in lines:
            values = [_cell(name, each, cells.get(each), best.get((segment, each)), cell) for each in by_name]
            labels = [as_text(text) for text in ([name, segment] if has_segments else [name])]
            letter = [letters[name]] if letters else []
            sizes = [f"{max(getattr(mean, n) or 0 for mean in cells.values()):,}" for n in counts.values()]
            result.add_row(*labels, *letter, *sizes, *values)
        result.add_section()
    return result


def as_text(value: object) -> Text:
    """An id as it is: not as markup, not as the name of an emoji, not as control characters."""
    return Text(err.printable(str(value)))


def title(means: Sequence[figures.Mean]) -> str:
    """What the numbers of a table are."""
    if not means:
        return f"no {words.UNITS}"
    first, over = means[0], figures.over_what(means)
    by_user = f", errors by {words.UNIT}" if figures.over_lists(means) else ""
    if period := [*filter(None, map(first.row.get, (sch.PERIOD_FROM, sch.PERIOD_TO)))]:
        dates = " to ".join(dict.fromkeys(period))
        return f"mean over {over} of {dates}{by_user}; convention {first.convention}"
    return f"mean over {over} ± {figures.level_of(means, 'margin')}{by_user}; convention {first.convention}"


def best_means(means: Iterable[figures.Mean], metrics: Mapping[str, Metric]) -> dict[tuple[str, str], float]:
    """(segment, metric) -> its best mean: the largest or the smallest, as the metric says; none if neither is better.

    Args:
        means: Of ``experiment_metrics``.
        metrics: Name -> metric.
    """
    best: dict[tuple[str, str], float] = {}
    for mean in means:
        key, metric = (mean.segment, mean.metric), metrics.get(mean.metric)
        if mean.mean is not None and metric is not None and metric.higher_is_better is not None:
            best[key] = (max if metric.higher_is_better else min)(best.get(key, mean.mean), mean.mean)
    return best


def _cell(name: str, metric: str, mean: figures.Mean | None, best: float | None, cell: Cell) -> Text:
    if mean is None or mean.mean is None:
        return Text("-" if mean else "")
    text = f"{mean.mean:.4f} {mean.half}".rstrip()
    return cell(name, metric, Text(text, style="bold" if mean.mean == best else ""))


# ---- percentiles


def percentile_texts(means: Sequence[figures.Mean]) -> list[dict[str, str]]:
    """The percentiles of ``experiment_metrics`` with their intervals, as text; empty where none were asked for.

    >>> row = {"experiment_id": "a", "segment": "all", "metric": "ndcg@10", "percentile_50": 0.5,
    ...        "percentile_50_ci_low": 0.25, "percentile_50_ci_high": None}
    >>> percentile_texts(figures.means_of([row])), percentile_texts([figures.Mean({}, metric="ndcg@10")])
    ([{'experiment': 'a', 'metric': 'NDCG@10', '50 %': '0.5000'}], [])
    """
    named = sch.percentiles_in(means[0].row if means else ())
    # Tables hold the columns of other runs too, without a value.
    known = [item for item in named.items() if any(mean.row.get(item[0]) is not None for mean in means)]
    has_segments = not all(mean.is_of_all for mean in means)
    texts = []
    in_order = sorted(known, key=lambda title: float(title[1].removesuffix(" %")))
    for mean in means if known else ():
        segment = {"segment": mean.segment} if has_segments else {}
        text = {"experiment": mean.experiment_id, **segment, "metric": fd.label_of(parse(mean.metric))}
        for name, label in in_order:
            value, low, high = (mean.row.get(name + part) for part in sch.PERCENTILE_PARTS)
            bounds = "" if low is None or high is None else f" ({low:.4f} to {high:.4f})"
            text[label] = "-" if value is None else f"{value:.4f}{bounds}"
        texts.append(text)
    return texts


def print_percentiles(means: Sequence[figures.Mean]) -> None:
    """A line per mean with its percentiles; nothing where none were asked for."""
    if texts := percentile_texts(means):
        about = f"percentiles over the {words.UNITS}, with {figures.level_of(means, 'intervals')}"
        formats.print_texts(texts, ("experiment", "segment", "metric"), about)


# ---- conventions side by side


def print_conventions(rows: sch.Rows) -> None:
    """One line per convention, a block per experiment: users, a column per metric, what differs from the standard."""
    labels = (sch.EXPERIMENT, sch.CONVENTION)
    names = [name for name in (rows[0] if rows else {}) if name not in labels]
    about = f"mean over the {words.UNITS} of each convention"
    formats.print_fitting(lambda some: _plain_table(rows, [*labels, *some]), names, about)


def print_list(rows: Sequence[Mapping[str, Any]]) -> None:
    """One line per row, one column per key; on a narrow terminal one line per key."""
    texts = [{_short(name): _plain(value) for name, value in row.items()} for row in rows]
    formats.print_records(texts, _plain_table(rows, list(rows[0]) if rows else []))


def _plain_table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """One line per row, a block per experiment."""
    result = Table()
    for name, cells in sch.columns_of(rows[:1], names).items():
        is_text = name in _TEXT or any(isinstance(cell, str) for cell in cells)
        side: JustifyMethod = "left" if is_text else "right"
        result.add_column(escape(_short(name)), justify=side, overflow="fold", no_wrap=not is_text)
    for _, block in groupby(rows, key=lambda row: row.get(sch.EXPERIMENT)):
        for row in block:
            result.add_row(*(as_text(_plain(cell)) for cell in map(row.get, names)))
        result.add_section()
    return result


def _short(name: str) -> str:
    return words.worded(assets.WORDS["columns"][name]) if name in assets.WORDS["columns"] else name


_TEXT = (sch.EXPERIMENT, sch.CONVENTION, "differs")


def _plain(value: object) -> str:
    return f"{value:.6f}" if isinstance(value, float) else "-" if value is None else str(value)


Printer = Callable[[list[Any]], None]
LIST_PRINTERS: dict[str, Printer] = {"table": print_list, "json": formats.print_json, "csv": formats.print_csv}
CONVENTION_PRINTERS = LIST_PRINTERS | {"table": print_conventions}


# ---- the lines below the table


def accounting(record: Mapping[str, Any]) -> list[words.Fact]:
    """Where the rows went, how many scores are tied, and what in the input contradicts itself: a line each."""
    rows, experiments = record["rows"], record["experiments"]
    # The tables above these lines are about the period.
    of_day = f" of {record[sch.DATE]}" if record.get("period") else ""
    lines = [f"rows{of_day}: {rows['in']:,} read = {rows['evaluated']:,} evaluated + {rows['quarantined']:,} left out"]
    if record["quarantine_reasons"]:
        reasons = sorted(record["quarantine_reasons"].items(), key=lambda pair: (-pair[1], pair[0]))
        lines.append("left out: " + ", ".join(f"{name} {count:,}" for name, count in reasons))
    quality = record.get("quality", {})
    weak = ("beyond_judgements", *["judged_rate"] * ("unjudged_rate" in quality.get("overall", {})))
    judged = trust.judged(figures.Figures((), record=record))
    said = dict.fromkeys(check.sentence for check in judged if check.status == sch.WARN and check.name in weak)
    lines += [words.Fact(f"warning: {sentence.rstrip('.')}", "warn") for sentence in said]
    with_ties = {name: counts for name, counts in experiments.items() if counts["tied"]}
    tied = [f"{name} {sch.share(counts['tied'] / counts['evaluated'])}" for name, counts in with_ties.items()]
    hint = "(rankmetrics conventions shows what their order can change)"
    lines += [f"rows with tied scores: {', '.join(tied)} {hint}"] if tied else []
    before = quality.get("previous", {}).get("overall", {})
    rates = [
        f"{words.worded(cfg.RATES[name].name) if name in cfg.RATES else name} {sch.share(value)}"
        + (f" (was {sch.share(before[name])})" if name in before else "")
        for name, value in quality.get("overall", {}).items()
        if value or before.get(name)
    ]
    lines += [f"quality: {', '.join(rates)}"] if rates else []
    lines += [words.Fact(f"warning: {warning}", "warn") for warning in quality.get("warnings", [])]
    if record.get("engine") == "sail":
        lines.append(f"engine: sail {record['versions'].get('sail', '')}".rstrip())
    lines += [f"note: {note}" for note in record.get("notes", [])]
    lines += [words.Fact(f"warning: {sentence}", "warn") for sentence in record.get("warnings", [])]
    return [words.Fact(err.printable(line), getattr(line, "level", "ok")) for line in lines]


def paths_text(path: str, record: Mapping[str, Any], record_path: str) -> str:
    """Where the tables are that this run wrote, and where its record is; without passwords.

    >>> paths_text("out", {"tables": {"checks": {"rows": 2}, "quarantine": {"rows": 0}}}, "out/runs/a.json")
    'tables in out: checks; run record: out/runs/a.json'
    """
    names = [name for name, table in record.get("tables", {}).items() if table["rows"]]
    tables = f"tables in {path}: {', '.join(names)}; " if names else ""
    return err.printable(err.without_secrets(f"{tables}run record: {record_path}"))
