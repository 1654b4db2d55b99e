"""The metrics of all peers and their shared definitions. There are no imports, so any environment can use it."""

METRICS = ("ap", "ndcg", "p", "r")
CUTOFFS = (5, 10, 20)
COLUMNS = tuple(f"{metric}@{k}" for metric in METRICS for k in CUTOFFS)
EVERYTHING = "all"
"""The experiment name under which a peer reports means over all experiments."""

# Binary relevance; m = the user's relevant items. AP@k is divided by min(m, k), NDCG discounts by log2(rank + 1) and
# its ideal list holds min(m, k) items, P@k is divided by k, R@k by m. A user without a relevant item gets 0.
