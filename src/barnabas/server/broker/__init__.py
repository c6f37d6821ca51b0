"""Requests -> answers. Knows messages and partitions; knows no socket."""
