"""The requests of the authorization matrix: of each API, with what the client must be allowed to do.

A right is written `T:READ`, with T for the topic, G for the group, X for the transactional id and C for the cluster.
`C:CREATE|T:CREATE` are alternatives. The code with which a missing right is refused follows from its resource, unless
the right says otherwise, as in `T:DESCRIBE_CONFIGS=NONE`.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from barnabas.protocol.security.acls import AclResourceType
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.schema import Request, StructMeta

TOPIC, OTHER, GROUP, TRANSACTION = "secret", "public", "team", "transfer"
TOPIC_ID = "$topic_id"
NOBODY = UUID(int=77)
RESOURCES = {
    "T": (AclResourceType.TOPIC, TOPIC),
    "G": (AclResourceType.GROUP, GROUP),
    "X": (AclResourceType.TRANSACTIONAL_ID, TRANSACTION),
    "C": (AclResourceType.CLUSTER, "kafka-cluster"),
}


class Case(NamedTuple):
    api: str
    version: int
    rights: str
    fields: dict[str, Any]
    note: str = ""
    controller: bool = False

    @property
    def id(self) -> str:
        place = "controller-" if self.controller else ""
        return f"{place}{self.api}-v{self.version}" + (f"-{self.note}" if self.note else "")


def build(case: Case, topic_id: UUID) -> Request:
    """The request of a case, for the topic with this id."""
    found = _struct(APIS[ApiKey[case.api]].request, case.fields, topic_id)
    assert isinstance(found, Request)
    return found


def _struct(kind: Any, fields: dict[str, Any], topic_id: UUID) -> Any:
    types = {field.name: field.element for field in kind.__schema__.fields}
    assert fields.keys() <= types.keys(), fields.keys() - types.keys()
    return kind(**{name: _value(types[name], value, topic_id) for name, value in fields.items()})


def _value(kind: Any, value: Any, topic_id: UUID) -> Any:
    if value == TOPIC_ID:
        return topic_id
    if isinstance(kind, StructMeta) and isinstance(value, list):
        return [_struct(kind, item, topic_id) for item in value]
    if isinstance(kind, StructMeta) and value is not None:
        return _struct(kind, value, topic_id)
    return value


def batch(*, transactional: bool = False) -> bytes:
    """The header of a batch, whose CRC is wrong: what is authorized is answered with CORRUPT_MESSAGE."""
    header = bytearray(61)
    header[8:12] = (49).to_bytes(4, "big")
    header[16] = 2
    header[22] = 0x10 if transactional else 0
    return bytes(header)


def _produce(*batches: bytes, **more: Any) -> dict[str, Any]:
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": b"".join(batches)}]}]
    return {"acks": -1, "timeout_ms": 100, "topic_data": data, **more}


def _topics(*partitions: dict[str, Any] | int, field: str = "partitions", name: str = "name") -> dict[str, Any]:
    return {"topics": [{name: TOPIC, field: list(partitions)}]}


def _fetch(*, by_id: bool = False, replica: int = -1, **more: Any) -> dict[str, Any]:
    topic = {"topic_id": TOPIC_ID} if by_id else {"topic": TOPIC}
    state = {"replica_state": {"replica_id": replica, "replica_epoch": -1}} if by_id else {"replica_id": replica}
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {"max_bytes": 1000, "session_epoch": -1, "topics": [{**topic, "partitions": [partition]}], **state, **more}


_OFFSET = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
_SHARE = {"group_id": GROUP, "member_id": "mmmmmmmmmmmmmmmmmmmmmm", "share_session_epoch": 0}
_ACKED = {
    "partition_index": 0,
    "acknowledgement_batches": [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}],
}
_STATE = {"group_id": "nobody", "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 0}]}]}
_ACL = {"principal": "User:z", "host": "*", "operation": 3, "permission_type": 3}
_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 3,
    "principal_filter": "User:nobody",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def _config(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, **more}]}


_WRONG = {"name": "no.such.config", "value": "1"}
_LISTENERS = [{"name": "CONTROLLER", "host": "h", "port": 9}]

SHARE_SESSION = Case(
    "SHARE_FETCH",
    1,
    "G:READ T:READ",
    {**_SHARE, "max_records": 1, "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0}]}]},
)
"""Begins the session that ShareAcknowledge continues."""

BROKER_CASES = [
    Case("PRODUCE", 12, "T:WRITE", _produce(batch())),
    Case("PRODUCE", 3, "T:WRITE", _produce(batch())),
    Case(
        "PRODUCE",
        13,
        "T:WRITE",
        {"acks": 1, "topic_data": [{"topic_id": TOPIC_ID, "partition_data": [{"index": 0, "records": batch()}]}]},
        "by-id",
    ),
    Case("PRODUCE", 11, "X:WRITE T:WRITE", _produce(batch(transactional=True), transactional_id=TRANSACTION), "txn"),
    Case(
        "PRODUCE",
        11,
        "X:WRITE T:WRITE",
        _produce(batch(), batch(transactional=True), transactional_id=TRANSACTION),
        "second-batch-txn",
    ),
    Case("FETCH", 12, "T:READ", _fetch()),
    Case("FETCH", 18, "T:READ", _fetch(by_id=True), "by-id"),
    Case("FETCH", 12, "T:READ", _fetch(session_epoch=0), "session"),
    Case("FETCH", 12, "C:CLUSTER_ACTION=TOPIC", _fetch(replica=1), "replica"),
    Case("FETCH", 18, "C:CLUSTER_ACTION=TOPIC", _fetch(by_id=True, replica=1), "replica-state"),
    Case("LIST_OFFSETS", 8, "T:DESCRIBE", {"replica_id": -1, **_topics({"partition_index": 0, "timestamp": -1})}),
    Case("LIST_OFFSETS", 1, "T:DESCRIBE", {"replica_id": -1, **_topics({"partition_index": 0, "timestamp": -1})}),
    Case("DELETE_RECORDS", 2, "T:DELETE", {"timeout_ms": 50, **_topics({"partition_index": 0, "offset": 0})}),
    Case("INIT_PRODUCER_ID", 4, "X:WRITE", {"transactional_id": TRANSACTION, "transaction_timeout_ms": 0}, "txn"),
    Case(
        "INIT_PRODUCER_ID",
        6,
        "X:WRITE X:TWO_PHASE_COMMIT",
        {"transactional_id": TRANSACTION, "enable_2pc": True},
        "two-phase",
    ),
    Case("INIT_PRODUCER_ID", 4, "C:IDEMPOTENT_WRITE|T:WRITE=CLUSTER", {"transactional_id": None}, "idempotent"),
    Case(
        "OFFSET_FOR_LEADER_EPOCH",
        4,
        "C:CLUSTER_ACTION|T:DESCRIBE=TOPIC",
        {"replica_id": -1, **_topics({"partition": 0, "leader_epoch": 0}, name="topic")},
    ),
    Case("DESCRIBE_PRODUCERS", 0, "T:READ", _topics(0, field="partition_indexes")),
    Case("METADATA", 12, "T:DESCRIBE", {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}),
    Case("METADATA", 4, "T:DESCRIBE", {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}),
    Case("METADATA", 0, "T:DESCRIBE", {"topics": [{"name": TOPIC}]}, "oldest"),
    Case("METADATA", 12, "T:DESCRIBE", {"topics": [{"name": None, "topic_id": TOPIC_ID}]}, "by-id"),
    Case("DESCRIBE_TOPIC_PARTITIONS", 0, "T:DESCRIBE", {"topics": [{"name": TOPIC}]}),
    Case("DESCRIBE_CONFIGS", 4, "T:DESCRIBE_CONFIGS", _config(2, TOPIC, configuration_keys=None)),
    Case("DESCRIBE_CONFIGS", 4, "C:DESCRIBE_CONFIGS", _config(4, "1", configuration_keys=["node.id"]), "broker"),
    Case("DESCRIBE_CONFIGS", 4, "C:DESCRIBE_CONFIGS", _config(8, "1", configuration_keys=None), "logger"),
    Case("DESCRIBE_CONFIGS", 4, "C:DESCRIBE_CONFIGS", _config(16, "m", configuration_keys=None), "metrics"),
    Case("DESCRIBE_CONFIGS", 4, "G:DESCRIBE_CONFIGS", _config(32, GROUP, configuration_keys=None), "group"),
    Case("LIST_CONFIG_RESOURCES", 1, "C:DESCRIBE_CONFIGS", {}),
    Case("ALTER_REPLICA_LOG_DIRS", 2, "C:ALTER", {"dirs": [{"path": "/none", **_topics(0)}]}),
    Case("DESCRIBE_LOG_DIRS", 4, "C:DESCRIBE", {"topics": []}),
    Case("DESCRIBE_QUORUM", 2, "C:DESCRIBE", {"topics": []}),
    Case("DESCRIBE_CLIENT_QUOTAS", 1, "C:DESCRIBE_CONFIGS", {"components": [], "strict": False}),
    Case("DESCRIBE_ACLS", 3, "C:DESCRIBE", _FILTER),
    Case("CREATE_ACLS", 3, "C:ALTER", {"creations": [{"resource_type": 2, "resource_name": "", **_ACL}]}),
    Case("DELETE_ACLS", 3, "C:ALTER", {"filters": [_FILTER]}),
    Case("DESCRIBE_USER_SCRAM_CREDENTIALS", 0, "C:DESCRIBE", {"users": None}),
    Case(
        "ALTER_USER_SCRAM_CREDENTIALS",
        0,
        "C:ALTER",
        {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []},
    ),
    # the controller authorizes these for the broker
    Case(
        "CREATE_TOPICS",
        7,
        "C:CREATE|T:CREATE=TOPIC",
        {"validate_only": True, "topics": [{"name": TOPIC, "num_partitions": 1, "replication_factor": 1}]},
    ),
    Case("DELETE_TOPICS", 5, "C:DELETE|T:DELETE=TOPIC", {"topic_names": [TOPIC], "timeout_ms": 100}, "by-name"),
    Case(
        "DELETE_TOPICS", 6, "C:DELETE|T:DELETE=TOPIC", {"topics": [{"topic_id": TOPIC_ID}], "timeout_ms": 1000}, "by-id"
    ),
    Case("CREATE_PARTITIONS", 3, "T:ALTER", {"topics": [{"name": TOPIC, "count": 0}]}),
    Case("ALTER_CONFIGS", 2, "T:ALTER_CONFIGS", _config(2, TOPIC, configs=[_WRONG])),
    Case("INCREMENTAL_ALTER_CONFIGS", 1, "T:ALTER_CONFIGS", _config(2, TOPIC, configs=[_WRONG])),
    Case("INCREMENTAL_ALTER_CONFIGS", 1, "C:ALTER_CONFIGS", _config(4, "1", configs=[_WRONG]), "broker"),
    Case("INCREMENTAL_ALTER_CONFIGS", 1, "G:ALTER_CONFIGS", _config(32, GROUP, configs=[_WRONG]), "group"),
    Case(
        "ALTER_CLIENT_QUOTAS",
        1,
        "C:ALTER_CONFIGS",
        {"validate_only": True, "entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}]},
    ),
    Case("INCREMENTAL_ALTER_CONFIGS", 1, "C:ALTER_CONFIGS", _config(8, "1", configs=[_WRONG]), "logger"),
    Case("ELECT_LEADERS", 2, "C:ALTER", {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}]}),
    Case("ELECT_LEADERS", 0, "C:ALTER", {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}]}),
    Case("UPDATE_FEATURES", 2, "C:ALTER", {"validate_only": True, "feature_updates": []}),
    Case("UNREGISTER_BROKER", 0, "C:ALTER", {"broker_id": 4711}),
    Case("ALTER_PARTITION_REASSIGNMENTS", 1, "C:ALTER", _topics({"partition_index": 9, "replicas": None})),
    Case("LIST_PARTITION_REASSIGNMENTS", 0, "C:DESCRIBE", {"topics": None}),
    Case("ADD_RAFT_VOTER", 1, "C:ALTER", {"cluster_id": "another", "voter_id": 9, "listeners": _LISTENERS}),
    Case("REMOVE_RAFT_VOTER", 0, "C:ALTER", {"cluster_id": "another", "voter_id": 9}),
    # transactions
    Case(
        "ADD_PARTITIONS_TO_TXN",
        3,
        "X:WRITE T:WRITE",
        {
            "v3_and_below_transactional_id": TRANSACTION,
            "v3_and_below_producer_id": 1,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
    ),
    Case(
        "ADD_PARTITIONS_TO_TXN",
        5,
        "C:CLUSTER_ACTION",
        {"transactions": [{"transactional_id": TRANSACTION, "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        "broker",
    ),
    Case(
        "ADD_OFFSETS_TO_TXN",
        4,
        "X:WRITE G:READ",
        {"transactional_id": TRANSACTION, "producer_id": 1, "group_id": GROUP},
    ),
    Case("END_TXN", 5, "X:WRITE", {"transactional_id": TRANSACTION, "producer_id": 1}),
    Case(
        "WRITE_TXN_MARKERS",
        1,
        "C:ALTER|C:CLUSTER_ACTION=CLUSTER",
        {"markers": [{"producer_id": 1, "topics": [{"name": "nowhere", "partition_indexes": [0]}]}]},
    ),
    Case(
        "TXN_OFFSET_COMMIT",
        3,
        "X:WRITE G:READ T:READ",
        {"transactional_id": TRANSACTION, "group_id": GROUP, "producer_id": 1, **_topics(_OFFSET)},
    ),
    Case("DESCRIBE_TRANSACTIONS", 0, "X:DESCRIBE", {"transactional_ids": [TRANSACTION]}),
    # groups
    Case("FIND_COORDINATOR", 6, "G:DESCRIBE", {"key_type": 0, "coordinator_keys": [GROUP]}),
    Case("FIND_COORDINATOR", 2, "G:DESCRIBE", {"key_type": 0, "key": GROUP}),
    Case("FIND_COORDINATOR", 6, "X:DESCRIBE", {"key_type": 1, "coordinator_keys": [TRANSACTION]}, "txn"),
    Case("FIND_COORDINATOR", 2, "X:DESCRIBE", {"key_type": 1, "key": TRANSACTION}, "txn"),
    Case("FIND_COORDINATOR", 6, "C:CLUSTER_ACTION", {"key_type": 2, "coordinator_keys": ["g:x:0"]}, "share"),
    Case("JOIN_GROUP", 9, "G:READ", {"group_id": GROUP, "session_timeout_ms": 1, "protocol_type": "consumer"}),
    Case("JOIN_GROUP", 2, "G:READ", {"group_id": GROUP, "session_timeout_ms": 1, "protocol_type": "consumer"}),
    Case(
        "SYNC_GROUP",
        5,
        "G:READ",
        {"group_id": GROUP, "member_id": "m", "protocol_type": "consumer", "protocol_name": "range"},
    ),
    Case("HEARTBEAT", 4, "G:READ", {"group_id": GROUP, "member_id": "m"}),
    Case("LEAVE_GROUP", 5, "G:READ", {"group_id": GROUP, "members": [{"member_id": "m"}]}),
    Case("LEAVE_GROUP", 1, "G:READ", {"group_id": GROUP, "member_id": "m"}),
    Case("OFFSET_COMMIT", 9, "G:READ T:READ", {"group_id": GROUP, **_topics(_OFFSET)}),
    Case(
        "OFFSET_COMMIT",
        10,
        "G:READ T:READ",
        {"group_id": GROUP, "topics": [{"topic_id": TOPIC_ID, "partitions": [_OFFSET]}]},
        "by-id",
    ),
    Case("OFFSET_FETCH", 7, "G:DESCRIBE T:DESCRIBE", {"group_id": GROUP, **_topics(0, field="partition_indexes")}),
    Case("OFFSET_FETCH", 1, "G:DESCRIBE T:DESCRIBE", {"group_id": GROUP, **_topics(0, field="partition_indexes")}),
    Case(
        "OFFSET_FETCH",
        9,
        "G:DESCRIBE T:DESCRIBE",
        {"groups": [{"group_id": GROUP, **_topics(0, field="partition_indexes")}]},
    ),
    Case(
        "OFFSET_FETCH",
        10,
        "G:DESCRIBE T:DESCRIBE",
        {"groups": [{"group_id": GROUP, "topics": [{"topic_id": TOPIC_ID, "partition_indexes": [0]}]}]},
        "by-id",
    ),
    Case("OFFSET_DELETE", 0, "G:DELETE T:READ", {"group_id": GROUP, **_topics({"partition_index": 0})}),
    Case("DESCRIBE_GROUPS", 6, "G:DESCRIBE", {"groups": [GROUP]}),
    Case("DESCRIBE_GROUPS", 0, "G:DESCRIBE", {"groups": [GROUP]}),
    Case("DELETE_GROUPS", 2, "G:DELETE", {"groups_names": [GROUP]}),
    Case(
        "CONSUMER_GROUP_HEARTBEAT",
        1,
        "G:READ T:DESCRIBE",
        {"group_id": GROUP, "member_id": "m", "member_epoch": 7, "subscribed_topic_names": [TOPIC]},
    ),
    Case("CONSUMER_GROUP_DESCRIBE", 1, "G:DESCRIBE", {"group_ids": [GROUP]}),
    Case(
        "SHARE_GROUP_HEARTBEAT",
        1,
        "G:READ T:DESCRIBE",
        {"group_id": GROUP, "member_id": "m", "member_epoch": 7, "subscribed_topic_names": [TOPIC]},
    ),
    Case("SHARE_GROUP_DESCRIBE", 1, "G:DESCRIBE", {"group_ids": [GROUP]}),
    Case(
        "DESCRIBE_SHARE_GROUP_OFFSETS",
        1,
        "G:DESCRIBE T:DESCRIBE",
        {"groups": [{"group_id": GROUP, **_topics(0, name="topic_name")}]},
    ),
    Case(
        "ALTER_SHARE_GROUP_OFFSETS",
        0,
        "G:READ T:READ",
        {"group_id": GROUP, **_topics({"partition_index": 0, "start_offset": 0}, name="topic_name")},
    ),
    Case("DELETE_SHARE_GROUP_OFFSETS", 0, "G:DELETE T:READ", {"group_id": GROUP, "topics": [{"topic_name": TOPIC}]}),
    # share groups
    SHARE_SESSION,
    Case(
        "SHARE_ACKNOWLEDGE",
        1,
        "G:READ T:READ",
        {**_SHARE, "share_session_epoch": 1, "topics": [{"topic_id": TOPIC_ID, "partitions": [_ACKED]}]},
    ),
    Case("INITIALIZE_SHARE_GROUP_STATE", 0, "C:CLUSTER_ACTION", _STATE),
    Case("READ_SHARE_GROUP_STATE", 0, "C:CLUSTER_ACTION", _STATE),
    Case("WRITE_SHARE_GROUP_STATE", 1, "C:CLUSTER_ACTION", _STATE),
    Case("DELETE_SHARE_GROUP_STATE", 0, "C:CLUSTER_ACTION", _STATE),
    Case("READ_SHARE_GROUP_STATE_SUMMARY", 1, "C:CLUSTER_ACTION", _STATE),
    # Barnabas' own
    Case("EXPLAIN_PARTITION", 0, "T:DESCRIBE", _topics(0, field="partition_indexes")),
    Case("EXPLAIN_GROUP", 0, "G:DESCRIBE", {"group_ids": [GROUP]}),
    Case("DESCRIBE_CLIENTS", 0, "C:DESCRIBE", {"view": 0}),
    Case("RUN_MAINTENANCE", 0, "T:ALTER", {"operation": 1, "dry_run": True, **_topics(0, field="partition_indexes")}),
    Case("ALTER_LINK", 0, "C:ALTER", {"operation": 2, "validate_only": True, "only_local": True}),
    Case("ALTER_MIRRORS", 0, "C:ALTER", {"link": "absent", "operation": 1, "only_local": True}),
    Case("DESCRIBE_LINKS", 0, "C:DESCRIBE", {"names": ["absent"]}),
    Case("DESCRIBE_MIRRORS", 0, "C:DESCRIBE", {"links": []}),
    Case("READ_LINK", 0, "C:CLUSTER_ACTION", {"link": "absent"}),
    Case("READ_MIRROR_STATE", 0, "C:CLUSTER_ACTION", {"link": "absent"}),
    Case("WRITE_MIRROR_STATE", 0, "C:CLUSTER_ACTION", {"link": "absent"}),
]

_OTHER_CLUSTER = {"cluster_id": "another"}


def _on_controller(api: str, version: int, rights: str, fields: dict[str, Any], note: str = "") -> Case:
    return Case(api, version, rights, fields, note, controller=True)


CONTROLLER_CASES = [
    _on_controller("DESCRIBE_CLUSTER", 2, "C:ALTER", {"endpoint_type": 2}),
    _on_controller("FETCH", 17, "C:CLUSTER_ACTION", {**_OTHER_CLUSTER, "topics": []}),
    _on_controller("FETCH_SNAPSHOT", 1, "C:CLUSTER_ACTION", {**_OTHER_CLUSTER, "topics": []}),
    _on_controller("VOTE", 2, "C:CLUSTER_ACTION", {**_OTHER_CLUSTER, "topics": []}),
    _on_controller("BEGIN_QUORUM_EPOCH", 1, "C:CLUSTER_ACTION", {**_OTHER_CLUSTER, "topics": []}),
    _on_controller("END_QUORUM_EPOCH", 1, "C:CLUSTER_ACTION", {**_OTHER_CLUSTER, "topics": []}),
    _on_controller("DESCRIBE_QUORUM", 2, "C:DESCRIBE", {"topics": []}),
    _on_controller("ADD_RAFT_VOTER", 1, "C:ALTER", {**_OTHER_CLUSTER, "voter_id": 9, "listeners": _LISTENERS}),
    _on_controller("REMOVE_RAFT_VOTER", 0, "C:ALTER", {**_OTHER_CLUSTER, "voter_id": 9}),
    _on_controller("UPDATE_RAFT_VOTER", 0, "C:CLUSTER_ACTION", {**_OTHER_CLUSTER, "voter_id": 9}),
    _on_controller("BROKER_REGISTRATION", 4, "C:CLUSTER_ACTION", {"broker_id": 9, **_OTHER_CLUSTER, "rack": None}),
    _on_controller("BROKER_HEARTBEAT", 1, "C:CLUSTER_ACTION", {"broker_id": 9}),
    _on_controller("CONTROLLER_REGISTRATION", 0, "C:CLUSTER_ACTION", {"controller_id": 1}),
    _on_controller("ALTER_PARTITION", 3, "C:CLUSTER_ACTION", {"broker_id": 9, "topics": []}),
    _on_controller("ALLOCATE_PRODUCER_IDS", 0, "C:CLUSTER_ACTION", {"broker_id": 9}),
    _on_controller("ALTER_MIRROR_TOPICS", 0, "C:CLUSTER_ACTION", {"broker_id": 9}),
    _on_controller("ASSIGN_REPLICAS_TO_DIRS", 0, "C:CLUSTER_ACTION", {"broker_id": 9, "directories": []}),
    _on_controller(
        "ENVELOPE", 0, "C:CLUSTER_ACTION", {"request_data": b"?", "client_host_address": b"\x01\x02\x03\x04"}
    ),
    *(
        case._replace(controller=True)
        for case in BROKER_CASES
        if case.api
        in (
            "CREATE_TOPICS",
            "ALTER_CLIENT_QUOTAS",
            "DELETE_TOPICS",
            "CREATE_PARTITIONS",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
            "INCREMENTAL_ALTER_CONFIGS",
            "ELECT_LEADERS",
            "ALTER_PARTITION_REASSIGNMENTS",
            "LIST_PARTITION_REASSIGNMENTS",
            "UPDATE_FEATURES",
            "UNREGISTER_BROKER",
            "DESCRIBE_USER_SCRAM_CREDENTIALS",
            "ALTER_USER_SCRAM_CREDENTIALS",
            "DESCRIBE_ACLS",
            "CREATE_ACLS",
            "DELETE_ACLS",
        )
    ),
]
