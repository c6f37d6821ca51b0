"""Log compaction: for each key, only the latest record is kept (Kafka's log cleaner)."""
