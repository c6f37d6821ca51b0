"""Producer state of a log: idempotence and transactions (KIP-98)."""
