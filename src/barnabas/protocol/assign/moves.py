"""Machine: plans reassignments when brokers are added or drained: few moves, replicas spread over brokers and racks.

For each partition, the replicas that may stay are kept, in their order: a leader that stays is first. The missing
replicas go to the racks with the fewest replicas of the partition, and there to the brokers with the fewest replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

P = TypeVar("P")  # the key type of a partition
Replicas = tuple[int, ...]


class MoveError(ValueError):
    """There are fewer brokers than a partition needs replicas."""


def plan_moves(
    current: Mapping[P, Sequence[int]],
    racks: Mapping[int, str | None],
    *,
    only: Collection[P] | None = None,
    replication_factor: int | None = None,
    balance: bool = False,
) -> dict[P, Replicas]:
    """The new replicas of every partition whose replicas change.

    `racks` has the brokers that may hold replicas, and their racks. `current` has the replicas of all partitions, from
    which the load of each broker is computed; a partition in a reassignment is listed with its target replicas. `only`
    restricts the partitions that may change. With `balance`, replicas also leave brokers with more than their share.
    Raises MoveError.
    """
    if replication_factor is not None and not 0 < replication_factor <= len(racks):
        raise MoveError(f"{replication_factor} replicas need as many brokers; there are {len(racks)}.")
    held = Counter(dict.fromkeys(racks, 0))
    for replicas in current.values():
        held.update(broker for broker in replicas if broker in racks)
    moves: dict[P, Replicas] = {}
    for partition in current if only is None else (p for p in current if p in only):
        before = tuple(current[partition])
        wanted = len(before) if replication_factor is None else replication_factor
        if wanted > len(racks):
            raise MoveError(f"{partition} has {wanted} replicas, and only {len(racks)} brokers may hold them.")
        after = _fill(_kept(before, wanted, held), wanted, racks, held)
        if balance:
            after = _lighten(after, racks, held)
        if after != before:
            moves[partition] = after
    return moves


def _kept(before: Replicas, wanted: int, held: Counter[int]) -> list[int]:
    """The replicas in `before` that stay: at most `wanted`, on brokers that `held` has.

    `held` has the brokers that may hold replicas, each with its number of replicas. Surplus replicas leave the brokers
    with the most replicas. The first replica that can stay is never surplus.
    """
    kept = [broker for broker in before if broker in held]
    while len(kept) > wanted:
        heaviest = max(kept[1:] or kept, key=lambda broker: (held[broker], broker))
        kept.remove(heaviest)
        held[heaviest] -= 1
    return kept


def _fill(kept: list[int], wanted: int, racks: Mapping[int, str | None], held: Counter[int]) -> Replicas:
    while len(kept) < wanted:
        used = Counter(racks[broker] for broker in kept)
        broker = min(
            (broker for broker in racks if broker not in kept),
            key=lambda broker: (used[racks[broker]] if racks[broker] is not None else 0, held[broker], broker),
        )
        kept.append(broker)
        held[broker] += 1
    return tuple(kept)


def _lighten(replicas: Replicas, racks: Mapping[int, str | None], held: Counter[int]) -> Replicas:
    """Move each replica of a partition to a broker with at least two replicas fewer than its own, if there is one.

    `held` counts the replicas on each broker, and is updated. A replica does not move to a rack that has more of the
    partition's other replicas than its present rack; a broker without a rack is always allowed.
    """
    result = list(replicas)
    for place, broker in enumerate(result):
        others = Counter(racks[other] for other in result if other != broker)
        candidates = [
            other
            for other in racks
            if other not in result
            and held[other] + 1 < held[broker]
            and (racks[other] is None or others[racks[other]] <= others[racks[broker]])
        ]
        if candidates:
            lightest = min(candidates, key=lambda other: (held[other], other))
            result[place] = lightest
            held[broker] -= 1
            held[lightest] += 1
    return tuple(result)
