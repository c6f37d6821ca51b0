"""Port: what the handlers of records and their offsets use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from barnabas.core.clock import Clock
    from barnabas.server.broker.checking.checker import BatchChecker
    from barnabas.server.broker.client_quotas import ClientQuotas
    from barnabas.server.broker.config import HasBrokerConfig
    from barnabas.server.broker.fetching.session_cache import FetchSessionCache
    from barnabas.server.broker.metadata_cache import BrokerMetadataCache
    from barnabas.server.broker.producer_ids import ProducerIds
    from barnabas.server.broker.verification import TransactionVerifier
    from barnabas.server.coordination.transaction.service import TransactionCoordinator
    from barnabas.server.replication.flushing import Flusher
    from barnabas.server.replication.partitions import Partitions


class DataPort(Struct, frozen=True):
    """The replicas of this broker, and what guards the way to them."""

    clock: Clock
    metadata: BrokerMetadataCache
    partitions: Partitions
    config: HasBrokerConfig
    fetch_sessions: FetchSessionCache
    checker: BatchChecker
    quotas: ClientQuotas
    producer_ids: ProducerIds
    transactions: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    flusher: Flusher
    disk: Executor
    """Runs reads that wait for a disk, off the event loop."""
    unsent_bytes: Callable[[], int]
    """The bytes of responses that wait in memory for slow clients."""
