"""What a log knows of its producers: idempotence and transactions (KIP-98)."""
