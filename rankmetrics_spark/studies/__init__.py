"""What else a ranking log can tell, beside the evaluation; ``refusals`` says which logs a study does not read.

``likeness``: how far lists differ. ``shown``: which items users see. ``labels``: what missing judgements could change.
``weighting``: position bias, values of other policies, and judgements from clicks. ``drafts``: interleaved lists.
"""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
