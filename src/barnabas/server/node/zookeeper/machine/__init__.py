"""What decides, for `node.zookeeper`: no kazoo, no asyncio, time as an argument."""
