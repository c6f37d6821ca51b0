"""Change capture and sinks of databases, beside Debezium's connectors in Kafka Connect."""
