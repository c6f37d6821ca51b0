"""Barnabas: a Kafka-wire-compatible distributed commit log, and data pipelines on Spark.

Importing this package is cheap; each room is imported when it is first used.
"""

__version__ = "0.1.0"
