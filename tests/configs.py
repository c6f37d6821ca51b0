"""Config classes with the defaults of the config table, for tests; the arguments replace single values."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.transport.connection_quotas import ConnectionLimits
from barnabas.protocol.transport.limits import TransportConfig
from barnabas.server.broker.config import BrokerConfig
from barnabas.server.coordination.group.config import GroupCoordinatorConfig
from barnabas.server.coordination.share.config import ShareCoordinatorConfig
from barnabas.server.coordination.transaction.config import TransactionConfig
from barnabas.server.metadata.controller.settings import ControllerConfig
from barnabas.server.node import typed_configs
from barnabas.server.node.lifecycle import LifecycleConfig
from barnabas.server.node.shares import SHARE_PARTITION
from barnabas.server.raft.machine.values import RaftConfig
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.rules.share_values import SharePartitionConfig
from barnabas.server.storage.cleaner.task import CleanerConfig
from barnabas.server.storage.config import LogConfig


def broker_config(**changes: Any) -> BrokerConfig:
    return typed_configs.BROKER.from_defaults(**changes)


def cleaner_config(**changes: Any) -> CleanerConfig:
    return typed_configs.CLEANER.from_defaults(**changes)


def controller_config(node_id: int = 0, **changes: Any) -> ControllerConfig:
    return typed_configs.CONTROLLER.from_defaults(node_id=node_id, static_config={}, **changes)


def group_coordinator_config(**changes: Any) -> GroupCoordinatorConfig:
    return typed_configs.GROUP_COORDINATOR.from_defaults(**changes)


def lifecycle_config(**changes: Any) -> LifecycleConfig:
    return typed_configs.LIFECYCLE.from_defaults(**changes)


def log_config(**changes: Any) -> LogConfig:
    return typed_configs.LOG.from_defaults(**changes)


def raft_config(**changes: Any) -> RaftConfig:
    return typed_configs.RAFT.from_defaults(**changes)


def replication_config(**changes: Any) -> ReplicationConfig:
    return typed_configs.REPLICATION.from_defaults(**changes)


def share_coordinator_config(**changes: Any) -> ShareCoordinatorConfig:
    return typed_configs.SHARE_COORDINATOR.from_defaults(**changes)


def share_partition_config(**changes: Any) -> SharePartitionConfig:
    return SHARE_PARTITION.from_defaults(**changes)


def transaction_config(**changes: Any) -> TransactionConfig:
    return typed_configs.TRANSACTION.from_defaults(**changes)


def transport_config(**changes: Any) -> TransportConfig:
    return typed_configs.TRANSPORT.from_defaults(**changes)


def connection_limits(**changes: Any) -> ConnectionLimits:
    computed = {"max_connections_per_ip_overrides": {}, "listeners": {}}
    return typed_configs.CONNECTIONS.from_defaults(**{**computed, **changes})
