"""Machine: the producers of a partition, and the checks for duplicates, gaps and fenced producers (KIP-98).

The state of a producer id consists of the epoch, the last five batches (their sequence numbers and offsets;
max.in.flight.requests.per.connection is at most 5), and the first offset of an open transaction. The last stable offset
follows from the open transactions. The rules are those of Kafka's ProducerAppendInfo, ProducerStateEntry and
ProducerStateManager.

An append first calls `duplicate_of` and `prepare`, then writes, and then calls `commit`. If an append is rejected or
fails, the state is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_PRODUCER_EPOCH, NO_SEQUENCE
from barnabas.protocol.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from barnabas.protocol.records.control import EndTxn
from barnabas.protocol.records.validate import Origin
from barnabas.server.storage.values import AbortedTxn

BATCHES_KEPT: Final = 5
_INT32_MAX: Final = (1 << 31) - 1
_TRANSACTION_FLAGS: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG


class KnownBatch(NamedTuple):
    """One of the last batches of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _INT32_MAX  # sequences wrap from 2^31-1 to 0

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTxn(Struct, frozen=True):
    """A transaction that a marker has ended. `last_offset` is the offset of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """The state of one producer id."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        txn_first_offset: int = -1,
        batches: Iterable[KnownBatch] = (),
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset
        """The first offset of the open transaction, or -1."""
        self.batches = list(batches)
        """The last batches of the current epoch, the oldest first."""

    def copy(self) -> ProducerEntry:
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.txn_first_offset,
            self.batches,
        )

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction of this producer is open."""
        return self.txn_first_offset >= 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> KnownBatch | None:
        if epoch == self.epoch:
            for known in self.batches:
                if known.last_sequence == last_sequence and known.first_sequence == first_sequence:
                    return known
        return None

    def move_to_epoch(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.batches.clear()
            self.epoch = epoch

    def add(self, batch: KnownBatch) -> None:
        self.batches.append(batch)
        if len(self.batches) > BATCHES_KEPT:
            del self.batches[0]
        self.last_timestamp = batch.timestamp


class ProducerAppend(Struct, frozen=True):
    """The changes of the state that `commit` makes after the append has been written."""

    entries: dict[int, ProducerEntry]
    started: list[tuple[int, int]]
    """(first offset, producer id) of the transactions that begin."""
    completed: list[CompletedTxn]


class ProducerState:
    """All producers of one partition, as of the offset `end_offset`."""

    def __init__(self, partition: str, expiration_ms: int) -> None:
        self.partition = partition
        self.expiration_ms = expiration_ms
        self.end_offset = 0
        self._producers: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}
        """An index of the entries in a transaction, like Kafka's `ongoingTxns`: txn_first_offset -> producer id, in the
        order of the offsets."""
        self._unreplicated: list[CompletedTxn] = []
        """Transactions that have ended with a marker that is not known to be below the high watermark."""

    def blank(self) -> ProducerState:
        """A state of the same partition without producers."""
        return ProducerState(self.partition, self.expiration_ms)

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    @property
    def entries(self) -> list[ProducerEntry]:
        return list(self._producers.values())

    # --- an append

    def duplicate_of(self, header: BatchHeader) -> KnownBatch | None:
        """The earlier batch that `header` repeats, if it is one of the producer's last five batches."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return None
        batches = entry.batches
        if batches and (batches[-1].last_sequence + 1) & _INT32_MAX == header.base_sequence:
            return None  # the batch follows the last one, as most batches do
        return entry.duplicate(header.producer_epoch, header.base_sequence, header.last_sequence)

    def prepare(
        self, batches: Sequence[BatchHeader], markers: dict[int, EndTxn], origin: Origin | None
    ) -> ProducerAppend | None:
        """Check batches, whose offsets have been assigned, against the state. `markers` are by base offset.

        `origin` None means that a leader, or this node before a restart, has checked the batches: none is rejected.
        Returns None if no batch has a producer id. Raises KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED.
        """
        if len(batches) == 1:
            header = batches[0]
            known = self._producers.get(header.producer_id)
            if known is not None and self._continues(known, header):
                return self._prepare_next(known, header, origin)
        append: ProducerAppend | None = None
        for header in batches:
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            if append is None:
                append = ProducerAppend({}, [], [])
            entry = append.entries.get(producer_id)
            if entry is None:
                known = self._producers.get(producer_id)
                entry = known.copy() if known is not None else ProducerEntry(producer_id)
                append.entries[producer_id] = entry
            if not header.is_control:
                self._prepare_data(entry, header, origin, append)
            elif header.base_offset in markers:
                self._prepare_marker(entry, header, markers[header.base_offset], origin, append)
            # otherwise compaction has emptied the control batch, and removed the whole transaction
        return append

    def _continues(self, entry: ProducerEntry, header: BatchHeader) -> bool:
        """Whether `header` is a plain batch in the producer's current epoch: the common case."""
        return (
            header.producer_epoch == entry.epoch
            and entry.txn_first_offset < 0
            and not header.attributes & _TRANSACTION_FLAGS
        )

    def _prepare_next(self, known: ProducerEntry, header: BatchHeader, origin: Origin | None) -> ProducerAppend:
        """As `prepare`, for one batch for which `_continues` is true."""
        if origin is Origin.CLIENT:
            self._check_sequence(known, header)
        delta = header.last_offset_delta
        timestamp = header.max_timestamp
        batch = KnownBatch(header.last_sequence, header.base_offset + delta, delta, timestamp)
        batches = [*known.batches[1 - BATCHES_KEPT :], batch]
        entry = ProducerEntry(known.producer_id, known.epoch, known.coordinator_epoch, timestamp, -1, batches)
        return ProducerAppend({known.producer_id: entry}, [], [])

    def _prepare_data(
        self, entry: ProducerEntry, header: BatchHeader, origin: Origin | None, append: ProducerAppend
    ) -> None:
        self._check_epoch(entry, header, origin)
        if origin is Origin.CLIENT:
            self._check_sequence(entry, header)
        transactional = header.is_transactional
        if entry.in_transaction and not transactional and origin is not None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} wrote outside its open transaction (since offset "
                f"{entry.txn_first_offset}) at offset {header.base_offset} of {self.partition}",
            )
        entry.move_to_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        entry.add(KnownBatch(header.last_sequence, header.last_offset, delta, header.max_timestamp))
        if transactional and not entry.in_transaction:
            entry.txn_first_offset = header.base_offset
            append.started.append((header.base_offset, entry.producer_id))

    def _prepare_marker(
        self,
        entry: ProducerEntry,
        header: BatchHeader,
        marker: EndTxn,
        origin: Origin | None,
        append: ProducerAppend,
    ) -> None:
        self._check_epoch(entry, header, origin)
        if entry.coordinator_epoch > marker.coordinator_epoch and origin is not None:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {entry.producer_id} on {self.partition} carries coordinator epoch "
                f"{marker.coordinator_epoch}; the partition has seen {entry.coordinator_epoch}",
            )
        if entry.in_transaction:
            append.completed.append(
                CompletedTxn(entry.producer_id, entry.txn_first_offset, header.base_offset, not marker.commit)
            )
        entry.move_to_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.txn_first_offset = -1
        entry.last_timestamp = header.max_timestamp

    def _check_epoch(self, entry: ProducerEntry, header: BatchHeader, origin: Origin | None) -> None:
        if header.producer_epoch < entry.epoch and origin is not None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {entry.producer_id} has epoch {header.producer_epoch} at offset {header.base_offset} of "
                f"{self.partition}, which has seen epoch {entry.epoch}",
            )

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        first = header.base_sequence
        if entry.epoch == NO_PRODUCER_EPOCH:
            return  # a new or expired producer: any first sequence number is valid
        if header.producer_epoch != entry.epoch:
            expected = 0
        else:
            # After a marker that raised the epoch there are no batches: NO_SEQUENCE + 1 is 0, which must follow.
            expected = (entry.last_sequence + 1) & _INT32_MAX
        if first != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {entry.producer_id} sent sequence {first} at offset {header.base_offset} of "
                f"{self.partition}; after epoch {entry.epoch}, sequence {entry.last_sequence}, {expected} must follow",
            )

    def commit(self, append: ProducerAppend | None, end_offset: int) -> list[AbortedTxn]:
        """Apply a prepared append that has been written. Returns the new entries of the transaction index."""
        self.end_offset = end_offset
        if append is None:
            return []
        self._producers.update(append.entries)
        if not append.started and not append.completed:
            return []
        for first_offset, producer_id in append.started:
            self._ongoing[first_offset] = producer_id
        aborted = []
        for txn in append.completed:
            if txn.aborted:
                stable = self._stable_after(txn)
                aborted.append(AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, stable))
            self._ongoing.pop(txn.first_offset, None)
            self._unreplicated.append(txn)
        return aborted

    def _stable_after(self, txn: CompletedTxn) -> int:
        """The last stable offset after `txn` has ended.

        This is the first offset of the next open transaction, or the offset after the marker if no other is open.
        """
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != txn.producer_id:
                return first_offset
        return txn.last_offset + 1

    # --- open transactions

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of a transaction that is open, or that ended at or above the high watermark; None if there
        is none."""
        unreplicated = self._unreplicated
        if unreplicated:
            self._unreplicated = unreplicated = [t for t in unreplicated if t.last_offset >= high_watermark]
        offsets = [t.first_offset for t in unreplicated]
        if self._ongoing:
            offsets.append(next(iter(self._ongoing)))
        return min(offsets) if offsets else None

    @property
    def open_transactions(self) -> list[ProducerEntry]:
        """The producers with an open transaction, in the order of the transactions' first offsets."""
        return [self._producers[producer_id] for producer_id in self._ongoing.values()]

    def unreplicated_count(self, high_watermark: int) -> int:
        """The number of ended transactions whose marker is at or above the high watermark."""
        return sum(txn.last_offset >= high_watermark for txn in self._unreplicated)

    # --- maintenance

    def expire(self, now_ms: int) -> int:
        """Remove the producers without an open transaction that have been idle for producer.id.expiration.ms. Returns
        their number."""
        expired = [p for p, e in self._producers.items() if self.is_expired(e, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return not entry.in_transaction and now_ms - entry.last_timestamp >= self.expiration_ms

    def on_log_start(self, log_start_offset: int) -> None:
        """The log start offset has been raised: drop the transactions that ended below."""
        self._unreplicated = [t for t in self._unreplicated if t.last_offset >= log_start_offset]
        self.end_offset = max(self.end_offset, log_start_offset)

    def reset(self, end_offset: int, entries: Iterable[ProducerEntry] = ()) -> None:
        """Replace the state by the entries of a snapshot taken at `end_offset`."""
        self.end_offset = end_offset
        self._producers = {entry.producer_id: entry for entry in entries}
        open_txns = [(e.txn_first_offset, e.producer_id) for e in self._producers.values() if e.in_transaction]
        self._ongoing = dict(sorted(open_txns))
        self._unreplicated = []
