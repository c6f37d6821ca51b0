"""Machine: checks exactly-once processing: the transactions of one group process each input record once, without holes.

A transaction commits the offsets of the records that it polled. Together, the committed transactions of a group
therefore form one consumer that neither skips nor repeats a record, whichever process ran each transaction and in
whichever order the transactions were recorded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from barnabas.testing.histories.anomalies import Anomaly
from barnabas.testing.histories.facts import HistoryFacts
from barnabas.testing.histories.history import ClientOperation, Key, OperationKind, OperationOutcome
from barnabas.testing.histories.report import AnomalyFinding


class _Taken:
    """The offsets of one key that a group processed: `surely` by transactions that happened, `perhaps` by transactions
    whose outcome is unknown."""

    def __init__(self) -> None:
        self.surely: dict[int, ClientOperation] = {}
        self.perhaps: set[int] = set()


def processing(facts: HistoryFacts) -> Iterator[AnomalyFinding]:
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
                yield AnomalyFinding(Anomaly.PROCESSED_TWICE, text)
    for (group, key), found in taken.items():
        if found.surely:
            yield from _holes(facts, group, key, found)


def _holes(facts: HistoryFacts, group: str, key: Key, taken: _Taken) -> Iterator[AnomalyFinding]:
    """Every visible offset between the first and the last processed offset must have been processed."""
    visible = facts.visible[key]
    first, last = min(taken.surely), max(taken.surely)
    for offset in visible[bisect_left(visible, first) : bisect_right(visible, last)]:
        if offset not in taken.surely and offset not in taken.perhaps:
            yield AnomalyFinding(Anomaly.NOT_PROCESSED, f"{key} at {offset} for {group}, which went on to {last}")
