"""Shell: compares the record batches of mirrors with those of the source, byte for byte, while both clusters run.

Both logs are read from the later log start offset to the earlier high watermark, as they were when the comparison of
the partition began. Where compaction has rewritten the log of the source since, the bytes differ although no record is
missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass

from barnabas.client.admin import AsyncAdmin
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.values import EARLIEST, LATEST, FetchedBatches
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result for one partition. `differs_at` is the first offset at which the logs differ, or None."""

    partition: TopicPartition
    start: int
    end: int
    batches: int
    size_bytes: int
    missing: int
    """Records of the source that the mirror does not have yet."""
    differs_at: int | None = None
    error: str = ""

    @property
    def is_equal(self) -> bool:
        return self.differs_at is None and not self.error


async def verify(
    source: AsyncAdmin, mirror: AsyncAdmin, partitions: Sequence[TopicPartition], limit: int | None = None
) -> AsyncIterator[Comparison]:
    """Compare partitions one after the other; with `limit`, only the last records of each."""
    for partition in partitions:
        try:
            yield await _verify(source, mirror, partition, limit)
        except KafkaError as error:
            yield Comparison(partition, -1, -1, 0, 0, -1, error=str(error))


async def _verify(source: AsyncAdmin, mirror: AsyncAdmin, partition: TopicPartition, limit: int | None) -> Comparison:
    there, here = await bounds_of(source, partition), await bounds_of(mirror, partition)
    start, end = max(there[0], here[0]), min(there[1], here[1])
    if limit is not None:
        start = max(start, end - limit)
    missing = max(there[1] - here[1], 0)
    if start >= end:
        return Comparison(partition, start, end, 0, 0, missing)
    theirs, ours = batches_of(source, partition, start, end), batches_of(mirror, partition, start, end)
    return await compare(partition, start, end, missing, theirs, ours)


Batches = AsyncGenerator[tuple[int, bytes], None]
"""The batches of a partition: the base offset and the bytes of each."""


async def compare(
    partition: TopicPartition, start: int, end: int, missing: int, theirs: Batches, ours: Batches
) -> Comparison:
    """Compare the batches of the two sides from `start` to before `end`."""
    batches = size = 0
    try:
        while True:
            expected, found = await anext(theirs, None), await anext(ours, None)
            if expected is None and found is None:
                return Comparison(partition, start, end, batches, size, missing)
            if expected is None or found is None or expected[1] != found[1]:
                at = min(batch[0] for batch in (expected, found) if batch is not None)
                return Comparison(partition, start, end, batches, size, missing, differs_at=at)
            batches += 1
            size += len(found[1])
    finally:
        await theirs.aclose()
        await ours.aclose()


async def bounds_of(admin: AsyncAdmin, partition: TopicPartition) -> tuple[int, int]:
    """The log start offset and the high watermark. Raises KafkaError."""
    bounds = []
    for special in (EARLIEST, LATEST):
        found = (await admin.list_offsets({partition: special}))[partition]
        if isinstance(found, KafkaError):
            raise found
        bounds.append(found.offset)
    return bounds[0], bounds[1]


async def batches_of(admin: AsyncAdmin, partition: TopicPartition, start: int, end: int) -> Batches:
    """Each batch that ends in the range: its base offset and its bytes."""
    fetched: FetchedBatches
    async for fetched in PartitionReader(admin.cluster).batches([OffsetRange(partition, start, end)]):
        view = memoryview(fetched.buffer)
        for position, header in iter_batches(view):
            if header.next_offset <= fetched.position or header.next_offset > end:
                continue
            yield header.base_offset, bytes(view[position : position + header.size])
