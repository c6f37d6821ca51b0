"""Log compaction: only the latest value of each key is kept (Kafka's log cleaner)."""
