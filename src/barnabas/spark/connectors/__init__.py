"""Connectors: data sources and sinks for databases, files, tables and web services, each usable from any Spark program."""
