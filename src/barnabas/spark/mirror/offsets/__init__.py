"""Which offset of a copy is which offset of its original, in both directions."""
