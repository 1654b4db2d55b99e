"""What this project and nine other systems can do: ``python -m tests.compared docs/compared.md``.

The features are the rows of the table in docs/compared.md, and ``results.json`` has the cells, with the version of each
system that was tried. ``--prove`` tries them again, each system in an environment of its own, and writes that file; to
add a feature, add a row here, and a method to each class in ``peers`` and to ``ours.Ours`` that has it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.readme import between

RESULTS = Path(__file__).parent / "results.json"
OURS = "rankmetrics_spark"


@dataclass(frozen=True)
class Feature:
    """A row of the table.

    Attributes:
        name: The method that proves it.
        title: What people choose by.
        words: Without a method, a system lacks the feature if none of its public names matches this expression.
    """

    name: str
    title: str
    words: str


FEATURES = (
    Feature("names_of_metrics", "Metrics by name, with a cut-off (`ndcg@10`)", "$^"),
    Feature("graded", "Grades as gains of NDCG, linear or exponential", "$^"),
    Feature("conventions", "Conventions by name (the AP of trec_eval, of Spark, ...)", "convention|preset|dialect"),
    Feature("ties", "A rule for equal scores", r"\bties?\b|_ties?(_|$)|tied"),
    Feature("not_shown", "Judged items that were not shown count", "$^"),
    Feature(
        "unjudged", "Items without a judgement: left out, or what they could change", "unjudged|judged|bpref|condens"
    ),
    Feature("per_user", "Values per user or query", "per_?user|per_?query|return_mean|by_?query|iter_calc"),
    Feature("several_experiments", "Several experiments in one pass", "experiment|several|runs$"),
    Feature("segments", "Means per segment (country, device)", "segment|subgroup|slice|stratum"),
    Feature("intervals", "Confidence intervals of means", "confidence|interval|bootstrap"),
    Feature(
        "tests", "Tests of one experiment against another", "wilcoxon|student|t_?test|signific|p_?value|permutation"
    ),
    Feature(
        "corrected", "p-values corrected for several comparisons", "holm|bonferroni|benjamini|tukey|correct(ed|ion)"
    ),
    Feature("sequential", "Tests that may be looked at every day", "sequential|always_?valid|spending|looks"),
    Feature("left_out", "Faulty rows are left out, counted, with a reason", "quarantine|faulty|left_?out|reason"),
    Feature("scale_out", "A log larger than one machine", "spark|distributed|cluster$"),
    Feature(
        "diversity",
        "What users see: coverage, novelty, diversity",
        "divers|novel|coverage|gini|serendip|surpris|entropy",
    ),
    Feature(
        "intents",
        "Intents of a query, categories of items (alpha-NDCG, ERR-IA)",
        r"alpha_?n?dcg|err_?ia\b|intent|subtopic",
    ),
    Feature(
        "missing_labels",
        "What missing labels could change at most, and which to judge first",
        "to_?judge|residual|resid$|label_?bound",
    ),
    Feature("click_judgements", "Judgements from clicks (clicks over expected clicks)", "coec|click_?model"),
    Feature("percentiles", "Percentiles of a metric over users", r"percentile|\bquantile|\bmedian"),
    Feature("only_changed", "Comparisons of users whose lists changed, with the diluted effect", "only_?changed|dilut"),
    Feature(
        "changed", "How much the lists changed (RBO, Jaccard, Kendall)", r"\brbo\b|rank_biased_overlap|jaccard|kendall"
    ),
    Feature("interleaving", "Interleaved lists: which ranker wins", "interleav"),
    Feature(
        "counterfactual", "Position bias: propensities, off-policy values", "propens|counterfact|off_?policy|debias"
    ),
)


def results() -> dict[str, dict]:
    """System -> its ``version``, ``documentation``, ``how`` the cells were found, and the ``cells``."""
    return dict(json.loads(RESULTS.read_text(encoding="utf-8")))


def markdown(result: dict[str, dict]) -> str:
    """The table, and a line per system with its version."""
    head = ["", *(OURS if title == OURS else f"[{title}]({of['documentation']})" for title, of in result.items())]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for feature in FEATURES:
        cells = (str(of["cells"][feature.name]) + (" †" if of["how"] == "source" else "") for of in result.values())
        lines.append(f"| {feature.title} | {' | '.join(cells)} |")
    versions = (f"{title} {of['version']}" for title, of in result.items() if title != OURS)
    return "\n".join([*lines, "", f"Versions: {', '.join(versions)}."])


def updated(page: str) -> str:
    """The page with a fresh table between its two markers."""
    return between("compared", markdown(results()), page)
