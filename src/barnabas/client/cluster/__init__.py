"""The client's connections, metadata and coordinators: how a request reaches the right broker."""
