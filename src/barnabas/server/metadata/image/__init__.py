"""The immutable state of a cluster at one offset of its metadata log, and the deltas that lead to the next state."""
