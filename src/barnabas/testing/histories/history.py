"""Value: a history of client operations. Each operation belongs to a single-threaded process, and has an invocation and
an outcome.

A *key* is one partition. Every value is sent once, by one operation. An operation is a send, a poll, or a transaction
of sends and polls. An operation ends in one of three ways:

    OK    the operation happened
    FAIL  the operation definitely did not happen: no consumer may ever see its writes
    INFO  the outcome is unknown (a time-out, a crash): the operation may have happened, or may still happen

A history can be stored as JSON lines, one operation a line, so that it can be inspected and checked again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

Key = str
Value = int | str


class OperationKind(Enum):
    """The kind of an operation. ASSIGN, SUBSCRIBE and SEEK change a consumer's position, and so the allowed order of
    polls."""

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
    """A record was sent to `key`. `offset` is the offset that the broker acknowledged; None without acknowledgement."""

    key: Key
    value: Value
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class PollAction:
    """A record of `key` was polled. The record counts as seen, whatever the outcome of the operation."""

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
    """In the order in which the process performed the actions."""
    invoked: int
    completed: int | None
    invoked_ms: float
    completed_ms: float | None
    keys: frozenset[Key] = frozenset()
    """For ASSIGN the assigned keys; for SEEK the keys whose position changes."""
    group: str = ""
    """For a TRANSACTION: the group for which it commits the offsets of the polled records (read, process, write)."""
    rebalanced: bool = False
    """The group rebalanced during this operation, so its polls before and after are not one sequence."""

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
    """All operations, in the order of their invocations."""

    operations: tuple[ClientOperation, ...]

    def to_json_lines(self) -> str:
        """The history as JSON, one operation on each line."""
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
