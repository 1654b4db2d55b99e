"""Limits that a run has to keep: what was counted, what it says of the log, and the limits on rows and metrics."""
