"""Programs of producers without transactions.

The rules: a record whose `send` has returned is written exactly once when `flush` or `close` has returned; a record
whose `send` was interrupted is written at most once. The same holds for the columns of `send_arrow` and the batches of
`send_batches`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow

from barnabas.client.errors import ClientClosedError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from tests.system.client.interrupted.attempts import Call, Interrupted
from tests.system.client.interrupted.world import PARTITIONS, World

CALLS = 60
"""The number of calls of one program."""


class Writer:
    """One program: a producer, and what is known of its records."""

    def __init__(self, world: World, producer: Any, name: str) -> None:
        self.world = world
        self.attempts = world.attempts
        self.rng = world.rng
        self.producer = producer
        self.name = name
        self.count = 0
        self.sent: dict[bytes, Any] = {}
        """The futures of the records whose `send` has returned."""
        self.maybe: set[bytes] = set()
        """The records whose `send` was interrupted, or that were not flushed before an interrupted `close`."""

    def _record(self) -> tuple[bytes, int]:
        self.count += 1
        value = b"%s:%d:" % (self.name.encode(), self.count)
        return value + bytes(self.rng.randrange(200)), self.rng.randrange(PARTITIONS)

    async def send(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            value, partition = self._record()
            self.maybe.add(value)
            future = await self.attempts.attempt(
                "send", lambda value=value, at=partition: self.producer.send(self.world.written, value, partition=at)
            )
            self.maybe.discard(value)
            self.sent[value] = future

    async def send_and_wait(self) -> None:
        value, partition = self._record()
        await self._write(
            "send_and_wait",
            [value],
            lambda: self.producer.send_and_wait(self.world.written, value, partition=partition),
        )

    async def send_arrow(self) -> None:
        """Columns are written when the call returns; an interrupted call writes each of its records at most once."""
        values, places = zip(*(self._record() for _ in range(self.rng.randrange(1, 6))), strict=True)
        table = pyarrow.table({"value": pyarrow.array(values, pyarrow.binary()), "at": places})
        await self._write(
            "send_arrow", values, lambda: self.producer.send_arrow(self.world.written, table, partition="at")
        )

    async def send_batches(self) -> None:
        """`send_arrow`, with batches that are encoded already."""
        values = [self._record()[0] for _ in range(self.rng.randrange(1, 6))]
        batches = [(build_batch([SimpleRecord(None, value, 1, ())]), 1) for value in values]
        partition = self.rng.randrange(PARTITIONS)
        await self._write(
            "send_batches", values, lambda: self.producer.send_batches(self.world.written, partition, batches)
        )

    async def _write(self, name: str, values: Iterable[bytes], call: Call) -> None:
        self.maybe.update(values)
        await self.attempts.attempt(name, call)
        self.maybe.difference_update(values)
        self.sent.update(dict.fromkeys(values))

    async def flush(self) -> None:
        await self.attempts.attempt("flush", lambda: self.producer.flush())

    async def result(self) -> None:
        future = self.sent[self.rng.choice(list(self.sent))] if self.sent else None
        if future is not None:
            await self.attempts.attempt("result", future.result if self.world.is_blocking else lambda: future)

    async def partitions_for(self) -> None:
        found = await self.attempts.attempt("partitions_for", lambda: self.producer.partitions_for(self.world.written))
        assert found == [TopicPartition(self.world.written, number) for number in range(PARTITIONS)]

    async def close(self) -> None:
        if self.rng.random() < 0.5:
            await self.attempts.repeated("flush", lambda: self.producer.flush())
            await self.attempts.tried("close", lambda: self.producer.close())
        elif not await self.attempts.tried("close", lambda: self.producer.close()) and self.world.is_blocking:
            self.maybe.update(self.sent)  # a call that was interrupted waits for a second
            self.sent.clear()
        await self.attempts.plain(lambda: self.producer.close())


async def write(world: World, written: list[Writer]) -> None:
    """One program: calls of all kinds, and an end."""
    producer = await world.producer(batch_size=500, buffer_memory=2_000, linger_ms=world.rng.choice([0, 2]))
    writer = Writer(world, producer, world.new_name())
    written.append(writer)
    sends = [writer.send, writer.send, writer.send_and_wait, writer.send_arrow, writer.send_batches]
    calls = [*sends, writer.flush, writer.result, writer.partitions_for]
    for _ in range(CALLS):
        with suppress(Interrupted):  # the model stands as it was
            await world.rng.choice(calls)()
    await writer.close()
    try:
        await world.attempts.plain(lambda: producer.send(world.written, b"late"))
    except ClientClosedError:
        return
    raise AssertionError("send after close")


async def check(world: World, written: list[Writer]) -> None:
    """Read everything that was written."""
    found = Counter(await read_values(world, world.written))
    for writer in written:
        for value in writer.sent:
            assert found[value] == 1, f"{value[:40]!r} was sent and is written {found[value]} times"
        for value in writer.maybe:
            assert found[value] <= 1, f"{value[:40]!r} is written {found[value]} times"


async def read_values(world: World, topic: str) -> list[bytes]:
    """The values that a read_committed consumer reads, when no transaction is open."""
    reader = await world.consumer(None, isolation_level="read_committed", max_poll_records=2_000)
    plain = world.attempts.plain
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    await plain(lambda: reader.assign(partitions))
    await plain(lambda: reader.seek_to_beginning())
    stable = await plain(lambda: reader.end_offsets(partitions))
    whole = {
        partition: described.offset
        for partition, described in (
            await plain(lambda: world.admin.list_offsets(dict.fromkeys(partitions, -1)))
        ).items()
    }
    assert stable == whole, f"a transaction is open: {stable}, {whole}"
    values: list[bytes] = []
    for partition in partitions:
        while await plain(lambda partition=partition: reader.position(partition)) < stable[partition]:
            values += [record.value for record in await plain(lambda: reader.poll(20))]
    await plain(lambda: reader.close())
    return values
