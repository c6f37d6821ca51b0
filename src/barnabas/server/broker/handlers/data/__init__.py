"""Shells: the APIs of records, offsets and producers, one file each."""
