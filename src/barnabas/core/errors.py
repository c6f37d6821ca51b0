"""Table: Kafka's error codes, with the retry rules for clients.

Codes, names and retriability follow `org.apache.kafka.common.protocol.Errors` of Kafka 4.3; the messages are our own.
`ErrorCode` is what requests and responses carry. `KafkaError` is the same thing as an exception, for the places
(clients, the command line, the start of a node) in which an error code ends the operation.

    BarnabasError
    └─ KafkaError            a code of the table below
       └─ (packages derive their own: ConfigError, CorruptBatchError, StorageError, ...)
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, TypeVar


class ErrorCode(IntEnum):
    """One row of Kafka's error table; the integer is the code on the wire."""

    message: str
    retriable: bool
    refresh_metadata: bool

    def __new__(cls, code: int, message: str = "", flags: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = "r" in flags
        member.refresh_metadata = "m" in flags
        return member

    # name = code, message, flags: r = a retry can succeed, m = refresh metadata before retrying
    UNKNOWN_SERVER_ERROR = -1, "An unexpected error on the server; see the server's log."
    NONE = 0, ""
    OFFSET_OUT_OF_RANGE = 1, "The offset is outside the range the server keeps for this partition."
    CORRUPT_MESSAGE = 2, "The record batch failed its CRC, or is not a valid batch.", "r"
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This server does not host this topic-partition.", "rm"
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment; an election is under way.", "rm"
    NOT_LEADER_OR_FOLLOWER = 6, "This broker is neither the leader nor a follower of the partition.", "rm"
    REQUEST_TIMED_OUT = 7, "The request was not completed within its time limit.", "r"
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available for this topic-partition.", "rm"
    MESSAGE_TOO_LARGE = 10, "The batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, "The controller has moved to another node."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata string of an offset commit exceeds offset.metadata.max.bytes."
    NETWORK_EXCEPTION = 13, "The connection was lost before the response arrived.", "rm"
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state.", "r"
    COORDINATOR_NOT_AVAILABLE = 15, "The coordinator is not available.", "r"
    NOT_COORDINATOR = 16, "This broker is not the coordinator for that id.", "r"
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is not valid, or the topic may not be used in this way."
    RECORD_LIST_TOO_LARGE = 18, "The request holds a record list larger than a segment of the server."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than min.insync.replicas requires.", "r"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The records were written, but to fewer in-sync replicas than min.insync.replicas requires.",
        "r",
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be -1 (all), 0 or 1."
    ILLEGAL_GENERATION = 22, "The group's generation is not the one in the request."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol type or assignor with the group's members."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = (
        26,
        "The session time-out is outside group.min.session.timeout.ms and group.max.session.timeout.ms.",
    )
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; the member must rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offset commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is outside the bounds the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not enabled on this server."
    ILLEGAL_SASL_STATE = 34, "The request is not allowed at this point of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "The server does not serve this version of the API."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of usable brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "A configuration value is not valid."
    NOT_CONTROLLER = 41, "This node is not the active controller.", "r"
    INVALID_REQUEST = 42, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The record format of the partition does not support this request."
    POLICY_VIOLATION = 44, "The request violates a policy of the server."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The producer's sequence number leaves a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The producer's sequence number was seen before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the one the partition knows."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction time-out exceeds transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, "An earlier transaction of this producer is still being completed.", "r"
    TRANSACTION_COORDINATOR_FENCED = 52, "The transaction coordinator that sent the marker has been superseded."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, "Security features are disabled on this server."
    OPERATION_NOT_ATTEMPTED = 55, "The operation was not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "A disk error on the server.", "rm"
    LOG_DIR_NOT_FOUND = 57, "The log directory is not one of the broker's."
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The partition no longer holds any state of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of the partition is under way."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The server does not know this delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal is neither the token's owner nor one of its renewers."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens cannot be managed over this kind of connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session does not exist; start a new one.", "r"
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session's epoch does not match; start a new session.", "r"
    LISTENER_NOT_FOUND = 72, "The leader has no listener matching the one the request came in on.", "rm"
    TOPIC_DELETION_DISABLED = 73, "delete.topic.enable is false on this cluster."
    FENCED_LEADER_EPOCH = 74, "The request's leader epoch is older than the server's.", "rm"
    UNKNOWN_LEADER_EPOCH = 75, "The request's leader epoch is newer than the server's.", "r"
    UNSUPPORTED_COMPRESSION_TYPE = 76, "This request's version cannot carry that compression type."
    STALE_BROKER_EPOCH = 77, "The broker has been registered anew since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader's high watermark has not caught up yet.", "r"
    MEMBER_ID_REQUIRED = 79, "The member must join again with the member id it was just given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", "rm"
    GROUP_MAX_SIZE_REACHED = 81, "The group is full (group.max.size)."
    FENCED_INSTANCE_ID = 82, "Another member with the same group.instance.id has taken this one's place."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No eligible leader is available for the partition.", "rm"
    ELECTION_NOT_NEEDED = 84, "The partition already has that leader.", "rm"
    NO_REASSIGNMENT_IN_PROGRESS = 85, "There is no reassignment of the partition to cancel."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group still subscribes to the topic, so its offsets cannot be deleted."
    INVALID_RECORD = 87, "A record is not valid for this topic."
    UNSTABLE_OFFSET_COMMIT = 88, "The offset belongs to a transaction that has not ended.", "r"
    THROTTLING_QUOTA_EXCEEDED = 89, "A quota is exhausted; wait for throttle_time_ms.", "r"
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "There is no such resource."
    DUPLICATE_RESOURCE = 92, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "The sender is not in the set of voters."
    INVALID_UPDATE_VERSION = 95, "The version of the update is not valid."
    FEATURE_UPDATE_FAILED = 96, "A feature could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This server does not host a topic of that id.", "rm"
    DUPLICATE_BROKER_REGISTRATION = 101, "The broker id is in use."
    BROKER_ID_NOT_REGISTERED = 102, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic id does not match the log's.", "rm"
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id does not match this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session was opened without topic ids, or with them.", "r"
    INELIGIBLE_REPLICA = 107, "A replica may not join the ISR at the moment."
    NEW_LEADER_ELECTED = 108, "The change was made, and it gave the partition a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is not the coordinator's; rejoin."
    UNRELEASED_INSTANCE_ID = 111, "Another member still uses this group.instance.id."
    UNSUPPORTED_ASSIGNOR = 112, "The group coordinator has no such assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is stale; retry after the next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request was sent to an endpoint of the wrong type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "The endpoint type is not supported here."
    UNKNOWN_CONTROLLER_ID = 116, "There is no controller of that id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription has changed; ask for it again."
    TELEMETRY_TOO_LARGE = 118, "The telemetry payload is too large."
    INVALID_REGISTRATION = 119, "The controller refuses this registration."
    TRANSACTION_ABORTABLE = 120, "The transaction met an error and must be aborted."
    INVALID_RECORD_STATE = 121, "The record's delivery state does not allow this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The share session does not exist; start a new one.", "r"
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session's epoch does not match.", "r"
    FENCED_STATE_EPOCH = 124, "The share state's epoch is not the coordinator's."
    INVALID_VOTER_KEY = 125, "The voter key does not match the receiver's."
    DUPLICATE_VOTER = 126, "The voter is in the set already."
    VOTER_NOT_FOUND = 127, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client must bootstrap its metadata anew."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology epoch is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, "The limit of share sessions is reached.", "r"


_UNKNOWN: Final = ErrorCode.UNKNOWN_SERVER_ERROR
_BY_NUMBER: Final = {int(code): code for code in ErrorCode}
"""A look-up in a dict is faster than `ErrorCode(number)`."""


def error_code(code: int) -> ErrorCode:
    """The error code with this number, or UNKNOWN_SERVER_ERROR for an unknown number."""
    return _BY_NUMBER.get(code, _UNKNOWN)


class BarnabasError(Exception):
    """The base class of all exceptions that Barnabas defines.

    An error of any subclass can be pickled with its fields, whatever arguments the `__init__` of the subclass takes,
    so that Spark and process pools can carry the error from a worker to the driver. Its `__cause__` is not pickled, as
    with all exceptions of Python.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args, dict(self.__dict__))


def _unpickled(kind: type[BarnabasError], args: tuple[Any, ...], fields: dict[str, Any]) -> BarnabasError:
    """The error that was pickled. `__init__` is not called, because its arguments are not known any more."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class KafkaError(BarnabasError):
    """A Kafka error as an exception: `code` for programs, the message for people."""

    code: ErrorCode

    def __init__(self, code: ErrorCode | int, message: str | None = None) -> None:
        self.code = error_code(int(code))
        self.detail = message
        super().__init__(message or self.code.message)

    @property
    def retriable(self) -> bool:
        return self.code.retriable

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code.name}, {str(self)!r})"


_K = TypeVar("_K", bound=KafkaError)


def without_traceback(error: _K) -> _K:
    """`error` as a value that can be kept: the frames of a traceback, of the error or of its causes, hold all that was
    in their variables, for example the buffers that were being decoded."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
