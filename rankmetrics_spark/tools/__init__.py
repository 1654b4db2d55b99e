"""Tools around the product: the demo log, and the self-test against golden values."""
