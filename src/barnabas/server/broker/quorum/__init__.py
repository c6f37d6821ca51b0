"""What controllers say to each other: the wire's messages on one side, those of `raft` on the other."""
