"""Columns of records, as Arrow."""
