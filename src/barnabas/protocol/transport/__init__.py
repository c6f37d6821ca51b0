"""asyncio connections in both directions: listeners, outgoing connections, TLS, flow control."""
