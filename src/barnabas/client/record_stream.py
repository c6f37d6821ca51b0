"""Codec: fetched batches as `ConsumerRecord`s, a few at a time, without markers and, if asked, aborted records."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop
from itertools import islice
from typing import Any

from barnabas.client.serialization import Decode
from barnabas.client.values import ConsumerRecord, FetchedBatches, IsolationLevel
from barnabas.core.buffers import Buffer
from barnabas.records.batch import BatchHeader, check_crc, iter_batches, iter_records
from barnabas.records.control import EndTxn, parse_control


class AbortedFilter:
    """Which batches of a buffer belong to aborted transactions (the consumer's side of KIP-98).

    `aborted` are (producer id, first offset); a transaction ends at its abort marker.
    """

    def __init__(self, aborted: tuple[tuple[int, int], ...]) -> None:
        self._upcoming = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._upcoming)
        self._aborting: set[int] = set()

    def hides(self, buffer: Buffer, pos: int, header: BatchHeader) -> bool:
        """Ask for every batch in order."""
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
        self._isolation = isolation
        self._check_crcs = check_crcs
        self._key = key
        self._value = value
        self._records: Iterator[ConsumerRecord[Any, Any]] = self._iterate()

    def take(self, limit: int) -> list[ConsumerRecord[Any, Any]]:
        """At most `limit` more records; fewer only when the buffer is used up."""
        return list(islice(self._records, limit))

    def _iterate(self) -> Iterator[ConsumerRecord[Any, Any]]:
        batches = self.batches
        buffer, start = batches.buffer, batches.position
        topic, partition = batches.partition.topic, batches.partition.partition
        decode_key, decode_value = self._key, self._value
        committed = self._isolation is IsolationLevel.READ_COMMITTED
        aborted = AbortedFilter(batches.aborted) if committed else None
        for pos, header in iter_batches(buffer):
            if aborted is not None and aborted.hides(buffer, pos, header):
                continue
            if header.is_control or header.last_offset < start:
                continue
            if self._check_crcs:
                check_crc(buffer, pos, header)
            timestamp_type = int(header.timestamp_type)
            self.leader_epoch = epoch = header.partition_leader_epoch
            for offset, timestamp, key, value, headers in iter_records(buffer, pos, header):
                if offset < start:
                    continue
                yield ConsumerRecord(
                    topic,
                    partition,
                    offset,
                    timestamp,
                    timestamp_type,
                    key if decode_key is None else decode_key(topic, headers, key),
                    value if decode_value is None else decode_value(topic, headers, value),
                    headers,
                    epoch,
                )
