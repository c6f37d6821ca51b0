"""Properties of a log under damaged files and random sequences of operations."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import BatchHeader, iter_batches
from barnabas.server.storage.errors import DamagedLogError, DiskFullError
from barnabas.server.storage.segments.indexes import OffsetIndex, TimeIndex
from tests.configs import log_config
from tests.unit.server.storage.logs import PATH, LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk

LIMITS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CONFIG = log_config(internal_segment_bytes=1500, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=-1)


def build(sizes: list[int]) -> LogHarness:
    logs = LogHarness(config=CONFIG)
    for i, size in enumerate(sizes):
        logs.append(batch(1 + size % 3, value=b"v" * size, timestamp=1000 + (i * 37) % 50), epoch=i // 3)
    return logs


def check_indexes(logs: LogHarness) -> None:
    """Check that the index files on disk are correct and have the number of entries that index.interval.bytes
    requires."""
    disk = logs.disk
    assert isinstance(disk, MemoryDisk)
    for segment in logs.log.segments:
        name = f"{PATH}/{segment.base_offset:020d}"
        data = bytes(disk.data(name + ".log"))
        batches = list(iter_batches(data))
        at = dict(batches)
        if disk.exists(name + ".index"):
            entries = OffsetIndex.decode(segment.base_offset, bytes(disk.data(name + ".index")), len(data)).entries()
            assert [(at[p].last_offset, p) for _, p in entries] == entries
            assert [p for _, p in entries] == sparse(batches, segment.index_interval_bytes)
        if disk.exists(name + ".timeindex"):
            for timestamp, offset in TimeIndex.decode(
                segment.base_offset, bytes(disk.data(name + ".timeindex"))
            ).entries():
                upto = [h for _, h in batches if h.last_offset <= offset]
                assert upto[-1].last_offset == offset
                assert max(h.max_timestamp for h in upto) == upto[-1].max_timestamp == timestamp


def sparse(batches: list[tuple[int, BatchHeader]], interval: int) -> list[int]:
    found, since = [], 0
    for position, header in batches:
        if since > interval:
            found.append(position)
            since = 0
        since += header.size
    return found


@LIMITS
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=12), data=st.data())
def test_file_truncated_anywhere_keeps_the_whole_batches(sizes: list[int], data: st.DataObject) -> None:
    logs = build(sizes)
    disk = logs.disk
    assert isinstance(disk, MemoryDisk)
    before = logs.headers()
    segment = data.draw(st.sampled_from(list(logs.log.segments)))
    following = logs.log.segments.after(segment)
    end = logs.log.log_end_offset if following is None else following.base_offset
    content = disk.data(f"{PATH}/{segment.base_offset:020d}.log")
    cut = data.draw(st.integers(0, len(content)))
    kept = [h for p, h in iter_batches(content) if p + h.size <= cut]
    lost = cut < len(content)
    del content[cut:]
    logs.kill()
    earlier = [h for h in before if h.base_offset < segment.base_offset]
    # Nor what lies behind the gap, between two batches too: a log that is not compacted has none.
    later = [] if lost else [h for h in before if h.base_offset >= end]
    assert logs.headers() == earlier + kept + later
    check_indexes(logs)
    logs.append(batch(), epoch=99)
    assert logs.kill().latest_epoch == 99


@LIMITS
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=8), data=st.data())
def test_flipped_bit_is_detected(sizes: list[int], data: st.DataObject) -> None:
    logs = build(sizes)
    disk = logs.disk
    assert isinstance(disk, MemoryDisk)
    before = logs.headers()
    segment = data.draw(st.sampled_from(list(logs.log.segments)))
    content = disk.data(f"{PATH}/{segment.base_offset:020d}.log")
    batches = list(iter_batches(content))
    chosen = data.draw(st.integers(0, len(batches) - 1))
    position, header = batches[chosen]
    epochs_behind = [one.partition_leader_epoch for one in before if one.base_offset > header.base_offset]
    # the log may have been truncated here, and old bytes may be back: rule 5 of `storage.damage`
    new_leader_behind = (
        chosen > 0 and bool(epochs_behind) and epochs_behind[0] > batches[chosen - 1][1].partition_leader_epoch
    )
    # the leader epoch (bytes 12 to 15) lies outside the CRC, as in Kafka
    offset = data.draw(st.one_of(st.integers(8, 11), st.integers(16, header.size - 1)))
    content[position + offset] ^= 1 << data.draw(st.integers(0, 7))
    if offset >= 12 and header != before[-1] and not new_leader_behind:
        with pytest.raises(DamagedLogError, match=f"damaged at byte {position}, where offset {header.base_offset} "):
            logs.kill()
        return
    try:
        logs.kill()
    except DamagedLogError:
        assert header != before[-1]  # a wrong length that does not look like the end of a torn file
        return
    assert logs.headers() == [h for h in before if h.base_offset < header.base_offset]
    check_indexes(logs)


def test_file_truncated_at_each_byte_of_the_last_batches() -> None:
    logs = build([10, 200, 5, 80])
    disk = logs.disk
    assert isinstance(disk, MemoryDisk)
    before = logs.headers()
    tail = logs.log.segments.active
    content = bytes(disk.data(f"{PATH}/{tail.base_offset:020d}.log"))
    ends = [p + h.size for p, h in iter_batches(content)]
    for cut in range(len(content) + 1):
        twin = LogHarness(disk=disk.clone(), config=CONFIG)
        assert isinstance(twin.disk, MemoryDisk)
        del twin.disk.data(f"{PATH}/{tail.base_offset:020d}.log")[cut:]
        twin.kill()
        lost = sum(1 for end in ends if end > cut)
        assert twin.headers() == before[: len(before) - lost], f"cut at byte {cut}"


OPERATIONS = (
    "append",
    "append",
    "append",
    "follow",
    "roll",
    "flush",
    "truncate",
    "advance",
    "retain",
    "restart",
    "kill",
    "fill",
)


@pytest.mark.parametrize("seed", range(25))
def test_operations_agree_with_a_list_model(seed: int) -> None:
    """The model of a log is a list of (base offset, last offset, size)."""
    rng = random.Random(seed)
    logs = LogHarness(config=CONFIG)
    disk = logs.disk
    assert isinstance(disk, MemoryDisk)
    model: list[tuple[int, int, int]] = []
    epoch = 0
    for _ in range(80):
        log = logs.log
        start = log.log_start_offset
        match rng.choice(OPERATIONS):
            case "append":
                data = batch(rng.randrange(1, 4), value=b"v" * rng.randrange(300), timestamp=rng.randrange(10**6))
                info = logs.append(data, epoch=epoch)
                model.append((info.first_offset, info.last_offset, len(data)))
            case "follow":
                base = log.log_end_offset + rng.randrange(3)
                data = batch(2, base_offset=base, leader_epoch=epoch)
                assert log.append_as_follower(data, now_ms=0) is not None
                model.append((base, base + 1, len(data)))
            case "roll":
                log.roll(0)
            case "flush":
                log.flush()
            case "truncate":
                offset = rng.randrange(start, log.log_end_offset + 2)
                log.truncate_to(offset)
                model = [m for m in model if m[1] < offset]
                epoch += 1
            case "advance":
                log.advance_log_start(rng.randrange(start, log.log_end_offset + 1))
            case "retain":
                log.enforce_retention(0, log.log_end_offset)
                log.delete_pending_files(10**9)
            case "restart":
                logs.restart()
                assert logs.log.recovery.clean or logs.log.log_end_offset == start
            case "kill":
                logs.kill(recovery_point=log.recovery_point, log_start_offset=start)
            case "fill":
                disk.capacity = disk.used + rng.randrange(100)
                with pytest.raises(DiskFullError):
                    logs.append(batch(value=b"x" * 500), epoch=epoch)
                disk.capacity = 1 << 40
        visible = [m for m in model if m[1] >= logs.log.log_start_offset]
        assert [(h.base_offset, h.last_offset, h.size) for h in logs.headers()] == visible
    logs.log.close()
    check_indexes(logs)
