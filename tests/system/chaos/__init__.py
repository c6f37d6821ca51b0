"""Single brokers under kill -9, with a full disk, and with hostile clients."""
