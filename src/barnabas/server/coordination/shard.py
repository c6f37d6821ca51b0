"""Port: what the runtime asks of a coordinator's machine, one instance per partition ("shard", as Kafka calls it)."""

from __future__ import annotations

from typing import Protocol

from barnabas.server.coordination.ports import LogRecord, Producer
from barnabas.server.coordination.turn import StateRecord, TimerKey, Turn


class RecordFormat(Protocol):
    """Translates between decoded records and the bytes of the log (Kafka's CoordinatorRecordSerde)."""

    def encode(self, record: StateRecord) -> LogRecord: ...

    def decode(self, record: LogRecord) -> StateRecord | None:
        """None if this version does not know the kind of record (a later version wrote it); the record is skipped."""
        ...


class Shard(Protocol):
    """Replicated state lives in the maps of the timeline it was built with, and changes only in `apply`."""

    @property
    def log_format(self) -> RecordFormat: ...

    def apply(self, record: StateRecord, offset: int, producer_id: int) -> None:
        """Make the record part of the state. `producer_id` is -1 unless it belongs to a transaction."""
        ...

    def apply_marker(self, producer: Producer, *, committed: bool) -> None:
        """The producer's transaction has ended."""
        ...

    def on_loaded(self, turn: Turn) -> None:
        """All of the log has been applied; arm the timers that the state calls for. Nothing is written here: a refusal
        would undo the loading. What must be written gets a timer of no delay, with `retry`."""
        ...

    def on_timer(self, turn: Turn, key: TimerKey) -> None: ...

    def on_unloaded(self, turn: Turn) -> None:
        """This node no longer owns the partition: answer whatever is parked (records and timers are ignored)."""
        ...
