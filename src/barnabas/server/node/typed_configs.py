"""Value: builds the config class of each package from the config values in effect on this node.

To find all uses of a config, search for its name with `.` as a wildcard: `grep -rn replica.lag.time.max.ms src`. The
search finds the row of the config table (`server/metadata/configs`), the field `replica_lag_time_max_ms`, and the code
that reads the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from barnabas.core.config import ConfigError
from barnabas.core.config_builder import ConfigBuilder
from barnabas.core.ids import BrokerId
from barnabas.protocol.transport.connection_quotas import ConnectionLimits, ListenerLimits
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.limits import TransportConfig
from barnabas.server.broker.config import BrokerConfig
from barnabas.server.coordination.group.config import GroupCoordinatorConfig
from barnabas.server.coordination.share.config import ShareCoordinatorConfig
from barnabas.server.coordination.transaction.config import TransactionConfig
from barnabas.server.metadata.config_rules import parse_connection_overrides
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS, TOPIC_CONFIGS
from barnabas.server.metadata.controller.settings import ControllerConfig
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.lifecycle import LifecycleConfig
from barnabas.server.node.setup.identity import Identity
from barnabas.server.quorum.metadata_log import QuorumConfig
from barnabas.server.raft.machine.values import RaftConfig, RaftEndpoint
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.maintenance.scheduled import MaintenanceConfig
from barnabas.server.storage.cleaner.task import CleanerConfig
from barnabas.server.storage.config import LogConfig
from barnabas.server.tiering.leaders import TieringConfig
from barnabas.server.tiering.reading.config import RemoteReadConfig
from barnabas.server.tiering.reading.index_cache import IndexCacheConfig

BROKER: Final = ConfigBuilder(BrokerConfig, BROKER_CONFIGS)
CLEANER: Final = ConfigBuilder(CleanerConfig, BROKER_CONFIGS)
CONTROLLER: Final = ConfigBuilder(ControllerConfig, BROKER_CONFIGS, computed=("node_id", "static_config"))
GROUP_COORDINATOR: Final = ConfigBuilder(GroupCoordinatorConfig, BROKER_CONFIGS)
LIFECYCLE: Final = ConfigBuilder(LifecycleConfig, BROKER_CONFIGS)
LOG: Final = ConfigBuilder(LogConfig, TOPIC_CONFIGS)
MAINTENANCE: Final = ConfigBuilder(MaintenanceConfig, BROKER_CONFIGS)
INDEX_CACHE: Final = ConfigBuilder(IndexCacheConfig, BROKER_CONFIGS)
RAFT: Final = ConfigBuilder(RaftConfig, BROKER_CONFIGS)
REMOTE_READS: Final = ConfigBuilder(RemoteReadConfig, BROKER_CONFIGS)
REPLICATION: Final = ConfigBuilder(ReplicationConfig, BROKER_CONFIGS)
SHARE_COORDINATOR: Final = ConfigBuilder(ShareCoordinatorConfig, BROKER_CONFIGS)
TIERING: Final = ConfigBuilder(TieringConfig, BROKER_CONFIGS)
TRANSACTION: Final = ConfigBuilder(TransactionConfig, BROKER_CONFIGS)
TRANSPORT: Final = ConfigBuilder(TransportConfig, BROKER_CONFIGS)
CONNECTIONS: Final = ConfigBuilder(
    ConnectionLimits, BROKER_CONFIGS, computed=("max_connections_per_ip_overrides", "listeners")
)
LISTENER_LIMITS: Final = ConfigBuilder(ListenerLimits, BROKER_CONFIGS)

_SELECTORS: Final = (
    None,
    "",
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)


# ---- configs that can change while the broker runs: built again when a dynamic broker config changes


def build_broker_config(view: ConfigView) -> BrokerConfig:
    """The broker's configs in effect, as a value with types. Raises ConfigError for an unknown replica selector."""
    config = BROKER.build(_broker_value(view))
    if config.replica_selector_class not in _SELECTORS:
        raise ConfigError(
            f"replica.selector.class={config.replica_selector_class}: this class is unknown. "
            f"Remove the config, or set it to {_SELECTORS[-1]}."
        )
    return config


def build_replication_config(view: ConfigView) -> ReplicationConfig:
    return REPLICATION.build(_broker_value(view))


def build_cleaner_config(view: ConfigView) -> CleanerConfig:
    return CLEANER.build(_broker_value(view))


def build_connection_limits(view: ConfigView, listeners: Iterable[str]) -> ConnectionLimits:
    """The limits of a node's connections. Raises ConfigError if `max.connections.per.ip.overrides` cannot be parsed."""
    value_of = _broker_value(view)
    overrides = parse_connection_overrides(value_of("max.connections.per.ip.overrides") or "")
    own = {name: LISTENER_LIMITS.build(partial(view.listener_value, name)) for name in listeners}
    return CONNECTIONS.build(value_of, max_connections_per_ip_overrides=overrides, listeners=own)


def build_tiering_configs(view: ConfigView) -> tuple[TieringConfig, RemoteReadConfig, IndexCacheConfig]:
    """The configs of tiered storage: of copies and deletions, of reads, and of index files."""
    value_of = _broker_value(view)
    return TIERING.build(value_of), REMOTE_READS.build(value_of), INDEX_CACHE.build(value_of)


def build_log_config(view: ConfigView, topic: str) -> LogConfig:
    """The config of each log of `topic`."""
    enabled = view.broker_value("remote.log.storage.system.enable").value
    tiered = bool(enabled and view.topic_value(topic, "remote.storage.enable").value)
    return LOG.build(lambda name: view.topic_value(topic, name).value, tiered=tiered)


def _broker_value(view: ConfigView) -> Callable[[str], Any]:
    return lambda name: view.broker_value(name).value


# ---- configs that are fixed when the node starts


def build_controller_config(config: NodeConfig, node_id: int) -> ControllerConfig:
    return CONTROLLER.build(config.__getitem__, node_id=BrokerId(node_id), static_config=config.given)


def build_transport_config(config: NodeConfig) -> TransportConfig:
    return TRANSPORT.build(config.__getitem__)


def build_quorum_config(config: NodeConfig, identity: Identity, own: Sequence[ListenerEndpoint]) -> QuorumConfig:
    """`own` are the advertised listeners of this controller; empty for a broker."""
    topology = config.topology
    addresses = {(endpoint.host, endpoint.port) for endpoint in own}
    first = topology.bootstrap[0] if topology.bootstrap else None
    return QuorumConfig(
        cluster_id=identity.cluster_id,
        controller_quorum_voters=topology.voters if len(topology.voters) > 1 or not topology.decides_alone else (),
        controller_quorum_bootstrap_servers=topology.bootstrap,
        endpoints=tuple(RaftEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in own),
        listener=config.controller_listener[0],
        may_found=topology.decides_alone or first in addresses,
        raft=RAFT.build(config.__getitem__, can_vote=topology.is_controller),
        fsync=config.metadata_fsync,
    )
