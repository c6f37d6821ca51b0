"""The metadata log of this node: Raft, joined to its disk and to the other nodes."""
