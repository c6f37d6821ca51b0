"""Value: the exceptions of the clients. Their messages say what happened and what to do next.

KafkaError                        a response of a broker with an error code (barnabas.core.errors)
└─ ClientError
   ├─ BrokerUnreachableError      one broker cannot be reached, or its connection broke
   │  └─ BootstrapError           none of bootstrap.servers can be reached
   ├─ TlsError                    the TLS handshake failed because of a certificate
   ├─ RequestTimeoutError         the deadline of a call or of a request passed; also a TimeoutError
   ├─ UnsupportedApiError         the broker does not support the API in any version of the client
   ├─ ClientClosedError           the client was closed before or during the call
   │  └─ ForkedError              the client was created before this process was forked
   ├─ SerializationError          a (de)serializer failed for a key or a value
   ├─ BufferFullError             buffer.memory stayed full for max.block.ms
   ├─ DeliveryTimeoutError        a record was not acknowledged within delivery.timeout.ms
   ├─ DeliveryFailedError         flush and close: records have failed, and the program has not retrieved their errors
   ├─ TransactionStateError       the call does not fit the state of the transaction
   ├─ TransactionAbortedError     the transaction failed or was aborted; its records will not be seen
   ├─ OffsetOutOfRangeError       the requested offset is no longer, or not yet, in the log
   │  └─ TopicReplacedError       the offset belongs to a topic that was deleted and created again
   ├─ NoOffsetError               no committed offset, and auto.offset.reset is none
   ├─ TruncationError             the log was truncated below the position (KIP-320)
   ├─ AcknowledgementError         share groups: a record was not acknowledged, or cannot be acknowledged
   └─ CommitFailedError           the group has rebalanced; the partitions may belong to another member

WakeupError                       wakeup() was called while a call waited for records, or before it
ArgumentTypeError                 an argument of a method has the wrong type: a ConfigError and a TypeError
"""

from __future__ import annotations

from uuid import UUID

from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition


class ClientError(KafkaError):
    """The base class of the errors that the client itself raises."""


class BrokerUnreachableError(ClientError):
    """A broker cannot be connected to, or the connection broke before the response arrived."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class BootstrapError(BrokerUnreachableError):
    """None of the bootstrap servers can be reached."""


class TlsError(ClientError):
    """A certificate is not trusted, or is for another name. The client does not retry."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)

    @property
    def retriable(self) -> bool:
        return False


class RequestTimeoutError(ClientError, TimeoutError):
    """A deadline passed. The message names the call, the time, and the last error that was being retried.

    It is a TimeoutError of Python, too.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class UnsupportedApiError(ClientError):
    """Broker and client have no common version of an API."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class ClientClosedError(ClientError):
    """The client was closed."""

    def __init__(self, what: str, message: str | None = None) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message or f"{what} is closed; create a new one.")

    @property
    def retriable(self) -> bool:
        return False


class ForkedError(ClientClosedError):
    """The client was created by the parent of this process, which was forked."""

    def __init__(self, what: str) -> None:
        super().__init__(
            what,
            f"{what} belongs to the process that created it. Its thread and its connections do not exist in this"
            " process, which was forked: create a client in each process.",
        )


class WakeupError(BarnabasError):
    """`wakeup` was called. Nothing is lost: the next call returns what this one would have returned."""

    def __init__(self, message: str = "wakeup() was called.") -> None:
        super().__init__(message)


class ArgumentTypeError(ConfigError, TypeError):
    """An argument of a client's method has the wrong type. The message names the method, the argument, the expected
    type and the given value. The error is also a TypeError.
    """


class SerializationError(ClientError):
    """A key or value could not be serialized or deserialized."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class BufferFullError(ClientError):
    """`buffer.memory` stayed full for `max.block.ms`: records are sent faster than the brokers accept them."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class DeliveryTimeoutError(ClientError):
    """A record was not acknowledged in `delivery.timeout.ms`. It may or may not have been written."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class DeliveryFailedError(ClientError):
    """Records that were sent since the last flush have failed, and the program has not retrieved their errors.

    `count` is the number of the records, `partition` the partition of the first one (its number is -1 if the record
    was given none yet), and `first` the first error, whose code is `code`.
    """

    def __init__(self, count: int, partition: TopicPartition, first: BarnabasError) -> None:
        self.count = count
        self.partition = partition
        self.first = first
        where = str(partition) if partition.partition >= 0 else partition.topic
        records = "1 record was" if count == 1 else f"{count} records were"
        super().__init__(
            first.code if isinstance(first, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{records} not delivered; the first, for {where}, failed with: {first} Send what is missing again. To"
            " handle each record by itself, await what send returned (or call its result()), or pass on_delivery.",
        )

    @property
    def retriable(self) -> bool:
        return False


class TransactionStateError(ClientError):
    """A call that does not fit the state of the transaction."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)


class TransactionAbortedError(ClientError):
    """The transaction failed or was aborted: no read_committed consumer will see its records."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.TRANSACTION_ABORTABLE, message)


class OffsetOutOfRangeError(ClientError):
    """An offset is outside the log: deleted, below `log_start_offset`, or beyond the end."""

    def __init__(
        self, partition: TopicPartition, offset: int, log_start_offset: int = -1, log_end_offset: int = -1
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        held = f" The log holds offsets {log_start_offset} to {log_end_offset}." if log_start_offset >= 0 else ""
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {partition} is out of range.{held} Records may have aged out (retention.ms,"
            " retention.bytes), have been deleted, or the topic was created anew; seek to an offset that exists.",
        )


class TopicReplacedError(OffsetOutOfRangeError):
    """An offset belongs to a topic that was deleted; another topic has its name now."""

    def __init__(self, partition: TopicPartition, offset: int, wanted: UUID, found: UUID) -> None:
        super().__init__(partition, offset)
        self.wanted, self.found = wanted, found
        ClientError.__init__(
            self,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The topic {partition.topic} was deleted and created again: offset {offset} of {partition} belongs to the"
            f" one with id {wanted}, and there is the one with id {found} now. Begin at the start of the new topic.",
        )


class NoOffsetError(ClientError):
    """A partition has no committed offset and `auto.offset.reset` is `none`."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self.partitions = partitions
        names = ", ".join(map(str, partitions[:10])) + (", ..." if len(partitions) > 10 else "")
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"No committed offset for {names}, and auto.offset.reset is 'none'. Seek to a position first,"
            " or set auto.offset.reset to 'earliest' or 'latest'.",
        )

    @property
    def retriable(self) -> bool:
        return False


class TruncationError(ClientError):
    """The leader's log diverges below the consumer's position (an unclean leader election lost records)."""

    def __init__(self, partition: TopicPartition, position: int, divergent_offset: int) -> None:
        self.partition = partition
        self.position = position
        self.divergent_offset = divergent_offset
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The log of {partition} was truncated: position {position} is past {divergent_offset}, where the leader's"
            " log differs from the log that was read. The cluster lost the records read beyond it; seek to continue.",
        )


class CommitFailedError(ClientError):
    """Offsets were not committed, because the group rebalanced without this member."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(
            code,
            message
            or "The commit was refused: the group has rebalanced and the partitions may belong to another member."
            " Poll more often than max.poll.interval.ms, or lower max.poll.records.",
        )

    @property
    def retriable(self) -> bool:
        return False


class AcknowledgementError(ClientError):
    """An acknowledgement that the state of a share group's record does not allow."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD_STATE, message)

    @property
    def retriable(self) -> bool:
        return False
