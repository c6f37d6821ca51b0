"""The producer, with and without transactions."""
