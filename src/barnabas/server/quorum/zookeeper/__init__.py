"""Stores the metadata log in ZooKeeper instead of a Raft quorum. README.md lists the files and the rules."""
