"""Connectors: sources and sinks for databases, files, tables and web services, usable from any Spark program."""
