"""Table: broker configs of cluster links, named as in KIP-1279. No released Kafka has them, so DescribeConfigs does not
return them."""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange
from barnabas.server.metadata.configs.rows import LOW, int_, short

MIRROR_KEYS: Final[tuple[ConfigKey, ...]] = (
    short(
        "mirror.state.topic.min.isr",
        2,
        "The min.insync.replicas of __mirror_state.",
        InRange(1),
        importance=LOW,
        internal=True,
    ),
    int_(
        "mirror.state.topic.num.partitions",
        50,
        "The number of partitions of __mirror_state; do not change it once the topic exists.",
        InRange(1),
        importance=LOW,
        internal=True,
    ),
    short(
        "mirror.state.topic.replication.factor",
        3,
        "The replication factor of __mirror_state; it cannot be created with fewer brokers.",
        InRange(1),
        importance=LOW,
        internal=True,
    ),
    int_(
        "mirror.state.topic.segment.bytes",
        104_857_600,
        "The segment size of __mirror_state.",
        InRange(1),
        importance=LOW,
        internal=True,
    ),
)
