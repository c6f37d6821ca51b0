"""Value: the objects that request handlers use. `node/broker_role.py` builds one `Services`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.reprs import repr_without
from barnabas.core.rng import Rng
from barnabas.server.broker.apis import BROKER_APIS, ApiTable
from barnabas.server.broker.authorization.ports import Authorizer
from barnabas.server.broker.authorization.table import BROKER_ACCESS, ApiAccess
from barnabas.server.broker.checking.checker import BatchChecker
from barnabas.server.broker.client_metrics.store import ClientMetrics
from barnabas.server.broker.client_quotas import ClientQuotas
from barnabas.server.broker.client_usage.tables import ClientUsage
from barnabas.server.broker.fetching.session_cache import FetchSessionCache
from barnabas.server.broker.forward import ControllerChannel, QuorumStatus
from barnabas.server.broker.listener_configs import ListenerConfigs
from barnabas.server.broker.metadata_cache import BrokerMetadataCache
from barnabas.server.broker.producer_ids import ProducerIds
from barnabas.server.broker.shares import Shares
from barnabas.server.replication.directories.mover import DirectoryMover
from barnabas.server.replication.flushing import Flusher
from barnabas.server.replication.maintenance.on_demand import OnDemandMaintenance
from barnabas.server.replication.partitions import Partitions

if TYPE_CHECKING:
    from barnabas.server.broker.links import Links
    from barnabas.server.broker.verification import TransactionVerifier
    from barnabas.server.coordination.group.service import GroupCoordinator
    from barnabas.server.coordination.transaction.service import TransactionCoordinator


class BrokerConfig(Struct, frozen=True):
    """The broker configs that handlers read, by Kafka's names."""

    auto_create_topics_enable: bool
    num_partitions: int
    default_replication_factor: int
    fetch_max_bytes: int
    max_request_partition_size_limit: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_state_topic_min_isr: int
    mirror_state_topic_num_partitions: int
    mirror_state_topic_replication_factor: int
    mirror_state_topic_segment_bytes: int
    mirror_state_topic_min_isr: int
    transaction_partition_verification_enable: bool
    add_partitions_to_txn_retry_backoff_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    request_timeout_ms: int
    telemetry_max_bytes: int
    replica_selector_class: str | None


class Services(Struct):
    """The services of one broker."""

    node_id: int
    clock: Clock
    rng: Rng
    metadata: BrokerMetadataCache
    partitions: Partitions
    controller: ControllerChannel
    quorum: QuorumStatus
    producer_ids: ProducerIds
    fetch_sessions: FetchSessionCache
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    shares: Shares
    links: Links
    flusher: Flusher
    mover: DirectoryMover
    maintenance: OnDemandMaintenance
    checker: BatchChecker
    quotas: ClientQuotas
    disk: Executor
    """Runs reads that wait for a disk, off the event loop."""
    static_config: Mapping[str, str]
    """The configs in server.properties and on the command line, as text."""
    config: BrokerConfig
    client_metrics: ClientMetrics
    clients: ClientUsage
    """What clients use, by client id, address, principal and partition."""
    unsent_bytes: Callable[[], int] = int
    """The bytes of responses that wait in memory for slow clients."""
    listener_configs: ListenerConfigs | None = None
    """Checks changes of this broker's listeners."""
    authorizer: Authorizer | None = None
    """None if every client may do everything."""
    apis: ApiTable = BROKER_APIS

    __repr__ = repr_without("static_config")

    @property
    def access(self) -> Mapping[int, ApiAccess]:
        """What the client of each API must be allowed to do."""
        return BROKER_ACCESS

    def on_disconnect(self, connection_id: int) -> None:
        """A connection has ended: share sessions end with their connection (KIP-932)."""
        self.shares.on_disconnect(connection_id)
