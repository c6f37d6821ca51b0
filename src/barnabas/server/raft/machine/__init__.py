"""The Raft machine: `step(event, now_ms) -> Effects`. No clock, no chance of its own, no disk, no socket."""
