"""asyncio connections in both directions: listeners, the outgoing channel, TLS, flow control."""
