"""Table: the APIs that controllers serve on their own listener (`controller.listener.names`).

Brokers register here, send heartbeats, change the in-sync replicas of their partitions and forward requests of their
clients. Controllers replicate the metadata log. An AdminClient with `bootstrap.controllers` may connect too (KIP-919).
The handlers under `cluster` are those of the brokers' listeners: they call `services.controller`, which here is the
controller of this node.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.transport.ports import RequestScheduling
from barnabas.protocol.wire.apis import ApiKey
from barnabas.server.broker.apis import ApiTable, Route

_K = ApiKey

CONTROLLER_ROUTES: Final[tuple[Route, ...]] = (
    Route(_K.API_VERSIONS, "cluster.api_versions", 0, 4),
    Route(_K.DESCRIBE_CLUSTER, "controller.describe_cluster", 0, 2),
    # authentication: a listener with SASL serves the two itself until the client has authenticated
    Route(_K.SASL_HANDSHAKE, "security.sasl_handshake", 0, 1),
    Route(_K.SASL_AUTHENTICATE, "security.sasl_authenticate", 0, 2),
    Route(_K.DESCRIBE_USER_SCRAM_CREDENTIALS, "security.describe_user_scram_credentials", 0, 0),
    Route(_K.ALTER_USER_SCRAM_CREDENTIALS, "security.alter_user_scram_credentials", 0, 0, RequestScheduling.PIPELINED),
    Route(_K.CREATE_DELEGATION_TOKEN, "security.create_delegation_token", 1, 3, RequestScheduling.PIPELINED),
    Route(_K.RENEW_DELEGATION_TOKEN, "security.renew_delegation_token", 1, 2, RequestScheduling.PIPELINED),
    Route(_K.EXPIRE_DELEGATION_TOKEN, "security.expire_delegation_token", 1, 2, RequestScheduling.PIPELINED),
    # the metadata log
    Route(_K.FETCH, "quorum.fetch", 12, 18, RequestScheduling.CANCELLABLE),
    Route(_K.FETCH_SNAPSHOT, "quorum.fetch_snapshot", 0, 1),
    Route(_K.VOTE, "quorum.vote", 0, 2),
    Route(_K.BEGIN_QUORUM_EPOCH, "quorum.begin_quorum_epoch", 0, 1),
    Route(_K.END_QUORUM_EPOCH, "quorum.end_quorum_epoch", 0, 1),
    Route(_K.DESCRIBE_QUORUM, "quorum.describe_quorum", 0, 2),
    Route(_K.ADD_RAFT_VOTER, "quorum.add_raft_voter", 0, 1, RequestScheduling.PIPELINED),
    Route(_K.REMOVE_RAFT_VOTER, "quorum.remove_raft_voter", 0, 0, RequestScheduling.PIPELINED),
    Route(_K.UPDATE_RAFT_VOTER, "quorum.update_raft_voter", 0, 0, RequestScheduling.PIPELINED),
    # brokers and other controllers
    Route(_K.BROKER_REGISTRATION, "controller.broker_registration", 0, 4, RequestScheduling.PIPELINED),
    Route(_K.BROKER_HEARTBEAT, "controller.broker_heartbeat", 0, 2, RequestScheduling.PIPELINED),
    Route(_K.CONTROLLER_REGISTRATION, "controller.controller_registration", 0, 0, RequestScheduling.PIPELINED),
    Route(_K.ALTER_PARTITION, "controller.alter_partition", 2, 3, RequestScheduling.PIPELINED),
    Route(_K.ALLOCATE_PRODUCER_IDS, "controller.allocate_producer_ids", 0, 0, RequestScheduling.PIPELINED),
    Route(_K.ASSIGN_REPLICAS_TO_DIRS, "controller.assign_replicas_to_dirs", 0, 0, RequestScheduling.PIPELINED),
    Route(_K.ALTER_MIRROR_TOPICS, "controller.alter_mirror_topics", 0, 0, RequestScheduling.PIPELINED),
    Route(_K.ENVELOPE, "controller.envelope", 0, 0, RequestScheduling.PIPELINED),
    # requests of administrators
    Route(_K.CREATE_TOPICS, "cluster.create_topics", 2, 7, RequestScheduling.PIPELINED),
    Route(_K.DELETE_TOPICS, "cluster.delete_topics", 1, 6, RequestScheduling.PIPELINED),
    Route(_K.CREATE_PARTITIONS, "cluster.create_partitions", 0, 3, RequestScheduling.PIPELINED),
    Route(_K.DESCRIBE_CONFIGS, "cluster.describe_configs", 1, 4),
    Route(_K.ALTER_CONFIGS, "cluster.alter_configs", 0, 2, RequestScheduling.PIPELINED),
    Route(_K.INCREMENTAL_ALTER_CONFIGS, "cluster.incremental_alter_configs", 0, 1, RequestScheduling.PIPELINED),
    Route(_K.ALTER_CLIENT_QUOTAS, "cluster.alter_client_quotas", 0, 1, RequestScheduling.PIPELINED),
    Route(_K.ELECT_LEADERS, "cluster.elect_leaders", 0, 2, RequestScheduling.PIPELINED),
    Route(_K.ALTER_PARTITION_REASSIGNMENTS, "cluster.alter_partition_reassignments", 0, 1, RequestScheduling.PIPELINED),
    Route(_K.LIST_PARTITION_REASSIGNMENTS, "cluster.list_partition_reassignments", 0, 0, RequestScheduling.PIPELINED),
    Route(_K.UPDATE_FEATURES, "cluster.update_features", 0, 2, RequestScheduling.PIPELINED),
    Route(_K.UNREGISTER_BROKER, "cluster.unregister_broker", 0, 0, RequestScheduling.PIPELINED),
    Route(_K.DESCRIBE_ACLS, "cluster.describe_acls", 1, 3),
    Route(_K.CREATE_ACLS, "cluster.create_acls", 1, 3, RequestScheduling.PIPELINED),
    Route(_K.DELETE_ACLS, "cluster.delete_acls", 1, 3, RequestScheduling.PIPELINED),
)

CONTROLLER_APIS: Final = ApiTable(CONTROLLER_ROUTES)

FORWARDABLE: Final = frozenset(
    {
        _K.CREATE_TOPICS,
        _K.DELETE_TOPICS,
        _K.CREATE_PARTITIONS,
        _K.ALTER_CONFIGS,
        _K.INCREMENTAL_ALTER_CONFIGS,
        _K.ALTER_CLIENT_QUOTAS,
        _K.ELECT_LEADERS,
        _K.ALTER_PARTITION_REASSIGNMENTS,
        _K.LIST_PARTITION_REASSIGNMENTS,
        _K.UPDATE_FEATURES,
        _K.UNREGISTER_BROKER,
        _K.ALTER_USER_SCRAM_CREDENTIALS,
        _K.CREATE_DELEGATION_TOKEN,
        _K.RENEW_DELEGATION_TOKEN,
        _K.EXPIRE_DELEGATION_TOKEN,
        _K.CREATE_ACLS,
        _K.DELETE_ACLS,
        _K.DESCRIBE_QUORUM,
        _K.ADD_RAFT_VOTER,
        _K.REMOVE_RAFT_VOTER,
    }
)
"""The APIs whose requests brokers forward to the controller for their clients, in an Envelope (KIP-590)."""
