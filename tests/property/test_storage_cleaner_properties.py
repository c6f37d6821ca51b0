"""Properties of compaction: whatever the history, the limits and the crashes, the latest value of each key stays.

The model is the list of acknowledged records. After every step the log is read back and must be a subset of it, in
order, that agrees with it on the latest value of every key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.server.storage.cleaner.cleanable import CleanableLog, CleaningVerdict, assess
from barnabas.server.storage.cleaner.cleaning import EngineFactory
from barnabas.server.storage.cleaner.columns import ColumnarKeys
from barnabas.server.storage.cleaner.inline import clean
from barnabas.server.storage.cleaner.keys import PlainKeys
from barnabas.server.storage.errors import DiskIoError
from barnabas.server.storage.fs import Access, File
from tests.configs import cleaner_config, log_config
from tests.unit.server.storage.logs import PATH, LogHarness
from tests.unit.server.storage.memory_disk import Inode, MemoryDisk, MemoryFile

RETENTION_MS = 100
CONFIG = log_config(
    cleanup_policy=("compact",),
    internal_segment_bytes=600,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
)
ENGINES: list[EngineFactory] = [PlainKeys, ColumnarKeys]


class Put(NamedTuple):
    """A batch of (key, has value) records; `producer` > 0 writes inside its transaction, 0 outside any, without id."""

    producer: int
    records: tuple[tuple[int, bool], ...]
    codec: CompressionType


class End(NamedTuple):
    """A marker that ends a producer's open transaction."""

    producer: int
    commit: bool


class Clean(NamedTuple):
    """A pass, with room for so many keys; `crash` after so many changes of the disk (None: never)."""

    slots: int
    crash: int | None
    power: bool
    fail: bool


class Wait(NamedTuple):
    ms: int


class Reopen(NamedTuple):
    clean: bool


Step = Put | End | Clean | Wait | Reopen

KEYS = st.integers(0, 5)
PUTS = st.builds(
    Put,
    st.integers(0, 3),
    st.lists(st.tuples(KEYS, st.sampled_from([True, True, False])), min_size=1, max_size=5).map(tuple),
    st.sampled_from([CompressionType.NONE, CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD]),
)
STEPS: st.SearchStrategy[Step] = st.one_of(
    PUTS,
    PUTS,
    PUTS,
    st.builds(End, st.integers(1, 3), st.booleans()),
    st.builds(
        Clean, st.sampled_from([5, 7, 97]), st.one_of(st.none(), st.integers(0, 60)), st.booleans(), st.booleans()
    ),
    st.builds(Wait, st.sampled_from([1, 60, 150])),
    st.builds(Reopen, st.booleans()),
)


class CrashError(Exception):
    """The process has been killed."""


class CrashDisk(MemoryDisk):
    """Counts the changes of the disk. At a chosen one the process is killed, or the device fails."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left: int | None = None
        self.fail = False

    def change(self) -> None:
        if self.changes_left is not None:
            if self.changes_left <= 0:
                if self.fail:
                    raise DiskIoError("the device failed")
                raise CrashError
            self.changes_left -= 1

    def open(self, path: str, access: Access) -> File:
        if access is not Access.READ:
            self.change()
        opened = super().open(path, access)
        assert isinstance(opened, MemoryFile)
        return _CrashFile(self, path, opened._inode, access)

    def rename(self, source: str, target: str) -> None:
        self.change()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.change()
        super().unlink(path)

    def sync_dir(self, path: str) -> None:
        self.change()
        super().sync_dir(path)


class _CrashFile(MemoryFile):
    def __init__(self, disk: CrashDisk, path: str, inode: Inode, access: Access) -> None:
        super().__init__(disk, path, inode, access)
        self._crash = disk

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        self._crash.change()
        return super().write_at(position, buffers)

    def truncate(self, size: int) -> None:
        self._crash.change()
        super().truncate(size)

    def sync(self) -> None:
        self._crash.change()
        super().sync()


class Known(NamedTuple):
    """A record as it was acknowledged. `txn` names its transaction, None outside."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int
    txn: int | None


@dataclass
class World:
    """A log, the acknowledged records, and the results of the transactions."""

    engine: EngineFactory
    disk: CrashDisk = field(default_factory=CrashDisk)
    records: list[Known] = field(default_factory=list)
    markers: dict[int, int] = field(default_factory=dict)
    fates: dict[int, bool | None] = field(default_factory=dict)
    open_txns: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    buried_since: dict[int, int] = field(default_factory=dict)
    cleaned: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        self.logs = LogHarness(disk=self.disk, config=CONFIG, now_ms=10_000)

    def put(self, step: Put) -> None:
        records = []
        for key, alive in step.records:
            self.count += 1
            value = b"v%d" % self.count + b"." * (self.count % 40) if alive else None
            records.append(SimpleRecord(b"k%d" % key, value, self.logs.now_ms + self.count % 3))
        fields: dict[str, int | bool] = {}
        txn = None
        if step.producer:
            if step.producer not in self.open_txns:
                self.open_txns[step.producer] = txn = len(self.fates)
                self.fates[txn] = None
            txn = self.open_txns[step.producer]
            sequence = self.sequences.get(step.producer, 0)
            self.sequences[step.producer] = sequence + len(records)
            fields = {"producer_id": step.producer, "producer_epoch": 0, "base_sequence": sequence}
            fields["transactional"] = True
        info = self.logs.append(build_batch(records, codec=step.codec, **fields))  # type: ignore[arg-type] # a mixture
        for i, r in enumerate(records):
            value = None if r.value is None else bytes(r.value)
            assert r.key is not None
            self.records.append(Known(info.first_offset + i, bytes(r.key), value, r.timestamp, txn))

    def end(self, step: End) -> None:
        txn = self.open_txns.pop(step.producer, None)
        if txn is not None:
            self.markers[txn] = self.logs.marker(step.producer, 0, commit=step.commit).first_offset
            self.fates[txn] = step.commit

    def clean(self, step: Clean) -> None:
        log = self.logs.log
        found = assess(log, log.log_end_offset, self.logs.now_ms)
        if found.verdict in (CleaningVerdict.EMPTY, CleaningVerdict.OFFLINE):
            return
        if step.power:  # what was never synced may go with the power; only compaction is on trial here
            log.flush()
            self.disk.sync_dir("/")
        self.disk.changes_left, self.disk.fail = step.crash, step.fail
        config = cleaner_config(log_cleaner_dedupe_buffer_size=step.slots * 24)
        # from here on the pass may have given tombstones their horizon
        for r in self.records:
            if r.value is None and r.offset < found.upper_offset:
                self.buried_since.setdefault(r.offset, self.logs.now_ms)
        try:
            done = clean(log, found, now_ms=self.logs.now_ms, secret=(self.count, 7), config=config, engine=self.engine)
            self.disk.changes_left = None
            self.cleaned = done.end_offset
            assert done.end_offset > found.first_dirty_offset or not found.cleanable_bytes
            log.delete_pending_files(None)
        except (CrashError, DiskIoError):
            self.disk.changes_left = None
            self.restart(power=step.power)
        assert not log.cleaning

    def restart(self, *, power: bool) -> None:
        point = self.logs.log.recovery_point
        if power:
            self.disk.lose_power()
        self.logs.kill(recovery_point=point)
        self.logs.log.cleaned_offset = self.cleaned
        assert not [n for n in self.disk.listdir(PATH) if n.endswith((".swap", ".cleaned", ".deleted"))]

    def reopen(self, step: Reopen) -> None:
        if step.clean:
            self.logs.restart()
            self.logs.log.cleaned_offset = self.cleaned
        else:
            self.restart(power=False)

    def read(self) -> list[Known]:
        """What a read_committed reader gets up to the last stable offset, and an uncommitted one after it."""
        log = self.logs.log
        found: list[Known] = []
        by_offset = {r.offset: r for r in self.records}
        aborted = log.aborted_transactions(0, log.log_end_offset)
        offset = log.log_start_offset
        last = -1
        while offset < log.log_end_offset:
            data = log.read(offset, 300).data
            batches = [(p, h) for p, h in iter_batches(data) if h.last_offset >= offset]
            if not batches:
                break
            for pos, header in batches:
                assert header.base_offset > last, "offsets increase"
                last = header.last_offset
                if header.is_control:
                    continue
                dropped = header.is_transactional and any(
                    t.producer_id == header.producer_id and t.first_offset <= header.base_offset < t.last_offset
                    for t in aborted
                )
                for r in iter_records(data, pos, header):
                    known = by_offset[r.offset]
                    assert (r.key, r.value, r.timestamp) == (known.key, known.value, known.timestamp)
                    is_aborted = known.txn is not None and self.fates[known.txn] is False
                    assert dropped is is_aborted, f"offset {r.offset}: aborted or not?"
                    if not dropped:
                        found.append(known)
            offset = last + 1
        return found

    def check(self) -> None:
        log = self.logs.log
        assert not log.failed
        read = self.read()
        offsets = [r.offset for r in read]
        assert offsets == sorted(set(offsets))
        committed = [r for r in self.records if r.txn is None or self.fates[r.txn] is not False]
        latest_decided: dict[bytes, Known] = {}
        for r in committed:
            if r.txn is None or self.fates[r.txn]:
                latest_decided[r.key] = r
        present = set(offsets)
        for r in committed:
            if r.offset in present:
                continue
            newer = latest_decided.get(r.key)
            superseded = newer is not None and newer.offset > r.offset
            expired = r.value is None and self.logs.now_ms >= self.buried_since.get(r.offset, 1 << 60) + RETENTION_MS
            assert superseded or expired, f"{r} was lost"
        # an older value must not come back to life because its tombstone went first
        seen: dict[bytes, Known] = {}
        for r in read:
            if r.txn is None or self.fates[r.txn]:
                seen[r.key] = r
        for key, newest in latest_decided.items():
            if key in seen:
                assert seen[key] == newest, f"{key!r} shows {seen[key]}, not {newest}"
            else:
                assert newest.value is None, f"{key!r} has lost {newest}"
        # transactions that are open are open, the others are not
        ongoing = sorted(e.producer_id for e in log.producers.entries if e.txn_first_offset >= 0)
        assert ongoing == sorted(self.open_txns)
        for producer, sequence in self.sequences.items():
            entry = log.producers.get(producer)
            assert entry is not None
            assert entry.last_sequence == sequence - 1

    def check_clean(self) -> None:
        """Below the cleaned offset, each key has one record, and there are no aborted records."""
        keys = [r.key for r in self.read() if r.offset < self.cleaned]
        assert len(keys) == len(set(keys)), keys


def run(world: World, steps: Sequence[Step]) -> None:
    for step in steps:
        match step:
            case Put():
                world.put(step)
            case End():
                world.end(step)
            case Clean():
                world.clean(step)
                world.check()
            case Wait():
                world.logs.now_ms += step.ms
            case Reopen():
                world.reopen(step)
                world.check()
    world.check()
    world.check_clean()


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, min_size=5, max_size=60))
def test_history(engine: EngineFactory, steps: list[Step]) -> None:
    run(World(engine), steps)


HISTORY: list[Step] = [
    *(Put(i % 4, tuple((k % 6, (i + k) % 5 != 0) for k in range(i, i + 3)), CompressionType.NONE) for i in range(12)),
    End(1, True),
    End(2, False),
    End(3, True),
    *(Put(0, ((i % 4, i % 3 != 0), (i % 3, True)), CompressionType.LZ4) for i in range(10)),
    Clean(97, None, False, False),
    *(Put(i % 2, ((i % 5, i % 4 != 0),), CompressionType.NONE) for i in range(14)),
    End(1, False),
    *(Put(0, ((5, True),), CompressionType.NONE) for i in range(8)),
    Wait(150),
]


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("fail", [False, True], ids=["crash", "failure"])
def test_pass_survives_a_crash_at_each_step(power: bool, fail: bool) -> None:
    """The same pass, dying at its first change of the disk, its second, ... until it comes through."""
    crash = 0
    while True:
        world = World(PlainKeys)
        run(world, HISTORY)
        world.clean(Clean(7, crash, power, fail))
        world.check()
        came_through = world.logs.log.cleaned_offset > 0 and not world.logs.failures and crash > 200
        for _ in range(4):
            world.clean(Clean(97, None, False, False))
            world.check()
        world.check_clean()
        if came_through:
            break
        crash += 1 if crash < 80 else 40
    assert crash > 20


def test_pass_without_dirty_records_removes_expired_tombstones() -> None:
    world = World(PlainKeys)
    run(world, [Put(0, ((1, True), (2, True)), CompressionType.NONE), Put(0, ((1, False),), CompressionType.NONE)])
    run(world, [Put(0, ((3 + i % 2, True),), CompressionType.NONE) for i in range(30)])
    world.clean(Clean(97, None, False, False))
    assert b"k1" in {r.key for r in world.read()}
    world.logs.now_ms += RETENTION_MS
    log = world.logs.log
    found = assess(log, log.log_end_offset, world.logs.now_ms)
    assert found.verdict in (CleaningVerdict.ALL_CLEAN, CleaningVerdict.ACTIVE_SEGMENT)
    world.clean(Clean(97, None, False, False))
    world.check()
    assert b"k1" not in {r.key for r in world.read()}
    assert isinstance(found, CleanableLog)
