"""Machine: draws a bit that flips while a node is down, and says which effect the flip must have on the node.

    the metadata log                           the node refuses to start
    a coordinator's log                        that partition is offline
    an offset index                            everything is as before

No other file is drawn: Kafka's formats have no checksum for them, or the broker reads data partitions only for clients,
which check the CRCs themselves. The node was stopped in order, because the end of a log after kill -9 may be torn.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from barnabas.core.ids import INTERNAL_TOPICS, METADATA_TOPIC
from barnabas.protocol.records.batch import iter_batches
from barnabas.server.storage import names
from barnabas.testing.sim.disk import MemoryDisk

_CRC_START = 16
"""Base offset, length and leader epoch of a batch lie outside the CRC; only the metadata log can check them."""


class Expected(Enum):
    """The effect that a flipped bit must have."""

    REFUSED = "the node refuses to start"
    OFFLINE = "the partition is offline"
    NOTHING = "everything is as before"


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of one file."""

    path: str
    position: int
    bit: int
    expected: Expected


def draw_flip(disk: MemoryDisk, rng: random.Random) -> Flip | None:
    """A bit of a file that has one; None if the disk has no such file yet. The kinds of files are equally likely."""
    kinds: dict[Expected, list[str]] = {}
    for path in disk.paths():
        expected = _expected(path)
        if expected is not None and disk.data(path):
            kinds.setdefault(expected, []).append(path)
    if not kinds:
        return None
    expected = rng.choice(sorted(kinds, key=lambda kind: kind.value))
    path = rng.choice(kinds[expected])
    data = disk.data(path)
    position = rng.randrange(len(data))
    if expected is Expected.OFFLINE:
        start, header = rng.choice(list(iter_batches(data)))
        position = start + rng.randrange(_CRC_START, header.size)
    return Flip(path, position, rng.randrange(8), expected)


def _expected(path: str) -> Expected | None:
    directory, _, name = path.rpartition("/")
    parsed = names.parse_partition_dir(directory.rpartition("/")[2])
    if parsed is None or parsed[1]:
        return None
    if name.endswith(names.LOG):
        if parsed[0].topic == METADATA_TOPIC:
            return Expected.REFUSED
        return Expected.OFFLINE if parsed[0].topic in INTERNAL_TOPICS else None
    if name.endswith(names.OFFSET_INDEX) and parsed[0].topic != METADATA_TOPIC:
        return Expected.NOTHING
    return None
