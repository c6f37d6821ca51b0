"""Which segments are read from files: names in a directory, whose directory it is, and changes while it is read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.log_files import (
    MetaProperties,
    SnapshotProducer,
    encode_snapshot_producers,
    encode_topic_id,
    offset_file,
)
from barnabas.spark.source import segments as reading
from barnabas.spark.source.fetched import FetchedRange
from barnabas.spark.source.planner import PartitionRange
from barnabas.spark.source.segment_locations import LeaderView, directory_of, why_not
from barnabas.spark.source.segment_plan import (
    SEGMENTS_MAX,
    ClosedSegments,
    SegmentDirectory,
    SegmentsReplacedError,
    SegmentsUnavailableError,
    choose_segments,
    readable_end,
)

T0 = TopicPartition("t", 0)
ID = UUID(int=1 << 100)


def files(*bases: int, snapshots: tuple[int, ...] = ()) -> list[str]:
    return [offset_file(base, ".log") for base in bases] + [offset_file(base, ".snapshot") for base in snapshots]


def producer(first_offset: int) -> SnapshotProducer:
    return SnapshotProducer(1, 0, 0, 0, 0, 0, 0, first_offset)


class TestChoice:
    def test_segments_that_contain_the_range(self) -> None:
        names = [*files(0, 10, 20, 30), "leader-epoch-checkpoint", offset_file(0, ".log") + ".deleted"]
        assert choose_segments(names, 12, 25, committed=False) == ClosedSegments((10, 20), 30)
        assert choose_segments(names, 12, 99, committed=False) == ClosedSegments((10, 20), 30)
        assert choose_segments(names, 0, 10, committed=False) == ClosedSegments((0,), 10)

    def test_active_segment_is_left_to_the_broker(self) -> None:
        with pytest.raises(SegmentsUnavailableError, match="in no closed segment"):
            choose_segments(files(0, 10), 10, 12, committed=False)

    def test_committed_reads_end_at_a_snapshot(self) -> None:
        names = files(0, 10, 20, 30, snapshots=(10, 30))
        assert choose_segments(names, 0, 15, committed=True) == ClosedSegments((0, 10, 20), 30)
        with pytest.raises(SegmentsUnavailableError):
            choose_segments(files(0, 10, 20), 0, 15, committed=True)

    def test_deleted_and_replaced_segments(self) -> None:
        with pytest.raises(SegmentsReplacedError, match="offset 5"):
            choose_segments(files(10, 20), 5, 15, committed=False)
        with pytest.raises(SegmentsReplacedError, match="compaction"):
            choose_segments([*files(0, 10, 20), offset_file(0, ".index.swap")], 0, 15, committed=False)
        assert choose_segments([*files(0, 10, 20), offset_file(20, ".log.swap")], 0, 5, committed=False)

    def test_number_of_open_segments_is_limited(self) -> None:
        found = choose_segments(files(*range(0, 10_000, 10)), 0, 9_000, committed=False)
        assert len(found.bases) == SEGMENTS_MAX

    def test_open_transactions_end_the_part_that_is_read_from_files(self) -> None:
        closed = ClosedSegments((0, 10), 20)
        assert readable_end(closed, 99, [producer(-1)]) == 20
        assert readable_end(closed, 15, [producer(17)]) == 15
        assert readable_end(closed, 99, [producer(17), producer(12), producer(-1)]) == 12


class TestLocation:
    VIEW = LeaderView(3, 5, 5, 100, ID, "/data/kafka")
    RANGE = PartitionRange(T0, 10, 100)

    def test_directory_of_the_leader(self) -> None:
        assert why_not(self.VIEW, self.RANGE, "{path}") is None
        same = directory_of(self.VIEW, T0, "c", "{path}")
        assert same == SegmentDirectory("/data/kafka/t-0", "/data/kafka", "c", 3, ID)
        assert directory_of(self.VIEW, T0, "c", "/mnt/{broker}{path}").path == "/mnt/3/data/kafka/t-0"
        assert directory_of(self.VIEW, T0, "c", "/mnt/one/").path == "/mnt/one/t-0"

    @pytest.mark.parametrize(
        ("view", "reason"),
        [
            (LeaderView(3, 5, 6, 100, ID, "/d"), "its leader changes"),
            (LeaderView(3, -1, -1, 100, ID, "/d"), "its leader changes"),
            (LeaderView(3, 5, 5, 99, ID, "/d"), "high watermark is 99, below the end 100"),
            (LeaderView(3, 5, 5, 100, NO_TOPIC_ID, "/d"), "no id"),
            (LeaderView(3, 5, 5, 100, ID, None), "allow DESCRIBE"),
        ],
    )
    def test_leader_that_may_lack_records_of_the_range_is_not_used(self, view: LeaderView, reason: str) -> None:
        assert reason in str(why_not(view, self.RANGE, "{path}"))


@pytest.fixture
def directory(tmp_path: Path) -> SegmentDirectory:
    """A partition with the segments 0, 10, 20 and 30, of one batch of ten records each."""
    path = tmp_path / "t-0"
    path.mkdir()
    (tmp_path / "meta.properties").write_bytes(MetaProperties("c", 3, None).encode())
    (path / "partition.metadata").write_bytes(encode_topic_id(ID))
    for base in (0, 10, 20, 30):
        write_segment(path, base)
        (path / offset_file(base, ".snapshot")).write_bytes(encode_snapshot_producers([]))
    return SegmentDirectory(str(path), str(tmp_path), "c", 3, ID)


def write_segment(path: Path, base: int) -> None:
    records = [SimpleRecord(b"k", b"%d" % i, 0) for i in range(base, base + 10)]
    (path / offset_file(base, ".log")).write_bytes(bytes(build_batch(records, base_offset=base)))


def read(directory: SegmentDirectory, start: int, end: int) -> tuple[list[int], int]:
    """The first offsets of the buffers that are read from files, and the offset at which the broker continues."""
    found: list[int] = []

    def collect() -> Iterator[FetchedRange]:
        wanted = PartitionRange(T0, start, end)
        position = yield from reading.read_segments(directory, wanted, committed=True, check_crcs=True)
        found.append(position)

    firsts = [int.from_bytes(bytes(one.batches.buffer[:8]), "big") for one in collect()]
    return firsts, found[0]


def test_closed_segments_are_read(directory: SegmentDirectory) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir())) if descriptors.exists() else 0
    assert read(directory, 5, 40) == ([0, 10, 20], 30)
    assert read(directory, 5, 15) == ([0, 10], 15)
    assert read(directory, 31, 40) == ([], 31)
    assert before == (len(list(descriptors.iterdir())) if descriptors.exists() else 0), "files stay open"


@pytest.mark.parametrize(
    "wrong",
    [
        {"node_id": 4},  # a follower's directory may have records that were never committed
        {"cluster_id": "other"},
        {"topic_id": UUID(int=5)},  # the topic was deleted and created anew
        {"data_directory": "/nowhere"},
    ],
)
def test_directory_of_another_owner_is_not_read(
    directory: SegmentDirectory,
    wrong: dict[str, object],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_warned", set())
    given = {name: getattr(directory, name) for name in SegmentDirectory.__slots__} | wrong
    other = SegmentDirectory(**given)  # type: ignore[arg-type]  # the fields of the other directory
    with caplog.at_level(logging.WARNING):
        assert read(other, 0, 40) == ([], 0)
        assert read(other, 0, 40) == ([], 0)
    assert caplog.text.count("segments.root") == 1


def test_segments_replaced_while_they_are_opened_are_listed_again(
    directory: SegmentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_PAUSE_S", 0)
    check, replaced = reading._check_unchanged, []

    def replace_once(*given: object) -> None:
        if not replaced:
            path = Path(directory.path)
            for base in (0, 10):
                (path / offset_file(base, ".log")).rename(path / offset_file(base, ".log.deleted"))
            write_segment(path, 0)  # compaction: one segment in the place of two
            replaced.append(True)
        check(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "_check_unchanged", replace_once)
    assert read(directory, 0, 40) == ([0, 20], 30)


def test_segments_that_retention_deletes_are_read_from_the_broker(
    directory: SegmentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_PAUSE_S", 0)
    path = Path(directory.path)
    reader = reading.read_segments(directory, PartitionRange(T0, 0, 40), committed=True, check_crcs=True)
    first = next(reader)
    for base in (0, 10):
        (path / offset_file(base, ".log")).unlink()
    rest = [one.batches.position for one in reader]
    assert [first.batches.position, *rest] == [0, 10, 20]  # the files were open
    assert read(directory, 0, 40) == ([], 0)


def test_damaged_segment_is_left_to_the_broker(directory: SegmentDirectory) -> None:
    broken = Path(directory.path) / offset_file(10, ".log")
    broken.write_bytes(broken.read_bytes()[:-5])
    assert read(directory, 0, 40) == ([0], 10)
