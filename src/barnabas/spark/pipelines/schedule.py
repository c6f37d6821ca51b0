"""Machine: which flows are started when.

`run --once`: a streaming flow reads all that its sources have and ends; a flow starts when the flows that write its
sources have ended. `run --continuous`: all streaming flows run until they are stopped, and a materialized view is
computed again after each interval.

A flow that fails is started again after a pause. With `--once`, after RETRIES_MAX failures the flow has failed for
good, and the flows after it are skipped. A continuous flow is started again for ever; the pause doubles with each
failure and is short again after a micro-batch that succeeded. A failure that another attempt cannot mend is final.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.spark.pipelines.graph import ResolvedFlow

RETRIES_MAX: Final = 2
"""As `spark.sql.pipelines.maxFlowRetryAttempts` of Spark."""
STARVED_RETRIES_MAX: Final = 10
"""The same, if the machine was too busy to start a Python process within the ten seconds that Spark allows."""
PAUSE_MIN_MS: Final = 1_000
PAUSE_MAX_MS: Final = 60_000


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


@dataclass(slots=True)
class _Scheduled:
    resolved: ResolvedFlow
    state: FlowState = FlowState.WAITING
    failures: int = 0
    start_at_ms: int = 0


class FlowSchedule:
    """The states of all flows. The caller starts what `due` returns, and reports what becomes of it."""

    def __init__(self, flows: Iterable[ResolvedFlow], *, continuous: bool, refresh_interval_ms: int) -> None:
        self._flows = {flow.flow.name: _Scheduled(flow) for flow in flows}
        self._continuous = continuous
        self._refresh_interval_ms = refresh_interval_ms

    def state(self, name: str) -> FlowState:
        return self._flows[name].state

    def states(self) -> dict[str, FlowState]:
        return {name: entry.state for name, entry in self._flows.items()}

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
                entry.state = FlowState.RUNNING
                due.append(entry.resolved)
        return sorted(due, key=lambda flow: not flow.is_streaming)

    def on_progress(self, name: str) -> None:
        """A micro-batch of the flow succeeded."""
        self._flows[name].failures = 0

    def on_completed(self, name: str, now_ms: int) -> None:
        """The flow ended by itself without an error."""
        entry = self._flows[name]
        entry.failures = 0
        if self._continuous and not entry.resolved.is_streaming:
            entry.state = FlowState.IDLE
            entry.start_at_ms = now_ms + self._refresh_interval_ms
        else:
            entry.state = FlowState.COMPLETED

    def on_failed(self, name: str, now_ms: int, *, is_final: bool, is_starved: bool = False) -> FlowState:
        """The flow ended with an error; `is_final`: another attempt would fail too; `is_starved`: the machine was too
        busy. Returns the flow's new state.
        """
        entry = self._flows[name]
        entry.failures += 1
        retries_max = STARVED_RETRIES_MAX if is_starved else RETRIES_MAX
        if is_final or (not self._continuous and entry.failures > retries_max):
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
        """Whether the flow may start: with `--once`, after the flows that write its sources. In a continuous run a
        materialized view needs only the first computation of the materialized views that it reads.
        """
        before = [self._flows[name] for name in entry.resolved.upstream if name in self._flows]
        if not self._continuous:
            return all(other.state is FlowState.COMPLETED for other in before)
        batch = [other for other in before if not other.resolved.is_streaming]
        return all(other.state is FlowState.IDLE for other in batch)

    def _skip_after(self, name: str) -> None:
        for other, entry in self._flows.items():
            if name in entry.resolved.upstream and entry.state is FlowState.WAITING:
                entry.state = FlowState.SKIPPED
                self._skip_after(other)
