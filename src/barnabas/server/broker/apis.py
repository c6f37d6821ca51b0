"""Table: the APIs that brokers and controllers serve, one row each: versions, handler, scheduling, rights.

ApiVersions, the tables of the listeners, the authorization of requests, docs/COMPATIBILITY.md and the table of rights
in docs/SECURITY.md are derived from the rows. An API without a row, or without an entry for the kind of listener at
which a request arrives, is neither advertised nor served. On the controllers' listener (`controller.listener.names`)
brokers register, send heartbeats, change the in-sync replicas of their partitions and forward requests of their
clients, and controllers replicate the metadata log. An AdminClient with `bootstrap.controllers` may connect to it, too
(KIP-919).

The handler of an API is `handle` in the module of the API's name in a folder of `broker.handlers`; a handler that only
forwards is the function of the API's name in the folder's `forwards.py`. A handler is imported with the first request
of the API to keep the start of a node fast. The needs are those of Kafka's KafkaApis and ControllerApis; a guard is the
function of the API's name in a module of `broker.authorization.guards`, unless another one is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.transport.ports import RequestScheduling
from barnabas.protocol.wire.apis import ApiKey
from barnabas.server.broker.authorization.access import ApiAccess, Need, cluster, forwarded, guarded, open_to_all
from barnabas.server.broker.authorization.checks import (
    CLUSTER,
    DELEGATION_TOKEN,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
)


class Served(Struct, frozen=True):
    """How the listeners of brokers, or those of controllers, serve an API. If `advertised_min` is set, ApiVersions
    returns it in place of `min_version`."""

    folder: str
    """The folder of `broker.handlers` with the API's handler."""
    min_version: int
    max_version: int
    access: ApiAccess
    scheduling: RequestScheduling = RequestScheduling.SEQUENTIAL
    advertised_min: int = -1

    @property
    def advertised(self) -> tuple[int, int]:
        return (self.min_version if self.advertised_min < 0 else self.advertised_min, self.max_version)


class Api(Struct, frozen=True):
    """One API. `broker` and `controller` are None if their listeners do not serve it."""

    key: ApiKey
    broker: Served | None = None
    controller: Served | None = None
    is_forwarded: bool = False
    """Whether brokers forward the requests of their clients to the controller, in an Envelope (KIP-590)."""
    carries_data: bool = False
    """Whether requests carry data of the user: `socket.request.max.bytes` alone bounds them."""
    is_encoded_at_once: bool = False
    """Whether responses are encoded on the event loop, unless the handler says that one is long: most are short, or
    most of their bytes are records, which are not copied."""


class ApiTable:
    """The APIs that the listeners of brokers, or of controllers, serve, by key."""

    def __init__(self, served: Callable[[Api], Served | None]) -> None:
        self.by_key: Final[Mapping[int, Served]] = {
            int(key): entry for key, row in API_ROWS.items() if (entry := served(row)) is not None
        }


_K, _O = ApiKey, AclOperation
PIPELINED, CANCELLABLE = RequestScheduling.PIPELINED, RequestScheduling.CANCELLABLE


def _topic(operation: AclOperation, group: int = 0) -> Need:
    return Need(operation, TOPIC, group)


def _group(operation: AclOperation) -> Need:
    return Need(operation, GROUP)


def _cluster(operation: AclOperation, group: int = 0) -> Need:
    return Need(operation, CLUSTER, group)


_TRANSACTION: Final = Need(_O.WRITE, TRANSACTIONAL_ID)
_BEFORE_LOGIN: Final = open_to_all("a client needs the versions before it can authenticate")
_IN_LOGIN: Final = open_to_all("outside of authentication the request is refused")
_TOKEN_OWNER: Final = open_to_all("only the owner and the renewers of a token may change its expiry")
_TOKEN_CREATED: Final = guarded(
    "tokens.create_delegation_token", Need(_O.CREATE_TOKENS, USER), reason="a token of another user"
)
_CONFIGS_SHOWN: Final = guarded(
    "cluster.describe_configs",
    _topic(_O.DESCRIBE_CONFIGS),
    reason="brokers, loggers, client metrics: on the cluster; groups: on the group",
)

_BETWEEN_NODES: Final = cluster(_O.CLUSTER_ACTION)
_SHARE_STATE: Final = cluster(_O.CLUSTER_ACTION, "refusals.refuse_share_state")


def _forwarded(
    key: ApiKey, folder: str, low: int, high: int, access: ApiAccess, *, at_broker: ApiAccess | None = None
) -> Api:
    """The row of an API that the same handler serves at brokers and at controllers: on a broker it forwards the request
    to the controller. `access` are the needs at the controller."""
    return Api(
        key,
        broker=Served(folder, low, high, at_broker or forwarded()),
        controller=Served(folder, low, high, access, PIPELINED),
        is_forwarded=True,
    )


_ROWS: Final[tuple[Api, ...]] = (
    # data
    # librdkafka does not compress if the advertised minimum of Produce is above 0 (KAFKA-18659). Versions 0 to 2 are
    # rejected all the same.
    Api(
        _K.PRODUCE,
        broker=Served(
            "data",
            3,
            13,
            guarded(
                "topics",
                _TRANSACTION,
                _topic(_O.WRITE),
                reason="transactional batches only: the id",
                granted="topics.produce_if_granted",
            ),
            PIPELINED,
            advertised_min=0,
        ),
        carries_data=True,
        is_encoded_at_once=True,
    ),
    Api(
        _K.FETCH,
        broker=Served(
            "data",
            4,
            18,
            guarded("topics", _topic(_O.READ), reason="followers: CLUSTER_ACTION on the cluster"),
            CANCELLABLE,
        ),
        controller=Served("quorum", 12, 18, _BETWEEN_NODES, CANCELLABLE),
        is_encoded_at_once=True,
    ),
    Api(_K.LIST_OFFSETS, broker=Served("data", 1, 11, guarded("topics", _topic(_O.DESCRIBE)))),
    Api(_K.DELETE_RECORDS, broker=Served("data", 0, 2, guarded("topics", _topic(_O.DELETE)))),
    Api(
        _K.INIT_PRODUCER_ID,
        broker=Served(
            "data",
            0,
            6,
            guarded(
                "transactions",
                _TRANSACTION,
                reason="without a transactional id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
            ),
        ),
    ),
    Api(
        _K.OFFSET_FOR_LEADER_EPOCH,
        broker=Served("data", 2, 4, guarded("topics", _cluster(_O.CLUSTER_ACTION, 1), _topic(_O.DESCRIBE, 1))),
    ),
    Api(_K.DESCRIBE_PRODUCERS, broker=Served("data", 0, 0, guarded("topics", _topic(_O.READ)))),
    # cluster
    Api(
        _K.API_VERSIONS,
        broker=Served("admin", 0, 4, _BEFORE_LOGIN),
        controller=Served("admin", 0, 4, _BEFORE_LOGIN),
    ),
    Api(
        _K.METADATA,
        broker=Served(
            "cluster",
            0,
            13,
            guarded("topics", _topic(_O.DESCRIBE), reason="creating a topic: CREATE on the cluster or on the topic"),
        ),
    ),
    _forwarded(
        _K.CREATE_TOPICS,
        "admin",
        2,
        7,
        guarded(
            "topics",
            _cluster(_O.CREATE, 1),
            _topic(_O.CREATE, 1),
            reason="the configs in the response: DESCRIBE_CONFIGS on the topic",
        ),
    ),
    _forwarded(_K.DELETE_TOPICS, "admin", 1, 6, guarded("topics", _cluster(_O.DELETE, 1), _topic(_O.DELETE, 1))),
    _forwarded(_K.CREATE_PARTITIONS, "admin", 0, 3, guarded("topics", _topic(_O.ALTER))),
    Api(
        _K.DESCRIBE_CONFIGS,
        broker=Served("admin", 1, 4, _CONFIGS_SHOWN),
        controller=Served("admin", 1, 4, _CONFIGS_SHOWN),
    ),
    _forwarded(
        _K.ALTER_CONFIGS,
        "admin",
        0,
        2,
        guarded(
            "cluster",
            _topic(_O.ALTER_CONFIGS),
            reason="brokers, loggers, client metrics: on the cluster; groups: on the group",
        ),
    ),
    _forwarded(
        _K.INCREMENTAL_ALTER_CONFIGS,
        "admin",
        0,
        1,
        guarded("cluster.alter_configs", _topic(_O.ALTER_CONFIGS), reason="as AlterConfigs"),
    ),
    Api(_K.DESCRIBE_CLIENT_QUOTAS, broker=Served("cluster", 0, 1, cluster(_O.DESCRIBE_CONFIGS))),
    _forwarded(_K.ALTER_CLIENT_QUOTAS, "admin", 0, 1, cluster(_O.ALTER_CONFIGS, "cluster.refuse_quota_changes")),
    Api(_K.LIST_CONFIG_RESOURCES, broker=Served("cluster", 0, 1, cluster(_O.DESCRIBE_CONFIGS))),
    Api(
        _K.GET_TELEMETRY_SUBSCRIPTIONS,
        broker=Served("telemetry", 0, 0, open_to_all("a client learns only what it is to push itself (KIP-714)")),
    ),
    Api(
        _K.PUSH_TELEMETRY,
        broker=Served("telemetry", 0, 0, open_to_all("a client pushes only its own metrics (KIP-714)")),
        carries_data=True,
    ),
    Api(_K.ALTER_REPLICA_LOG_DIRS, broker=Served("cluster", 1, 2, cluster(_O.ALTER, "refusals.refuse_log_dirs"))),
    Api(_K.DESCRIBE_LOG_DIRS, broker=Served("cluster", 1, 5, cluster(_O.DESCRIBE))),
    Api(
        _K.DESCRIBE_CLUSTER,
        broker=Served(
            "cluster", 0, 2, open_to_all("the nodes are no secret to clients", guard="cluster.describe_cluster")
        ),
        controller=Served("controller", 0, 2, guarded("cluster.describe_cluster_of_controllers", _cluster(_O.ALTER))),
    ),
    Api(_K.DESCRIBE_TOPIC_PARTITIONS, broker=Served("cluster", 0, 0, guarded("topics", _topic(_O.DESCRIBE)))),
    _forwarded(_K.ELECT_LEADERS, "admin", 0, 2, cluster(_O.ALTER, "refusals.refuse_elections")),
    _forwarded(_K.UPDATE_FEATURES, "admin", 0, 2, cluster(_O.ALTER)),
    Api(
        _K.DESCRIBE_QUORUM,
        broker=Served("admin", 0, 2, cluster(_O.DESCRIBE)),
        controller=Served("quorum", 0, 2, cluster(_O.DESCRIBE)),
        is_forwarded=True,
    ),
    _forwarded(_K.UNREGISTER_BROKER, "admin", 0, 0, cluster(_O.ALTER)),
    _forwarded(_K.ALTER_PARTITION_REASSIGNMENTS, "admin", 0, 1, cluster(_O.ALTER)),
    _forwarded(_K.LIST_PARTITION_REASSIGNMENTS, "admin", 0, 0, cluster(_O.DESCRIBE)),
    Api(
        _K.ADD_RAFT_VOTER,
        broker=Served("admin", 0, 1, forwarded()),
        controller=Served("quorum", 0, 1, cluster(_O.ALTER), PIPELINED),
        is_forwarded=True,
    ),
    Api(
        _K.REMOVE_RAFT_VOTER,
        broker=Served("admin", 0, 0, forwarded()),
        controller=Served("quorum", 0, 0, cluster(_O.ALTER), PIPELINED),
        is_forwarded=True,
    ),
    Api(
        _K.DESCRIBE_ACLS,
        broker=Served("admin", 1, 3, cluster(_O.DESCRIBE)),
        controller=Served("admin", 1, 3, cluster(_O.DESCRIBE)),
    ),
    _forwarded(_K.CREATE_ACLS, "admin", 1, 3, cluster(_O.ALTER, "cluster.refuse_acl_creations")),
    _forwarded(_K.DELETE_ACLS, "admin", 1, 3, cluster(_O.ALTER, "cluster.refuse_acl_filters")),
    # authentication: a listener with SASL serves the two itself until the client has authenticated
    Api(_K.SASL_HANDSHAKE, broker=Served("security", 0, 1, _IN_LOGIN), controller=Served("security", 0, 1, _IN_LOGIN)),
    Api(
        _K.SASL_AUTHENTICATE, broker=Served("security", 0, 2, _IN_LOGIN), controller=Served("security", 0, 2, _IN_LOGIN)
    ),
    Api(
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        broker=Served("security", 0, 0, cluster(_O.DESCRIBE)),
        controller=Served("security", 0, 0, cluster(_O.DESCRIBE)),
    ),
    _forwarded(_K.ALTER_USER_SCRAM_CREDENTIALS, "security", 0, 0, cluster(_O.ALTER, "cluster.refuse_scram_changes")),
    # delegation tokens; Kafka 4.0 removed version 0
    _forwarded(_K.CREATE_DELEGATION_TOKEN, "security", 1, 3, _TOKEN_CREATED, at_broker=_TOKEN_CREATED),
    _forwarded(_K.RENEW_DELEGATION_TOKEN, "security", 1, 2, _TOKEN_OWNER, at_broker=_TOKEN_OWNER),
    _forwarded(_K.EXPIRE_DELEGATION_TOKEN, "security", 1, 2, _TOKEN_OWNER, at_broker=_TOKEN_OWNER),
    Api(
        _K.DESCRIBE_DELEGATION_TOKEN,
        broker=Served(
            "security",
            1,
            3,
            guarded(
                "tokens",
                Need(_O.DESCRIBE, DELEGATION_TOKEN, 1),
                Need(_O.DESCRIBE_TOKENS, USER, 1),
                reason="a token of the client itself needs nothing; others are left out",
            ),
        ),
    ),
    # transactions
    Api(
        _K.ADD_PARTITIONS_TO_TXN,
        broker=Served(
            "transactions",
            0,
            5,
            guarded(
                "transactions",
                _TRANSACTION,
                _topic(_O.WRITE),
                reason="from brokers, since version 4: CLUSTER_ACTION on the cluster",
            ),
        ),
    ),
    Api(
        _K.ADD_OFFSETS_TO_TXN,
        broker=Served("transactions", 0, 4, guarded("transactions", _TRANSACTION, _group(_O.READ))),
    ),
    Api(_K.END_TXN, broker=Served("transactions", 0, 5, guarded("transactions", _TRANSACTION))),
    Api(
        _K.WRITE_TXN_MARKERS,
        broker=Served(
            "transactions", 1, 2, guarded("transactions", _cluster(_O.ALTER, 1), _cluster(_O.CLUSTER_ACTION, 1))
        ),
    ),
    Api(
        _K.TXN_OFFSET_COMMIT,
        broker=Served("transactions", 0, 5, guarded("transactions", _TRANSACTION, _group(_O.READ), _topic(_O.READ))),
        carries_data=True,
    ),
    Api(
        _K.DESCRIBE_TRANSACTIONS,
        broker=Served(
            "transactions",
            0,
            0,
            guarded("transactions", Need(_O.DESCRIBE, TRANSACTIONAL_ID), reason="topics: DESCRIBE on each"),
        ),
    ),
    Api(
        _K.LIST_TRANSACTIONS,
        broker=Served("transactions", 0, 2, guarded("transactions", Need(_O.DESCRIBE, TRANSACTIONAL_ID))),
    ),
    # groups
    Api(
        _K.FIND_COORDINATOR,
        broker=Served(
            "groups",
            0,
            6,
            guarded(
                "groups",
                _group(_O.DESCRIBE),
                reason="a transactional id: DESCRIBE on it; a share partition: CLUSTER_ACTION on the cluster",
            ),
        ),
    ),
    Api(_K.JOIN_GROUP, broker=Served("groups", 0, 9, guarded("groups.read_group", _group(_O.READ))), carries_data=True),
    Api(_K.SYNC_GROUP, broker=Served("groups", 0, 5, guarded("groups.read_group", _group(_O.READ))), carries_data=True),
    Api(_K.HEARTBEAT, broker=Served("groups", 0, 4, guarded("groups.read_group", _group(_O.READ)))),
    Api(_K.LEAVE_GROUP, broker=Served("groups", 0, 5, guarded("groups.read_group", _group(_O.READ)))),
    Api(
        _K.OFFSET_COMMIT,
        broker=Served("groups", 2, 10, guarded("groups", _group(_O.READ), _topic(_O.READ))),
        carries_data=True,
    ),
    Api(_K.OFFSET_FETCH, broker=Served("groups", 1, 10, guarded("groups", _group(_O.DESCRIBE), _topic(_O.DESCRIBE)))),
    Api(_K.OFFSET_DELETE, broker=Served("groups", 0, 0, guarded("groups", _group(_O.DELETE), _topic(_O.READ)))),
    Api(_K.DESCRIBE_GROUPS, broker=Served("groups", 0, 6, guarded("groups", _group(_O.DESCRIBE)))),
    Api(
        _K.LIST_GROUPS,
        broker=Served(
            "groups",
            0,
            5,
            guarded(
                "groups", _cluster(_O.DESCRIBE, 1), Need(_O.DESCRIBE, GROUP, 1), reason="else the list is filtered"
            ),
        ),
    ),
    Api(_K.DELETE_GROUPS, broker=Served("groups", 0, 2, guarded("groups", _group(_O.DELETE)))),
    Api(
        _K.CONSUMER_GROUP_HEARTBEAT,
        broker=Served("groups", 0, 1, guarded("groups.group_heartbeat", _group(_O.READ), _topic(_O.DESCRIBE))),
        carries_data=True,
    ),
    Api(
        _K.CONSUMER_GROUP_DESCRIBE,
        broker=Served(
            "groups", 0, 1, guarded("groups.describe_groups_by_id", _group(_O.DESCRIBE), _topic(_O.DESCRIBE))
        ),
    ),
    Api(
        _K.SHARE_GROUP_HEARTBEAT,
        broker=Served("groups", 1, 1, guarded("groups.group_heartbeat", _group(_O.READ), _topic(_O.DESCRIBE))),
    ),
    Api(
        _K.SHARE_GROUP_DESCRIBE,
        broker=Served(
            "groups", 1, 1, guarded("groups.describe_groups_by_id", _group(_O.DESCRIBE), _topic(_O.DESCRIBE))
        ),
    ),
    Api(
        _K.DESCRIBE_SHARE_GROUP_OFFSETS,
        broker=Served("groups", 0, 1, guarded("groups", _group(_O.DESCRIBE), _topic(_O.DESCRIBE))),
    ),
    Api(
        _K.ALTER_SHARE_GROUP_OFFSETS, broker=Served("groups", 0, 0, guarded("groups", _group(_O.READ), _topic(_O.READ)))
    ),
    Api(
        _K.DELETE_SHARE_GROUP_OFFSETS,
        broker=Served("groups", 0, 0, guarded("groups", _group(_O.DELETE), _topic(_O.READ))),
    ),
    # share groups
    Api(
        _K.SHARE_FETCH,
        broker=Served("shares", 1, 2, guarded("shares", _group(_O.READ), _topic(_O.READ)), CANCELLABLE),
        is_encoded_at_once=True,
    ),
    Api(_K.SHARE_ACKNOWLEDGE, broker=Served("shares", 1, 2, guarded("shares", _group(_O.READ), _topic(_O.READ)))),
    Api(_K.INITIALIZE_SHARE_GROUP_STATE, broker=Served("shares", 0, 0, _SHARE_STATE)),
    Api(_K.READ_SHARE_GROUP_STATE, broker=Served("shares", 0, 0, _SHARE_STATE)),
    Api(_K.WRITE_SHARE_GROUP_STATE, broker=Served("shares", 0, 1, _SHARE_STATE)),
    Api(_K.DELETE_SHARE_GROUP_STATE, broker=Served("shares", 0, 0, _SHARE_STATE)),
    Api(_K.READ_SHARE_GROUP_STATE_SUMMARY, broker=Served("shares", 0, 1, _SHARE_STATE)),
    # Barnabas' own: explanations and maintenance (docs/COMPATIBILITY.md)
    Api(_K.EXPLAIN_PARTITION, broker=Served("maintenance", 0, 0, guarded("topics", _topic(_O.DESCRIBE)))),
    Api(
        _K.EXPLAIN_GROUP,
        broker=Served("maintenance", 0, 0, guarded("groups.describe_groups_by_id", _group(_O.DESCRIBE))),
    ),
    Api(_K.DESCRIBE_CLIENTS, broker=Served("maintenance", 0, 0, cluster(_O.DESCRIBE))),
    Api(_K.RUN_MAINTENANCE, broker=Served("maintenance", 0, 0, guarded("topics", _topic(_O.ALTER)), PIPELINED)),
    # cluster links
    Api(
        _K.ALTER_LINK,
        broker=Served("links", 0, 0, guarded("links.alter", _cluster(_O.ALTER, 1), _cluster(_O.CLUSTER_ACTION, 1))),
    ),
    Api(
        _K.DESCRIBE_LINKS,
        broker=Served(
            "links", 0, 0, guarded("links.describe", _cluster(_O.DESCRIBE, 1), _cluster(_O.CLUSTER_ACTION, 1))
        ),
    ),
    Api(
        _K.ALTER_MIRRORS,
        broker=Served("links", 0, 0, guarded("links.alter", _cluster(_O.ALTER, 1), _cluster(_O.CLUSTER_ACTION, 1))),
    ),
    Api(_K.DESCRIBE_MIRRORS, broker=Served("links", 0, 0, cluster(_O.DESCRIBE))),
    Api(_K.READ_LINK, broker=Served("links", 0, 0, _BETWEEN_NODES)),
    Api(_K.READ_MIRROR_STATE, broker=Served("links", 0, 0, _BETWEEN_NODES, PIPELINED)),
    Api(_K.WRITE_MIRROR_STATE, broker=Served("links", 0, 0, _BETWEEN_NODES, PIPELINED)),
    # on the listeners of controllers only
    Api(_K.FETCH_SNAPSHOT, controller=Served("quorum", 0, 1, _BETWEEN_NODES)),
    Api(_K.VOTE, controller=Served("quorum", 0, 2, _BETWEEN_NODES)),
    Api(_K.BEGIN_QUORUM_EPOCH, controller=Served("quorum", 0, 1, _BETWEEN_NODES)),
    Api(_K.END_QUORUM_EPOCH, controller=Served("quorum", 0, 1, _BETWEEN_NODES)),
    Api(_K.UPDATE_RAFT_VOTER, controller=Served("quorum", 0, 0, _BETWEEN_NODES, PIPELINED)),
    # brokers and other controllers
    Api(_K.BROKER_REGISTRATION, controller=Served("controller", 0, 4, _BETWEEN_NODES, PIPELINED)),
    Api(_K.BROKER_HEARTBEAT, controller=Served("controller", 0, 2, _BETWEEN_NODES, PIPELINED)),
    Api(_K.CONTROLLER_REGISTRATION, controller=Served("controller", 0, 0, _BETWEEN_NODES, PIPELINED)),
    Api(_K.ALTER_PARTITION, controller=Served("controller", 2, 3, _BETWEEN_NODES, PIPELINED)),
    Api(_K.ALLOCATE_PRODUCER_IDS, controller=Served("controller", 0, 0, _BETWEEN_NODES, PIPELINED)),
    Api(_K.ASSIGN_REPLICAS_TO_DIRS, controller=Served("controller", 0, 0, _BETWEEN_NODES, PIPELINED)),
    Api(_K.ALTER_MIRROR_TOPICS, controller=Served("controller", 0, 0, _BETWEEN_NODES, PIPELINED)),
    Api(_K.ENVELOPE, controller=Served("controller", 0, 0, _BETWEEN_NODES, PIPELINED)),
)

API_ROWS: Final[Mapping[ApiKey, Api]] = {row.key: row for row in _ROWS}
assert len(API_ROWS) == len(_ROWS), "an API has two rows"

BROKER_APIS: Final = ApiTable(lambda row: row.broker)
CONTROLLER_APIS: Final = ApiTable(lambda row: row.controller)
