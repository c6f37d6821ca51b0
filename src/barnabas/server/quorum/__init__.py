"""The metadata log of this node: runs the Raft state machine, stores its log on the disk, and sends its requests."""
