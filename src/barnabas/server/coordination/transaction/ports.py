"""Port: what the transaction coordinator needs besides its own partition: to have markers written elsewhere."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class MarkerJob(Struct, frozen=True):
    """A decided transaction whose partitions must be told."""

    state_partition: int
    """The partition of `__transaction_state` that holds it."""
    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    version: int
    partitions: frozenset[TopicPartition]


class MarkerQueue(Protocol):
    """Where the machine puts a job. It is told by `markers_written` when every partition has its marker."""

    def put(self, job: MarkerJob) -> None: ...

    def drop(self, state_partition: int) -> None:
        """This node no longer owns that partition of `__transaction_state`: another one will see to its jobs."""
        ...


class MarkerChannel(Protocol):
    """The way to the leaders of partitions, this node among them."""

    def leader(self, tp: TopicPartition) -> int | None:
        """The broker that leads it; -1 while nobody does; None when there is no such partition (any more)."""
        ...

    async def write(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Answered when the markers are committed. Raises KafkaError when the broker cannot be reached."""
        ...
