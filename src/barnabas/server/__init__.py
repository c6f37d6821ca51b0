"""Everything that runs in a node: storage, Raft, metadata, replication, coordinators, request handlers."""
