"""Shell: reads the load of a cluster: replicas, sizes, free disk space, and the traffic of each partition.

Brokers do not report the traffic of a partition. So it is estimated from two samples: the records that were written or
read in between, times the average size of a record of the partition.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from barnabas.cli.cluster.moves_placement import ClusterPlacement, read_moving_placement
from barnabas.cli.session import ANSWER_TIMEOUT_MS, answer_of
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.balance.values import ClusterLoad, PartitionLoad, PlannedBroker, PlannedRole

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

_GROUPS_MAX: Final = 200
"""The number of consumer groups whose reading is measured."""


@dataclass(frozen=True, slots=True)
class BrokerChoice:
    """Which brokers and topics a plan may touch."""

    added: frozenset[int] = frozenset()
    """The only brokers that get replicas; empty if all brokers may get some."""
    removed: frozenset[int] = frozenset()
    excluded: frozenset[int] = frozenset()
    excluded_topics: str | None = None
    """A regular expression for whole names."""
    disk_percent: int = 80
    """How full the disks of a broker may become."""


@dataclass(frozen=True, slots=True)
class Disks:
    """The log directories of the brokers that answer. `size` has the bytes of each partition's largest replica, `used`
    those of all replicas of a broker. `room` has a broker's disk space, all and free, if the broker reports both."""

    size: Mapping[TopicPartition, int] = field(default_factory=dict)
    used: Mapping[int, int] = field(default_factory=dict)
    room: Mapping[int, tuple[int, int]] = field(default_factory=dict)


Traffic = Mapping[TopicPartition, tuple[int, int]]
"""Partition -> bytes per second that are written, and that are read by consumer groups."""


@dataclass(frozen=True, slots=True)
class ReadCluster:
    """What was read. `leaderless` partitions have no replica from which others could be copied."""

    placement: ClusterPlacement
    leaderless: frozenset[TopicPartition] = frozenset()
    disks: Disks = field(default_factory=Disks)
    traffic: Traffic = field(default_factory=dict)

    @property
    def dead(self) -> tuple[int, ...]:
        """The brokers that have replicas and do not live."""
        held = {broker for replicas in self.placement.targets.values() for broker in replicas}
        return tuple(sorted(held - set(self.placement.racks)))


async def read_cluster(admin: AsyncAdmin, *, sample_s: float = 0) -> ReadCluster:
    """Read the placement and the disks and, if `sample_s` is not 0, measure the traffic for so many seconds."""
    placement = await read_moving_placement(admin)
    names = sorted({tp.topic for tp in placement.replicas})
    views = [view for view in (await admin.describe_topics(names)).values() if not isinstance(view, KafkaError)]
    leaderless = {
        TopicPartition(view.name, index) for view in views for index, p in enumerate(view.partitions) if p.leader < 0
    }
    disks = await _read_disks(admin, placement.racks)
    led = [tp for tp in placement.replicas if tp not in leaderless]
    traffic = await _measure_traffic(admin, led, disks, sample_s) if sample_s and led else {}
    return ReadCluster(placement, frozenset(leaderless), disks, traffic)


def build_load(found: ReadCluster, choice: BrokerChoice) -> ClusterLoad:
    """The load for the planner. Raises ValueError if a broker of the choice does not exist or is in two lists."""
    living = set(found.placement.racks)
    known = living | set(found.dead)
    _check_choice(choice, living, known)
    brokers = {
        broker: PlannedBroker(
            found.placement.racks.get(broker),
            _role(broker, choice, is_alive=broker in living),
            _bytes_max(found.disks, broker, choice.disk_percent),
        )
        for broker in sorted(known)
    }
    is_excluded = re.compile(choice.excluded_topics or r"(?!)").fullmatch
    partitions = {}
    for tp, replicas in found.placement.targets.items():
        written, read = found.traffic.get(tp, (0, 0))
        is_fixed = (
            tp in found.placement.under_way
            or tp in found.leaderless
            or is_excluded(tp.topic) is not None
            or (bool(choice.removed) and not choice.added and choice.removed.isdisjoint(replicas))
        )
        if replicas:
            partitions[tp] = PartitionLoad(replicas, found.disks.size.get(tp, 0), written, read, is_fixed)
    return ClusterLoad(brokers, partitions)


def _check_choice(choice: BrokerChoice, living: Collection[int], known: Collection[int]) -> None:
    lists = {
        "--add-broker": (choice.added, living),
        "--remove-broker": (choice.removed, known),
        "--exclude-brokers": (choice.excluded, known),
    }
    for option, (ids, possible) in lists.items():
        if unknown := sorted(ids - set(possible)):
            names = ", ".join(map(str, unknown))
            raise ValueError(f"{option} {names}: the cluster has the brokers {sorted(possible)}.")
    if twice := sorted((choice.added & choice.removed) | (choice.excluded & (choice.added | choice.removed))):
        raise ValueError(f"Broker {', '.join(map(str, twice))} can only be added, removed or excluded.")


def _role(broker: int, choice: BrokerChoice, *, is_alive: bool) -> PlannedRole:
    if broker in choice.removed:
        return PlannedRole.LEAVES
    if broker in choice.excluded or not is_alive:
        return PlannedRole.EXCLUDED
    return PlannedRole.GIVES if choice.added and broker not in choice.added else PlannedRole.TAKES_PART


def _bytes_max(disks: Disks, broker: int, percent: int) -> int | None:
    """The bytes that all replicas of a broker may have. What else is on the disks stays there."""
    if broker not in disks.room:
        return None
    total, free = disks.room[broker]
    return max(disks.used[broker] + free - total * (100 - percent) // 100, 0)


async def _read_disks(admin: AsyncAdmin, brokers: Collection[int]) -> Disks:
    """A broker that does not answer is left out."""
    ids = sorted(brokers)
    asked = (answer_of(admin.describe_log_dirs([broker], timeout_ms=ANSWER_TIMEOUT_MS)) for broker in ids)
    size: dict[TopicPartition, int] = {}
    used: dict[int, int] = {}
    room: dict[int, tuple[int, int]] = {}
    for broker, answer in zip(ids, await asyncio.gather(*asked), strict=True):
        if answer is None:
            continue
        directories = [d for d in answer[broker].values() if not isinstance(d, KafkaError)]
        for d in directories:
            for tp, replica in d.replicas.items():
                size[tp] = max(size.get(tp, 0), replica.size_bytes)  # a replica that lags behind is smaller
        used[broker] = sum(replica.size_bytes for d in directories for replica in d.replicas.values())
        if directories and all(d.total_bytes >= 0 and d.usable_bytes >= 0 for d in directories):
            room[broker] = sum(d.total_bytes for d in directories), sum(d.usable_bytes for d in directories)
    return Disks(size, used, room)


async def _measure_traffic(
    admin: AsyncAdmin, partitions: Collection[TopicPartition], disks: Disks, seconds: float
) -> dict[TopicPartition, tuple[int, int]]:
    from barnabas.client.values import EARLIEST, LATEST

    loop = asyncio.get_running_loop()
    starts = await _offsets(admin, partitions, EARLIEST)
    ends, committed = await _offsets(admin, partitions, LATEST), await _committed(admin)
    began = loop.time()
    await asyncio.sleep(seconds)
    later, committed_later = await _offsets(admin, partitions, LATEST), await _committed(admin)
    passed = loop.time() - began
    read: dict[TopicPartition, int] = {}
    for (group, tp), offset in committed_later.items():
        read[tp] = read.get(tp, 0) + max(offset - committed.get((group, tp), offset), 0)
    traffic = {}
    for tp, end in later.items():
        records = end - starts.get(tp, end)
        each = disks.size.get(tp, 0) / records if records > 0 else 0.0
        written = max(end - ends.get(tp, end), 0)
        traffic[tp] = round(written * each / passed), round(read.get(tp, 0) * each / passed)
    return traffic


async def _offsets(admin: AsyncAdmin, partitions: Collection[TopicPartition], which: int) -> dict[TopicPartition, int]:
    answers = await admin.list_offsets(dict.fromkeys(partitions, which))
    return {tp: answer.offset for tp, answer in answers.items() if not isinstance(answer, KafkaError)}


async def _committed(admin: AsyncAdmin) -> dict[tuple[str, TopicPartition], int]:
    """(group, partition) -> committed offset, of consumer groups."""
    groups = [g.group_id for g in await admin.list_groups() if g.group_id and g.type not in ("share", "streams")]
    found = {}
    for group in sorted(groups)[:_GROUPS_MAX]:
        try:
            committed = await admin.list_group_offsets(group)
        except KafkaError:  # not authorized for this group, or it was deleted just now
            continue
        for tp, answer in committed.items():
            if not isinstance(answer, KafkaError) and answer.offset >= 0:
                found[group, tp] = answer.offset
    return found
