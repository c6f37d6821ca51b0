"""Shell: connectors as configuration: Kafka Connect's files, its workers and its REST API."""
