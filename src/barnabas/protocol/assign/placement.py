"""Machine: places the replicas of new partitions on brokers, with the semantics of Kafka's `StripedReplicaPlacer`.

Replicas go round-robin over racks, and round-robin over the brokers within a rack; each partition starts one rack and
one broker further than the one before, from a random start. With racks A, B, C of three brokers each:

    partition 0: A0 B0 C0      partition 1: B1 C1 A1      partition 2: C2 A2 B2

Fenced brokers are used only when a rack has no other broker left, and never for the first replica (the leader). No
broker holds two replicas of a partition. Brokers without a rack form a rack of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng


class PlacementError(KafkaError):
    """The replicas cannot be placed; the code is INVALID_REPLICATION_FACTOR."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REPLICATION_FACTOR, message)


class UsableBroker(Struct, frozen=True):
    """A broker that may hold replicas."""

    broker_id: int
    rack: str | None = None
    fenced: bool = False


def place_replicas(
    brokers: Iterable[UsableBroker],
    partitions: int,
    replication_factor: int,
    rng: Rng,
    *,
    existing: Sequence[Sequence[int]] = (),
) -> list[tuple[int, ...]]:
    """The replicas of `partitions` new partitions, the preferred leader first in each.

    `existing` are the replicas of the topic's partitions so far, in order: the placement continues after them.
    Raises PlacementError when the factor is not positive, exceeds the number of brokers, or every broker is fenced.
    """
    stripes = _Stripes(brokers, rng, existing)
    if replication_factor <= 0:
        raise PlacementError(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if not stripes.unfenced:
        raise PlacementError("All brokers are currently fenced.")
    if replication_factor > stripes.total:
        raise PlacementError(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{stripes.total} broker(s) are registered."
        )
    return [stripes.next_partition(replication_factor) for _ in range(partitions)]


class _Ring(Struct):
    """Either the fenced or the unfenced brokers of one rack. `take` returns each of them once in a round; every round
    starts one broker further than the round before."""

    brokers: list[int] = field(default_factory=list)
    start: int = 0
    taken: int = 0
    round: int = 0

    def take(self, round_: int) -> int | None:
        size = len(self.brokers)
        if not size:
            return None
        if self.round != round_:
            self.round = round_
            self.taken = 0
            self.start = (self.start + 1) % size
        if self.taken == size:
            return None
        broker = self.brokers[(self.start + self.taken) % size]
        self.taken += 1
        return broker


class _Rack(Struct):
    unfenced: _Ring = field(default_factory=_Ring)
    fenced: _Ring = field(default_factory=_Ring)

    def take(self, round_: int) -> int | None:
        broker = self.unfenced.take(round_)
        return self.fenced.take(round_) if broker is None else broker


class _Stripes:
    """All racks, and the rack at which the next partition starts."""

    def __init__(self, brokers: Iterable[UsableBroker], rng: Rng, existing: Sequence[Sequence[int]]) -> None:
        self._rng = rng
        self._round = 0
        racks: dict[tuple[bool, str], _Rack] = {}  # (has a name, name): brokers without a rack sort first
        rack_of: dict[int, tuple[bool, str]] = {}
        for broker in sorted(brokers, key=lambda each: each.broker_id):
            name = (broker.rack is not None, broker.rack or "")
            rack = racks.setdefault(name, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.broker_id)
            rack_of[broker.broker_id] = name
        names = sorted(racks)
        self._racks = [racks[name] for name in names]
        self.total = len(rack_of)
        self.unfenced = sum(len(rack.unfenced.brokers) for rack in self._racks)
        for name in names:
            self._choose_starts(racks[name], name, rack_of, existing)
        last = rack_of.get(existing[-1][0]) if existing and existing[-1] else None
        if last is not None:
            self._first = (names.index(last) + 1) % len(names)
        else:
            self._first = rng.randrange(len(names)) if names else 0

    def next_partition(self, factor: int) -> tuple[int, ...]:
        if self._round == self.unfenced and self.unfenced > 1:
            # One partition for each broker was placed: shuffle, so that the same sets of brokers do not repeat.
            self._shuffle()
            self._round = 0
        racks = self._racks
        index = self._first = self._first % len(racks)
        leader_rack = self._first
        leader = racks[leader_rack].unfenced.take(self._round)
        while leader is None:
            leader_rack = (leader_rack + 1) % len(racks)
            leader = racks[leader_rack].unfenced.take(self._round)
        replicas = [leader]
        skip: int | None = leader_rack  # this rack already has the leader
        while len(replicas) < factor:
            if index == skip:
                skip = None
            else:
                broker = racks[index].take(self._round)
                if broker is not None:
                    replicas.append(broker)
            index = (index + 1) % len(racks)
        self._round += 1
        self._first += 1
        return tuple(replicas)

    def _choose_starts(
        self,
        rack: _Rack,
        name: tuple[bool, str],
        rack_of: dict[int, tuple[bool, str]],
        existing: Sequence[Sequence[int]],
    ) -> None:
        if rack.fenced.brokers:
            rack.fenced.start = self._rng.randrange(len(rack.fenced.brokers))
        usable = rack.unfenced.brokers
        if not usable:
            return
        for replicas in reversed(existing):
            here = next((broker for broker in replicas if rack_of.get(broker) == name), None)
            if here is not None:
                if here in usable:
                    rack.unfenced.start = (usable.index(here) + 1) % len(usable)
                    return
                break
        rack.unfenced.start = self._rng.randrange(len(usable))

    def _shuffle(self) -> None:
        self._rng.shuffle(self._racks)
        for rack in self._racks:
            self._rng.shuffle(rack.fenced.brokers)
            self._rng.shuffle(rack.unfenced.brokers)
