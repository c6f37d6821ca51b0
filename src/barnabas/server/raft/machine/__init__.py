"""The Raft state machine: `step(event, now_ms) -> Effects`, without a clock, randomness of its own, or I/O."""
