"""Shell: runs in a worker: reads one range of a partition as Arrow batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.client.errors import OffsetOutOfRangeError, TopicReplacedError
from barnabas.client.fetching import next_position
from barnabas.client.partition_reader import OffsetRange
from barnabas.client.values import FetchedBatches, IsolationLevel
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID, uuid_from_text, uuid_to_text
from barnabas.protocol.records.columnar import DecodeOptions, iter_arrow
from barnabas.protocol.records.columnar.segments import Selection
from barnabas.spark.connection import LogClient, connect
from barnabas.spark.options import OnDataLoss
from barnabas.spark.source.fetched import FetchedRange
from barnabas.spark.source.options import SourceOptions
from barnabas.spark.source.planner import Loss, LossKind, PartitionRange, check_losses
from barnabas.spark.source.remote_segments import read_remote
from barnabas.spark.source.segment_plan import NO_SEGMENTS, SegmentSources
from barnabas.spark.source.segments import read_segments

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("barnabas.spark")

ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 1024 * 1024
"""ROWS_PER_BATCH and BYTES_PER_BATCH are the approximate size of one batch. Spark has a fixed cost for each batch,
which would dominate with smaller batches; larger batches do not fit into the processor's caches.
"""


def read_range(
    options: SourceOptions, columns: tuple[str, ...], wanted: PartitionRange, sources: SegmentSources = NO_SEGMENTS
) -> Iterator[pa.RecordBatch]:
    """The records of a range. Raises DataLossError if the range is not in the log any more and `failOnDataLoss` is
    true.
    """
    for fetched in fetch_range(options, wanted, sources):
        bounds = OffsetRange(wanted.tp, fetched.bounds.start, fetched.bounds.end)
        yield from decode(fetched.batches, bounds, columns, check_crcs=fetched.check_crcs)


def fetch_range(
    options: SourceOptions, wanted: PartitionRange, sources: SegmentSources = NO_SEGMENTS
) -> Iterator[FetchedRange]:
    """The record batches of a range: from the object store and from closed segments in a directory, if `sources` names
    them, and from the partition's leader. Raises DataLossError as `read_range` does.
    """
    client = connect(options.client)
    if not check_topic(client, wanted, options.on_data_loss):
        return
    check_crcs = bool(client.settings["check.crcs"])
    position = wanted.start
    committed = client.isolation is IsolationLevel.READ_COMMITTED
    directory, remote = sources.directory, sources.remote
    if remote is not None and options.segments_store is not None:
        position = yield from read_remote(
            client, options.segments_store, remote, wanted, committed=committed, check_crcs=check_crcs
        )
    if directory is not None and position < wanted.end and (remote is None or position >= remote.local_start):
        left = PartitionRange(wanted.tp, position, wanted.end)
        position = yield from read_segments(directory, left, committed=committed, check_crcs=check_crcs)
    topic_id = uuid_from_text(wanted.topic_id) if wanted.topic_id else NO_TOPIC_ID
    while position < wanted.end:
        left = PartitionRange(wanted.tp, position, wanted.end)
        bounds = OffsetRange(wanted.tp, position, wanted.end, topic_id)
        try:
            for batches in client.fetch(bounds, stall_timeout_ms=options.stall_timeout_ms):
                yield FetchedRange(left, batches, check_crcs)
                position = next_position(batches.buffer, position)
            break
        except OffsetOutOfRangeError as error:
            position = resume_after_loss(error, PartitionRange(wanted.tp, position, wanted.end), options.on_data_loss)

    name = wanted.tp.topic
    if wanted.topic_id and client.topic_ids([name]).get(name, wanted.topic_id) != wanted.topic_id:
        # Records of the new topic may be among those that were read, so that Spark must not take any of them.
        loss = _replaced(client, wanted)
        check_losses([loss], options.on_data_loss)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{loss}, while a task read it; start the query again")


def check_topic(client: LogClient, wanted: PartitionRange, on_data_loss: OnDataLoss) -> bool:
    """Whether the topic is the one that the range was planned for. Raises DataLossError if it is not, and
    `failOnDataLoss` is true."""
    name = wanted.tp.topic
    if not wanted.topic_id or client.topic_ids([name]).get(name) == wanted.topic_id:
        return True
    if client.topic_ids([name], fresh=True).get(name, wanted.topic_id) == wanted.topic_id:
        return True
    loss = _replaced(client, wanted)
    check_losses([loss], on_data_loss)
    log.warning("data loss: %s", loss)
    return False


def _replaced(client: LogClient, wanted: PartitionRange) -> Loss:
    found = client.topic_ids([wanted.tp.topic]).get(wanted.tp.topic, "")
    return Loss(wanted.tp, LossKind.REPLACED, wanted.start, 0, wanted.size, (wanted.topic_id, found))


def decode(
    batches: FetchedBatches, bounds: OffsetRange, columns: tuple[str, ...], *, check_crcs: bool = True
) -> Iterator[pa.RecordBatch]:
    """The records in the range `bounds`, without transaction markers. Records of aborted transactions are left out if
    the batches were fetched with isolation.level=read_committed.
    """
    tp = bounds.partition
    selection = Selection(bounds.start, bounds.end, batches.aborted, check_crcs)
    wanted = DecodeOptions(tp.topic, tp.partition, columns, selection, ROWS_PER_BATCH, BYTES_PER_BATCH)
    return iter_arrow([batches.buffer], wanted)


def resume_after_loss(error: OffsetOutOfRangeError, left: PartitionRange, on_data_loss: OnDataLoss) -> int:
    """The offset at which to continue after records were deleted between planning and reading; `left.end` if no records
    are left.
    """
    if isinstance(error, TopicReplacedError):
        ids = (uuid_to_text(error.wanted), uuid_to_text(error.found))
        found, loss = left.end, Loss(left.tp, LossKind.REPLACED, left.start, 0, left.size, ids)
    elif error.log_start_offset > left.start:
        found = min(error.log_start_offset, left.end)
        loss = Loss(left.tp, LossKind.AGED_OUT, left.start, found, found - left.start)
    elif error.log_end_offset >= left.start:
        raise error  # the log has the offset, but the new leader has not caught up yet; Spark retries the task
    else:
        found = left.end
        loss = Loss(left.tp, LossKind.TRUNCATED, left.start, error.log_end_offset, left.size)
    check_losses([loss], on_data_loss)
    log.warning("data loss: %s", loss)
    return found
