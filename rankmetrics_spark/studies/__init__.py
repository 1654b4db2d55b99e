"""What else a ranking log can tell, beside the evaluation; ``frame``: what all of it does alike.

``likeness``: how far lists differ. ``shown``: which items users see. ``labels``: what missing judgements could change.
``weighting``: position bias, values of other policies, and judgements from clicks. ``drafts``: interleaved lists.
"""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
