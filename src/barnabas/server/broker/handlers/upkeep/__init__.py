"""Shells: our own APIs: questions to a running broker, and upkeep on request."""
