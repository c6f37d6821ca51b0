"""Port: what the handlers of transactions use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from barnabas.server.broker.auto_create import AutoTopicCreation
    from barnabas.server.broker.config import HasBrokerConfig
    from barnabas.server.broker.metadata_cache import BrokerMetadataCache
    from barnabas.server.broker.verification import TransactionVerifier
    from barnabas.server.coordination.group.service import GroupCoordinator
    from barnabas.server.coordination.transaction.service import TransactionCoordinator
    from barnabas.server.replication.partitions import Partitions


class TransactionsPort(Struct, frozen=True):
    """The coordinator of transactions, and the partitions that take their markers."""

    transactions: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    groups: GroupCoordinator
    partitions: Partitions
    metadata: BrokerMetadataCache
    config: HasBrokerConfig
    topic_creation: AutoTopicCreation
