"""Compaction: the offset map, grouping, the throttle, transactions, verdicts, passes, and aborted passes."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from barnabas.protocol.records.batch import BatchHeader, iter_batches, iter_records, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.control import EndTxn
from barnabas.protocol.records.errors import CorruptBatchError, RecordSizeError
from barnabas.server.storage.cleaner.cleanable import CleaningVerdict, assess
from barnabas.server.storage.cleaner.cleaning import CleaningPass, EngineFactory, emptied
from barnabas.server.storage.cleaner.columns import ColumnarKeys
from barnabas.server.storage.cleaner.errors import CleaningAbortedError, CleaningError
from barnabas.server.storage.cleaner.grouping import Sizes, group_segments
from barnabas.server.storage.cleaner.inline import clean
from barnabas.server.storage.cleaner.job import plan_cleaning
from barnabas.server.storage.cleaner.keys import PlainKeys
from barnabas.server.storage.cleaner.offset_map import OffsetMap, largest_prime
from barnabas.server.storage.cleaner.task import GroupCleaned
from barnabas.server.storage.cleaner.throttle import Throttle
from barnabas.server.storage.cleaner.transactions import CleanedTransactions
from barnabas.server.storage.values import AbortedTxn
from tests.configs import cleaner_config, log_config
from tests.unit.server.storage.logs import PATH, LogHarness
from tests.unit.server.storage.memory_disk import MemoryDisk

CONFIG = log_config(
    cleanup_policy=("compact",), internal_segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0
)
SECRET = (1, 2)
ENGINES: list[EngineFactory] = [PlainKeys, ColumnarKeys]


def keyed(
    logs: LogHarness, *keys: str, alive: bool = True, codec: CompressionType = CompressionType.NONE, **fields: int
) -> None:
    """One batch, in which each value contains the record's offset."""
    start = logs.log.log_end_offset
    records = [
        SimpleRecord(key.encode(), b"%d" % (start + i) if alive else None, logs.now_ms) for i, key in enumerate(keys)
    ]
    logs.append(build_batch(records, codec=codec, **fields))  # type: ignore[arg-type] # ints, all of them


def content(logs: LogHarness) -> list[tuple[int, str]]:
    """(offset, key) of every record."""
    found = []
    offset = logs.log.log_start_offset
    while offset < logs.log.log_end_offset:
        data = logs.log.read(offset, 1000).data
        for pos, header in iter_batches(data):
            if not header.is_control:
                found += [(r.offset, (r.key or b"").decode()) for r in iter_records(data, pos, header)]
            offset = header.next_offset
    return found


def run(logs: LogHarness, engine: EngineFactory = PlainKeys, **changes: float) -> int:
    found = assess(logs.log, logs.log.log_end_offset, logs.now_ms)
    config = cleaner_config(**changes)
    return clean(logs.log, found, now_ms=logs.now_ms, secret=SECRET, config=config, engine=engine).end_offset


class TestOffsetMap:
    def test_newest_offset_of_each_key(self) -> None:
        rng = random.Random(1)
        keys = [(rng.getrandbits(64), rng.getrandbits(64)) for _ in range(900)]
        offset_map = OffsetMap(24 * 1000, 0.95)
        newest = {}
        for offset in range(5000):
            key = rng.choice(keys)
            newest[key] = offset
            assert offset_map.put(*key, offset)
        assert {key: offset_map.get(*key) for key in keys} == {key: newest.get(key, -1) for key in keys}
        assert offset_map.used == len(newest)

    def test_put_returns_false_when_the_map_is_full(self) -> None:
        offset_map = OffsetMap(24 * 10, 0.5)
        assert (offset_map.slots, offset_map.capacity) == (7, 3)
        assert [offset_map.put(i, i, i) for i in range(5)] == [True, True, True, False, False]
        assert offset_map.put(2, 2, 9), "a known key needs no room"
        assert [offset_map.get(i, i) for i in range(4)] == [0, 1, 9, -1]

    def test_an_older_offset_does_not_win(self) -> None:
        offset_map = OffsetMap(24 * 10, 0.9)
        offset_map.put(1, 1, 5)
        offset_map.put(1, 1, 3)
        assert offset_map.get(1, 1) == 5

    def test_map_without_capacity_is_rejected(self) -> None:
        with pytest.raises(CleaningError, match=r"dedupe\.buffer\.size"):
            OffsetMap(24, 0.9)

    def test_largest_prime(self) -> None:
        assert [largest_prime(n) for n in (2, 3, 4, 10, 100, 5_592_405)] == [0, 3, 3, 7, 97, 5_592_373]


class TestGrouping:
    def test_limits(self) -> None:
        def sizes(*logs: int) -> list[Sizes]:
            return [Sizes(i * 10, size, 8, 12, i * 10 + 10) for i, size in enumerate(logs)]

        def bases(groups: list[list[Sizes]]) -> list[list[int]]:
            return [[s.base_offset for s in group] for group in groups]

        assert bases(group_segments(sizes(50, 40, 20, 90), 100, 1000)) == [[0, 10], [20], [30]]
        assert bases(group_segments(sizes(1, 1, 1, 1), 100, 24)) == [[0, 10], [20, 30]], "the time index counts"
        assert bases(group_segments(sizes(0, 0, 0), 100, 1000)) == [[0, 10, 20]]
        far = [Sizes(0, 1, 8, 12, 5), Sizes(5, 1, 8, 12, 1 << 31), Sizes(1 << 31, 1, 8, 12, (1 << 31) + 1)]
        assert bases(group_segments(far, 100, 1000)) == [[0, 5], [1 << 31]], "relative offsets have 32 bits"
        assert group_segments([], 100, 1000) == []


class TestThrottle:
    def test_keeps_the_rate(self) -> None:
        throttle, now = Throttle(1000.0, 0.0), 0.0
        for _ in range(100):
            now += throttle.delay(200, now)
        assert now == pytest.approx(20, rel=0.05)

    def test_infinite_rate_has_no_delay(self) -> None:
        throttle = Throttle(float("inf"), 0.0)
        assert [throttle.delay(1 << 40, t / 10) for t in range(10)] == [0.0] * 10


def header(offset: int, producer_id: int, *, control: bool = False, count: int = 1) -> BatchHeader:
    batch = build_batch(
        [SimpleRecord(b"k", b"v", 1)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
        control=control,
    )
    return read_header(batch)._replace(record_count=count)


class TestTransactions:
    COMMIT, ABORT = EndTxn(True, 0), EndTxn(False, 0)

    def test_markers_outlive_their_batches(self) -> None:
        txns = CleanedTransactions()
        assert not txns.on_data(header(0, 1))
        assert not txns.on_control(header(1, 1, control=True), self.COMMIT)
        assert txns.on_control(header(2, 1, control=True), self.COMMIT), "nothing is left of this one"

    def test_an_aborted_transaction(self) -> None:
        txns = CleanedTransactions()
        aborted = AbortedTxn(1, 0, 3, 4)
        txns.add_aborted([aborted])
        assert txns.on_data(header(0, 1))
        assert not txns.on_data(header(1, 2)), "another producer's"
        txns.add_aborted([aborted])  # told again for the next segment
        assert txns.on_data(header(2, 1))
        assert not txns.on_control(header(3, 1, control=True), self.ABORT)
        assert txns.kept == [aborted]
        assert not txns.on_data(header(4, 1)), "the next transaction of the same producer"

    def test_an_abort_marker_alone(self) -> None:
        txns = CleanedTransactions()
        txns.add_aborted([AbortedTxn(1, 0, 3, 4)])
        assert txns.on_control(header(3, 1, control=True), self.ABORT)
        assert txns.kept == []
        assert txns.on_control(header(9, 1, control=True, count=0), None), "emptied before"
        assert not txns.on_control(header(10, -1, control=True), None), "of another kind"


class TestAssess:
    def assess(self, logs: LogHarness, **config: object) -> tuple[CleaningVerdict, int, int]:
        logs.log.update_config(replace(logs.log.config, **config))  # type: ignore[arg-type] # its own fields
        found = assess(logs.log, logs.log.log_end_offset, logs.now_ms)
        return found.verdict, found.first_dirty_offset, found.upper_offset

    def test_verdict_for_each_reason(self) -> None:
        logs = LogHarness(config=CONFIG)
        assert self.assess(logs)[0] is CleaningVerdict.EMPTY
        keyed(logs, "a")
        assert self.assess(logs) == (CleaningVerdict.ACTIVE_SEGMENT, 0, 0)
        for _ in range(30):
            keyed(logs, "a", "b")
        active = logs.log.segments.active.base_offset
        assert self.assess(logs) == (CleaningVerdict.DIRTY_ENOUGH, 0, active)
        assert self.assess(logs, min_cleanable_dirty_ratio=1.0)[0] is CleaningVerdict.NOT_DIRTY_ENOUGH
        assert self.assess(logs, max_compaction_lag_ms=1)[0] is CleaningVerdict.NOT_DIRTY_ENOUGH
        logs.now_ms += 2
        assert self.assess(logs)[0] is CleaningVerdict.LAG_EXCEEDED
        assert self.assess(logs, min_compaction_lag_ms=1000) == (CleaningVerdict.TOO_YOUNG, 0, 0)
        logs.now_ms += 1000
        assert self.assess(logs)[0] is CleaningVerdict.LAG_EXCEEDED
        assert self.assess(logs, cleanup_policy=("delete",))[0] is CleaningVerdict.NOT_COMPACTED
        assert self.assess(logs, cleanup_policy=("compact", "delete"))[0] is CleaningVerdict.LAG_EXCEEDED
        run(logs)
        assert self.assess(logs) == (CleaningVerdict.ACTIVE_SEGMENT, active, active)
        logs.log.cleaned_offset = logs.log.log_end_offset + 1
        assert self.assess(logs)[1] == 0, "not this log's: begin anew"

    def test_an_open_transaction(self) -> None:
        logs = LogHarness(config=CONFIG)
        for _ in range(10):
            keyed(logs, "a")
        keyed(logs, "t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        for _ in range(30):
            keyed(logs, "a")
        open_since = logs.log.producers.open_transactions[0].txn_first_offset
        assert open_since == 10
        found = assess(logs.log, logs.log.log_end_offset, logs.now_ms)
        holding = logs.log.segments.floor(open_since)
        assert holding is not None
        assert found.upper_offset == holding.base_offset
        run(logs)
        found = assess(logs.log, logs.log.log_end_offset, logs.now_ms)
        assert found.verdict is CleaningVerdict.UNSTABLE
        assert str(found).endswith("producer 7 has had a transaction open since offset 10")

    def test_the_high_watermark(self) -> None:
        logs = LogHarness(config=CONFIG)
        for _ in range(30):
            keyed(logs, "a")
        assert assess(logs.log, 0, logs.now_ms).detail == "not yet replicated"


@pytest.mark.parametrize("engine", ENGINES)
class TestPass:
    def test_latest_record_of_each_key_keeps_its_offset(self, engine: EngineFactory) -> None:
        logs = LogHarness(config=CONFIG)
        for i in range(40):
            keyed(
                logs,
                f"k{i % 3}",
                f"k{i % 5}",
                codec=(CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD)[i % 3],
            )
        active = logs.log.segments.active.base_offset
        before = content(logs)
        newest = {key: offset for offset, key in before if offset < active}
        assert run(logs, engine) == active
        assert content(logs) == [(o, k) for o, k in before if o >= active or newest[k] == o]
        assert logs.log.cleaned_offset == active
        run(logs, engine)  # groups by the sizes before: what the first pass has made small, the next one joins
        assert len(logs.log.segments) < 5
        assert content(logs) == [(o, k) for o, k in before if o >= active or newest[k] == o]
        logs.log.delete_pending_files(None)
        names = logs.disk.listdir(PATH)
        logs.kill()
        assert [n for n in logs.disk.listdir(PATH) if n.endswith(".log")] == [n for n in names if n.endswith(".log")]

    def test_small_map_needs_several_passes(self, engine: EngineFactory) -> None:
        logs = LogHarness(config=CONFIG)
        for i in range(30):
            keyed(logs, *(f"k{(i + j) % 20}" for j in range(5)))
        active = logs.log.segments.active.base_offset
        ends: list[int] = []
        while not ends or ends[-1] < active:
            ends.append(run(logs, engine, log_cleaner_dedupe_buffer_size=24 * 11))
        assert len(ends) > 3
        assert ends == sorted(set(ends))
        below = [k for o, k in content(logs) if o < active]
        assert sorted(below) == sorted({f"k{i}" for i in range(20)})

    def test_pass_without_superseded_records_leaves_segments_unchanged(self, engine: EngineFactory) -> None:
        logs = LogHarness(config=replace(CONFIG, internal_segment_bytes=1000))
        for i in range(60):
            keyed(logs, f"k{i}")
        before = list(logs.log.segments)
        assert run(logs, engine) == logs.log.segments.active.base_offset
        assert [s.base_offset for s in logs.log.segments] == [s.base_offset for s in before]
        assert logs.log.segments.active is before[-1]
        assert not [n for n in logs.disk.listdir(PATH) if n.endswith(".cleaned")]
        assert [k for _, k in content(logs)] == [f"k{i}" for i in range(60)]

    def test_records_without_key_are_removed(self, engine: EngineFactory) -> None:
        logs = LogHarness(config=replace(CONFIG, cleanup_policy=("delete",)))
        for _ in range(20):
            logs.append(build_batch([SimpleRecord(None, b"v", 1), SimpleRecord(b"k", b"v", 1)]))
        logs.log.update_config(CONFIG)
        active = logs.log.segments.active.base_offset
        run(logs, engine)
        assert [k for o, k in content(logs) if o < active] == ["k"]

    def test_corrupt_batch_stops_the_pass_and_leaves_the_log_online(self, engine: EngineFactory) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk, config=CONFIG)
        for i in range(30):
            keyed(logs, f"k{i % 3}")
        disk.data(f"{PATH}/{0:020d}.log")[70] ^= 1
        with pytest.raises(CorruptBatchError, match="CRC"):
            run(logs, engine)
        assert not logs.log.failed
        assert logs.log.cleaning is None
        assert logs.log.cleaned_offset == 0
        assert not [n for n in disk.listdir(PATH) if n.endswith(".cleaned")]
        keyed(logs, "still")

    def test_a_compressed_record_above_max_decompressed_message_bytes_stops_the_pass(
        self, engine: EngineFactory
    ) -> None:
        logs = LogHarness(config=CONFIG)
        for i in range(12):
            keyed(logs, "a" * 50, f"k{i}", codec=CompressionType.GZIP)
        logs.log.update_config(replace(CONFIG, max_decompressed_message_bytes=50))
        with pytest.raises(RecordSizeError, match=r"more than max\.decompressed\.message\.bytes=50"):
            run(logs, engine)
        logs.log.update_config(CONFIG)
        run(logs, engine)
        assert "a" * 50 in dict(map(reversed, content(logs)))  # type: ignore[arg-type]

    def test_batch_of_more_keys_than_the_map_holds(self, engine: EngineFactory) -> None:
        logs = LogHarness(config=replace(CONFIG, internal_segment_bytes=2000))
        for _ in range(4):
            keyed(logs, *(f"k{j}" for j in range(40)))
        logs.log.roll(logs.now_ms)
        ends: list[int] = []
        while not ends or ends[-1] < 160:
            ends.append(run(logs, engine, log_cleaner_dedupe_buffer_size=24 * 11))
        assert content(logs) == [(120 + j, f"k{j}") for j in range(40)]


class TestEmptied:
    def test_pass_retains_batches_that_a_replay_needs(self) -> None:
        batch = build_batch(
            [SimpleRecord(b"k", b"v", 77), SimpleRecord(b"k", b"w", 78)],
            base_offset=9, codec=CompressionType.LZ4, producer_id=1, producer_epoch=2, base_sequence=3, leader_epoch=4,
        )  # fmt: skip
        before, after = read_header(batch), read_header(emptied(read_header(batch)))
        assert (after.base_offset, after.last_offset, after.last_sequence) == (9, 10, before.last_sequence)
        assert (after.producer_id, after.producer_epoch, after.partition_leader_epoch) == (1, 2, 4)
        assert (after.max_timestamp, after.record_count, after.codec) == (78, 0, CompressionType.NONE)


class TestCalledOff:
    def staged(self) -> LogHarness:
        """A log whose pass has staged its first group."""
        logs = LogHarness(config=CONFIG)
        for i in range(60):
            keyed(logs, f"k{i % 3}")
        found = assess(logs.log, logs.log.log_end_offset, logs.now_ms)
        self.job = plan_cleaning(logs.log, found, now_ms=logs.now_ms, secret=SECRET, config=cleaner_config())
        self.steps = CleaningPass(logs.disk, self.job.task).run()
        self.group = next(self.steps)
        assert isinstance(self.group, GroupCleaned)
        self.job.stage(self.group)
        assert [n for n in logs.disk.listdir(PATH) if n.endswith(".log.swap")]
        return logs

    def test_truncation_deletes_staged_files(self) -> None:
        """A crash after the truncation must not restore the truncated records."""
        logs = self.staged()
        logs.log.truncate_to(5)
        assert not [n for n in logs.disk.listdir(PATH) if n.endswith((".swap", ".cleaned"))]
        assert isinstance(self.group, GroupCleaned)
        with pytest.raises(CleaningAbortedError):
            self.job.adopt(self.group, now_ms=0)
        keyed(logs, "new")
        logs.kill()
        assert content(logs) == [(0, "k0"), (1, "k1"), (2, "k2"), (3, "k0"), (4, "k1"), (5, "new")]

    def test_a_truncation_lowers_the_cleaned_offset(self) -> None:
        logs = LogHarness(config=CONFIG)
        for i in range(60):
            keyed(logs, f"k{i % 3}")
        told: list[int] = []
        logs.events.on_cleaned_offset_lowered = lambda: told.append(logs.log.cleaned_offset)  # type: ignore[method-assign]
        run(logs)
        logs.log.truncate_to(logs.log.log_end_offset - 1)
        assert told == []
        logs.log.truncate_to(20)
        assert told == [logs.log.cleaned_offset]
        assert logs.log.cleaned_offset <= 20

    @pytest.mark.parametrize("how", ["close", "drop", "start anew"])
    def test_the_end_of_the_log(self, how: str) -> None:
        logs = self.staged()
        if how == "close":
            logs.log.close()
        elif how == "drop":
            logs.log._deleter.delete_segment(logs.log.segments.first, 0)
        else:
            logs.log.truncate_fully_and_start_at(100)
        assert logs.log.cleaning is None
        assert not [n for n in logs.disk.listdir(PATH) if n.endswith((".swap", ".cleaned"))]
        with pytest.raises(CleaningAbortedError):
            self.job.finish(10)
