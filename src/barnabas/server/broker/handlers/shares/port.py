"""Port: what the handlers of share partitions use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from barnabas.server.broker.config import HasBrokerConfig
    from barnabas.server.broker.metadata_cache import BrokerMetadataCache
    from barnabas.server.broker.shares import Shares
    from barnabas.server.replication.partitions import Partitions


class SharesPort(Struct, frozen=True):
    """The share partitions that this broker leads, and the coordinator of their states."""

    shares: Shares
    partitions: Partitions
    metadata: BrokerMetadataCache
    config: HasBrokerConfig
    disk: Executor
    """Runs reads that wait for a disk, off the event loop."""
