"""Value: what clients did and saw: operations of single-threaded processes, each with an invocation and an outcome.

A *key* is one partition; every value is sent once, by one operation. An operation is a send, a poll, or a transaction
of both. It ends in one of three ways:

    OK    it happened
    FAIL  it definitely did not happen: nobody may ever see its writes
    INFO  not known (a time-out, a crash): it may have happened, may not have, may still happen

A history can be kept as JSON lines, one event each, so that what a check found can be looked at and checked again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

Key = str
Value = int | str


class OperationKind(Enum):
    """What an operation is. The last three change what a consumer reads, and thereby what may follow what."""

    SEND = "send"
    POLL = "poll"
    TRANSACTION = "txn"
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    SEEK = "seek"


class OperationOutcome(Enum):
    """How an operation ended."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class SendAction:
    """A record was sent to `key`. `offset` is where the broker said it is; None if it did not say."""

    key: Key
    value: Value
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class PollAction:
    """A record of `key` was polled. What was polled was seen, whatever became of the operation."""

    key: Key
    value: Value
    offset: int


Action = SendAction | PollAction


@dataclass(frozen=True, slots=True)
class ClientOperation:
    """One operation. `invoked` and `completed` are positions in the history (None: never completed); times are ms."""

    process: str
    kind: OperationKind
    outcome: OperationOutcome
    actions: tuple[Action, ...]
    """In the order in which the process did them."""
    invoked: int
    completed: int | None
    invoked_ms: float
    completed_ms: float | None
    keys: frozenset[Key] = frozenset()
    """Of ASSIGN and SEEK: what is assigned, what is moved."""
    group: str = ""
    """Of a TRANSACTION that commits, for this group, the offsets of what it polled (read, process, write)."""
    rebalanced: bool = False
    """The group gave or took partitions in the middle of it: what it polled is two pieces."""

    @property
    def sends(self) -> Iterator[SendAction]:
        return (action for action in self.actions if isinstance(action, SendAction))

    @property
    def polls(self) -> Iterator[PollAction]:
        return (action for action in self.actions if isinstance(action, PollAction))

    def __str__(self) -> str:
        end = "?" if self.completed is None else str(self.completed)
        return f"{self.process} {self.kind.value} #{self.invoked}..{end} ({self.outcome.value})"


@dataclass(frozen=True, slots=True)
class ClientHistory:
    """Operations in the order of their invocations."""

    operations: tuple[ClientOperation, ...]

    def to_json_lines(self) -> str:
        """One line an operation."""
        return "".join(json.dumps(_as_row(operation)) + "\n" for operation in self.operations)

    @classmethod
    def from_json_lines(cls, text: str) -> ClientHistory:
        return cls(tuple(_from_row(json.loads(line)) for line in text.splitlines() if line))


def _as_row(operation: ClientOperation) -> dict[str, object]:
    return {
        "process": operation.process,
        "f": operation.kind.value,
        "type": operation.outcome.value,
        "value": [_as_list(action) for action in operation.actions],
        "index": [operation.invoked, operation.completed],
        "time_ms": [operation.invoked_ms, operation.completed_ms],
        "keys": sorted(operation.keys),
        "group": operation.group,
        "rebalanced": operation.rebalanced,
    }


def _as_list(action: Action) -> list[object]:
    return ["send" if isinstance(action, SendAction) else "poll", action.key, action.value, action.offset]


def _from_row(row: dict[str, object]) -> ClientOperation:
    value, index, time_ms, keys = row["value"], row["index"], row["time_ms"], row["keys"]
    assert isinstance(value, list)
    assert isinstance(index, list)
    assert isinstance(time_ms, list)
    assert isinstance(keys, list)
    return ClientOperation(
        process=str(row["process"]),
        kind=OperationKind(row["f"]),
        outcome=OperationOutcome(row["type"]),
        actions=tuple(_from_lists(value)),
        invoked=index[0],
        completed=index[1],
        invoked_ms=time_ms[0],
        completed_ms=time_ms[1],
        keys=frozenset(keys),
        group=str(row["group"]),
        rebalanced=bool(row["rebalanced"]),
    )


def _from_lists(rows: Sequence[Sequence[object]]) -> Iterable[Action]:
    for what, key, value, offset in rows:
        assert isinstance(value, int | str)
        assert offset is None or isinstance(offset, int)
        if what == "send":
            yield SendAction(str(key), value, offset)
        else:
            assert offset is not None
            yield PollAction(str(key), value, offset)
