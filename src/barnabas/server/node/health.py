"""Machine: judges from the state of a node whether its process is alive and whether it is ready.

    /livez     liveness: 503 only if a restart of the process is worth trying (no log directory works any more)
    /readyz    readiness: 503 while the node does not give full service; JSON says which part is not ready, and why

A node that starts, that has no controller, or that is fenced is alive: a restart would not help, and restarting the
controllers of a cluster that looks for a quorum would do harm. The parts of a node:

    quorum        an active controller is known
    logs          the log directories work and have space, and their logs are recovered
    listeners     clients (or, of a controller, other nodes) can connect
    broker        the broker is not fenced (brokers only)
    node          the node is not stopping
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Part(Struct, frozen=True):
    """One part of a node. `reasons` has a sentence for each thing that keeps it from being ready."""

    name: str
    reasons: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return not self.reasons


class Health(Struct, frozen=True):
    """The answers of the health pages."""

    alive: bool
    parts: tuple[Part, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each thing that keeps the node from full service; empty if the node is ready."""
        return tuple(reason for part in self.parts for reason in part.reasons)

    @property
    def ready(self) -> bool:
        return not self.problems


class NodeState(Struct, frozen=True):
    """What the health of a node depends on."""

    is_started: bool
    """Whether the listeners for clients are open; of a controller that is no broker, whether it has all metadata."""
    is_stopping: bool
    is_broker: bool
    is_fenced: bool
    are_logs_open: bool
    without_controller_s: float
    """For how long no active controller has been known. 0 if one is known."""
    session_s: float
    """The time for which a node that has started is ready without a controller (broker.session.timeout.ms)."""
    waits_for: str = ""
    """What each controller answered last, if none is known to be active."""
    offline: Sequence[str] = ()
    """One sentence for each log directory that does not work."""
    full: Sequence[str] = ()
    """The log directories that work, and whose disk has no space left."""
    directories: int = 1


def judge_health(state: NodeState) -> Health:
    """The health of a node in this state."""
    parts = [Part("quorum", _quorum(state)), Part("logs", _logs(state)), Part("listeners", _listeners(state))]
    if state.is_broker:
        parts.append(Part("broker", _broker(state)))
    parts.append(Part("node", ("The node is stopping.",) if state.is_stopping else ()))
    return Health(len(state.offline) < state.directories, tuple(parts))


def _quorum(state: NodeState) -> tuple[str, ...]:
    patience_s = state.session_s if state.is_started else 0.0
    if state.without_controller_s <= patience_s or state.is_stopping:
        return ()
    asked = f" The controllers: {state.waits_for}." if state.waits_for else ""
    return (f"No controller has been active for {state.without_controller_s:.0f} s, as far as this node knows.{asked}",)


def _logs(state: NodeState) -> tuple[str, ...]:
    if not state.is_started and not state.are_logs_open and not state.is_stopping:
        return ("The logs are not open yet.", *state.offline)
    full = (f"The disk of {path} is full: nothing can be written to it until there is space." for path in state.full)
    return (*state.offline, *full)


def _listeners(state: NodeState) -> tuple[str, ...]:
    return () if state.is_started or state.is_stopping else ("The node is starting.",)


def _broker(state: NodeState) -> tuple[str, ...]:
    if state.is_started and state.is_fenced and not state.is_stopping:
        return ("The broker is fenced: it leads no partition until the controller unfences it.",)
    return ()
