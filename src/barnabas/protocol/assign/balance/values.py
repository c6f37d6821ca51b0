"""Value: what a cluster's brokers hold, the goals of a plan, and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from barnabas.core.ids import TopicPartition

Replicas = tuple[int, ...]
"""Broker ids, the preferred leader first."""


class Goal(StrEnum):
    """What a plan improves. The first four are hard: they come before all others, and cannot be switched off."""

    PLACEMENT = "placement"
    """No replica stays on a broker that is dead or is to be removed."""
    RACKS = "racks"
    """The replicas of a partition are on as many racks as possible."""
    REPLICA_CAPACITY = "replica-capacity"
    """No broker has more replicas than `BalanceOptions.replicas_max`."""
    DISK_CAPACITY = "disk-capacity"
    """No broker has more bytes than `PlannedBroker.bytes_max`."""
    REPLICAS = "replicas"
    DISK = "disk"
    NETWORK_IN = "network-in"
    NETWORK_OUT = "network-out"
    LEADERS = "leaders"


HARD_GOALS = (Goal.PLACEMENT, Goal.RACKS, Goal.REPLICA_CAPACITY, Goal.DISK_CAPACITY)
SOFT_GOALS = (Goal.REPLICAS, Goal.DISK, Goal.NETWORK_IN, Goal.NETWORK_OUT, Goal.LEADERS)
"""In the order in which they matter, if the user gives no order."""


class PlannedRole(Enum):
    """What a plan may do with a broker."""

    TAKES_PART = "takes part"
    GIVES = "gives"
    """It keeps replicas or gives them away, and gets none: with `--add-broker`, the other brokers."""
    LEAVES = "leaves"
    """It is dead or is to be removed, and should have no replica."""
    EXCLUDED = "excluded"
    """Its replicas stay, and it gets none."""


@dataclass(frozen=True, slots=True)
class PlannedBroker:
    """One broker. `bytes_max` is the size that all replicas may have on its disks; None if that is unknown."""

    rack: str | None = None
    role: PlannedRole = PlannedRole.TAKES_PART
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """One partition, with its present replicas.

    `rate_in` is the number of bytes that producers write per second, `rate_out` the number that consumers read. A
    partition that `is_fixed` counts in the load of its brokers, and its replicas do not move.
    """

    replicas: Replicas
    size: int = 0
    rate_in: int = 0
    rate_out: int = 0
    is_fixed: bool = False


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """Every broker that has replicas or may get them, and every partition."""

    brokers: Mapping[int, PlannedBroker]
    partitions: Mapping[TopicPartition, PartitionLoad]


@dataclass(frozen=True, slots=True)
class BalanceOptions:
    """How a plan is made. `goals` are soft goals in the order in which they matter."""

    goals: tuple[Goal, ...] = SOFT_GOALS
    tolerance: float = 0.1
    """A broker is in balance if its load differs by at most this share from the average."""
    replicas_max: int = 10_000
    moves_max: int | None = None
    """The number of partitions whose replicas or preferred leader may change."""
    bytes_max: int | None = None
    """The number of bytes that may be copied."""


@dataclass(frozen=True, slots=True)
class Move:
    """The new replicas of a partition, and the bytes that are copied for it: 0 if only the preferred leader changes."""

    before: Replicas
    after: Replicas
    bytes: int


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """What a broker holds: replicas, preferred leaderships, bytes on disk, and bytes per second in and out."""

    replicas: int = 0
    leaders: int = 0
    size: int = 0
    rate_in: int = 0
    rate_out: int = 0


@dataclass(frozen=True, slots=True)
class BalancePlan:
    """The moves, and the cluster before and after them."""

    moves: Mapping[TopicPartition, Move]
    before: Mapping[int, BrokerLoad]
    after: Mapping[int, BrokerLoad]
    imbalance_before: Mapping[Goal, int]
    """For each goal, by how much all brokers together miss it, in the goal's unit; 0 if the goal is reached."""
    imbalance_after: Mapping[Goal, int]
    unplaced: tuple[TopicPartition, ...] = field(default=())
    """Partitions that keep a replica on a broker that leaves, because no other broker may take the replica."""

    @property
    def bytes(self) -> int:
        """The number of bytes that the moves copy."""
        return sum(move.bytes for move in self.moves.values())
