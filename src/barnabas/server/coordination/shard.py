"""Port: the state machine of one partition of a coordinator's topic (Kafka's CoordinatorShard)."""

from __future__ import annotations

from typing import Protocol

from barnabas.server.coordination.operation import CoordinatorRecord, TimerKey, WriteOperation
from barnabas.server.coordination.ports import LogRecord, ProducerIdAndEpoch


class CoordinatorRecordFormat(Protocol):
    """Translates between decoded records and the bytes of the log (Kafka's CoordinatorRecordSerde)."""

    def encode(self, record: CoordinatorRecord) -> LogRecord: ...

    def decode(self, record: LogRecord) -> CoordinatorRecord | None:
        """The decoded record; None for a kind of record that this version of Barnabas does not know, because a later
        version wrote it. The caller skips such a record."""
        ...


class CoordinatorShard(Protocol):
    """The state machine of one partition of a coordinator's topic.

    Its replicated state is kept in maps of a `Timeline`, and only `apply` and `apply_marker` change this state.
    """

    @property
    def log_format(self) -> CoordinatorRecordFormat: ...

    def apply(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """Apply one record of the log to the state. `producer_id` is -1 unless the record is transactional."""
        ...

    def apply_marker(self, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        """Apply the marker that commits or aborts the producer's transaction."""
        ...

    def on_loaded(self, op: WriteOperation) -> None:
        """Schedule the timers of the loaded state. All records of the log have been applied.

        This method must not write records, because a failed append would undo the loading. If records are needed, it
        schedules a timer with `delay_ms=0, retry=True`, which writes them and fires again if the append fails.
        """
        ...

    def on_timer(self, op: WriteOperation, key: TimerKey) -> None: ...

    def on_unloaded(self, op: WriteOperation) -> None:
        """Complete all pending responses: this node no longer leads the partition. Records and timers are ignored."""
        ...
