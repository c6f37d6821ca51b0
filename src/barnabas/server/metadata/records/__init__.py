"""The records of the metadata log."""
