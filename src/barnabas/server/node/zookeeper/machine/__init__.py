"""The state machines of `node/zookeeper`. They use no kazoo and no asyncio, and take the time as an argument."""
