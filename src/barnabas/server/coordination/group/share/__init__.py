"""Share groups (KIP-932): ShareGroupHeartbeat and the offsets of share groups."""
