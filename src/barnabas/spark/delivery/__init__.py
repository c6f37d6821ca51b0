"""Exactly-once delivery of the sink: transactions of task attempts, and the ledger of those that are committed."""
