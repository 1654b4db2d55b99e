"""Commands for what was published or will be: derive it again, add metrics, erase users, write down what decides."""

import click

from rankmetrics_spark import config as cfg, errors as err, report as rep
from rankmetrics_spark.cli import options as opts
from rankmetrics_spark.cli.stored import SINK
from rankmetrics_spark.engines import choose
from rankmetrics_spark.schemas import DATE, RUN


@click.command(cls=opts.Command)
@SINK
def verify(
    sink: cfg.Sink, date: str | None, config: str | None, without: str | None, source: str, style: str,
    engine: str | None, master: str | None,
) -> None:  # fmt: skip
    """Derive what is published on a date again, from its record and its inputs, and compare every table.

    The output is only read. Ends with exit code 6 at a difference, and names the first one; with 3 if an input is gone.
    """
    day = opts.dates_of(date, None, None)["date"]
    document, of_log = cfg.read_document(config) if config else None, source == "lists"
    if source != "inputs" and (without or (config and not of_log)):
        not_read = ("log; allowed: " if of_log else "inputs; allowed: --config and ") + "--without without it"
        raise err.ConfigError(f"--from {source} reads no {not_read}")
    choice = choose(engine, master)
    if not choice.here:
        raise err.ConfigError("the engine is on another machine; allowed: an engine that runs here, or --engine sail")
    asked = sink, day, document, without, source
    result = opts.on_job(choice, lambda job, spark: job.verify(spark, *asked))
    rep.LIST_PRINTERS[style](result.rows)
    opts.say.lines(*result.in_words())


@click.command(cls=opts.Command)
@SINK
def recompute(
    sink: cfg.Sink, metrics: str, convention: str | None, judgements: str | None, overrides: tuple[str, ...],
    first: str | None, last: str | None, style: str, engine: str | None, master: str | None,
) -> None:  # fmt: skip
    """Add metrics to published dates from the lists that runs have stored (sink.lists: true), without their logs.

    Each date is published at once, with its averages, comparisons and checks. By default all dates; --from alone is
    one date.
    """
    days, names = opts.dates_of(None, first, last), [name.strip() for name in metrics.split(",") if name.strip()]
    asked = sink, names, convention, (days["first"], days["last"]), judgements, overrides
    outcomes = opts.on_job(choose(engine, master), lambda job, spark: job.recompute(spark, *asked))
    records = [each.record for each in outcomes]
    shown = [{DATE: each[DATE], RUN: each[RUN], "metrics": " ".join(each["config"]["metrics"])} for each in records]
    rep.LIST_PRINTERS[style](shown)


@click.command(cls=opts.Command)
def forget(output: str, users: str, style: str, engine: str | None, master: str | None) -> None:
    """Erase users from every table, record and page of an output; each date is published anew in one step.

    Means, comparisons and checks become those of a log without them. A later run over a log that still holds them
    brings them back.
    """
    result = opts.on_job(choose(engine, master), lambda job, spark: job.forget(spark, output, users))
    if result.rows or style != "table":
        rep.LIST_PRINTERS[style](result.rows)
    opts.say.lines(*result.sentences)


@click.command(cls=opts.Command)
def register(plan: str, output: str) -> None:
    """Write down, before the first look, what will decide: keys of comparison, and end, segments and exclusions.

    PLAN is a YAML file. Every run of the output then says whether it decides as registered; a plan cannot be replaced.
    """
    from rankmetrics_spark.job import register as register_plan

    rep.print_json(register_plan(cfg.read_document(plan), output))
    opts.say.lines(f"registered in {output}; each run now says whether it decides as registered")
