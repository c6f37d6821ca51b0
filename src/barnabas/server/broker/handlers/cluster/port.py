"""Port: what the handlers use that describe the cluster and the directories of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from barnabas.core.rng import Rng
    from barnabas.server.broker.auto_create import AutoTopicCreation
    from barnabas.server.broker.config import HasBrokerConfig
    from barnabas.server.broker.metadata_cache import BrokerMetadataCache
    from barnabas.server.replication.directories.mover import DirectoryMover
    from barnabas.server.replication.partitions import Partitions


class ClusterPort(Struct, frozen=True):
    """What one broker knows of its cluster, and its log directories."""

    node_id: int
    rng: Rng
    metadata: BrokerMetadataCache
    config: HasBrokerConfig
    topic_creation: AutoTopicCreation
    partitions: Partitions
    mover: DirectoryMover
