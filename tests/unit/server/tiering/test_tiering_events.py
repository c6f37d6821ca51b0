"""The events of remote segments: read from the start, written, and come back in the topic's order.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from barnabas.server.tiering.errors import RemoteStorageError
from barnabas.server.tiering.events import RemoteEvents
from barnabas.server.tiering.ports import EventBatch
from barnabas.server.tiering.records import encode_event, metadata_partition
from barnabas.server.tiering.values import PartitionDeleteState, RemotePartition, RemotePartitionDelete
from tests.unit.server.tiering.house import run
from tests.unit.server.tiering.segments import DELETED, DELETING, FINISHED, PARTITION, segment

COUNT = 4
MINE = metadata_partition(PARTITION, COUNT)


class Topic:
    """A topic in memory, which several brokers use."""

    def __init__(self) -> None:
        self.records: dict[int, list[bytes]] = {number: [] for number in range(COUNT)}
        self.read_partitions: set[int] = set()
        self.fails = 0
        self.silent = False

    def _maybe_fail(self) -> None:
        if self.fails:
            self.fails -= 1
            raise RemoteStorageError("There is no leader.")

    async def partition_count(self) -> int:
        self._maybe_fail()
        return COUNT

    async def append(self, partition: int, value: bytes) -> int:
        await asyncio.sleep(0.01)
        self._maybe_fail()
        self.records[partition].append(value)
        await asyncio.sleep(0.01)
        return len(self.records[partition]) - 1

    async def read(self, partition: int, offset: int, *, wait: bool) -> EventBatch:
        self.read_partitions.add(partition)
        await asyncio.sleep(0.005)
        self._maybe_fail()
        records = self.records[partition]
        if self.silent or len(records) == offset:
            await asyncio.sleep(0.5)
        if self.silent:
            return EventBatch((), offset, len(records))
        start = max(offset - 1, 0)  # the batch begins below
        end = min(start + 3, len(records))
        return EventBatch(tuple(enumerate(records[start:end], start)), end, len(records))


@contextlib.asynccontextmanager
async def broker(topic: Topic, *partitions: RemotePartition) -> AsyncIterator[RemoteEvents]:
    events = RemoteEvents(topic, random.Random(1))
    running = asyncio.ensure_future(events.run())
    events.follow(partitions or (PARTITION,))
    try:
        yield events
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def ready(events: RemoteEvents, partition: RemotePartition = PARTITION) -> None:
    for _ in range(1_000):
        with contextlib.suppress(RemoteStorageError):
            events.remote_log(partition)
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the events were not read")


def test_the_state_is_known_only_after_all_earlier_events_were_read() -> None:
    topic = Topic()
    segments = [segment(number, 10 * number, 10 * number + 9) for number in range(5)]
    topic.records[MINE] = [encode_event(e) for each in segments for e in (each, each.update(FINISHED, 1, 0))]

    async def main() -> None:
        async with broker(topic) as events:
            with pytest.raises(RemoteStorageError, match="not known yet"):
                events.remote_log(PARTITION)
            await ready(events)
            assert [s.start_offset for s in events.remote_log(PARTITION).readable_segments()] == [0, 10, 20, 30, 40]
            assert topic.read_partitions == {MINE}

    run(main)


def test_an_event_that_was_written_has_been_applied() -> None:
    topic = Topic()

    async def main() -> None:
        async with broker(topic) as events, broker(topic) as other:
            await ready(events)
            await ready(other)
            one = segment(1, 0, 9)
            assert await events.write(one)
            assert await events.write(one.update(FINISHED, 1, 0))
            assert events.remote_log(PARTITION).find(0, 5) is not None
            await asyncio.sleep(1)
            assert other.remote_log(PARTITION).segments() == events.remote_log(PARTITION).segments()

    run(main)


def test_of_two_brokers_that_write_the_order_of_the_topic_decides() -> None:
    topic = Topic()

    async def main() -> None:
        async with broker(topic) as old, broker(topic) as new:
            await ready(old)
            await ready(new)
            one = segment(1, 0, 9)
            assert await old.write(one)
            assert await new.write(one.update(DELETING, 2, 0))
            assert not await old.write(one.update(FINISHED, 1, 0))
            assert await new.write(one.update(DELETED, 2, 0))
            await asyncio.sleep(1)
            assert old.remote_log(PARTITION).segments() == new.remote_log(PARTITION).segments() == []

    run(main)


def test_a_topic_that_fails_is_read_on_later() -> None:
    topic = Topic()
    topic.fails = 5

    async def main() -> None:
        async with broker(topic) as events:
            await ready(events)
            topic.fails = 1
            with pytest.raises(RemoteStorageError, match="no leader"):
                for number in range(3):
                    await events.write(segment(number, 0, 9))
            assert await events.write(segment(7, 0, 9))

    run(main)


def test_an_event_that_does_not_come_back_is_an_error() -> None:
    topic = Topic()

    async def main() -> None:
        async with broker(topic) as events:
            await ready(events)
            topic.silent = True
            with pytest.raises(RemoteStorageError, match="has not come back for 60 s"):
                await events.write(segment(1, 0, 9))

    run(main)


def test_a_record_that_cannot_be_read_is_skipped() -> None:
    topic = Topic()
    one = segment(1, 0, 9)
    topic.records[MINE] = [encode_event(one), b"damaged", encode_event(one.update(FINISHED, 1, 0))]

    async def main() -> None:
        async with broker(topic) as events:
            await ready(events)
            assert events.remote_log(PARTITION).find(0, 5) is not None

    run(main)


def test_partitions_that_are_not_hosted_any_more_are_not_read() -> None:
    topic = Topic()
    other = next(
        partition
        for number in range(100)
        if metadata_partition(partition := RemotePartition(UUID(int=7), number, "u"), COUNT) != MINE
    )

    async def main() -> None:
        async with broker(topic, PARTITION, other) as events:
            await ready(events)
            await ready(events, other)
            events.follow([other])
            await asyncio.sleep(1)
            with pytest.raises(RemoteStorageError):
                events.remote_log(PARTITION)
            with pytest.raises(RemoteStorageError, match="does not host it"):
                await events.write(segment(1, 0, 9))
            topic.read_partitions.clear()
            await asyncio.sleep(5)
            assert topic.read_partitions == {metadata_partition(other, COUNT)}

    run(main)


def test_a_partition_that_was_deleted_is_forgotten() -> None:
    topic = Topic()

    async def main() -> None:
        async with broker(topic) as events:
            await ready(events)
            for state in PartitionDeleteState:
                assert await events.write(RemotePartitionDelete(PARTITION, 1, 0, state))
            assert events.remote_log(PARTITION).delete_state is None

    run(main)
