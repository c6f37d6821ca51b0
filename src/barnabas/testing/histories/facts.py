"""Machine: derives from a history which operation wrote each value, which operations certainly happened, and at which
offsets each value was seen."""

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
    """One sent value, with the operation that sent the value."""

    send: SendAction
    operation: ClientOperation


@dataclass(frozen=True, slots=True)
class HistoryFacts:
    """`seen` has every polled value by key and offset. `offsets` has, for each key and value, every offset at which the
    value was polled or acknowledged."""

    history: ClientHistory
    writes: dict[Value, WrittenValue]
    seen: dict[Key, dict[int, set[Value]]]
    seen_values: frozenset[Value]
    offsets: dict[tuple[Key, Value], set[int]]
    proven: frozenset[int]
    """Transactions, by `invoked`, that ended INFO and of which a write was seen: the whole transaction happened."""
    visible: dict[Key, list[int]]
    """All offsets that any process polled, ascending."""

    def happened(self, operation: ClientOperation) -> bool:
        """Whether the whole operation certainly happened."""
        return operation.outcome is OperationOutcome.OK or operation.invoked in self.proven

    def stands(self, write: WrittenValue) -> bool:
        """Whether the write is certainly in the log. Each plain send has an acknowledgement of its own."""
        if self.happened(write.operation):
            return True
        return write.operation.kind is OperationKind.SEND and write.send.offset is not None


def collect(history: ClientHistory) -> HistoryFacts:
    """The facts of a history. Raises ValueError if a value was sent twice, since then a poll does not identify the
    write."""
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
        and write.operation.kind is OperationKind.TRANSACTION  # a plain send proves nothing about other sends
    }
    visible = {key: sorted(by_offset) for key, by_offset in seen.items()}
    return HistoryFacts(history, writes, dict(seen), frozenset(seen_values), dict(offsets), frozenset(proven), visible)
