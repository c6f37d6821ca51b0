"""Machine: measures how stale consumers were: the age of the oldest acknowledged record that a poll did not return.

For each poll and each partition in which the consumer has a position, the lag is the time from the first
acknowledgement of a record at or after that position to the start of the poll. Transactions are left out, because they
poll only as much as they can process. Processes that read old records on purpose are left out, too. The lag is a
measurement, not an anomaly.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from barnabas.testing.histories.facts import HistoryFacts
from barnabas.testing.histories.history import Key, OperationKind


@dataclass(frozen=True, slots=True)
class Lag:
    """The worst lag of a history, and a description of the poll; the description is empty if there was no lag."""

    ms: float
    where: str


class _Known:
    """For one key: the acknowledged offsets that were seen, and for each offset the earliest time at which a record at
    that offset or later was acknowledged."""

    def __init__(self, rows: list[tuple[int, float]]) -> None:
        rows.sort()
        self.offsets = [offset for offset, _ in rows]
        self.since = [ms for _, ms in rows]
        for place in range(len(rows) - 2, -1, -1):
            self.since[place] = min(self.since[place], self.since[place + 1])

    def since_at(self, position: int) -> float | None:
        place = bisect_left(self.offsets, position)
        return self.since[place] if place < len(self.offsets) else None


def worst_realtime_lag(facts: HistoryFacts, catching_up: frozenset[str]) -> Lag:
    rows: dict[Key, list[tuple[int, float]]] = {}
    for write in facts.writes.values():
        send, ended = write.send, write.operation.completed_ms
        if send.offset is None or ended is None or not facts.stands(write):
            continue
        if send.value in facts.seen_values:  # unseen records are anomalies of their own
            rows.setdefault(send.key, []).append((send.offset, ended))
    known = {key: _Known(found) for key, found in rows.items()}
    positions: dict[str, dict[Key, int]] = {}
    worst = Lag(0.0, "")
    for operation in facts.history.operations:
        if operation.process in catching_up:
            continue
        at = positions.setdefault(operation.process, {})
        if operation.kind in (OperationKind.ASSIGN, OperationKind.SUBSCRIBE, OperationKind.SEEK):
            at.clear()  # the next poll shows the new position
            continue
        if operation.kind is not OperationKind.POLL:
            continue
        if operation.rebalanced:
            at.clear()  # some partitions belong to another member now
        for poll in operation.polls:
            at[poll.key] = poll.offset + 1
        for key, position in at.items():
            since = known[key].since_at(position) if key in known else None
            if since is not None and operation.invoked_ms - since > worst.ms:
                worst = Lag(operation.invoked_ms - since, f" ({key} at {position}, {operation})")
    return worst
