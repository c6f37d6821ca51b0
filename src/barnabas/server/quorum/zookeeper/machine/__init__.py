"""The state machines of `quorum/zookeeper`. They use no kazoo and no asyncio, and take the time as an argument."""
