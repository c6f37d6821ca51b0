"""Machine: judges from the state of a node whether its process is alive and whether it is ready.

    /healthz   liveness: 503 only if a restart of the process is worth trying (no log directory works any more)
    /readyz    readiness: 503 while the node does not give full service; the text says why

A node that starts, that has no controller, or that is fenced is alive: a restart would not help, and restarting the
controllers of a cluster that looks for a quorum would do harm.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Health(Struct, frozen=True):
    """The answers of the health pages."""

    alive: bool
    problems: tuple[str, ...]
    """One sentence for each thing that keeps the node from full service; empty if the node is ready."""


def judge_health(
    *,
    is_started: bool,
    is_stopping: bool,
    is_fenced: bool,
    without_controller_s: float,
    session_s: float,
    offline: Sequence[str],
    directories: int,
) -> Health:
    """`offline` has one sentence for each log directory that does not work; `directories` is the number of all."""
    problems: list[str] = []
    if is_stopping:
        problems.append("The node is stopping.")
    elif not is_started:
        problems.append("The node is starting.")
    elif is_fenced:
        problems.append("The broker is fenced: it leads no partition until the controller unfences it.")
    if without_controller_s > session_s:
        problems.append(f"No controller has been active for {without_controller_s:.0f} s, as far as this node knows.")
    return Health(len(offline) < directories, (*problems, *offline))
