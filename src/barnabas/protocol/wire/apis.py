"""Table: every API of the protocol: its key, its versions, its first flexible version, and the listeners on which Kafka
serves it.

The versions are those that the message classes can read and write; a broker advertises those that it has handlers for.
A message module is imported when `request` or `response` of its row is first used, so this table is cheap to import.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import Final

from barnabas.protocol.wire.schema import Request, Response
from barnabas.protocol.wire.versions import versions


class ApiKey(IntEnum):
    """The number of an API, which every request header has. The numbers 4 to 7 belonged to APIs that Kafka used with
    ZooKeeper; Kafka does not use these numbers again.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    EXPLAIN_PARTITION = 10_000
    EXPLAIN_GROUP = 10_001
    RUN_MAINTENANCE = 10_002
    ALTER_LINK = 10_003
    DESCRIBE_LINKS = 10_004
    ALTER_MIRRORS = 10_005
    DESCRIBE_MIRRORS = 10_006
    READ_LINK = 10_007
    READ_MIRROR_STATE = 10_008
    WRITE_MIRROR_STATE = 10_009
    ALTER_MIRROR_TOPICS = 10_010
    DESCRIBE_CLIENTS = 10_011


PRIVATE_FROM: Final = 10_000
"""The smallest key of Barnabas's own APIs, which is far above the keys of Kafka and of its forks."""

BROKER: Final = frozenset({"broker"})
CONTROLLER: Final = frozenset({"controller"})
BOTH: Final = BROKER | CONTROLLER


class WireApi:
    """One row of `APIS`: an API with its versions and the listeners on which Kafka serves the API."""

    def __init__(
        self,
        key: ApiKey,
        carried: str,
        *,
        flexible_from: int | None,
        listeners: frozenset[str] = BROKER,
        latest_version_unstable: bool = False,
    ) -> None:
        self.key = key
        self.name = "".join(word.capitalize() for word in key.name.split("_"))
        self.min_version, self.max_version = versions(carried)
        self.flexible_from = flexible_from
        self.listeners = listeners
        self.latest_version_unstable = latest_version_unstable

    @cached_property
    def request(self) -> type[Request]:
        message: type[Request] = getattr(self._module(), f"{self.name}Request")
        return message

    @cached_property
    def response(self) -> type[Response]:
        message: type[Response] = getattr(self._module(), f"{self.name}Response")
        return message

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def _module(self) -> object:
        return import_module(f"barnabas.protocol.wire.messages.{self.key.name.lower()}")

    def __repr__(self) -> str:
        return f"WireApi({self.name}, key {int(self.key)}, versions {self.min_version}-{self.max_version})"


_TABLE: Final = (
    WireApi(ApiKey.PRODUCE, "0-13", flexible_from=9),
    WireApi(ApiKey.FETCH, "0-18", flexible_from=12, listeners=BOTH),
    WireApi(ApiKey.LIST_OFFSETS, "0-11", flexible_from=6),
    WireApi(ApiKey.METADATA, "0-13", flexible_from=9),
    WireApi(ApiKey.OFFSET_COMMIT, "0-10", flexible_from=8),
    WireApi(ApiKey.OFFSET_FETCH, "0-10", flexible_from=6),
    WireApi(ApiKey.FIND_COORDINATOR, "0-6", flexible_from=3),
    WireApi(ApiKey.JOIN_GROUP, "0-9", flexible_from=6),
    WireApi(ApiKey.HEARTBEAT, "0-4", flexible_from=4),
    WireApi(ApiKey.LEAVE_GROUP, "0-5", flexible_from=4),
    WireApi(ApiKey.SYNC_GROUP, "0-5", flexible_from=4),
    WireApi(ApiKey.DESCRIBE_GROUPS, "0-6", flexible_from=5),
    WireApi(ApiKey.LIST_GROUPS, "0-5", flexible_from=3),
    WireApi(ApiKey.SASL_HANDSHAKE, "0-1", flexible_from=None, listeners=BOTH),
    WireApi(ApiKey.API_VERSIONS, "0-4", flexible_from=3, listeners=BOTH),
    WireApi(ApiKey.CREATE_TOPICS, "0-7", flexible_from=5, listeners=BOTH),
    WireApi(ApiKey.DELETE_TOPICS, "0-6", flexible_from=4, listeners=BOTH),
    WireApi(ApiKey.DELETE_RECORDS, "0-2", flexible_from=2),
    WireApi(ApiKey.INIT_PRODUCER_ID, "0-6", flexible_from=2, latest_version_unstable=True),
    WireApi(ApiKey.OFFSET_FOR_LEADER_EPOCH, "0-4", flexible_from=4),
    WireApi(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", flexible_from=3),
    WireApi(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", flexible_from=3),
    WireApi(ApiKey.END_TXN, "0-5", flexible_from=3),
    WireApi(ApiKey.WRITE_TXN_MARKERS, "0-2", flexible_from=1),
    WireApi(ApiKey.TXN_OFFSET_COMMIT, "0-5", flexible_from=3),
    WireApi(ApiKey.DESCRIBE_ACLS, "0-3", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.CREATE_ACLS, "0-3", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.DELETE_ACLS, "0-3", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.DESCRIBE_CONFIGS, "0-4", flexible_from=4, listeners=BOTH),
    WireApi(ApiKey.ALTER_CONFIGS, "0-2", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.ALTER_REPLICA_LOG_DIRS, "0-2", flexible_from=2),
    WireApi(ApiKey.DESCRIBE_LOG_DIRS, "0-5", flexible_from=2),
    WireApi(ApiKey.SASL_AUTHENTICATE, "0-2", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.CREATE_PARTITIONS, "0-3", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.CREATE_DELEGATION_TOKEN, "0-3", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.RENEW_DELEGATION_TOKEN, "0-2", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.EXPIRE_DELEGATION_TOKEN, "0-2", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.DESCRIBE_DELEGATION_TOKEN, "0-3", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.DELETE_GROUPS, "0-2", flexible_from=2),
    WireApi(ApiKey.ELECT_LEADERS, "0-2", flexible_from=2, listeners=BOTH),
    WireApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", flexible_from=1, listeners=BOTH),
    WireApi(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "0-1", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.OFFSET_DELETE, "0", flexible_from=None),
    WireApi(ApiKey.DESCRIBE_CLIENT_QUOTAS, "0-1", flexible_from=1),
    WireApi(ApiKey.ALTER_CLIENT_QUOTAS, "0-1", flexible_from=1, listeners=BOTH),
    WireApi(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "0", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.VOTE, "0-2", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.BEGIN_QUORUM_EPOCH, "0-1", flexible_from=1, listeners=CONTROLLER),
    WireApi(ApiKey.END_QUORUM_EPOCH, "0-1", flexible_from=1, listeners=CONTROLLER),
    WireApi(ApiKey.DESCRIBE_QUORUM, "0-2", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.ALTER_PARTITION, "2-3", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.UPDATE_FEATURES, "0-2", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.ENVELOPE, "0", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.FETCH_SNAPSHOT, "0-1", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.DESCRIBE_CLUSTER, "0-2", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.DESCRIBE_PRODUCERS, "0", flexible_from=0),
    WireApi(ApiKey.BROKER_REGISTRATION, "0-4", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.BROKER_HEARTBEAT, "0-2", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.UNREGISTER_BROKER, "0", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.DESCRIBE_TRANSACTIONS, "0", flexible_from=0),
    WireApi(ApiKey.LIST_TRANSACTIONS, "0-2", flexible_from=0),
    WireApi(ApiKey.ALLOCATE_PRODUCER_IDS, "0", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", flexible_from=0),
    WireApi(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", flexible_from=0),
    WireApi(ApiKey.CONTROLLER_REGISTRATION, "0", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "0", flexible_from=0),
    WireApi(ApiKey.PUSH_TELEMETRY, "0", flexible_from=0),
    WireApi(ApiKey.ASSIGN_REPLICAS_TO_DIRS, "0", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.LIST_CONFIG_RESOURCES, "0-1", flexible_from=0),
    WireApi(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", flexible_from=0),
    WireApi(ApiKey.SHARE_GROUP_HEARTBEAT, "1", flexible_from=0),
    WireApi(ApiKey.SHARE_GROUP_DESCRIBE, "1", flexible_from=0),
    WireApi(ApiKey.SHARE_FETCH, "1-2", flexible_from=0),
    WireApi(ApiKey.SHARE_ACKNOWLEDGE, "1-2", flexible_from=0),
    WireApi(ApiKey.ADD_RAFT_VOTER, "0-1", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.REMOVE_RAFT_VOTER, "0", flexible_from=0, listeners=BOTH),
    WireApi(ApiKey.UPDATE_RAFT_VOTER, "0", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.INITIALIZE_SHARE_GROUP_STATE, "0", flexible_from=0),
    WireApi(ApiKey.READ_SHARE_GROUP_STATE, "0", flexible_from=0),
    WireApi(ApiKey.WRITE_SHARE_GROUP_STATE, "0-1", flexible_from=0),
    WireApi(ApiKey.DELETE_SHARE_GROUP_STATE, "0", flexible_from=0),
    WireApi(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "0-1", flexible_from=0),
    WireApi(ApiKey.STREAMS_GROUP_HEARTBEAT, "0", flexible_from=0),
    WireApi(ApiKey.STREAMS_GROUP_DESCRIBE, "0", flexible_from=0),
    WireApi(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "0-1", flexible_from=0),
    WireApi(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "0", flexible_from=0),
    WireApi(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "0", flexible_from=0),
    WireApi(ApiKey.EXPLAIN_PARTITION, "0", flexible_from=0),
    WireApi(ApiKey.EXPLAIN_GROUP, "0", flexible_from=0),
    WireApi(ApiKey.RUN_MAINTENANCE, "0", flexible_from=0),
    WireApi(ApiKey.ALTER_LINK, "0", flexible_from=0),
    WireApi(ApiKey.DESCRIBE_LINKS, "0", flexible_from=0),
    WireApi(ApiKey.ALTER_MIRRORS, "0", flexible_from=0),
    WireApi(ApiKey.DESCRIBE_MIRRORS, "0", flexible_from=0),
    WireApi(ApiKey.READ_LINK, "0", flexible_from=0),
    WireApi(ApiKey.READ_MIRROR_STATE, "0", flexible_from=0),
    WireApi(ApiKey.WRITE_MIRROR_STATE, "0", flexible_from=0),
    WireApi(ApiKey.ALTER_MIRROR_TOPICS, "0", flexible_from=0, listeners=CONTROLLER),
    WireApi(ApiKey.DESCRIBE_CLIENTS, "0", flexible_from=0),
)

APIS: Final[dict[ApiKey, WireApi]] = {api.key: api for api in _TABLE}
API_KEYS: Final[dict[int, ApiKey]] = {int(key): key for key in APIS}
"""The keys by number. Each request needs such a look-up, and a look-up in a dict is faster than `ApiKey(number)`."""

_NEVER: Final = 1 << 15  # larger than any version
REQUEST_FLEXIBLE_FROM: Final[dict[int, int]] = {
    int(api.key): _NEVER if api.flexible_from is None else api.flexible_from for api in _TABLE
}
"""The first version of each API whose request header has tagged fields. A look-up in this table is faster than
`WireApi.is_flexible`, and every request needs one.
"""
_RESPONSE_FLEXIBLE_FROM: Final[dict[ApiKey, int]] = {
    key: _NEVER if key is ApiKey.API_VERSIONS else REQUEST_FLEXIBLE_FROM[key] for key in APIS
}


def request_header_version(key: ApiKey, version: int) -> int:
    """The version of a request's header: 2 if `version` of the request is flexible, else 1. `version` may be one that
    this side does not support, because a broker reads the header before it rejects the request.
    """
    return 2 if version >= REQUEST_FLEXIBLE_FROM[key] else 1


def response_header_version(key: ApiKey, version: int) -> int:
    """The version of a response's header: 1 if `version` of the response is flexible, else 0. Always 0 for ApiVersions,
    whose response the client reads before a version is negotiated.
    """
    return 1 if version >= _RESPONSE_FLEXIBLE_FROM[key] else 0
