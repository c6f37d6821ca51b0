"""Properties: round trips, invariants and hostile input, with generated values."""
