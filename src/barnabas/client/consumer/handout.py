"""Machine: returns fetched buffers to the user, as records or whole, and advances the positions."""

from __future__ import annotations

from typing import Any

from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.record_stream import RecordStream
from barnabas.client.consumer.subscription import SubscriptionState
from barnabas.client.errors import SerializationError
from barnabas.client.serialization import Decode
from barnabas.client.values import ConsumerRecord, FetchedBatches, IsolationLevel
from barnabas.core.ids import TopicPartition


class Handout:
    """Takes buffers from the fetcher for the user. At most one buffer is partly read."""

    def __init__(
        self,
        fetcher: Fetcher,
        subscription: SubscriptionState,
        *,
        isolation: IsolationLevel,
        check_crcs: bool,
        key: Decode | None,
        value: Decode | None,
    ) -> None:
        self._fetcher = fetcher
        self._subscription = subscription
        self._isolation = isolation
        self._check_crcs = check_crcs
        self._key = key
        self._value = value
        self._stream: RecordStream | None = None
        self._expected = 0
        """The position in the partly read buffer. If the partition's position differs, the user has called seek."""

    def records(self, limit: int) -> list[ConsumerRecord[Any, Any]]:
        """Up to `limit` records that have arrived. Raises the error that stopped fetching if there are none."""
        records: list[ConsumerRecord[Any, Any]] = []
        while len(records) < limit:
            if records and self._fetcher.error is not None:
                break  # return the records now, and raise the error at the next call
            stream = self._current()
            if stream is None:
                break
            try:
                part = stream.take(limit - len(records))
            except SerializationError:
                if records:
                    break  # return these first; the next call raises
                raise
            records += part
            if stream.is_exhausted:
                self._stream = None
                self._finish(stream.batches)
            elif part:
                self._expected = part[-1].offset + 1
                self._advance(stream.batches.partition, self._expected, stream.leader_epoch)
                if len(records) < limit:
                    break  # before a record that cannot be deserialized
        return records

    def buffer(self) -> FetchedBatches | None:
        """A whole buffer, or the rest of a partly read one; None if none has arrived. Call `finish_buffer` when the
        user has the buffer. Raises the error that stopped fetching."""
        if self._stream is not None:
            self._set_aside()
        return self._fetcher.take()

    def finish_buffer(self, batches: FetchedBatches) -> None:
        """Advance the position past a buffer that the user has got from `buffer`."""
        self._finish(batches)

    def _current(self) -> RecordStream | None:
        stream = self._stream
        if stream is not None:
            state = self._subscription.partitions.get(stream.batches.partition)
            if state is not None and state.position == self._expected and state.fetchable:
                return stream
            self._set_aside()
        batches = self._fetcher.take()
        if batches is None:
            return None
        self._expected = batches.position
        self._stream = RecordStream(
            batches, isolation=self._isolation, check_crcs=self._check_crcs, key=self._key, value=self._value
        )
        return self._stream

    def _set_aside(self) -> None:
        """Give the partly read buffer back to the fetcher, for a partition that is paused or for `buffer`; drop it if
        the position has changed or the partition was revoked."""
        stream, self._stream = self._stream, None
        assert stream is not None
        state = self._subscription.partitions.get(stream.batches.partition)
        if state is not None and state.position == self._expected:
            self._fetcher.put_back(stream.batches, self._expected)
        else:
            self._fetcher.release(stream.batches.partition)

    def _finish(self, batches: FetchedBatches) -> None:
        self._advance(batches.partition, batches.end, batches.end_epoch)
        self._fetcher.release(batches.partition)

    def _advance(self, partition: TopicPartition, position: int, leader_epoch: int) -> None:
        state = self._subscription.partitions.get(partition)
        if state is not None:
            state.position = position
            if leader_epoch >= 0:
                state.leader_epoch = leader_epoch
