"""Whole columns instead of records."""
