"""Torn ends are cut off; bit rot takes the log offline, and nothing is cut."""

from __future__ import annotations

import pytest

from barnabas.server.storage.damage import SECTOR, BatchesBehind, Damage, has_lost_page
from barnabas.server.storage.errors import DamagedLogError
from tests.configs import log_config
from tests.unit.server.storage.logs import PATH, LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk

SIZE = len(batch())
SMALL = log_config(internal_segment_bytes=4 * SIZE, index_interval_bytes=SIZE)
BEHIND = BatchesBehind(900, 11, 12, 2)


def damage(*, torn: bool, behind: BatchesBehind | None = None, later: int = 0) -> Damage:
    return Damage("/x.log", 100, 10, 800, "the CRC is wrong", torn, behind, later)


@pytest.mark.parametrize(
    ("found", "synced_offset", "rot"),
    [
        (damage(torn=True), 10, False),
        (damage(torn=False), 10, False),
        (damage(torn=True), 11, True),
        (damage(torn=True, behind=BEHIND), 11, True),
        (damage(torn=True, behind=BEHIND), 10, False),
        (damage(torn=False, behind=BEHIND), 10, True),
        (damage(torn=False, later=1), 0, True),
        (damage(torn=True, later=1), 0, False),
    ],
)
def test_synced_offset_and_whole_batches_behind_decide(found: Damage, synced_offset: int, *, rot: bool) -> None:
    assert found.is_rot(synced_offset) is rot


@pytest.mark.parametrize(
    ("region", "position", "ends_file", "lost"),
    [
        (b"\0" * 112 + b"x" * 300, 400, False, True),  # from the batch to the end of its sector
        (b"\0" * 100 + b"x" * 312, 400, False, False),
        (b"x" * 112 + b"\0" * SECTOR + b"x", 400, False, True),
        (b"x" * 112 + b"\0" * (SECTOR - 1) + b"x", 400, False, False),
        (b"x" * 400 + b"\0" * 112 + b"x", 0, False, False),  # no batch is durable in part of a sector
        (b"x" * 112 + b"\0" * 40, 400, True, True),
        (b"x" * 112 + b"\0" * 40, 400, False, False),
        (b"x" * 112 + b"\0" * 2, 400, True, True),
        (b"x" * 111 + b"\0" * 3, 400, True, True),
        (b"x" * 110 + b"\0\0x", 400, True, False),
        (b"x" * 2000, 400, True, False),
        (b"\0" * 7 + b"x" * 2000, 505, True, False),  # offset 5 begins with seven zeros
        (b"\0" * 8 + b"x" * 2000, 504, True, True),
    ],
)
def test_lost_page_is_zero_up_to_the_end_of_a_sector(
    region: bytes, position: int, *, ends_file: bool, lost: bool
) -> None:
    assert has_lost_page(region, position, 5, ends_file=ends_file) is lost


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def logs(disk: MemoryDisk) -> LogHarness:
    harness = LogHarness(disk=disk, config=SMALL)
    harness.fill(14)
    return harness


def log_file(base: int) -> str:
    return f"{PATH}/{base:020d}.log"


def test_flipped_bit_with_whole_batches_behind_takes_the_log_offline(logs: LogHarness, disk: MemoryDisk) -> None:
    disk.flip_bit(log_file(4), 2 * SIZE + 70)
    before = {path: bytes(disk.data(path)) for path in disk.paths() if path.endswith(".log")}
    with pytest.raises(DamagedLogError) as raised:
        logs.kill()
    text = str(raised.value)
    assert (
        f"{log_file(4)} is damaged at byte {2 * SIZE}, where offset 6 begins: the batch does not match its CRC" in text
    )
    assert f"1 whole batches in the same file (from byte {3 * SIZE}, offsets 7 to 7) and 2 later segments" in text
    assert {path: bytes(disk.data(path)) for path in disk.paths() if path.endswith(".log")} == before


@pytest.mark.parametrize("byte", [0, 9, 10, 13, 20, 30, 70])
def test_flipped_bit_anywhere_in_a_batch_is_found(disk: MemoryDisk, byte: int) -> None:
    """Base offset, length and leader epoch lie outside the CRC."""
    logs = LogHarness(disk=disk)
    logs.fill(10)
    disk.flip_bit(log_file(0), 4 * SIZE + byte, 4)
    if byte == 13:  # a later epoch than that of the next batch: the log seems to have been truncated there
        logs.log.assign_epoch(0, 0)
    with pytest.raises(DamagedLogError, match="is damaged at byte"):
        logs.kill(recovery_point=10)


def test_damage_of_the_last_batch_below_the_recovery_point_is_rot(logs: LogHarness, disk: MemoryDisk) -> None:
    disk.flip_bit(log_file(12), SIZE + 70)
    with pytest.raises(DamagedLogError, match="Everything below offset 14 was on the disk"):
        logs.kill(recovery_point=14)
    assert logs.kill(recovery_point=13).log_end_offset == 13


def test_damage_where_a_leader_epoch_begins_may_be_a_lost_truncation(disk: MemoryDisk) -> None:
    """The power failed after old records had been truncated and new ones written; old bytes are back in one page."""
    logs = LogHarness(disk=disk)
    logs.fill(4)
    for value in range(3):
        logs.log.append_as_leader(batch(value=b"%d" % value), leader_epoch=5, now_ms=0)
    disk.flip_bit(log_file(0), 4 * SIZE + 70)
    assert logs.kill(recovery_point=4).log_end_offset == 4


def test_damage_before_a_segment_of_a_later_leader_epoch_may_be_a_lost_truncation(disk: MemoryDisk) -> None:
    logs = LogHarness(disk=disk)
    logs.fill(4)
    logs.append(batch(), epoch=5)
    logs.log.roll(0)
    logs.append(batch(), epoch=5)
    disk.flip_bit(log_file(0), 4 * SIZE + 70)
    assert logs.kill(recovery_point=4).log_end_offset == 4


@pytest.mark.parametrize("recovery_point", [0, 3])
def test_batches_that_are_back_after_a_lost_truncation_give_way_to_the_next_segment(
    disk: MemoryDisk, recovery_point: int
) -> None:
    """The next segment was created at the offset of the truncation, and reached the disk before the truncation did.
    The leader epochs did not reach the disk either."""
    logs = LogHarness(disk=disk)
    logs.fill(5)
    old = bytes(disk.data(log_file(0)))
    epochs = f"{PATH}/leader-epoch-checkpoint"
    old_epochs = bytes(disk.data(epochs))
    logs.log.truncate_to(3)
    logs.log.roll(0)
    logs.append(batch(value=b"new"), epoch=7)
    logs.append(batch(value=b"new"), epoch=7)
    disk.data(log_file(0))[:] = old
    disk.data(epochs)[:] = old_epochs
    logs.kill(recovery_point=recovery_point)
    assert [(h.base_offset, h.partition_leader_epoch) for h in logs.headers()] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 7),
        (4, 7),
    ]
    assert len(disk.data(log_file(0))) == 3 * SIZE


def test_a_cut_is_synced(logs: LogHarness, disk: MemoryDisk) -> None:
    del disk.data(log_file(12))[SIZE + 40 :]
    disk.syncs.clear()
    logs.kill()
    assert log_file(12) in disk.syncs


def test_cut_is_logged(logs: LogHarness, disk: MemoryDisk, caplog: pytest.LogCaptureFixture) -> None:
    del disk.data(log_file(12))[SIZE + 40 :]
    logs.kill()
    assert logs.log.log_end_offset == 13
    [record] = [r for r in caplog.records if "torn end" in r.getMessage()]
    assert record.levelname == "WARNING"


def test_verified_log_is_checked_after_a_clean_shutdown(logs: LogHarness, disk: MemoryDisk) -> None:
    logs.log.close()
    disk.flip_bit(log_file(8), 70)
    logs.open(clean=True, recovery_point=14)
    logs.log.close()
    with pytest.raises(DamagedLogError, match="All of this file was on the disk"):
        logs.open(clean=True, recovery_point=14, verify_bytes=1 << 20)


def test_verification_is_bounded_and_starts_with_the_newest_segment(logs: LogHarness, disk: MemoryDisk) -> None:
    logs.log.close()
    disk.flip_bit(log_file(0), 70)
    logs.open(clean=True, recovery_point=14, verify_bytes=3 * SIZE)
    with pytest.raises(DamagedLogError):
        logs.open(clean=True, recovery_point=14, verify_bytes=13 * SIZE)


@pytest.mark.parametrize("byte", range(16, 24))
def test_offset_index_with_a_flipped_bit_is_deleted_and_rebuilt(disk: MemoryDisk, byte: int) -> None:
    config = log_config(internal_segment_bytes=20 * SIZE, index_interval_bytes=SIZE)
    logs = LogHarness(disk=disk, config=config)
    logs.fill(30)
    logs.log.close()
    index = f"{PATH}/{0:020d}.index"
    before = bytes(disk.data(index))
    for bit in range(8):
        disk.data(index)[:] = before
        disk.flip_bit(index, byte, bit)
        logs.open(clean=True, recovery_point=30)
        for offset in range(30):
            data = logs.log.read(offset, 10).data
            assert int.from_bytes(data[:8], "big") == offset
        logs.log.close()
        logs.open(clean=True, recovery_point=30)
        logs.log.close()
        logs.open(clean=True, recovery_point=30)
        logs.log.close()
        if not disk.exists(index) or bytes(disk.data(index)) != before:
            pytest.fail(f"bit {bit} of byte {byte} stayed in the index")
