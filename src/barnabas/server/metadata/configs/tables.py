"""Table: every topic, broker, group and client-metrics config, each kind as one `ConfigDef`."""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigDef
from barnabas.server.metadata.configs.broker_barnabas import BARNABAS_KEYS
from barnabas.server.metadata.configs.broker_controller import CONTROLLER_KEYS
from barnabas.server.metadata.configs.broker_groups import GROUPS_KEYS
from barnabas.server.metadata.configs.broker_log import LOG_KEYS
from barnabas.server.metadata.configs.broker_mirror import MIRROR_KEYS
from barnabas.server.metadata.configs.broker_network import NETWORK_KEYS
from barnabas.server.metadata.configs.broker_remote import REMOTE_KEYS
from barnabas.server.metadata.configs.broker_replication import REPLICATION_KEYS
from barnabas.server.metadata.configs.broker_sasl import SASL_KEYS
from barnabas.server.metadata.configs.broker_security import SECURITY_KEYS
from barnabas.server.metadata.configs.broker_share import SHARE_KEYS
from barnabas.server.metadata.configs.broker_ssl import SSL_KEYS
from barnabas.server.metadata.configs.broker_transactions import TRANSACTIONS_KEYS
from barnabas.server.metadata.configs.broker_zookeeper import ZOOKEEPER_KEYS
from barnabas.server.metadata.configs.client_metrics_keys import CLIENT_METRICS_KEYS
from barnabas.server.metadata.configs.group_keys import GROUP_KEYS
from barnabas.server.metadata.configs.topic_keys import TOPIC_KEYS

TOPIC_CONFIGS: Final = ConfigDef.of(TOPIC_KEYS)

BROKER_CONFIGS: Final = ConfigDef.of(
    LOG_KEYS,
    REPLICATION_KEYS,
    CONTROLLER_KEYS,
    NETWORK_KEYS,
    GROUPS_KEYS,
    SHARE_KEYS,
    TRANSACTIONS_KEYS,
    REMOTE_KEYS,
    SECURITY_KEYS,
    SASL_KEYS,
    SSL_KEYS,
    ZOOKEEPER_KEYS,
    BARNABAS_KEYS,
    MIRROR_KEYS,
)

GROUP_CONFIGS: Final = ConfigDef.of(GROUP_KEYS)

CLIENT_METRICS_CONFIGS: Final = ConfigDef.of(CLIENT_METRICS_KEYS)
