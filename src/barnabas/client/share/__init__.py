"""The share consumer."""
