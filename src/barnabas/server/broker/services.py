"""Value: what handlers work with. `node` builds one `Services` and hands it to the dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from msgspec import Struct, field

from barnabas.core.clock import Clock
from barnabas.core.rng import Rng
from barnabas.server.broker.apis import BROKER_APIS, ApiTable
from barnabas.server.broker.fetching.session_cache import FetchSessionCache
from barnabas.server.broker.forward import ControllerChannel, QuorumView
from barnabas.server.broker.metadata_cache import MetadataCache
from barnabas.server.broker.producer_ids import ProducerIds
from barnabas.server.replication.directories.mover import DirMover
from barnabas.server.replication.flushing import Flusher
from barnabas.server.replication.on_request import OnRequest
from barnabas.server.replication.partitions import Partitions

if TYPE_CHECKING:
    from barnabas.server.broker.shares import Shares
    from barnabas.server.broker.verification import TransactionGate
    from barnabas.server.coordination.group.service import GroupCoordinator
    from barnabas.server.coordination.transaction.service import TransactionCoordinator


class BrokerSettings(Struct, frozen=True):
    """The broker configs that handlers obey, typed; names are Kafka's."""

    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    fetch_max_bytes: int = 57_671_680
    max_request_partition_size_limit: int = 2_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 1
    offsets_topic_segment_bytes: int = 104_857_600
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 1
    transaction_state_log_segment_bytes: int = 104_857_600
    transaction_state_log_min_isr: int = 1
    share_state_topic_num_partitions: int = 50
    share_state_topic_replication_factor: int = 1
    share_state_topic_segment_bytes: int = 104_857_600
    share_state_topic_min_isr: int = 1
    transaction_partition_verification_enable: bool = True
    add_partitions_to_txn_retry_backoff_ms: int = 20
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    request_timeout_ms: int = 30_000
    replica_selector_class: str | None = None


class Services(Struct):
    """Everything below the broker, plugged together."""

    node_id: int
    clock: Clock
    rng: Rng
    metadata: MetadataCache
    partitions: Partitions
    controller: ControllerChannel
    quorum: QuorumView
    producer_ids: ProducerIds
    fetch_sessions: FetchSessionCache
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    gate: TransactionGate
    shares: Shares
    flusher: Flusher
    mover: DirMover
    on_request: OnRequest
    disk: Executor
    """Where reads go that would wait for the device."""
    static_config: Mapping[str, str]
    """What the user set in server.properties or on the command line, as text."""
    settings: BrokerSettings = field(default_factory=BrokerSettings)
    unsent_bytes: Callable[[], int] = int
    """How much of earlier answers waits in memory for clients who are slow to take it."""
    apis: ApiTable = BROKER_APIS

    def on_disconnect(self, connection_id: int) -> None:
        """A connection has ended: share sessions end with their connection (KIP-932)."""
        self.shares.on_disconnect(connection_id)
