"""Machine: which worker runs which connector.

The workers are the members of a group, and the group's coordinator (a broker) notices a worker that dies. One of the
workers leads the group and computes the assignment. The membership is that of consumers (`client/membership`), with a
protocol type of its own. A connector is assigned as partition 0 of a topic with the connector's name.

Connectors stay where they run. They move only from a worker that has gone, or from one that has two more than another.
A connector that moves is first taken from its worker, and assigned to the other one in the next rebalance, so that it
never runs twice (KIP-415 and KIP-429 do the same).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignment, MemberSubscription, Topics

PROTOCOL_TYPE: Final = "barnabas-connect"
PROTOCOL_NAME: Final = "connectors"


def assign_connectors(
    connectors: Collection[str], owned: Mapping[str, Sequence[str]], generations: Mapping[str, int]
) -> dict[str, list[str]]:
    """The connectors of each worker. `owned` has the connectors that each worker runs now.

    If two workers claim a connector, the one with the newer generation keeps it.
    """
    owners: dict[str, str] = {}
    for worker in sorted(owned, key=lambda worker: (generations.get(worker, -1), worker)):
        for name in owned[worker]:
            if name in connectors:
                owners[name] = worker
    assigned: dict[str, list[str]] = {worker: [] for worker in owned}
    for name in sorted(owners):
        assigned[owners[name]].append(name)
    if not assigned:
        return {}
    for name in sorted(set(connectors) - set(owners)):
        _smallest(assigned).append(name)
    _release_surplus(assigned)
    return {worker: sorted(names) for worker, names in assigned.items()}


def _release_surplus(assigned: dict[str, list[str]]) -> None:
    """Take connectors from workers that have two more than the smallest one has, or will have."""
    sizes = {worker: len(names) for worker, names in assigned.items()}
    while True:
        largest = max(sorted(sizes), key=lambda worker: sizes[worker])
        smallest = min(sorted(sizes), key=lambda worker: sizes[worker])
        if sizes[largest] - sizes[smallest] < 2:
            return
        assigned[largest].sort()
        assigned[largest].pop()
        sizes[largest] -= 1
        sizes[smallest] += 1  # gets the connector in the next rebalance


def _smallest(assigned: Mapping[str, list[str]]) -> list[str]:
    return assigned[min(sorted(assigned), key=lambda worker: len(assigned[worker]))]


class ConnectorAssignor:
    """`assign_connectors` as an assignor of the classic group protocol. `connectors` reads the connectors."""

    name = PROTOCOL_NAME
    is_cooperative = True

    def __init__(self, connectors: Callable[[], Collection[str]]) -> None:
        self._connectors = connectors
        self._led: frozenset[str] | None = None

    def assign(self, topics: Topics, members: Mapping[str, MemberSubscription]) -> Assignment:
        connectors = frozenset(self._connectors())
        owned = {member: [tp.topic for tp in subscription.owned] for member, subscription in members.items()}
        generations = {member: subscription.generation or -1 for member, subscription in members.items()}
        assigned = assign_connectors(connectors, owned, generations)
        self._led = connectors
        return {member: [TopicPartition(name, 0) for name in names] for member, names in assigned.items()}

    def take_led(self) -> frozenset[str] | None:
        """The connectors that this worker has assigned as the leader of the group since the last call; None if another
        worker was the leader.
        """
        led, self._led = self._led, None
        return led

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        return None


def connectors_of(partitions: Iterable[TopicPartition]) -> frozenset[str]:
    """The names of assigned connectors."""
    return frozenset(partition.topic for partition in partitions)
