"""Machine: what a history proves about its writes: who wrote what, what certainly happened, what was seen where."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from barnabas.testing.histories.history import (
    ClientHistory,
    ClientOperation,
    Key,
    OperationKind,
    OperationOutcome,
    SendAction,
    Value,
)


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """A value, and the operation that sent it."""

    send: SendAction
    operation: ClientOperation


@dataclass(frozen=True, slots=True)
class HistoryFacts:
    """`seen` is what was polled by anyone; `offsets` what was polled or acknowledged, of each value by key."""

    history: ClientHistory
    writes: dict[Value, WrittenValue]
    seen: dict[Key, dict[int, set[Value]]]
    seen_values: frozenset[Value]
    offsets: dict[tuple[Key, Value], set[int]]
    proven: frozenset[int]
    """Operations, by `invoked`, whose end nobody learnt, of which a write was seen: all of each must have happened."""
    visible: dict[Key, list[int]]
    """The offsets that were polled by anyone, ascending."""

    def happened(self, operation: ClientOperation) -> bool:
        """It is certain that it happened, all of it."""
        return operation.outcome is OperationOutcome.OK or operation.invoked in self.proven

    def stands(self, write: WrittenValue) -> bool:
        """It is certain that this write is there. Of plain sends, each has an acknowledgement of its own."""
        if self.happened(write.operation):
            return True
        return write.operation.kind is OperationKind.SEND and write.send.offset is not None


def collect(history: ClientHistory) -> HistoryFacts:
    """Raises ValueError if a value was sent twice: then a history proves nothing about it."""
    writes: dict[Value, WrittenValue] = {}
    seen: dict[Key, dict[int, set[Value]]] = defaultdict(lambda: defaultdict(set))
    offsets: dict[tuple[Key, Value], set[int]] = defaultdict(set)
    seen_values: set[Value] = set()
    for operation in history.operations:
        for send in operation.sends:
            if send.value in writes:
                raise ValueError(f"{send.value!r} was sent twice: every value of a history must be unique")
            writes[send.value] = WrittenValue(send, operation)
            if send.offset is not None:
                offsets[send.key, send.value].add(send.offset)
        for poll in operation.polls:
            seen[poll.key][poll.offset].add(poll.value)
            seen_values.add(poll.value)
            offsets[poll.key, poll.value].add(poll.offset)
    proven = {
        write.operation.invoked
        for value, write in writes.items()
        if value in seen_values
        and write.operation.outcome is OperationOutcome.INFO
        and write.operation.kind is OperationKind.TRANSACTION  # of plain sends, each proves only itself
    }
    visible = {key: sorted(by_offset) for key, by_offset in seen.items()}
    return HistoryFacts(history, writes, dict(seen), frozenset(seen_values), dict(offsets), frozenset(proven), visible)
