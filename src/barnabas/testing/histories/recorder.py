"""Machine: writes a history down, as processes (threads, tasks, whatever does one thing at a time) tell it.

`invoke` before the client is called (`goes_on` when it is called once more), then one of `ok`, `fail`, `info` with what
is known then. Every call is one or two operations on a list or a dict that are atomic in CPython, so that threads may
share a recorder without a lock.
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
    """An operation that is under way, or has ended."""

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
    """The handle of an operation that was invoked; to be given back to `ok`, `fail` or `info`, once."""

    operation: _Open


class Recorder:
    """A history that grows. An operation that never ended counts as INFO."""

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
        """`process` is about to do this. A process does one thing at a time: ValueError if it is still at another."""
        if process in self._busy:
            raise ValueError(f"{process} has not ended what it began before: record its outcome first")
        opened = _Open(process, kind, tuple(actions), next(self._numbers), now_ms, frozenset(keys), group)
        self._busy[process] = opened
        self._operations.append(opened)
        return Invoked(opened)

    def goes_on(self, invoked: Invoked, actions: Sequence[Action]) -> None:
        """What it is about to do by what it has seen: all that will be known of it should its process be killed."""
        invoked.operation.actions = tuple(actions)

    def ok(self, invoked: Invoked, actions: Sequence[Action], now_ms: float, *, rebalanced: bool = False) -> None:
        """It happened, and these are its actions with what the broker answered."""
        self._end(invoked, OperationOutcome.OK, actions, now_ms, rebalanced)

    def fail(self, invoked: Invoked, actions: Sequence[Action], now_ms: float, *, rebalanced: bool = False) -> None:
        """It definitely did not happen; what it polled was seen all the same."""
        self._end(invoked, OperationOutcome.FAIL, actions, now_ms, rebalanced)

    def info(self, invoked: Invoked, actions: Sequence[Action], now_ms: float, *, rebalanced: bool = False) -> None:
        """Nobody knows whether it happened."""
        self._end(invoked, OperationOutcome.INFO, actions, now_ms, rebalanced)

    def note(self, process: str, kind: OperationKind, keys: Iterable[Key], now_ms: float) -> None:
        """A consumer was assigned, has subscribed, or was moved: over at once."""
        self.ok(self.invoke(process, kind, (), now_ms, keys=keys), (), now_ms)

    def _end(
        self, invoked: Invoked, outcome: OperationOutcome, actions: Sequence[Action], now_ms: float, rebalanced: bool
    ) -> None:
        opened = invoked.operation
        if opened.completed is not None:
            raise ValueError(f"an operation of {opened.process} has two outcomes")
        opened.outcome, opened.actions, opened.rebalanced = outcome, tuple(actions), rebalanced
        opened.completed_ms = now_ms
        opened.completed = next(self._numbers)
        del self._busy[opened.process]

    def history(self) -> ClientHistory:
        """What is known by now."""
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
