"""Which remote segments are read: complete copies of the topic's id, without gaps, and one behind the range."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.remote_log_metadata import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    decode_metadata,
    encode_metadata,
)
from barnabas.spark.source.remote_plan import RemoteCopies, RemoteCopy, cover, fold_segments

TOPIC_ID = UUID(int=42)


def _id(number: int, topic_id: UUID, partition: int) -> RemoteLogSegmentIdEntry:
    entry = TopicIdPartitionEntry(name="orders", id=topic_id, partition=partition)
    return RemoteLogSegmentIdEntry(topic_id_partition=entry, id=UUID(int=number))


def begun(
    number: int, start: int, end: int, *, topic_id: UUID = TOPIC_ID, partition: int = 0
) -> RemoteLogSegmentMetadataRecord:
    """A copy of the offsets `start` to before `end` begins."""
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=_id(number, topic_id, partition),
        start_offset=start,
        end_offset=end - 1,
        segment_leader_epochs=[
            SegmentLeaderEpochEntry(leader_epoch=3, offset=start),
            SegmentLeaderEpochEntry(leader_epoch=5, offset=start + 1),
        ],
        segment_size_in_bytes=1000,
        txn_index_empty=True,
    )


def state(number: int, becomes: int, *, topic_id: UUID = TOPIC_ID) -> RemoteLogSegmentMetadataUpdateRecord:
    return RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=_id(number, topic_id, 0), remote_log_segment_state=becomes
    )


def copy(start: int, end: int, name: str = "") -> RemoteCopy:
    return RemoteCopy(start, end, 1000, 5, name, has_aborted=False)


def test_only_complete_copies_of_the_partition_are_read() -> None:
    other = UUID(int=43)
    messages = [
        begun(1, 0, 10),
        begun(2, 10, 20),
        begun(3, 20, 30),
        begun(4, 0, 10, topic_id=other),
        begun(5, 0, 10, partition=1),
        *(state(1, 1), state(3, 1), state(4, 1, topic_id=other), state(5, 1)),
        *(state(3, 2), state(3, 1), state(3, 3)),  # deleted; the event between does not fit
    ]
    decoded = [decode_metadata(encode_metadata(message)) for message in messages]
    name = "orders-AAAAAAAAAAAAAAAAAAAAKg/0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ"
    assert fold_segments(decoded, TOPIC_ID, 0) == [copy(0, 10, name)]


def test_a_range_is_covered_up_to_the_first_gap_and_one_copy_further() -> None:
    copies = [copy(0, 10), copy(5, 25), copy(10, 20), copy(25, 30), copy(30, 40), copy(50, 60)]
    assert cover(copies, 2, 22) == (copy(0, 10), copy(5, 25), copy(25, 30))
    assert cover(copies, 26, 28) == (copy(25, 30), copy(30, 40))
    assert cover(copies, 30, 60) == (copy(30, 40),)
    assert cover(copies, 40, 60) == ()
    assert cover(copies, 5, 5) == ()


def test_a_task_gets_the_copies_of_its_part_below_the_local_start() -> None:
    remote = RemoteCopies((copy(0, 10), copy(10, 20), copy(20, 30), copy(30, 40)), local_start=25)
    assert remote.part(0, 5) == RemoteCopies((copy(0, 10), copy(10, 20)), 25)
    assert remote.part(21, 100) == RemoteCopies((copy(20, 30), copy(30, 40)), 25)
    assert remote.part(25, 100) is None
