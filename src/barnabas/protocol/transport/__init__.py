"""asyncio at the edge: listeners, connections, flow control. Knows frames and peers, no API and no record."""
