"""Port: what the driver's part of the exactly-once sink needs of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.client.values import HandedOverTransaction
from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery.decisions import Ended
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.records import DeliveryState
from barnabas.spark.delivery.visibility import Holder


class LedgerFencedError(Exception):
    """Another writer of the same ledger id has taken over. Whether the record was written is unknown."""


@dataclass(frozen=True, slots=True)
class CompanionRecord:
    """A record of another topic that is written together with a state. Its key decides its partition."""

    topic: str
    key: bytes
    value: bytes | None


class Ledger(Protocol):
    """The ledger of a cluster."""

    async def read(self, name: SinkName) -> DeliveryState:
        """The newest state of a query; the initial state without a record."""

    async def acquire(self, name: SinkName) -> DeliveryState:
        """Fence all other writers of this query's state, wait until their transactions have ended, and read the
        state."""

    def held(self, name: SinkName) -> DeliveryState | None:
        """The state that this writer has read or written last; None if it has not acquired the query's state, or if a
        write has failed since. Another writer may have fenced this one in the meantime, which the next write shows."""

    async def write(
        self, name: SinkName, state: DeliveryState | None, companions: Sequence[CompanionRecord] = ()
    ) -> None:
        """Write the state and the companions, in one transaction; None removes the state. Raises LedgerFencedError."""


class OpenTransactions(Protocol):
    """The transactions of task attempts."""

    async def open_ids(self, name: SinkName) -> list[str]:
        """The transactional ids of task attempts of this query that have an open transaction."""

    async def standing(self, transactional_ids: Iterable[str]) -> dict[str, HandedOverTransaction]:
        """The open transactions of these transactional ids."""

    async def commit(self, transaction: HandedOverTransaction) -> Ended:
        """Commit a transaction; the call may be repeated. Raises KafkaError if the answer is unknown."""

    async def abort(self, transaction: HandedOverTransaction) -> None:
        """Abort a transaction if it is open, and nothing else."""


class StableOffsets(Protocol):
    """The ends of partitions for consumers with read_committed."""

    async def stable(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The last stable offset of each partition that exists. Raises KafkaError."""

    async def holders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Holder]:
        """The earliest open transaction of each partition, where there is one that the brokers show. Raises
        KafkaError."""
