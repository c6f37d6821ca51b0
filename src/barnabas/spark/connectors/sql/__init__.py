"""Databases by SQL: sinks that write rows, and sources that poll tables."""
