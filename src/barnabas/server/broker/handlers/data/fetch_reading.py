"""Shell: the reading of one Fetch: pass after pass over its partitions, until there is enough to say.

Without a session every pass reads all of them. A session reads what is on its list (`fetch_sessions.py`), and takes off
it what has been read to the end: a thousand partitions at rest cost nothing (`replication/session_watch.py`).
"""

from __future__ import annotations

import asyncio
from typing import Self, cast

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.fetch import AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData
from barnabas.server.broker.fetch_sessions import FetchContext, PartitionKey, Wanted
from barnabas.server.broker.handlers.data.fetch_readers import Reader
from barnabas.server.broker.services import Services
from barnabas.server.replication.partition import Partition, PartitionRead
from barnabas.server.replication.purgatory import Purgatory, wait_for_bytes
from barnabas.server.replication.session_watch import SessionWatch

_BREATH = 2048
"""Partitions read before other requests may run."""
_NOT_READ = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Errors that Kafka finds before it reads: their empty list of aborted transactions is not null."""
_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Reading:
    """What has been read so far."""

    def __init__(self, services: Services, context: FetchContext, reader: Reader, limit: int) -> None:
        self.answers: dict[PartitionKey, PartitionData] = {}
        self.size = 0
        """Bytes of records in the latest pass. What has some is read by every pass."""
        self.ready = False
        """Something other than bytes demands an answer now."""
        self._services = services
        self._context = context
        self._reader = reader
        self.limit = limit
        self._session = _watch_of(services, context, reader)
        self._watches: list[Purgatory] = []

    async def run(self) -> None:
        """One pass, in order, until the limit is used up; what comes after it gets no bytes, but a watermark."""
        self.size = 0
        self.ready = self._session is not None and self._session.closed
        self._watches = []
        self._reader.begin()
        partitions = self._services.partitions
        if self._session is not None:
            self._session.begin()
        for count, (key, want) in enumerate(self._context.to_read(), 1):
            if count % _BREATH == 0:
                await asyncio.sleep(0)
            topic, index = key
            name = topic if isinstance(topic, str) else partitions.topic_name(topic)
            try:
                if name is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                self.answers[key] = await self._read(partitions.require(name, index), key, want)
            except KafkaError as error:
                self.ready = True
                self.answers[key] = _failed(self._services, name, index, error.code)

    def __enter__(self) -> Self:
        if self._session is not None:
            self._session.asking += 1
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.asking -= 1

    async def wait(self, missing: int, deadline: float) -> None:
        """Until about `missing` more bytes may be read, or until the deadline (of the loop's clock)."""
        if self._session is not None:
            await self._session.wait(missing, deadline)
        else:
            await wait_for_bytes(self._watches, missing, deadline)

    async def _read(self, partition: Partition, key: PartitionKey, want: Wanted) -> PartitionData:
        reader, room = self._reader, self.limit - self.size
        result = reader.read(
            partition, want, min(want.max_bytes, room) if room > 0 else 0, min_one_batch=self.size == 0
        )
        session = self._session
        if session is None:
            self._watches.append(reader.watch(partition))
        elif self._context.has(key, want):  # or another request of the session has changed that meanwhile
            session.watch(key, reader.watch(partition), reader.at_rest(partition))
            if reader.is_settled(partition, want, result):
                session.settle(key)
        if result.pending is not None:  # not in the page cache: the loop must not wait for the disk
            result = await partition.read_from_disk(result, self._services.disk)
        if result.diverging is not None or result.preferred_read_replica >= 0:
            self.ready = True
        size = len(result.data)
        if size:
            reader.took(size)
            self.size += size
        return _answer(key[1], result)


def _watch_of(services: Services, context: FetchContext, reader: Reader) -> SessionWatch[PartitionKey] | None:
    """The watch of the session, if there is one: it has just been heard of."""
    changed = context.changed
    if changed is None:
        return None
    if context.watch is None:
        context.watch = SessionWatch(changed)
    watch = cast("SessionWatch[PartitionKey]", context.watch)
    if reader.looks_at_all or watch.asked_as != reader.kind:
        context.look_at_all()
    if not reader.looks_at_all:
        watch.heard_ms = services.partitions.host.now_ms()
    watch.asked_as = reader.kind
    return watch


def _answer(index: int, result: PartitionRead) -> PartitionData:
    answer = PartitionData(
        partition_index=index,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=result.preferred_read_replica,
        records=result.data,
    )
    if result.aborted is not None:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in result.aborted
        ]
    if result.diverging is not None:
        answer.diverging_epoch = EpochEndOffset(
            epoch=result.diverging.leader_epoch, end_offset=result.diverging.end_offset
        )
    return answer


def _failed(services: Services, name: str | None, index: int, code: ErrorCode) -> PartitionData:
    answer = PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=[] if code in _NOT_READ else None,
        records=b"",
    )
    if code in _LEADER_MOVED and name is not None:
        state = services.metadata.image.topics.partition(name, index)
        if state is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
    return answer
