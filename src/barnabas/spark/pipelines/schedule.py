"""Machine: which flows are started when.

`run --once`: a streaming flow reads all that its sources have and ends; a flow starts when the flows that write its
sources have ended. One that may have written them need only have ended, also by a failure. `run --continuous`: all
streaming flows run until they are stopped, and a materialized view is computed again after each interval.

A flow that fails is started again after a pause, while the other flows go on. The pause doubles with each failure up to
PAUSE_MAX_MS. After as many failures in a row as `restarts_max` allows for their cause, the flow has failed for good; a
micro-batch that succeeds begins the count anew. With `--once`, the flows that read what it writes are skipped. In a
continuous run they go on with what is there; only the first computation of a view needs those of the views that it
reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.spark.pipelines.failures import Cause
from barnabas.spark.pipelines.graph import ResolvedFlow

PAUSE_MIN_MS: Final = 1_000
PAUSE_MAX_MS: Final = 60_000
RESTARTS_ONCE: Final[Mapping[Cause, int]] = {Cause.FINAL: 0, Cause.ERROR: 2, Cause.OUTAGE: 2, Cause.STARVED: 10}
"""How often in a row a flow is started again with `--once`; 2 as Spark's `spark.sql.pipelines.maxFlowRetryAttempts`."""
RESTARTS_CONTINUOUS: Final[Mapping[Cause, int]] = {
    Cause.FINAL: 0,
    Cause.ERROR: 10,  # about five minutes
    Cause.OUTAGE: 1_440,  # a day
    Cause.STARVED: 1_440,
}
"""The same in a continuous run."""


class FlowState(Enum):
    """The state of a flow in this run."""

    WAITING = "waiting"
    RUNNING = "running"
    IDLE = "idle"
    COMPLETED = "completed"
    RETRYING = "retrying"
    FAILED = "failed"
    SKIPPED = "skipped"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (FlowState.COMPLETED, FlowState.FAILED, FlowState.SKIPPED, FlowState.STOPPED)


@dataclass(frozen=True, slots=True)
class FlowRestarts:
    """How often a flow has failed in a row, after how many restarts in a row it fails for good (None: it has not
    failed), how often it was started again in this run, and when it will be started again."""

    failures: int = 0
    restarts_max: int | None = None
    restarts: int = 0
    retry_at_ms: int | None = None


@dataclass(slots=True)
class _Scheduled:
    resolved: ResolvedFlow
    state: FlowState = FlowState.WAITING
    failures: int = 0
    restarts_max: int | None = None
    restarts: int = 0
    start_at_ms: int = 0
    has_completed: bool = False


class FlowSchedule:
    """The states of all flows. The caller starts what `due` returns, and reports what becomes of it."""

    def __init__(
        self,
        flows: Iterable[ResolvedFlow],
        *,
        continuous: bool,
        refresh_interval_ms: int,
        restarts_max: int | None = None,
    ) -> None:
        """`restarts_max` replaces the limits for all causes but FINAL."""
        self._flows = {flow.flow.name: _Scheduled(flow) for flow in flows}
        self._continuous = continuous
        self._refresh_interval_ms = refresh_interval_ms
        limits = RESTARTS_CONTINUOUS if continuous else RESTARTS_ONCE
        self._restarts_max = {
            cause: limit if restarts_max is None or cause is Cause.FINAL else restarts_max
            for cause, limit in limits.items()
        }

    def state(self, name: str) -> FlowState:
        return self._flows[name].state

    def states(self) -> dict[str, FlowState]:
        return {name: entry.state for name, entry in self._flows.items()}

    def restarts(self, name: str) -> FlowRestarts:
        entry = self._flows[name]
        retry_at_ms = entry.start_at_ms if entry.state is FlowState.RETRYING else None
        return FlowRestarts(entry.failures, entry.restarts_max, entry.restarts, retry_at_ms)

    @property
    def is_done(self) -> bool:
        """True if no flow will be started or is running any more."""
        return all(entry.state.is_final for entry in self._flows.values())

    @property
    def has_failed(self) -> bool:
        return any(entry.state is FlowState.FAILED for entry in self._flows.values())

    def due(self, now_ms: int) -> list[ResolvedFlow]:
        """The flows to start now, streaming flows first. They are running from then on."""
        due = []
        for entry in self._flows.values():
            if entry.state not in (FlowState.WAITING, FlowState.IDLE, FlowState.RETRYING):
                continue
            if now_ms >= entry.start_at_ms and self._has_sources(entry):
                entry.restarts += entry.state is FlowState.RETRYING
                entry.state = FlowState.RUNNING
                due.append(entry.resolved)
        return sorted(due, key=lambda flow: not flow.is_streaming)

    def on_progress(self, name: str) -> None:
        """A micro-batch of the flow succeeded."""
        entry = self._flows[name]
        entry.failures, entry.restarts_max = 0, None

    def on_completed(self, name: str, now_ms: int) -> None:
        """The flow ended by itself without an error."""
        self.on_progress(name)
        entry = self._flows[name]
        entry.has_completed = True
        if self._continuous and not entry.resolved.is_streaming:
            entry.state = FlowState.IDLE
            entry.start_at_ms = now_ms + self._refresh_interval_ms
        else:
            entry.state = FlowState.COMPLETED

    def on_failed(self, name: str, now_ms: int, cause: Cause) -> FlowState:
        """The flow ended with an error. Returns the flow's new state."""
        entry = self._flows[name]
        entry.failures += 1
        entry.restarts_max = self._restarts_max[cause]
        if entry.failures > entry.restarts_max:
            entry.state = FlowState.FAILED
            self._skip_after(name)
        else:
            entry.state = FlowState.RETRYING
            entry.start_at_ms = now_ms + min(PAUSE_MIN_MS << min(entry.failures - 1, 16), PAUSE_MAX_MS)
        return entry.state

    def stop(self) -> None:
        """The user stops the run."""
        for entry in self._flows.values():
            if not entry.state.is_final:
                entry.state = FlowState.STOPPED

    def _has_sources(self, entry: _Scheduled) -> bool:
        """Whether the flow may start: with `--once`, after the flows that write its sources. In a continuous run a flow
        needs only that the materialized views that it reads were computed, and are not being replaced.
        """
        before = [self._flows[name] for name in entry.resolved.upstream if name in self._flows]
        if not self._continuous:
            perhaps = [self._flows[name] for name in entry.resolved.perhaps_upstream if name in self._flows]
            has_ended = all(other.state.is_final for other in perhaps)
            return has_ended and all(other.state is FlowState.COMPLETED for other in before)
        batch = [other for other in before if not other.resolved.is_streaming]
        return all(other.has_completed and other.state is not FlowState.RUNNING for other in batch)

    def _skip_after(self, name: str) -> None:
        """Skip the flows that cannot start, because the flow `name` will not complete."""
        failed = self._flows[name]
        if self._continuous and (failed.resolved.is_streaming or failed.has_completed):
            return
        for other, entry in self._flows.items():
            if name in entry.resolved.upstream and entry.state is FlowState.WAITING:
                entry.state = FlowState.SKIPPED
                self._skip_after(other)
