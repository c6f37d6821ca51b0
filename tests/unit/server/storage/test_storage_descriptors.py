"""File descriptors: the bounded set of open segments, the reserve, and operations that find no descriptor."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.validate import Origin
from barnabas.server.storage import fs as os_files
from barnabas.server.storage import names
from barnabas.server.storage.descriptors import (
    DescriptorReserve,
    divide_descriptors,
    raise_descriptor_limit,
)
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import DescriptorsExhaustedError, StorageError
from barnabas.server.storage.fs import Access, OsFileSystem
from barnabas.server.storage.segments.open_segments import OpenSegments
from barnabas.server.storage.values import TimestampOffset
from tests.configs import log_config
from tests.unit.server.storage.logs import PATH, LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk

SIZE = len(batch())
SMALL = log_config(internal_segment_bytes=3 * SIZE, index_interval_bytes=0, file_delete_delay_ms=0)


# --- how many


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 20_000, 1 << 20])
def test_the_shares_of_descriptors_fit_the_limit(limit: int) -> None:
    shares = divide_descriptors(limit)
    assert shares.segments + shares.connections + shares.reserve < limit
    assert shares.segments >= 8
    assert shares.connections >= 8
    assert shares.connections < shares.highest < limit


def test_most_descriptors_are_for_connections_if_there_are_many() -> None:
    assert divide_descriptors(1 << 20).segments == 8192


# --- segments


class _Segment:
    def __init__(self, name: str, closed: list[str]) -> None:
        self.used = False
        self._name = name
        self._closed = closed

    def release(self) -> None:
        self._closed.append(self._name)


def test_the_segment_that_was_not_used_lately_is_closed_first() -> None:
    closed: list[str] = []
    pool = OpenSegments(3)
    a, b, c, d = (_Segment(name, closed) for name in "abcd")
    for segment in (a, b, c):
        pool.add(segment)
    a.used = c.used = True
    pool.add(d)
    assert closed == ["b"]
    assert len(pool) == 3
    pool.forget(a)
    assert len(pool) == 2


def test_a_segment_is_closed_although_all_were_used() -> None:
    closed: list[str] = []
    pool = OpenSegments(2)
    for name in "abcd":
        segment = _Segment(name, closed)
        segment.used = True
        pool.add(segment)
    assert len(closed) == 2
    assert "d" not in closed
    assert len(pool) == 2


def _dir(disk: MemoryDisk, pool: OpenSegments) -> LogDir:
    return LogDir.open(
        disk.mount(), "/data", cluster_id="c", node_id=1, new_directory_id=UUID(int=1), open_segments=pool
    )


def test_many_logs_of_a_directory_share_a_few_descriptors() -> None:
    disk, pool = MemoryDisk(), OpenSegments(4)
    home = _dir(disk, pool)
    names = [TopicPartition("t", number) for number in range(20)]
    logs = [home.create_log(name, None, log_config(), now_ms=0) for name in names]
    for value in (b"first", b"second"):
        for log in logs:
            log.append_as_leader(batch(value=value), leader_epoch=0, now_ms=0)
    assert len(pool) == 4
    assert sum(log.segments.active.open_file is not None for log in logs) == 4
    for log in logs:
        assert b"second" in bytes(log.read(1, 1000).data)
    home.close()
    again = _dir(disk, OpenSegments(4))
    for found in again.scan():
        log = again.open_log(found, log_config(), now_ms=0)
        assert log.log_end_offset == 2
        assert log.recovery.clean


def test_indexes_of_a_segment_that_was_closed_in_between_are_complete() -> None:
    logs = LogHarness(config=log_config(index_interval_bytes=0))
    for number in range(8):
        logs.append(batch(timestamp=1000 + number))
        logs.log.segments.active.release()
    assert logs.log.segments.active.open_file is None
    assert logs.restart().recovery.clean
    assert logs.log.offset_of_max_timestamp() == TimestampOffset(1007, 7, 0)
    assert logs.log.offset_for_timestamp(1003) == TimestampOffset(1003, 3, 0)
    logs.log.segments.active.release()
    logs.append(batch(timestamp=2000))
    logs.log.segments.active.release()
    assert logs.restart().offset_of_max_timestamp() == TimestampOffset(2000, 8, 0)


def test_a_planned_read_keeps_its_file(tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    logs = LogHarness(disk=OsFileSystem(), path=str(tmp_path / "topic-0"), config=SMALL)
    logs.fill(9)
    logs.log.flush()
    plan = logs.log.plan_read(0, 10)
    logs.log.segments.first.release()
    logs.log.delete_records(-1, 9, now_ms=0)
    logs.log.delete_pending_files(None)
    assert plan.run().first_offset == 0


def test_a_flush_of_many_segments_holds_few_descriptors() -> None:
    logs = LogHarness(config=SMALL)
    logs.log._state.open_segments.capacity = 2
    logs.fill(30)
    job = logs.log.flush_job()
    assert job is not None
    assert len(job._files) <= 2
    job.run()
    job.finish()
    assert logs.log.recovery_point == logs.log.log_end_offset
    disk = logs.disk
    assert isinstance(disk, MemoryDisk)
    disk.lose_power()
    assert logs.open(recovery_point=30).log_end_offset == 30


# --- operations without a descriptor


def _filled() -> LogHarness:
    logs = LogHarness(config=SMALL)
    for number in range(7):
        logs.append(batch(timestamp=1000 + number, producer_id=5, producer_epoch=0, base_sequence=number))
    logs.log.flush()
    logs.append(batch(timestamp=1007, producer_id=5, producer_epoch=0, base_sequence=7))
    logs.log._state.open_segments.capacity = 1
    logs.log._state.open_segments.close_some(10)
    return logs


def _read_all(logs: LogHarness) -> None:
    assert len(logs.headers()) == 8


def _append(logs: LogHarness) -> None:
    logs.append(batch(timestamp=2000, producer_id=5, producer_epoch=0, base_sequence=8))


def _append_three(logs: LogHarness) -> None:
    for sequence in range(logs.log.log_end_offset, 11):
        data = batch(timestamp=2000 + sequence, producer_id=5, producer_epoch=0, base_sequence=sequence)
        logs.append(data, origin=Origin.CLIENT)


def _flush(logs: LogHarness) -> None:
    logs.log.flush()


OPERATIONS: dict[str, Callable[[LogHarness], object]] = {
    "append": _append,
    "append until a segment rolls": _append_three,
    "roll": lambda logs: logs.log.roll(0),
    "read": _read_all,
    "look up a timestamp": lambda logs: logs.log.offset_for_timestamp(1004),
    "look up the largest timestamp": lambda logs: logs.log.offset_of_max_timestamp(),
    "flush": _flush,
    "truncate": lambda logs: logs.log.truncate_to(4),
    "truncate within the last segment": lambda logs: logs.log.truncate_to(7),
    "truncate fully": lambda logs: logs.log.truncate_fully_and_start_at(3),
    "restart elsewhere": lambda logs: logs.log.truncate_fully_and_start_at(100),
    "skip": lambda logs: logs.log.log_end_offset < 20 and logs.log.skip_to(20, now_ms=0),
    "delete records": lambda logs: logs.log.delete_records(5, 8, now_ms=0),
    "retention": lambda logs: logs.log.enforce_retention(0, 8),
    "aborted transactions": lambda logs: logs.log.aborted_transactions(0, 8),
}


def _state(logs: LogHarness) -> tuple[object, ...]:
    """Everything that an observer of the log can see."""
    log = logs.log
    return (
        log.log_start_offset,
        log.log_end_offset,
        [(h.base_offset, h.max_timestamp) for h in logs.headers()],
        [(e.producer_id, e.last_sequence) for e in log.producers.entries],
        log.offset_of_max_timestamp(),
        log.epoch_entries,
    )


def _restart(logs: LogHarness, *, kill: bool) -> None:
    log = logs.log
    if kill:
        logs.kill(recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)
    else:
        logs.restart()


@pytest.mark.parametrize("kill", [False, True], ids=["then-a-clean-restart", "then-a-kill"])
@pytest.mark.parametrize("operation", [pytest.param(name, id=name.replace(" ", "-")) for name in OPERATIONS])
def test_an_operation_without_a_descriptor_fails_alone(operation: str, kill: bool) -> None:
    """The operation is repeated; in each round one more file can be opened before there is no descriptor left. A failed
    operation leaves the log online and usable, and the final result is the same as without any failure."""
    act = OPERATIONS[operation]
    undisturbed = _filled()
    act(undisturbed)
    expected = _state(undisturbed)
    _restart(undisturbed, kill=kill)
    expected_later = _state(undisturbed)
    failed = 0
    for allowed in range(60):
        logs = _filled()
        disk = logs.disk
        assert isinstance(disk, MemoryDisk)
        left = [allowed]

        def lacks(path: str, left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        disk.lacks_descriptors = lacks
        try:
            act(logs)
            done = True
        except DescriptorsExhaustedError:
            done = False
        assert not logs.log.failed
        assert not logs.failures
        disk.lacks_descriptors = lambda path: False
        if not done:
            failed += 1
            act(logs)
        assert _state(logs) == expected, f"{allowed} files could be opened"
        _restart(logs, kill=kill)
        assert _state(logs)[:-1] == expected_later[:-1], f"after a restart; {allowed} files could be opened"
        assert kill or _state(logs) == expected_later, "a kill may bring back an older leader epoch checkpoint"
        if done and left[0] >= 0:
            break
    else:
        pytest.fail("the operation needs more files than expected")
    if operation not in ("aborted transactions", "retention", "delete records"):
        assert failed, "the operation opens no file"


@pytest.mark.parametrize("kind", [names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX])
def test_an_index_that_cannot_be_opened_twice_fails_both_appends(kind: str) -> None:
    """The second append used to be written before it failed, and a marker that was written so aborted nothing."""
    logs = LogHarness(config=log_config(index_interval_bytes=0))
    disk = logs.disk
    assert isinstance(disk, MemoryDisk)
    logs.fill(3)
    logs.append(batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    logs.restart()
    before = bytes(disk.data(f"{PATH}/{0:020d}.log"))
    disk.lacks_descriptors = lambda path: path.endswith(kind)
    for _ in range(2):
        with pytest.raises(DescriptorsExhaustedError):
            logs.marker(7, 0, commit=False)
        assert logs.log.log_end_offset == 4
        assert bytes(disk.data(f"{PATH}/{0:020d}.log")) == before
    disk.lacks_descriptors = lambda path: False
    assert logs.marker(7, 0, commit=False).first_offset == 4
    assert [txn.producer_id for txn in logs.log.aborted_transactions(0, 5)] == [7]
    assert [header.base_offset for header in logs.headers()] == [0, 1, 2, 3, 4]
    assert not logs.failures


INDEXES = (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX)


def _with_an_aborted_transaction() -> LogHarness:
    """Offsets 0 to 2; 3 is of a transaction of producer 7, which 4 aborts; then 5 to 7."""
    logs = LogHarness(config=log_config(index_interval_bytes=0))
    logs.fill(3)
    logs.append(batch(timestamp=1_010, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    logs.marker(7, 0, commit=False)
    logs.fill(3, start_timestamp=20_000)
    logs.log.flush()
    logs.log.segments.active.write_indexes()
    return logs


def _append_after_truncation(logs: LogHarness) -> tuple[object, ...]:
    """The log after records of the same producer that are not aborted, as it is, and as it is after a restart. If the
    transaction is open again, it is committed."""
    if logs.log.log_end_offset == 4:
        logs.marker(7, 0, commit=True)
    found: list[object] = []
    for sequence in range(4):
        logs.append(batch(timestamp=500 + sequence, producer_id=7, producer_epoch=1, base_sequence=sequence))
        found.append(logs.log.offset_of_max_timestamp())
        logs.log.segments.active.release()
    for _ in range(2):
        log = logs.log
        end = log.log_end_offset
        times = [log.offset_for_timestamp(timestamp) for timestamp in (0, 501, 1_001, 15_000)]
        found += [end, times, log.offset_of_max_timestamp(), log.aborted_transactions(0, end), len(logs.headers())]
        logs.restart()
    assert not logs.failures
    return tuple(found)


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize("kind", INDEXES)
def test_truncated_entries_do_not_return_from_files_that_could_not_be_opened(kind: str, offset: int) -> None:
    undisturbed, logs = _with_an_aborted_transaction(), _with_an_aborted_transaction()
    undisturbed.log.truncate_to(offset)
    disk = logs.disk
    assert isinstance(disk, MemoryDisk)
    disk.lacks_descriptors = lambda path: path.endswith(kind)
    logs.log.truncate_to(offset)
    disk.lacks_descriptors = lambda path: False
    logs.log.segments.active.release()
    assert _append_after_truncation(logs) == _append_after_truncation(undisturbed)


@pytest.mark.parametrize("offset", [0, 3, 4])
@pytest.mark.parametrize("kind", INDEXES)
def test_truncated_entries_in_a_file_are_ignored(kind: str, offset: int) -> None:
    """The file is as long as before the truncation."""
    undisturbed, logs = _with_an_aborted_transaction(), _with_an_aborted_transaction()
    undisturbed.log.truncate_to(offset)
    disk, path = logs.disk, f"{PATH}/{0:020d}{kind}"
    assert isinstance(disk, MemoryDisk)
    long = bytes(disk.data(path))
    logs.log.truncate_to(offset)
    logs.log.close()
    assert len(disk.data(path)) < len(long)
    disk.data(path)[:] = long
    logs.open(clean=True, recovery_point=offset)
    assert _append_after_truncation(logs) == _append_after_truncation(undisturbed)


def test_a_flush_without_a_descriptor_does_not_take_the_directory_offline() -> None:
    logs = _filled()
    disk = logs.disk
    assert isinstance(disk, MemoryDisk)
    job = logs.log.flush_job()
    assert job is not None
    disk.lacks_descriptors = lambda path: True
    with pytest.raises(DescriptorsExhaustedError) as raised:
        job.run()
    job.failed(raised.value)
    assert not logs.log.failed
    disk.lacks_descriptors = lambda path: False
    logs.log.flush()
    assert logs.log.durable_offset == 8


def test_checkpoints_without_a_descriptor_leave_the_directory_online() -> None:
    disk = MemoryDisk()
    failures: list[StorageError] = []
    home = LogDir.open(
        disk.mount(),
        "/data",
        cluster_id="c",
        node_id=1,
        new_directory_id=UUID(int=1),
        on_failure=lambda directory, error: failures.append(error),
    )
    name = TopicPartition("t", 0)
    log = home.create_log(name, None, log_config(), now_ms=0)
    log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
    disk.lacks_descriptors = lambda path: True
    steps: list[Callable[[], object]] = [
        home.checkpoint_recovery_points,
        home.checkpoint_log_starts,
        lambda: home.checkpoint_high_watermarks({name: 1}),
        lambda: home.create_log(TopicPartition("t", 1), UUID(int=7), log_config(), now_ms=0),
    ]
    for step in steps:
        with pytest.raises(DescriptorsExhaustedError):
            step()
    assert home.failure is None
    assert not failures
    disk.lacks_descriptors = lambda path: False
    for step in steps:
        step()
    assert set(home.logs) == {name, TopicPartition("t", 1)}


# --- the operating system


@contextmanager
def _few_descriptors(free: int) -> Iterator[None]:
    """Lower the soft limit of this process so that only the numbers below the highest open one plus `free` are left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = [os.open(os.devnull, os.O_RDONLY) for _ in range(free + 1)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(probe), hard))
    for fd in probe[:-1]:
        os.close(fd)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(probe[-1])


def _in_own_process(body: Callable[[Path], None], tmp_path: Path) -> None:
    """Call `body(tmp_path)` in a new process, in which no thread of another test opens or closes a descriptor."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(body, tmp_path).result()


def _open_without_a_descriptor(tmp_path: Path) -> None:
    fs, path = OsFileSystem(), str(tmp_path / "file")
    with _few_descriptors(3):
        held = []
        with pytest.raises(DescriptorsExhaustedError, match="ulimit -n"):
            held.extend(fs.open(path, Access.WRITE) for _ in range(100))
        assert len(held) == 3
        for call in (lambda: fs.listdir(str(tmp_path)), lambda: fs.sync_dir(str(tmp_path)), lambda: fs.lock(path)):
            with pytest.raises(DescriptorsExhaustedError):
                call()
        held.pop().close()
        fs.sync_dir(str(tmp_path))


def test_an_open_without_a_descriptor_is_not_a_failure_of_the_disk(tmp_path: Path) -> None:
    _in_own_process(_open_without_a_descriptor, tmp_path)


def _open_with_a_reserve(tmp_path: Path) -> None:
    reserve = os_files.RESERVE
    fs, path = OsFileSystem(), str(tmp_path / "file")
    fs.open(path, Access.WRITE).close()
    with _few_descriptors(6):
        reserve.hold(3)
        held = []
        with pytest.raises(DescriptorsExhaustedError):
            held.extend(fs.open(path, Access.READ) for _ in range(100))
        assert len(held) == 6
        assert reserve.used == 3
        assert reserve.short
        for file in held:
            file.close()
        assert not reserve.short
        fs.sync_dir(str(tmp_path))
        reserve.release(3)


def test_an_open_uses_the_reserve_and_a_close_restores_it(tmp_path: Path) -> None:
    _in_own_process(_open_with_a_reserve, tmp_path)


def test_the_reserve_is_as_large_as_its_largest_holder_asks_for() -> None:
    reserve = DescriptorReserve()
    kept = []
    for change, count in (("hold", 3), ("hold", 5), ("hold", 3), ("release", 5), ("release", 3), ("release", 3)):
        getattr(reserve, change)(count)
        kept.append(len(reserve._kept))
    assert kept == [3, 5, 5, 3, 3, 0]


def test_a_reserve_that_holds_nothing_gives_nothing() -> None:
    reserve = DescriptorReserve()
    assert not reserve.give_up()
    assert reserve.exhausted == 1


def test_the_soft_limit_is_raised_to_the_hard_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft // 2, 256), hard))
    try:
        before, after = raise_descriptor_limit()
        assert before == max(soft // 2, 256)
        assert after == min(hard, 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_both_limits_are_recognized(number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DescriptorsExhaustedError):
        OsFileSystem().open(str(tmp_path / "file"), Access.WRITE)
