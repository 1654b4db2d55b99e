"""trec_eval through pytrec_eval. Only the metrics are timed; runs and judgements are built before."""

import pyarrow.parquet as pq
import pytrec_eval

from tests.benchmarks.peers.common import CUTOFFS, EVERYTHING

# trec_eval divides AP@k by m. AP is computed, so that the work is the same, but its values are not compared.
NAMES = {"ndcg": "ndcg_cut", "p": "P", "r": "recall"}
_inputs: dict[str, tuple[dict, dict]] = {}


def prepare(path: str) -> None:
    """Build the nested dicts that pytrec_eval reads. This is not timed."""
    table = pq.read_table(path, columns=["experiment", "user", "item", "position", "relevance"])
    judged: dict[str, dict[str, int]] = {}
    shown: dict[str, dict[str, float]] = {}
    for batch in table.to_batches():
        columns = [batch.column(name).to_pylist() for name in table.column_names]
        for experiment, user, item, position, relevance in zip(*columns, strict=True):
            key = f"{experiment} {user}"
            shown.setdefault(key, {})[item] = -float(position)
            judged.setdefault(key, {})[item] = relevance
    _inputs[path] = judged, shown


def run(path: str) -> dict:
    judged, shown = _inputs[path]
    cuts = ",".join(map(str, CUTOFFS))
    measures = {f"{name}.{cuts}" for name in (*NAMES.values(), "map_cut")}
    users = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(shown).values()
    columns = {(EVERYTHING, f"{metric}@{k}"): f"{name}_{k}" for metric, name in NAMES.items() for k in CUTOFFS}
    return {key: sum(user[column] for user in users) / len(users) for key, column in columns.items()}
