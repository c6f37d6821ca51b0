"""Table: broker configs for a cluster whose metadata is stored in ZooKeeper.

Names, types, defaults and ranges are those of Apache Kafka 3.9, the last version with these configs; the descriptions
are our own. DescribeConfigs lists these configs only if they are set, because Kafka 4 does not have them.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange
from barnabas.server.metadata.configs.rows import HIGH, int_, string

ZOOKEEPER_KEYS: Final[tuple[ConfigKey, ...]] = (
    string(
        "zookeeper.connect",
        None,
        "The ZooKeeper servers as host:port,host:port, optionally followed by the path of the cluster, /name. "
        "If set, ZooKeeper stores the metadata, and there is no quorum of controllers.",
        importance=HIGH,
        internal=True,
    ),
    int_(
        "zookeeper.connection.timeout.ms",
        None,
        "How long a starting node tries to connect to ZooKeeper; if unset, zookeeper.session.timeout.ms.",
        InRange(1),
        importance=HIGH,
        internal=True,
    ),
    int_(
        "zookeeper.session.timeout.ms",
        18_000,
        "How long ZooKeeper keeps the session of a node without receiving heartbeats. The servers limit the value, by "
        "default to between 2 and 20 of their ticks.",
        InRange(1),
        importance=HIGH,
        internal=True,
    ),
)
