"""Shells: the request handlers, one file for each API."""
