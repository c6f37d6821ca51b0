"""Machine: how many bytes to request of a partition for the rest of an offset range.

A fetch with a fixed limit brings records behind the end of a short range, which the reader drops and the next range
fetches again. The average size of an offset, known from earlier fetches of the partition, gives a limit that covers the
range and little more. A limit that is too small costs another fetch: the broker returns at least one whole batch.
"""

from __future__ import annotations

from typing import Final

from barnabas.client.values import FetchedBatches
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches

ASSUMED_BYTES_PER_OFFSET: Final = 1_024.0
"""The size of an offset of a partition that has not been fetched yet."""
MARGIN: Final = 1.25
"""The limit covers the estimate times this, because records differ in size."""
SPARE_BYTES: Final = 64 * 1024
"""Added to each limit: a range may begin in the middle of a batch."""
PARTITIONS_MAX: Final = 10_000
"""The number of partitions whose sizes are kept."""


class FetchSizes:
    """The average size of an offset in each partition, and the limits that follow from it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_per_offset: dict[TopicPartition, float] = {}

    def limit(self, partition: TopicPartition, offsets: int) -> int:
        """The number of bytes to request for so many offsets, at most `bytes_max`."""
        estimate = offsets * self._bytes_per_offset.get(partition, ASSUMED_BYTES_PER_OFFSET)
        return min(int(estimate * MARGIN) + SPARE_BYTES, self._bytes_max)

    def learn(self, fetched: FetchedBatches) -> None:
        """Note the average size of an offset in a fetch. A fetch without a whole batch has none."""
        first = next(iter_batches(fetched.buffer), None)
        if first is None:
            return
        if len(self._bytes_per_offset) >= PARTITIONS_MAX:
            self._bytes_per_offset.clear()
        # The first batch may begin long before the position, so the average counts from its base offset.
        offsets = max(fetched.end - first[1].base_offset, 1)
        self._bytes_per_offset[fetched.partition] = len(fetched.buffer) / offsets
