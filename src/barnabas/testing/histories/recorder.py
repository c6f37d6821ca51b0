"""Machine: records a history. A process is a thread, a task, or anything else that runs one operation at a time.

A process calls `invoke` before it calls the client, `goes_on` before it calls the client again in the same operation,
and then one of `ok`, `fail` and `info` with the actions known by then. Every method does one or two list or dict
operations that are atomic in CPython, so threads may share a recorder without a lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from barnabas.testing.histories.history import (
    Action,
    ClientHistory,
    ClientOperation,
    Key,
    OperationKind,
    OperationOutcome,
)


@dataclass(slots=True)
class _Open:
    """An operation that has been invoked, and may have ended."""

    process: str
    kind: OperationKind
    actions: tuple[Action, ...]
    invoked: int
    invoked_ms: float
    keys: frozenset[Key]
    group: str
    outcome: OperationOutcome = OperationOutcome.INFO
    completed: int | None = None
    completed_ms: float | None = None
    rebalanced: bool = False


@dataclass(frozen=True, slots=True)
class Invoked:
    """The handle of an invoked operation. The caller passes the handle to `ok`, `fail` or `info`, once."""

    operation: _Open


class Recorder:
    """Records a history. An operation that never ended counts as INFO, which means that its outcome is unknown."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._operations: list[_Open] = []
        self._busy: dict[str, _Open] = {}

    def invoke(
        self,
        process: str,
        kind: OperationKind,
        actions: Iterable[Action],
        now_ms: float,
        *,
        keys: Iterable[Key] = (),
        group: str = "",
    ) -> Invoked:
        """Records that `process` begins an operation. Raises ValueError if the previous operation of `process` has no
        outcome yet."""
        if process in self._busy:
            raise ValueError(f"{process} has an operation without an outcome: record that outcome first")
        opened = _Open(process, kind, tuple(actions), next(self._numbers), now_ms, frozenset(keys), group)
        self._busy[process] = opened
        self._operations.append(opened)
        return Invoked(opened)

    def goes_on(self, invoked: Invoked, actions: Sequence[Action]) -> None:
        """Replaces the actions of a running operation by `actions`. If the process is killed before it records an
        outcome, the history has these actions."""
        invoked.operation.actions = tuple(actions)

    def ok(self, invoked: Invoked, actions: Sequence[Action], now_ms: float, *, rebalanced: bool = False) -> None:
        """The operation happened. `actions` include the offsets that the broker returned."""
        self._end(invoked, OperationOutcome.OK, actions, now_ms, rebalanced)

    def fail(self, invoked: Invoked, actions: Sequence[Action], now_ms: float, *, rebalanced: bool = False) -> None:
        """The operation definitely did not happen. Its polls count as seen nevertheless."""
        self._end(invoked, OperationOutcome.FAIL, actions, now_ms, rebalanced)

    def info(self, invoked: Invoked, actions: Sequence[Action], now_ms: float, *, rebalanced: bool = False) -> None:
        """The outcome of the operation is unknown."""
        self._end(invoked, OperationOutcome.INFO, actions, now_ms, rebalanced)

    def note(self, process: str, kind: OperationKind, keys: Iterable[Key], now_ms: float) -> None:
        """Records an ASSIGN, SUBSCRIBE or SEEK, which has no duration."""
        self.ok(self.invoke(process, kind, (), now_ms, keys=keys), (), now_ms)

    def _end(
        self, invoked: Invoked, outcome: OperationOutcome, actions: Sequence[Action], now_ms: float, rebalanced: bool
    ) -> None:
        opened = invoked.operation
        if opened.completed is not None:
            raise ValueError(f"an operation of {opened.process} already has an outcome")
        opened.outcome, opened.actions, opened.rebalanced = outcome, tuple(actions), rebalanced
        opened.completed_ms = now_ms
        opened.completed = next(self._numbers)
        del self._busy[opened.process]

    def history(self) -> ClientHistory:
        """The history of everything recorded so far."""
        operations = [
            ClientOperation(
                o.process,
                o.kind,
                o.outcome,
                o.actions,
                o.invoked,
                o.completed,
                o.invoked_ms,
                o.completed_ms,
                o.keys,
                o.group,
                o.rebalanced,
            )
            for o in list(self._operations)
        ]
        return ClientHistory(tuple(sorted(operations, key=lambda operation: operation.invoked)))
