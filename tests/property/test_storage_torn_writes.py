"""Properties of recovery after a power failure, on a disk that loses writes sector by sector.

The model knows what was durable. Whatever else the disk has written by itself, recovery keeps every durable batch, and
takes no lost write for bit rot.

    durable     the content as of the last sync                    ──┐
    versions    the contents after each operation since then       ──┼── each sector is drawn from one of them; where
    generation  the versions since the last truncation             ──┘    that version ended earlier, it has zeros

After a truncation the file system may still have the whole previous generation. Otherwise only the page that the
truncation has cut may have its old content, because the other pages were freed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import BatchHeader, iter_batches
from barnabas.server.storage.damage import SECTOR
from barnabas.server.storage.errors import DamagedLogError
from barnabas.testing.sim.platter import Inode
from tests.configs import log_config
from tests.unit.server.storage.logs import PATH, LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk

PAGE = 4096
LIMITS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**48)


@dataclass
class Generation:
    """The contents of a file since its last truncation. Each is a prefix of the next one."""

    versions: list[bytes]
    cut_page: int = -1
    """The page that the truncation has cut; its old content may be on the disk. -1 if the cut was between two pages."""


@dataclass
class TornDisk:
    """Remembers the contents of each file since its last sync, and draws what a power failure leaves of them."""

    disk: MemoryDisk
    history: dict[int, list[Generation]] = field(default_factory=dict)
    inodes: dict[int, Inode] = field(default_factory=dict)

    def observe(self) -> None:
        """Call this after every operation."""
        for inode in (*self.disk._names.values(), *self.disk._durable_names.values()):
            if inode is None:
                continue
            self.inodes[id(inode)] = inode  # keeps the inode, and so its id
            content = bytes(inode.data)
            known = self.history.get(id(inode))
            if inode.durable == content:
                self.history[id(inode)] = [Generation([content])]
            elif known is None:
                self.history[id(inode)] = [Generation([inode.durable, content])]
            elif not content.startswith(known[-1].versions[-1]):
                last = known[-1].versions[-1]
                kept = next((i for i, (a, b) in enumerate(zip(last, content, strict=False)) if a != b), len(content))
                kept = min(kept, len(content))
                known.append(Generation([last[:kept], content], kept // PAGE if kept % PAGE else -1))
            elif content != known[-1].versions[-1]:
                known[-1].versions.append(content)

    def lose_power(self, rng: random.Random) -> None:
        disk = self.disk
        disk.crash()
        source = disk._names if rng.random() < 0.5 else disk._durable_names
        left: dict[int, Inode] = {}
        names: dict[str, Inode | None] = {}
        for path in sorted(source):
            inode = source[path]
            if inode is not None and id(inode) not in left:
                generations = self.history[id(inode)]
                appended = path.endswith(".log")
                left[id(inode)] = Inode(_torn(generations, rng) if appended else _replaced(generations, rng))
            names[path] = None if inode is None else left[id(inode)]
        disk._names, disk._durable_names = names, dict(names)
        self.history.clear()
        self.inodes.clear()


def _replaced(generations: list[Generation], rng: random.Random) -> bytes:
    """A small file that is not appended to: any version."""
    return rng.choice([version for generation in generations for version in generation.versions])


def _torn(generations: list[Generation], rng: random.Random) -> bytes:
    last = rng.randrange(len(generations)) if rng.random() < 0.3 else len(generations) - 1
    present, before = generations[last], generations[:last]
    versions = present.versions
    shortest = len(versions[0])
    end = len(rng.choice(versions))
    if rng.random() < 0.2:
        end = rng.randint(shortest, len(versions[-1]))
    chance = rng.choice([0.0, 0.1, 0.5, 0.9])
    old_page = rng.choice(before[-1].versions) if before and rng.random() < 0.4 else None
    content = bytearray()
    for start in range(0, end, SECTOR):
        version = rng.choice(versions) if rng.random() < chance else versions[-1]
        if old_page is not None and start // PAGE == present.cut_page:
            version = old_page
        piece = version[start : start + SECTOR]
        content += piece + bytes(SECTOR - len(piece))
    return bytes(content[:end])


class Life:
    """A log, the batches that it should have, and those of them that are durable."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.segment_bytes = rng.choice([1500, 6000, 50_000])
        config = log_config(internal_segment_bytes=self.segment_bytes, file_delete_delay_ms=0, retention_ms=-1)
        self.logs = LogHarness(config=config)
        disk = self.logs.disk
        assert isinstance(disk, MemoryDisk)
        disk.sync_dir("/")
        disk.sync_dir("/data")
        self.torn = TornDisk(disk)
        self.epoch = 0
        self.rows: list[BatchHeader] = []
        self.old_rows: set[tuple[int, int]] = set()
        """(offset, CRC) of batches that a truncation has removed, which may be back after a power failure."""
        self.durable = 0
        """The number of durable batches."""
        self.checkpointed = 0
        """The recovery point that the next process finds."""

    def append(self) -> None:
        rng = self.rng
        filling = rng.choice([b"v", b"\0", b"\xff"])
        size = min(rng.choice([0, 1, 30, 300, 900, 2500]), self.segment_bytes // 4)
        value = filling * size + bytes([rng.randrange(256)])
        data = batch(rng.randint(1, 3), value=value, timestamp=rng.randrange(10**6))
        self.logs.append(data, epoch=self.epoch)
        self.rows = self.logs.headers()

    def sync(self) -> None:
        self.logs.log.flush()
        self.durable = len(self.rows)

    def truncate(self) -> None:
        log = self.logs.log
        before = self.rows
        # between two batches, where the logs of a follower and its leader diverge
        offset = self.rng.choice([row.base_offset for row in before[-4:]] or [0])
        log.truncate_to(offset)
        self.rows = self.logs.headers()
        self.old_rows |= {(row.base_offset, row.crc) for row in before[len(self.rows) :]}
        self.durable = min(self.durable, len(self.rows))
        self.checkpointed = min(self.checkpointed, log.recovery_point)  # the log directory does this before
        self.epoch += 1

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.7:
            self.append()
        elif chance < 0.8:
            self.sync()
        elif chance < 0.86:
            self.truncate()
        elif chance < 0.92:
            self.logs.log.roll(0)
        else:
            self.checkpointed = self.logs.log.recovery_point
        self.torn.observe()

    def lose_power(self) -> None:
        self.torn.lose_power(self.rng)

    def reopen(self) -> list[BatchHeader]:
        self.logs.open(recovery_point=self.checkpointed)
        return self.logs.headers()


def live(seed: int) -> Life:
    life = Life(random.Random(seed))
    life.torn.observe()
    for _ in range(life.rng.randint(1, 25)):
        life.step()
    return life


def check_power_failures(seed: int) -> None:
    life = live(seed)
    for _ in range(2):  # the second failure meets a log that has been recovered, and appended to again
        rows, durable = life.rows, life.rows[: life.durable]
        life.lose_power()
        found = life.reopen()  # no lost write is taken for bit rot
        assert found[: len(durable)] == durable, "a durable batch was cut off"
        if not life.old_rows:
            assert found == rows[: len(found)]
        for row in found[len(durable) :]:
            assert row in rows or (row.base_offset, row.crc) in life.old_rows
        assert all(before.next_offset == row.base_offset for before, row in pairwise(found))
        life.rows, life.durable = found, 0
        life.epoch += 1
        life.torn.observe()
        for _ in range(life.rng.randint(0, 6)):
            life.step()


@LIMITS
@given(seed=SEEDS)
def test_power_failure_loses_no_durable_batch_and_is_not_taken_for_rot(seed: int) -> None:
    check_power_failures(seed)


@LIMITS
@given(seed=SEEDS)
def test_rot_below_the_recovery_point_is_found_beside_torn_writes(seed: int) -> None:
    life = live(seed)
    rng = life.rng
    if life.checkpointed == 0:
        life.append()
        life.sync()
        life.checkpointed = life.logs.log.recovery_point
        life.torn.observe()
    for _ in range(rng.randint(0, 6)):
        life.append()
        life.torn.observe()
    life.lose_power()
    disk = life.logs.disk
    assert isinstance(disk, MemoryDisk)
    # recovery reads the whole segment of the recovery point
    bases = [int(name[:20]) for name in disk.listdir(PATH) if name.endswith(".log")]
    base = max(base for base in bases if base <= life.checkpointed)
    content = disk.data(f"{PATH}/{base:020d}.log")
    below = [row for row in life.rows if base <= row.base_offset and row.next_offset <= life.checkpointed]
    if not below:
        return
    chosen = rng.choice(below)
    position = next(p for p, header in iter_batches(content) if header.base_offset == chosen.base_offset)
    content[position + rng.randrange(16, chosen.size)] ^= 1 << rng.randrange(8)
    before = bytes(content)
    with pytest.raises(DamagedLogError, match=f"where offset {chosen.base_offset} begins"):
        life.reopen()
    assert bytes(disk.data(f"{PATH}/{base:020d}.log")) == before, "nothing is cut off"
