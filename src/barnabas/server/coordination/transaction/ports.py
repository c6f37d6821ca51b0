"""Port: what the transaction coordinator needs besides its own partition: markers written by partition leaders."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class MarkerJob(Struct, frozen=True):
    """A prepared transaction whose markers must be written."""

    state_partition: int
    """The partition of `__transaction_state` that has the transactional id."""
    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    version: int
    partitions: frozenset[TopicPartition]


class MarkerQueue(Protocol):
    """Accepts the jobs of the state machine, and calls `markers_written` when all markers of a job are written."""

    def put(self, job: MarkerJob) -> None: ...

    def drop(self, state_partition: int) -> None:
        """Drop the jobs of a partition of `__transaction_state` that this node no longer leads. The new leader finds
        them in its log."""
        ...


class MarkerChannel(Protocol):
    """Sends WriteTxnMarkers to the leaders of partitions, including this node."""

    def leader(self, tp: TopicPartition) -> int | None:
        """The id of the partition's leader; -1 if the partition has no leader; None if the partition does not exist."""
        ...

    async def write(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Returns when the markers are committed. Raises KafkaError if the broker cannot be reached."""
        ...
