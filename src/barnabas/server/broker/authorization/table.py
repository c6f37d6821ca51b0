"""Table: what the client of each API must be allowed to do, on the listeners of brokers and on those of controllers.

A node with an authorizer serves no API without an entry here. An entry is one of

- `open_to_all`: every client may use the API
- `cluster`: the whole request needs one operation on the cluster, which is checked before the request is decoded
- `forwarded`: the controller authorizes the client, whose principal and address the broker sends in the Envelope
- `guarded`: a function in `guards/` checks the entries of the request

The needs are those of Kafka's KafkaApis and ControllerApis. `needs` describes them for people and for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.acls import AclResourceType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.authorization.checks import (
    CLUSTER,
    DELEGATION_TOKEN,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
)

Refuse = Callable[[Any, int, ErrorCode], Message]
"""Builds the refusal of a whole request: of the request, its version and the error code."""


class Need(NamedTuple):
    """An operation that the client must be allowed to do. Needs with the same `group` other than 0 are alternatives."""

    operation: AclOperation
    resource_type: AclResourceType
    group: int = 0


class ApiAccess(Struct, frozen=True):
    """The entry of one API."""

    needs: tuple[Need, ...] = ()
    cluster_operation: AclOperation | None = None
    """The operation on the cluster that the whole request needs."""
    guard: str = ""
    """`module.function` in `guards/`."""
    granted: str = ""
    """`module.function` in `guards/`: builds the handler of requests that were allowed before, and need no guard. For
    APIs whose every microsecond counts."""
    refuse: str = ""
    """`module.function` in `guards/` that builds the refusal, if the response has no top-level error code."""
    is_forwarded: bool = False
    reason: str = ""
    """Why every client may use the API, or what the guard does beyond its needs."""


def open_to_all(reason: str, guard: str = "") -> ApiAccess:
    return ApiAccess(reason=reason, guard=guard)


def cluster(operation: AclOperation, refuse: str = "") -> ApiAccess:
    return ApiAccess((Need(operation, CLUSTER),), operation, refuse=refuse)


def forwarded() -> ApiAccess:
    return ApiAccess(is_forwarded=True)


def guarded(guard: str, *needs: Need, reason: str = "", granted: str = "") -> ApiAccess:
    return ApiAccess(needs, guard=guard, granted=granted, reason=reason)


_K, _O = ApiKey, AclOperation


def _topic(operation: AclOperation, group: int = 0) -> Need:
    return Need(operation, TOPIC, group)


def _group(operation: AclOperation) -> Need:
    return Need(operation, GROUP)


def _cluster(operation: AclOperation, group: int = 0) -> Need:
    return Need(operation, CLUSTER, group)


_TRANSACTION: Final = Need(_O.WRITE, TRANSACTIONAL_ID)

BROKER_ACCESS: Final[Mapping[int, ApiAccess]] = {
    # data
    _K.PRODUCE: guarded(
        "topics.produce",
        _TRANSACTION,
        _topic(_O.WRITE),
        reason="transactional batches only: the id",
        granted="topics.produce_if_granted",
    ),
    _K.FETCH: guarded("topics.fetch", _topic(_O.READ), reason="followers: CLUSTER_ACTION on the cluster"),
    _K.LIST_OFFSETS: guarded("topics.list_offsets", _topic(_O.DESCRIBE)),
    _K.DELETE_RECORDS: guarded("topics.delete_records", _topic(_O.DELETE)),
    _K.INIT_PRODUCER_ID: guarded(
        "transactions.init_producer_id",
        _TRANSACTION,
        reason="without a transactional id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
    ),
    _K.OFFSET_FOR_LEADER_EPOCH: guarded(
        "topics.offset_for_leader_epoch", _cluster(_O.CLUSTER_ACTION, 1), _topic(_O.DESCRIBE, 1)
    ),
    _K.DESCRIBE_PRODUCERS: guarded("topics.describe_producers", _topic(_O.READ)),
    # cluster
    _K.API_VERSIONS: open_to_all("a client needs the versions before it can authenticate"),
    _K.SASL_HANDSHAKE: open_to_all("outside of authentication the request is refused"),
    _K.SASL_AUTHENTICATE: open_to_all("outside of authentication the request is refused"),
    _K.METADATA: guarded(
        "topics.metadata", _topic(_O.DESCRIBE), reason="creating a topic: CREATE on the cluster or on the topic"
    ),
    _K.DESCRIBE_TOPIC_PARTITIONS: guarded("topics.describe_topic_partitions", _topic(_O.DESCRIBE)),
    _K.DESCRIBE_CLUSTER: open_to_all("the nodes are no secret to clients", guard="cluster.describe_cluster"),
    _K.DESCRIBE_CONFIGS: guarded(
        "cluster.describe_configs",
        _topic(_O.DESCRIBE_CONFIGS),
        reason="brokers, loggers, client metrics: on the cluster; groups: on the group",
    ),
    _K.LIST_CONFIG_RESOURCES: cluster(_O.DESCRIBE_CONFIGS),
    _K.GET_TELEMETRY_SUBSCRIPTIONS: open_to_all("a client learns only what it is to push itself (KIP-714)"),
    _K.PUSH_TELEMETRY: open_to_all("a client pushes only its own metrics (KIP-714)"),
    _K.DESCRIBE_CLIENT_QUOTAS: cluster(_O.DESCRIBE_CONFIGS),
    _K.ALTER_REPLICA_LOG_DIRS: cluster(_O.ALTER, "refusals.refuse_log_dirs"),
    _K.DESCRIBE_LOG_DIRS: cluster(_O.DESCRIBE),
    _K.DESCRIBE_QUORUM: cluster(_O.DESCRIBE),
    _K.DESCRIBE_ACLS: cluster(_O.DESCRIBE),
    _K.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster(_O.DESCRIBE),
    _K.ALTER_USER_SCRAM_CREDENTIALS: forwarded(),
    _K.CREATE_DELEGATION_TOKEN: guarded(
        "tokens.create_delegation_token", Need(_O.CREATE_TOKENS, USER), reason="a token of another user"
    ),
    _K.RENEW_DELEGATION_TOKEN: open_to_all("only the owner and the renewers of a token may renew it"),
    _K.EXPIRE_DELEGATION_TOKEN: open_to_all("only the owner and the renewers of a token may let it expire"),
    _K.DESCRIBE_DELEGATION_TOKEN: guarded(
        "tokens.describe_delegation_token",
        Need(_O.DESCRIBE, DELEGATION_TOKEN, 1),
        Need(_O.DESCRIBE_TOKENS, USER, 1),
        reason="a token of the client itself needs nothing; others are left out",
    ),
    _K.CREATE_TOPICS: forwarded(),
    _K.DELETE_TOPICS: forwarded(),
    _K.CREATE_PARTITIONS: forwarded(),
    _K.ALTER_CONFIGS: forwarded(),
    _K.ALTER_CLIENT_QUOTAS: forwarded(),
    _K.INCREMENTAL_ALTER_CONFIGS: forwarded(),
    _K.ELECT_LEADERS: forwarded(),
    _K.UPDATE_FEATURES: forwarded(),
    _K.UNREGISTER_BROKER: forwarded(),
    _K.ALTER_PARTITION_REASSIGNMENTS: forwarded(),
    _K.LIST_PARTITION_REASSIGNMENTS: forwarded(),
    _K.ADD_RAFT_VOTER: forwarded(),
    _K.REMOVE_RAFT_VOTER: forwarded(),
    _K.CREATE_ACLS: forwarded(),
    _K.DELETE_ACLS: forwarded(),
    # transactions
    _K.ADD_PARTITIONS_TO_TXN: guarded(
        "transactions.add_partitions_to_txn",
        _TRANSACTION,
        _topic(_O.WRITE),
        reason="from brokers, since version 4: CLUSTER_ACTION on the cluster",
    ),
    _K.ADD_OFFSETS_TO_TXN: guarded("transactions.add_offsets_to_txn", _TRANSACTION, _group(_O.READ)),
    _K.END_TXN: guarded("transactions.end_txn", _TRANSACTION),
    _K.WRITE_TXN_MARKERS: guarded(
        "transactions.write_txn_markers", _cluster(_O.ALTER, 1), _cluster(_O.CLUSTER_ACTION, 1)
    ),
    _K.TXN_OFFSET_COMMIT: guarded("transactions.txn_offset_commit", _TRANSACTION, _group(_O.READ), _topic(_O.READ)),
    _K.DESCRIBE_TRANSACTIONS: guarded(
        "transactions.describe_transactions", Need(_O.DESCRIBE, TRANSACTIONAL_ID), reason="topics: DESCRIBE on each"
    ),
    _K.LIST_TRANSACTIONS: guarded("transactions.list_transactions", Need(_O.DESCRIBE, TRANSACTIONAL_ID)),
    # groups
    _K.FIND_COORDINATOR: guarded(
        "groups.find_coordinator",
        _group(_O.DESCRIBE),
        reason="a transactional id: DESCRIBE on it; a share partition: CLUSTER_ACTION on the cluster",
    ),
    _K.JOIN_GROUP: guarded("groups.read_group", _group(_O.READ)),
    _K.SYNC_GROUP: guarded("groups.read_group", _group(_O.READ)),
    _K.HEARTBEAT: guarded("groups.read_group", _group(_O.READ)),
    _K.LEAVE_GROUP: guarded("groups.read_group", _group(_O.READ)),
    _K.OFFSET_COMMIT: guarded("groups.offset_commit", _group(_O.READ), _topic(_O.READ)),
    _K.OFFSET_FETCH: guarded("groups.offset_fetch", _group(_O.DESCRIBE), _topic(_O.DESCRIBE)),
    _K.OFFSET_DELETE: guarded("groups.offset_delete", _group(_O.DELETE), _topic(_O.READ)),
    _K.DESCRIBE_GROUPS: guarded("groups.describe_groups", _group(_O.DESCRIBE)),
    _K.LIST_GROUPS: guarded(
        "groups.list_groups", _cluster(_O.DESCRIBE, 1), Need(_O.DESCRIBE, GROUP, 1), reason="else the list is filtered"
    ),
    _K.DELETE_GROUPS: guarded("groups.delete_groups", _group(_O.DELETE)),
    _K.CONSUMER_GROUP_HEARTBEAT: guarded("groups.group_heartbeat", _group(_O.READ), _topic(_O.DESCRIBE)),
    _K.CONSUMER_GROUP_DESCRIBE: guarded("groups.describe_groups_by_id", _group(_O.DESCRIBE), _topic(_O.DESCRIBE)),
    _K.SHARE_GROUP_HEARTBEAT: guarded("groups.group_heartbeat", _group(_O.READ), _topic(_O.DESCRIBE)),
    _K.SHARE_GROUP_DESCRIBE: guarded("groups.describe_groups_by_id", _group(_O.DESCRIBE), _topic(_O.DESCRIBE)),
    _K.DESCRIBE_SHARE_GROUP_OFFSETS: guarded(
        "groups.describe_share_group_offsets", _group(_O.DESCRIBE), _topic(_O.DESCRIBE)
    ),
    _K.ALTER_SHARE_GROUP_OFFSETS: guarded("groups.alter_share_group_offsets", _group(_O.READ), _topic(_O.READ)),
    _K.DELETE_SHARE_GROUP_OFFSETS: guarded("groups.delete_share_group_offsets", _group(_O.DELETE), _topic(_O.READ)),
    # share groups
    _K.SHARE_FETCH: guarded("shares.share_fetch", _group(_O.READ), _topic(_O.READ)),
    _K.SHARE_ACKNOWLEDGE: guarded("shares.share_acknowledge", _group(_O.READ), _topic(_O.READ)),
    _K.INITIALIZE_SHARE_GROUP_STATE: cluster(_O.CLUSTER_ACTION, "refusals.refuse_share_state"),
    _K.READ_SHARE_GROUP_STATE: cluster(_O.CLUSTER_ACTION, "refusals.refuse_share_state"),
    _K.WRITE_SHARE_GROUP_STATE: cluster(_O.CLUSTER_ACTION, "refusals.refuse_share_state"),
    _K.DELETE_SHARE_GROUP_STATE: cluster(_O.CLUSTER_ACTION, "refusals.refuse_share_state"),
    _K.READ_SHARE_GROUP_STATE_SUMMARY: cluster(_O.CLUSTER_ACTION, "refusals.refuse_share_state"),
    # Barnabas' own
    _K.EXPLAIN_PARTITION: guarded("topics.explain_partition", _topic(_O.DESCRIBE)),
    _K.EXPLAIN_GROUP: guarded("groups.describe_groups_by_id", _group(_O.DESCRIBE)),
    _K.DESCRIBE_CLIENTS: cluster(_O.DESCRIBE),
    _K.RUN_MAINTENANCE: guarded("topics.run_maintenance", _topic(_O.ALTER)),
    _K.ALTER_LINK: guarded("links.alter", _cluster(_O.ALTER, 1), _cluster(_O.CLUSTER_ACTION, 1)),
    _K.ALTER_MIRRORS: guarded("links.alter", _cluster(_O.ALTER, 1), _cluster(_O.CLUSTER_ACTION, 1)),
    _K.DESCRIBE_LINKS: guarded("links.describe", _cluster(_O.DESCRIBE, 1), _cluster(_O.CLUSTER_ACTION, 1)),
    _K.DESCRIBE_MIRRORS: cluster(_O.DESCRIBE),
    _K.READ_LINK: cluster(_O.CLUSTER_ACTION),
    _K.READ_MIRROR_STATE: cluster(_O.CLUSTER_ACTION),
    _K.WRITE_MIRROR_STATE: cluster(_O.CLUSTER_ACTION),
}

CONTROLLER_ACCESS: Final[Mapping[int, ApiAccess]] = {
    _K.API_VERSIONS: BROKER_ACCESS[_K.API_VERSIONS],
    _K.SASL_HANDSHAKE: BROKER_ACCESS[_K.SASL_HANDSHAKE],
    _K.SASL_AUTHENTICATE: BROKER_ACCESS[_K.SASL_AUTHENTICATE],
    _K.DESCRIBE_CLUSTER: guarded("cluster.describe_cluster_of_controllers", _cluster(_O.ALTER)),
    # the metadata log
    _K.FETCH: cluster(_O.CLUSTER_ACTION),
    _K.FETCH_SNAPSHOT: cluster(_O.CLUSTER_ACTION),
    _K.VOTE: cluster(_O.CLUSTER_ACTION),
    _K.BEGIN_QUORUM_EPOCH: cluster(_O.CLUSTER_ACTION),
    _K.END_QUORUM_EPOCH: cluster(_O.CLUSTER_ACTION),
    _K.DESCRIBE_QUORUM: cluster(_O.DESCRIBE),
    _K.ADD_RAFT_VOTER: cluster(_O.ALTER),
    _K.REMOVE_RAFT_VOTER: cluster(_O.ALTER),
    _K.UPDATE_RAFT_VOTER: cluster(_O.CLUSTER_ACTION),
    # brokers and other controllers
    _K.BROKER_REGISTRATION: cluster(_O.CLUSTER_ACTION),
    _K.BROKER_HEARTBEAT: cluster(_O.CLUSTER_ACTION),
    _K.CONTROLLER_REGISTRATION: cluster(_O.CLUSTER_ACTION),
    _K.ALTER_PARTITION: cluster(_O.CLUSTER_ACTION),
    _K.ALLOCATE_PRODUCER_IDS: cluster(_O.CLUSTER_ACTION),
    _K.ASSIGN_REPLICAS_TO_DIRS: cluster(_O.CLUSTER_ACTION),
    _K.ALTER_MIRROR_TOPICS: cluster(_O.CLUSTER_ACTION),
    _K.ENVELOPE: cluster(_O.CLUSTER_ACTION),
    # requests of administrators
    _K.CREATE_TOPICS: guarded(
        "topics.create_topics",
        _cluster(_O.CREATE, 1),
        _topic(_O.CREATE, 1),
        reason="the configs in the response: DESCRIBE_CONFIGS on the topic",
    ),
    _K.DELETE_TOPICS: guarded("topics.delete_topics", _cluster(_O.DELETE, 1), _topic(_O.DELETE, 1)),
    _K.CREATE_PARTITIONS: guarded("topics.create_partitions", _topic(_O.ALTER)),
    _K.DESCRIBE_CONFIGS: BROKER_ACCESS[_K.DESCRIBE_CONFIGS],
    _K.ALTER_CONFIGS: guarded(
        "cluster.alter_configs",
        _topic(_O.ALTER_CONFIGS),
        reason="brokers, loggers, client metrics: on the cluster; groups: on the group",
    ),
    _K.INCREMENTAL_ALTER_CONFIGS: guarded("cluster.alter_configs", _topic(_O.ALTER_CONFIGS), reason="as AlterConfigs"),
    _K.ALTER_CLIENT_QUOTAS: cluster(_O.ALTER_CONFIGS, "cluster.refuse_quota_changes"),
    _K.ELECT_LEADERS: cluster(_O.ALTER, "refusals.refuse_elections"),
    _K.ALTER_PARTITION_REASSIGNMENTS: cluster(_O.ALTER),
    _K.LIST_PARTITION_REASSIGNMENTS: cluster(_O.DESCRIBE),
    _K.UPDATE_FEATURES: cluster(_O.ALTER),
    _K.UNREGISTER_BROKER: cluster(_O.ALTER),
    _K.DESCRIBE_ACLS: cluster(_O.DESCRIBE),
    _K.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster(_O.DESCRIBE),
    _K.ALTER_USER_SCRAM_CREDENTIALS: cluster(_O.ALTER, "cluster.refuse_scram_changes"),
    _K.CREATE_DELEGATION_TOKEN: BROKER_ACCESS[_K.CREATE_DELEGATION_TOKEN],
    _K.RENEW_DELEGATION_TOKEN: BROKER_ACCESS[_K.RENEW_DELEGATION_TOKEN],
    _K.EXPIRE_DELEGATION_TOKEN: BROKER_ACCESS[_K.EXPIRE_DELEGATION_TOKEN],
    _K.CREATE_ACLS: cluster(_O.ALTER, "cluster.refuse_acl_creations"),
    _K.DELETE_ACLS: cluster(_O.ALTER, "cluster.refuse_acl_filters"),
}
