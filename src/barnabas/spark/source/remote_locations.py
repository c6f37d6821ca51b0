"""Shell: runs on the driver: finds the remote segments of ranges that begin below the leaders' local logs (KIP-405).

The topic `__remote_log_metadata` says which copies there are. A copy counts only if the leader's log has the leader
epoch of the copy's last record at that offset: then both have the same records (KIP-101). After an unclean election,
the copies of an earlier leader may have others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from barnabas.client.offsets import list_offsets
from barnabas.client.partition_reader import OffsetRange
from barnabas.client.values import EARLIEST, EARLIEST_LOCAL, LATEST
from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.core.ids import NO_TOPIC_ID, REMOTE_LOG_METADATA_TOPIC, TopicPartition
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.wire.remote_log_metadata import decode_metadata, metadata_partition
from barnabas.protocol.wire.schema import Message
from barnabas.spark.connection import LogClient
from barnabas.spark.source.leader_epochs import epoch_ends
from barnabas.spark.source.planner import PartitionRange
from barnabas.spark.source.remote_plan import RemoteCopies, RemoteCopy, cover, fold_segments

log = logging.getLogger("barnabas.spark")


def locate_remote(
    client: LogClient, ranges: Sequence[PartitionRange], stall_timeout_ms: float
) -> dict[TopicPartition, RemoteCopies]:
    """The remote segments of each range that begins below its leader's local log. Without any, or if they cannot be
    found, the broker reads them."""
    try:
        return _locate(client, ranges, stall_timeout_ms)
    except BarnabasError as error:
        log.warning("segments.store: remote records are read through the brokers: %s", error)
        return {}


def _locate(
    client: LogClient, ranges: Sequence[PartitionRange], stall_timeout_ms: float
) -> dict[TopicPartition, RemoteCopies]:
    cluster = client.cluster
    starts = client.run(list_offsets(cluster, dict.fromkeys((r.tp for r in ranges), EARLIEST_LOCAL)))
    local: dict[TopicPartition, int] = {}
    for tp, answer in starts.items():
        if not isinstance(answer, KafkaError):
            local[tp] = answer.offset
    below = [r for r in ranges if r.start < local.get(r.tp, 0)]
    if not below:
        return {}
    views = client.run(cluster.topics([*sorted({r.tp.topic for r in below}), REMOTE_LOG_METADATA_TOPIC]))
    count = len(views[REMOTE_LOG_METADATA_TOPIC].partitions)
    if not count:
        log.warning("segments.store: the topic %s cannot be read", REMOTE_LOG_METADATA_TOPIC)
        return {}
    by_number: dict[int, list[tuple[PartitionRange, UUID]]] = {}
    for wanted in below:
        topic_id = views[wanted.tp.topic].topic_id
        if topic_id != NO_TOPIC_ID:
            number = metadata_partition(topic_id, wanted.tp.partition, count)
            by_number.setdefault(number, []).append((wanted, topic_id))
    copies: dict[TopicPartition, Sequence[RemoteCopy]] = {}
    for number, some in sorted(by_number.items()):
        messages = list(_messages(client, TopicPartition(REMOTE_LOG_METADATA_TOPIC, number), stall_timeout_ms))
        for wanted, topic_id in some:
            copies[wanted.tp] = fold_segments(messages, topic_id, wanted.tp.partition)
    same = _with_the_leaders_records(client, copies)
    found = {r.tp: RemoteCopies(cover(same[r.tp], r.start, local[r.tp]), local[r.tp]) for r in below if r.tp in same}
    return {tp: remote for tp, remote in found.items() if remote.copies}


def _messages(client: LogClient, tp: TopicPartition, stall_timeout_ms: float) -> Iterator[Message]:
    """The records of one partition of `__remote_log_metadata`. Raises KafkaError and WireError."""
    bounds = {name: client.list_offsets({tp: name})[tp] for name in (EARLIEST, LATEST)}
    if bounds[EARLIEST] >= bounds[LATEST]:
        return
    for fetched in client.fetch(OffsetRange(tp, bounds[EARLIEST], bounds[LATEST]), stall_timeout_ms=stall_timeout_ms):
        for position, header in iter_batches(fetched.buffer):
            if not header.is_control:
                for record in iter_records(fetched.buffer, position, header):
                    yield decode_metadata(record.value or b"")


def _with_the_leaders_records(
    client: LogClient, copies: Mapping[TopicPartition, Sequence[RemoteCopy]]
) -> dict[TopicPartition, list[RemoteCopy]]:
    """The copies with the records that the leaders have."""
    left = {tp: sorted({copy.last_epoch for copy in found}) for tp, found in copies.items()}
    ends: dict[tuple[TopicPartition, int], int] = {}
    while asked := {tp: epochs.pop() for tp, epochs in left.items() if epochs}:
        for tp, answer in client.run(epoch_ends(client.cluster, asked)).items():
            if not isinstance(answer, KafkaError) and answer[0] == asked[tp]:
                ends[tp, asked[tp]] = answer[1]
    return {
        tp: [copy for copy in found if copy.end <= ends.get((tp, copy.last_epoch), -1)] for tp, found in copies.items()
    }
