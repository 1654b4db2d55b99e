"""What else a ranking log can tell, beside the evaluation; ``refusals`` says which logs a study does not read.

``likeness``: how far lists differ. ``shown``: which items users see. ``labels``: what missing judgements could change.
``weighting``: position bias, values of other policies, and judgements from clicks. ``drafts``: interleaved lists.
"""

from typing import TYPE_CHECKING

from rankmetrics_spark.doors import lazy

if TYPE_CHECKING:
    from rankmetrics_spark.studies.drafts import LOG_COUNTS, Preferences, counts_in_words, interleaving, preferences
    from rankmetrics_spark.studies.labels import unjudged
    from rankmetrics_spark.studies.likeness import changed
    from rankmetrics_spark.studies.shown import exposure
    from rankmetrics_spark.studies.weighting import coec_judgements, off_policy, propensities

__getattr__ = lazy(
    __name__,
    {
        "drafts": "LOG_COUNTS Preferences counts_in_words interleaving preferences",
        "labels": "unjudged",
        "likeness": "changed",
        "shown": "exposure",
        "weighting": "coec_judgements off_policy propensities",
    },
)
