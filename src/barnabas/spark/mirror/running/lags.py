"""Shell: the lag of pairs, from the positions in the target clusters, whether a mirror runs or not."""

from __future__ import annotations

from barnabas.client.offsets import list_offsets
from barnabas.client.values import EARLIEST, LATEST, IsolationLevel, OffsetAndTimestamp
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.config.values import PairConfig
from barnabas.spark.mirror.deciding.lag import MirrorLag
from barnabas.spark.mirror.deciding.watching import MirrorLoss, find_losses
from barnabas.spark.mirror.running.administration import see_topics
from barnabas.spark.mirror.running.clusters import PairClients
from barnabas.spark.mirror.running.internal_topics import read_positions


async def read_lags(config: PairConfig, now_ms: int) -> tuple[list[MirrorLag], list[MirrorLoss]]:
    """The lag of each source partition that is to be copied, and what is lost already. The bytes of a lag are unknown;
    the seconds are the age of the oldest record that is not copied. Raises KafkaError."""
    async with PairClients(config) as clients:
        selection = config.selection
        names = [topic.name for topic in await clients.source.admin.list_topics()]
        topics = await see_topics(clients.source.admin, [name for name in names if selection.selects(name)])
        partitions = [
            TopicPartition(name, index) for name, topic in topics.items() for index in range(topic.partitions)
        ]
        known = await read_positions(config, clients.target.admin)
        starts = await _offsets(clients, dict.fromkeys(partitions, EARLIEST))
        ends = await _offsets(clients, dict.fromkeys(partitions, LATEST))
        if config.source_clients.consumer["auto.offset.reset"].lower() != "latest":
            firsts = {tp: found.offset for tp, found in starts.items()}  # where a copier begins
        else:
            firsts = {}  # at the end of that moment, which nothing knows now
        positions = firsts | known
        behind = [tp for tp in starts if tp in ends and positions.get(tp, ends[tp].offset) < ends[tp].offset]
        ages = await _ages_ms(clients, {tp: max(positions[tp], starts[tp].offset) for tp in behind}, now_ms)
        lags = [
            _lag(tp, positions.get(tp), ends[tp].offset if tp in ends else None, ages.get(tp))
            for tp in sorted(partitions)
        ]
        log_starts = {tp: found.offset for tp, found in starts.items()}
        log_ends = {tp: found.offset for tp, found in ends.items()}
        return lags, find_losses({tp: known[tp] for tp in partitions if tp in known}, log_starts, log_ends)


def _lag(partition: TopicPartition, position: int | None, end: int | None, age_ms: int | None) -> MirrorLag:
    """The lag of a partition. `age_ms` is the age of the record at the position, if there is one that can be read."""
    if position is None or end is None:
        return MirrorLag(partition, position, end, None, None, None)
    behind = max(0, end - position)
    if not behind:
        return MirrorLag(partition, position, end, 0, 0, 0.0)
    return MirrorLag(partition, position, end, behind, None, None if age_ms is None else max(0.0, age_ms / 1000))


async def _offsets(clients: PairClients, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
    found = await list_offsets(clients.source.cluster, wanted, isolation=IsolationLevel.READ_COMMITTED)
    return {tp: answer for tp, answer in found.items() if not isinstance(answer, KafkaError)}


async def _ages_ms(
    clients: PairClients, positions: dict[TopicPartition, int], now_ms: int
) -> dict[TopicPartition, int]:
    """How long ago the record at each position was written."""
    from barnabas.client.consumer.record_stream import RecordStream
    from barnabas.client.partition_reader import OffsetRange, PartitionReader

    ages: dict[TopicPartition, int] = {}
    ranges = [OffsetRange(tp, position, position + 1) for tp, position in positions.items()]
    async for batches in PartitionReader(clients.source.cluster).batches(ranges):
        stream = RecordStream(batches, isolation=IsolationLevel.READ_UNCOMMITTED, check_crcs=False)
        for record in stream.take(1):
            ages.setdefault(batches.partition, now_ms - record.timestamp)
    return ages
