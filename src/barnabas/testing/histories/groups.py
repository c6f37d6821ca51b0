"""Machine: exactly-once processing: what the transactions of one group took of its input, once and without holes.

The offsets of what a transaction polled are committed with it, so that the transactions of a group that happened, taken
together, are one consumer that neither skips nor repeats, whoever ran them and in whatever order they were recorded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from barnabas.testing.histories.anomalies import Anomaly
from barnabas.testing.histories.facts import HistoryFacts
from barnabas.testing.histories.history import ClientOperation, Key, OperationKind, OperationOutcome
from barnabas.testing.histories.report import Finding


class _Taken:
    """What a group took of one key: by transactions that happened, and by those of which nobody knows."""

    def __init__(self) -> None:
        self.surely: dict[int, ClientOperation] = {}
        self.perhaps: set[int] = set()


def processing(facts: HistoryFacts) -> Iterator[Finding]:
    taken: dict[tuple[str, Key], _Taken] = {}
    for operation in facts.history.operations:
        if (
            operation.kind is not OperationKind.TRANSACTION
            or not operation.group
            or operation.outcome is OperationOutcome.FAIL
        ):
            continue
        for poll in operation.polls:
            by_group = taken.setdefault((operation.group, poll.key), _Taken())
            if not facts.happened(operation):
                by_group.perhaps.add(poll.offset)
                continue
            earlier = by_group.surely.setdefault(poll.offset, operation)
            if earlier is not operation:
                text = f"{poll.key} at {poll.offset} for {operation.group}, by {earlier} and by {operation}"
                yield Finding(Anomaly.PROCESSED_TWICE, text)
    for (group, key), found in taken.items():
        if found.surely:
            yield from _holes(facts, group, key, found)


def _holes(facts: HistoryFacts, group: str, key: Key, taken: _Taken) -> Iterator[Finding]:
    """Between the first and the last that was taken, everything that was ever seen must have been."""
    visible = facts.visible[key]
    first, last = min(taken.surely), max(taken.surely)
    for offset in visible[bisect_left(visible, first) : bisect_right(visible, last)]:
        if offset not in taken.surely and offset not in taken.perhaps:
            yield Finding(Anomaly.NOT_PROCESSED, f"{key} at {offset} for {group}, which went on to {last}")
