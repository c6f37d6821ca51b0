"""ZooKeeper as the keeper of the metadata log (see README.md)."""
