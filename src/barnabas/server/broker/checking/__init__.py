"""Checks of produced batches off the event loop."""
