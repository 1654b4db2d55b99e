"""What a notebook shows of a result, and what MLflow gets."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from rankmetrics_spark.errors import ConfigError, QualityWarning
from rankmetrics_spark.report import Figures, checks, html, logged_metrics, logged_parameters, notebook
from rankmetrics_spark.schemas import Check
from tests.helpers.figures import compared, mean
from tests.helpers.messages import json_cases

METRICS_SHOWN = ["ap@5", "ap@10", "hit_rate@10", "rr"]
RECORD = {"run_id": "r", "rows": {"in": 90, "evaluated": 90, "quarantined": 0}, "experiments": {}}


def test_figures_without_a_record_keep_the_order_of_the_metrics_and_make_a_page() -> None:
    pytest.importorskip("altair")
    rows = [mean("a", "ap@10"), mean("a", "ndcg@10")]
    figures = Figures(rows, order=["ndcg@10", "ap@10"])
    assert [str(metric) for metric in figures.metrics] == ["ndcg@10", "ap@10"]
    assert [str(metric) for metric in Figures(rows).metrics] == ["ap@10", "ndcg@10"]
    assert "There is none, so the rows that came in are not known." in html.page(figures)


def test_a_notebook_shows_the_answer_and_names_as_text() -> None:
    figures = Figures([mean("control"), mean("<b>x", value=0.6)], [compared("<b>x", "candidate", 0.1)])
    shown = notebook.as_html(figures)
    assert "<bdi>&lt;b&gt;x</bdi> beats <bdi>control</bdi>" in shown and "<b>x" not in shown
    assert "0.6000" in shown and "▲ +20.0 %" in shown


def test_a_notebook_shows_margins_a_key_and_what_weakens_the_answer() -> None:
    figures = Figures([mean("control"), mean("a", value=0.6)], [compared("a", "candidate", 0.1)])
    shown = notebook.as_html(figures)
    assert re.sub("<[^>]+>", "", shown).count("± 0.0100") == 2
    assert "mean over users ± 95 % margin; convention standard<br>▲ better, ▼ worse than control" in shown
    assert "<b>Run record</b>" not in shown, "what was not looked at is no warning"
    check = {"experiment_id": "a", "name": "tied_rate", "segment": "all", "metric": None, "status": "warn"}
    warned = notebook.as_html(replace(figures, checks=[check | {"sentence": "1 of 3 rows <b>tie"}]))
    assert "<b>Ties</b>: 1 of 3 rows &lt;b&gt;tie" in warned


def test_comparisons_show_their_verdict_and_a_line_each() -> None:
    rows = [compared("<i>a", "candidate", 0.1), compared("b", None, 0.001, p_adjusted=0.8)]
    shown = notebook.compared_html([{**row, "design": "independent"} for row in rows])
    assert "&lt;i&gt;a beats control on MAP@10: 0.500 → 0.600" in shown and "<i>a" not in shown
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in re.findall(r"<tr>(.*?)</tr>", shown)][1:]
    assert [(row[0], row[2], row[9]) for row in cells] == [
        ("<bdi>&lt;i&gt;a</bdi>", "<bdi>MAP@10</bdi>", "<bdi>&lt; 0.001</bdi>"),
        ("<bdi>b</bdi>", "<bdi>MAP@10</bdi>", "<bdi>0.800</bdi>"),
    ]


def test_comparisons_show_the_guardrails_and_margins_of_what_decides() -> None:
    margin = {"within_margin": None, "margin": None, "relative_margin": 0.02, "relative_worst_case": 0.1,
              "p_no_worse": 0.99}  # fmt: skip
    guard = compared("b", "baseline", -0.04, metric="p@10", role="guardrail", family="guardrails", **margin)
    rows = [compared("b", "candidate", 0.1, role="primary", family="primary metrics"), guard]
    shown = notebook.compared_html(rows)
    assert "b beats control on MAP@10" in shown and "; but the guardrail Precision@10 falls by 8.0 %" in shown
    assert "Precision@10 of b is clearly more than 2 % below that of control" in shown


def test_comparisons_by_cluster_count_clusters() -> None:
    counts = {"n_users_baseline": 40, "n_users_candidate": 80, "n_members_baseline": 120, "n_members_candidate": 240}
    row = compared("b", None, 0.001, **counts, cluster="house", mean_over="users")
    assert "<b>clusters</b>" in notebook.compared_html([row]) and "<b>users</b>" not in notebook.compared_html([row])
    assert "<b>users</b>" in notebook.compared_html([row | {"cluster": None}])


def test_changes_among_changed_lists_are_told_apart_from_the_means_of_all() -> None:
    changed = compared("a", "candidate", 0.1, share_changed=0.25, diluted_difference=0.025)
    figures = Figures([mean("control"), mean("a", value=0.525)], [changed])
    assert "means are over all users; changes are those of the users whose lists changed" in notebook.as_html(figures)
    frame = notebook.summary(figures)
    assert frame[["share_changed", "diluted_difference"]].to_numpy()[1].tolist() == [0.25, 0.025]
    capped = replace(figures, comparisons=[compared("a", "candidate", 0.1, cap=20.0, mean_over="lists")])
    assert "changes are those of at most 20 lists of each user" in notebook.as_html(capped)
    usual = replace(figures, comparisons=[compared("a", "candidate", 0.1)])
    assert "over all users" not in notebook.as_html(usual) and "share_changed" not in notebook.summary(usual)


def test_rows_that_were_left_out_are_said_where_there_are_some() -> None:
    figures = Figures([mean("control"), mean("a", value=0.6)], [compared("a", "candidate", 0.1)])
    few = replace(figures, of_log=[Check("faulty_rate", "ok", "3 of 900 rows were faulty", observed=3 / 900)])
    assert "3 checks are fine; 3 of 900 rows were faulty</div>" in notebook.as_html(few)
    none = replace(figures, of_log=[Check("faulty_rate", "ok", "None of 900", observed=0.0)])
    assert "3 checks are fine</div>" in notebook.as_html(none)
    refused = replace(figures, of_log=[Check("faulty_rate", "fail", "A run would stop: <b>")])
    assert "<li><b>Faulty rows</b>: A run would stop: &lt;b&gt;.</li>" in notebook.as_html(refused)
    # What a run has counted is said in the same way.
    counts = {"rows": 300, "evaluated": 299, "quarantined": 1, "lists": 40}
    record = RECORD | {"rows": {"in": 600, "evaluated": 598, "quarantined": 2}}
    of_run = replace(figures, record=record | {"experiments": {"control": counts, "a": counts}})
    assert "; 2 of 600 rows (0.33%) were faulty and are left out</div>" in notebook.as_html(of_run)
    assert "left out" not in notebook.as_html(replace(figures, record=RECORD))
    assert {check.topic: str(check) for check in checks(none)}["Run record"] == (
        "There is none: these numbers were not published by a run."
    )


def test_a_summary_warns_of_a_log_that_a_run_would_refuse(recwarn: pytest.WarningsRecorder) -> None:
    fine = [Check("faulty_rate", "ok", "3 of 900 rows were faulty"), Check("log", "warn", "2 lists are odd")]
    notebook.summary(Figures([mean("control")], of_log=fine))
    assert not recwarn.list
    with pytest.warns(QualityWarning, match="^A run would stop: "):
        notebook.summary(Figures([mean("control")], of_log=[Check("log", "fail", "A run would stop: no rows")]))


def test_a_summary_warns_of_the_rows_that_it_lacks() -> None:
    with pytest.warns(UserWarning, match=r"summary\(\) has 1 of 12,002 rows: those of all users and of the largest"):
        notebook.summary(Figures([mean("control")], n_means=12_002))


def test_the_summary_is_tidy_and_says_the_differences() -> None:
    rows = [mean("control"), mean("a", value=0.6), mean("a", value=0.7, segment="s=1")]
    frame = notebook.summary(Figures(rows, [compared("a", "candidate", 0.1)]))
    assert list(frame.columns) == [
        "experiment", "segment", "metric", "users", "mean", "ci_low", "ci_high",
        "baseline", "difference", "relative_difference", "p_adjusted", "better",
    ]  # fmt: skip
    assert frame["experiment"].tolist() == ["control", "a", "a"]
    assert frame["segment"].tolist() == ["all", "all", "s=1"]
    assert np.isnan(frame["difference"][0]) and frame["difference"][1] == 0.1
    assert len(notebook.summary(Figures(rows)).columns) == 7


def test_a_plot_of_a_metric_that_was_not_computed_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown metric 'ndgc'"):
        notebook.plot(Figures([mean("a", "ndcg@10")]), "ndgc")


@pytest.mark.parametrize(("text", "drawn"), json_cases("names of a plotted metric"))
def test_a_plot_takes_every_name_of_a_metric_and_shows_without_a_network(text: str | None, drawn: list[str]) -> None:
    pytest.importorskip("altair")
    rows = [mean(name, metric) for metric in METRICS_SHOWN for name in ("control", "a")]
    figures = Figures(rows, [compared("a", "candidate", 0.1)], order=METRICS_SHOWN)
    bundle = notebook.plot(figures, text)._repr_mimebundle_()
    (vega,) = (value for name, value in bundle.items() if name.startswith("application/vnd.vegalite"))
    assert [row["metric"] for row in vega["datasets"]["rows"] if row["name"] == "a"] == drawn
    axes = {layer["encoding"].get("y", {}).get("field") for layer in vega["layer"]}
    assert axes == ({"name"} if len(drawn) == 1 else {"mean", "low"}), "of one cut-off, a line for each experiment"
    # Altair's own HTML loads its scripts from a network.
    assert "text/html" not in bundle and "http" not in json.dumps({**vega, "$schema": ""})
    svg = bundle["image/svg+xml"]
    for word in ("control", "a", f"{drawn[0] if len(drawn) == 1 else 'MAP'}: mean over users, with 95 % intervals"):
        assert f">{word}</text>" in svg, "legend and title"


def test_mlflow_gets_means_and_differences_under_keys_that_it_takes() -> None:
    figures = Figures([mean("control"), mean("a(1)", value=0.6)], [compared("a(1)", "candidate", 0.1)])
    assert logged_metrics(figures) == {
        "ap_at_10/control": 0.5,
        "ap_at_10_ci_low/control": pytest.approx(0.49),
        "ap_at_10_ci_high/control": pytest.approx(0.51),
        "ap_at_10/a_1_": 0.6,
        "ap_at_10_ci_low/a_1_": pytest.approx(0.59),
        "ap_at_10_ci_high/a_1_": pytest.approx(0.61),
        "ap_at_10_difference/a_1_": 0.1,
        "ap_at_10_difference_ci_low/a_1_": pytest.approx(0.08),
        "ap_at_10_difference_ci_high/a_1_": pytest.approx(0.12),
        "ap_at_10_p_adjusted/a_1_": 0.0001,
    }
    in_doubt = [{**row, "note": "not trustworthy: ..."} for row in figures.comparisons]
    assert "ap_at_10_p_adjusted/a_1_" not in logged_metrics(Figures(figures.means, in_doubt))
    assert logged_parameters(figures) == {"convention": "standard", "baseline": "control"}
    period = {"period_from": "2026-11-08", "period_to": "2026-11-21"}
    of_period = replace(figures, comparisons=[{**row, **period} for row in figures.comparisons])
    assert logged_parameters(of_period) == {"convention": "standard", "baseline": "control", **period}
