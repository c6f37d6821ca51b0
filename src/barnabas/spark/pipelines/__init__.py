"""Spark Declarative Pipelines' own files, run on a classic Spark session: once, or for ever."""
