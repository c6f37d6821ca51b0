"""HTTP servers: one mechanism for the node's pages, the registry, Connect and the console."""
