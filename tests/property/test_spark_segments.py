"""Closed segments read from files give the rows that the broker gives, whatever the log went through."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.fetching import next_position
from barnabas.client.partition_reader import OffsetRange
from barnabas.client.values import FetchedBatches
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.log_files import MetaProperties, encode_topic_id
from barnabas.server.storage.cleaner.cleanable import assess
from barnabas.server.storage.cleaner.inline import clean
from barnabas.server.storage.fs import OsFileSystem
from barnabas.spark.schema import DDL
from barnabas.spark.source.planner import PartitionRange
from barnabas.spark.source.ranges import decode
from barnabas.spark.source.segment_plan import SegmentDirectory
from barnabas.spark.source.segments import read_segments
from tests.configs import cleaner_config, log_config
from tests.unit.server.storage.logs import TP, LogHarness

CONFIG = log_config(
    cleanup_policy=("compact",), internal_segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0
)
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A folder in memory, where a compaction need not wait for the disk."""
TOPIC_ID = UUID(int=1 << 90)
OWNER = MetaProperties("a-cluster", 7, None)
Row = dict[str, object]

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
RECORDS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=60))), min_size=1, max_size=6)
WRITE = st.tuples(
    st.just("write"), st.sampled_from([-1, 1, 2]), RECORDS, st.sampled_from([*CompressionType, CompressionType.NONE])
)
END = st.tuples(st.just("end"), st.sampled_from([1, 2]), st.booleans())
STEPS = st.lists(
    st.one_of(WRITE, WRITE, END, END, st.tuples(st.sampled_from(["compact", "roll", "roll"]))), min_size=20, max_size=60
)
CUTS = st.one_of(st.just((0.0, 1.0)), st.tuples(st.floats(0, 1), st.floats(0, 1)))


class Scene:
    """A log on a real disk, with the files that name its owner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / f"{TP.topic}-{TP.partition}"
        path.mkdir()
        (folder / "meta.properties").write_bytes(OWNER.encode())
        (path / "partition.metadata").write_bytes(encode_topic_id(TOPIC_ID))
        self.logs = LogHarness(disk=OsFileSystem(), config=CONFIG, path=str(path))
        self.directory = SegmentDirectory(str(path), str(folder), OWNER.cluster_id, OWNER.node_id, TOPIC_ID)
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()

    def apply(self, step: tuple[object, ...]) -> None:
        match step:
            case ("write", int() as producer, list() as pairs, CompressionType() as codec):
                records = [SimpleRecord(key, value, 1000, (("h", key),)) for key, value in pairs]
                if producer < 0:
                    self.logs.append(bytes(build_batch(records, codec=codec)))
                    return
                sequence = self._sequences.get(producer, 0)
                self._sequences[producer] = sequence + len(records)
                self._open.add(producer)
                self.logs.append(
                    bytes(
                        build_batch(
                            records,
                            codec=codec,
                            producer_id=producer,
                            producer_epoch=0,
                            base_sequence=sequence,
                            transactional=True,
                        )
                    )
                )
            case ("end", int() as producer, bool() as commit):
                if producer in self._open:
                    self._open.discard(producer)
                    self.logs.marker(producer, 0, commit=commit)
            case ("roll",):
                self.logs.log.roll(self.logs.now_ms)
            case ("compact",):
                log = self.logs.log
                found = assess(log, log.last_stable_offset(log.log_end_offset), self.logs.now_ms)
                clean(log, found, now_ms=self.logs.now_ms, secret=(1, 2), config=cleaner_config())
                self.logs.log.delete_pending_files(None)

    def fetch(self, wanted: PartitionRange, *, committed: bool) -> Iterator[FetchedBatches]:
        """The batches of a range as the broker would return them, in small fetches."""
        log = self.logs.log
        position = wanted.start
        while position < wanted.end:
            upper = log.last_stable_offset(log.log_end_offset) if committed else log.log_end_offset
            data = bytes(log.read(position, 300, upper_offset=upper).data)
            end = next_position(data, position)
            if end == position:
                return
            aborted = log.aborted_transactions(position, end) if committed else []
            pairs = tuple((txn.producer_id, txn.first_offset) for txn in aborted)
            yield FetchedBatches(TP, position, data, upper, upper, 0, pairs, end)
            position = end


def rows_of(batches: FetchedBatches, bounds: PartitionRange) -> list[Row]:
    parts = decode(batches, OffsetRange(TP, bounds.start, bounds.end), tuple(DDL))
    return [row for part in parts for row in part.to_pylist()]


@settings(max_examples=30, deadline=None)
@given(steps=STEPS, committed=st.booleans(), cut=CUTS)
def test_segments_and_broker_give_the_same_rows(
    steps: list[tuple[object, ...]], committed: bool, cut: tuple[float, float]
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        scene = Scene(Path(folder))
        for step in steps:
            scene.apply(step)
        log = scene.logs.log
        end = log.last_stable_offset(log.log_end_offset) if committed else log.log_end_offset
        low, high = sorted(round(part * end) for part in cut)
        wanted = PartitionRange(TP, low, high)
        expected = [row for found in scene.fetch(wanted, committed=committed) for row in rows_of(found, wanted)]

        from_files: list[Row] = []
        reading = read_segments(scene.directory, wanted, committed=committed, check_crcs=True)
        while True:
            try:
                found = next(reading)
            except StopIteration as finished:
                position: int = finished.value
                break
            from_files += rows_of(found.batches, found.bounds)
        assert low <= position <= high or position == low
        assert all(low <= int(str(row["offset"])) < position for row in from_files)
        tail = PartitionRange(TP, position, high)
        rest = [row for found in scene.fetch(tail, committed=committed) for row in rows_of(found, tail)]
        assert from_files + rest == expected
        first_of_active = log.segments.active.base_offset
        if not committed:
            assert position >= min(high, first_of_active), "closed segments were read from the broker"
        log.close()


def test_range_is_read_from_files_and_the_active_segment_is_not(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for number in range(40):
        scene.apply(("write", -1, [(b"k%d" % number, b"v" * 50)], CompressionType.NONE))
    active = scene.logs.log.segments.active.base_offset
    assert active > 20
    reading = read_segments(scene.directory, PartitionRange(TP, 3, 40), committed=True, check_crcs=True)
    offsets = []
    try:
        while True:
            found = next(reading)
            offsets += [row["offset"] for row in rows_of(found.batches, found.bounds)]
    except StopIteration as finished:
        assert finished.value == active
    assert offsets == list(range(3, active))
