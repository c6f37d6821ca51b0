"""Table: broker configs for a cluster whose metadata is kept by ZooKeeper.

Names, types, defaults and ranges are those of Apache Kafka 3.9, the last version that had them; the sentences are ours.
Being no configs of Kafka 4, they are not described to clients unless they are set.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange
from barnabas.server.metadata.configs.rows import HIGH, int_, string

ZOOKEEPER_KEYS: Final[tuple[ConfigKey, ...]] = (
    string(
        "zookeeper.connect",
        None,
        "The ZooKeeper servers as host:port,host:port, and perhaps a place of the cluster's own in them: /name. "
        "When it is set, ZooKeeper keeps the metadata, and there is no quorum of controllers.",
        importance=HIGH,
        internal=True,
    ),
    int_(
        "zookeeper.connection.timeout.ms",
        None,
        "How long a starting node tries to reach ZooKeeper; when unset, zookeeper.session.timeout.ms.",
        InRange(1),
        importance=HIGH,
        internal=True,
    ),
    int_(
        "zookeeper.session.timeout.ms",
        18_000,
        "How long ZooKeeper keeps the session of a node that it does not hear from. The servers bound it, to 2 and 20 "
        "of their ticks if nothing else is configured there.",
        InRange(1),
        importance=HIGH,
        internal=True,
    ),
)
