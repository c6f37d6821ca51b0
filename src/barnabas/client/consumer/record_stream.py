"""Codec: decodes fetched batches into `ConsumerRecord`s, a few at a time, without markers and, if requested, without
aborted records."""

from __future__ import annotations

from heapq import heapify, heappop
from typing import Any

from barnabas.client.errors import SerializationError
from barnabas.client.serialization import Decode, NotReadyError
from barnabas.client.values import ConsumerRecord, FetchedBatches, IsolationLevel
from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import BatchHeader, check_crc, iter_batches, iter_records
from barnabas.protocol.records.control import EndTxn, parse_control
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.protocol.records.rows import read_rows


class AbortedBatchFinder:
    """Finds the batches of a buffer that belong to aborted transactions (the consumer's part of KIP-98).

    `aborted` are (producer id, first offset); a transaction ends at its abort marker.
    """

    def __init__(self, aborted: tuple[tuple[int, int], ...]) -> None:
        self._upcoming = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._upcoming)
        self._aborting: set[int] = set()

    def hides(self, buffer: Buffer, pos: int, header: BatchHeader) -> bool:
        """Whether a batch is aborted, or has a marker or other control record. Call this for every batch, in order."""
        while self._upcoming and self._upcoming[0][0] <= header.last_offset:
            self._aborting.add(heappop(self._upcoming)[1])
        if header.is_control:
            record = next(iter_records(buffer, pos, header), None)
            marker = None if record is None else parse_control(record)
            if isinstance(marker, EndTxn) and not marker.commit:
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting


class RecordStream:
    """The records of one fetched buffer from its position on."""

    def __init__(
        self,
        batches: FetchedBatches,
        *,
        isolation: IsolationLevel,
        check_crcs: bool,
        key: Decode | None = None,
        value: Decode | None = None,
    ) -> None:
        self.batches = batches
        self.leader_epoch = -1
        self.is_exhausted = False
        """Whether `take` has reached the end of the buffer."""
        self._check_crcs = check_crcs
        self._key = key
        self._value = value
        self._aborted = AbortedBatchFinder(batches.aborted) if isolation is IsolationLevel.READ_COMMITTED else None
        self._next_pos = 0
        """The byte at which the next batch begins. A batch that cannot be read stays the next one."""
        self._rows: list[ConsumerRecord[Any, Any]] = []
        self._at = 0

    def take(self, limit: int) -> list[ConsumerRecord[Any, Any]]:
        """At most `limit` more records; fewer when the buffer is exhausted, or before one that cannot be read.

        Raises CorruptBatchError or SerializationError, at every call, if the first one cannot be read.
        """
        taken: list[ConsumerRecord[Any, Any]] = []
        while len(taken) < limit:
            try:
                if self._at >= len(self._rows) and not self._next_batch():
                    self.is_exhausted = True
                    break
            except CorruptBatchError:
                if taken:
                    break  # these records come first; the next call raises
                raise
            at = self._at
            part = self._rows[at : at + limit - len(taken)]
            wanted = len(part)
            if self._key is not None or self._value is not None:
                part = self._decode(part, first=not taken)
            self._at = at + len(part)
            taken = taken + part if taken else part
            if len(part) < wanted:
                break
        return taken

    def _next_batch(self) -> bool:
        """Read the next batch that has records. Returns False at the end."""
        buffer, start, partition = self.batches.buffer, self.batches.position, self.batches.partition
        for pos, header in iter_batches(buffer, self._next_pos):
            rows: list[ConsumerRecord[Any, Any]] = []
            if not (self._aborted is not None and self._aborted.hides(buffer, pos, header)) and not (
                header.is_control or header.last_offset < start
            ):
                try:
                    if self._check_crcs:
                        check_crc(buffer, pos, header)
                    rows = read_rows(buffer, pos, header, ConsumerRecord, partition.topic, partition.partition)
                except CorruptBatchError as error:
                    raise type(error)(
                        f"The records of {partition} from offset {header.base_offset} on cannot be read: {error} To"
                        f" skip them, seek to {header.last_offset + 1}."
                    ) from error
                if header.base_offset < start:
                    rows = [record for record in rows if record.offset >= start]
            self._next_pos = pos + header.size
            if rows:
                self._rows, self._at = rows, 0
                self.leader_epoch = header.partition_leader_epoch
                return True
        return False

    def _decode(self, part: list[ConsumerRecord[Any, Any]], *, first: bool) -> list[ConsumerRecord[Any, Any]]:
        """Deserialize records, up to the first that fails. Raises the error if the first record fails."""
        key, value = self._key, self._value
        decoded: list[ConsumerRecord[Any, Any]] = []
        for record in part:
            topic, headers = record.topic, record.headers
            try:
                new_key = record.key if key is None else key(topic, headers, record.key)
                new_value = record.value if value is None else value(topic, headers, record.value)
            except SerializationError as error:
                if decoded or not first:
                    break
                if isinstance(error, NotReadyError):
                    raise error.at(f"The record at offset {record.offset} of {record.topic_partition}") from None
                raise SerializationError(
                    f"The record at offset {record.offset} of {record.topic_partition}: {error} To skip it,"
                    f" seek to {record.offset + 1}."
                ) from error
            decoded.append(record._replace(key=new_key, value=new_value))
        return decoded
