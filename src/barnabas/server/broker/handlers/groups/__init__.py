"""Shells: the APIs of groups and their offsets, one file each."""
