"""The consumer, alone or in a group."""
