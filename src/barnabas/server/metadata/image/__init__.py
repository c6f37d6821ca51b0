"""The cluster as it is at one offset of its metadata log, immutable, and how the next one is made."""
