"""Which engine computes, the sessions of Spark and Sail, and what differs between them."""
