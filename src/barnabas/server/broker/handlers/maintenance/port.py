"""Port: what the handlers of explanations and maintenance use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from barnabas.server.broker.client_usage.tables import ClientUsage
    from barnabas.server.broker.metadata_cache import BrokerMetadataCache
    from barnabas.server.coordination.group.service import GroupCoordinator
    from barnabas.server.coordination.transaction.service import TransactionCoordinator
    from barnabas.server.replication.maintenance.on_demand import OnDemandMaintenance


class MaintenancePort(Struct, frozen=True):
    """What this broker can say of its partitions, groups and clients, and do for them on request."""

    node_id: int
    metadata: BrokerMetadataCache
    maintenance: OnDemandMaintenance
    transactions: TransactionCoordinator
    groups: GroupCoordinator
    clients: ClientUsage
    """What clients use, by client id, address, principal and partition."""
    disk: Executor
    """Runs reads that wait for a disk, off the event loop."""
