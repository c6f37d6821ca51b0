"""Machine: what one worker has to do: which connectors it starts and stops, and what it reports about them.

    assignment + state ──next_steps──▶ Start, Stop ──the worker carries them out──▶ on_started, on_stopped, on_failed
                                                                                        │
                                                        statuses for the status topic ◀─┘

Each connector has one step under way at a time. A connector that failed is started again only when its configuration
or its target state changes, when a restart is requested, or when another worker gets it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from barnabas.spark.connectors.connect.cluster.herder import to_restart
from barnabas.spark.connectors.connect.cluster.ports import ConnectorReport, StartedConnector
from barnabas.spark.connectors.connect.cluster.records import (
    ConnectorStatusRecord,
    StatusRecord,
    TaskStatusRecord,
    TopicUseRecord,
)
from barnabas.spark.connectors.connect.cluster.state import ConnectState
from barnabas.spark.connectors.connect.cluster.values import (
    ConnectorEntry,
    ConnectorState,
    ConnectStatus,
    TargetState,
    TopicUse,
)


@dataclass(frozen=True, slots=True)
class StartStep:
    """Start this connector, then call `on_started` or `on_failed`."""

    entry: ConnectorEntry


@dataclass(frozen=True, slots=True)
class StopStep:
    """Stop this connector, then call `on_stopped`."""

    name: str


Step = StartStep | StopStep


class _Phase(Enum):
    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(slots=True)
class _Duty:
    """What this worker does with one connector. `done` is the configuration, the target state and the number of restart
    requests with which the connector was last started or stopped.
    """

    phase: _Phase = _Phase.IDLE
    done: tuple[int, TargetState, int] | None = None
    state: ConnectorState | None = None
    trace: str | None = None
    version: str | None = None
    tasks: dict[int, tuple[ConnectorState, str | None]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


class WorkerDuties:
    """The connectors that one worker has been assigned. `worker_id` is the address that statuses name."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.generation = -1
        self._assigned: frozenset[str] = frozenset()
        self._duties: dict[str, _Duty] = {}

    @property
    def busy(self) -> frozenset[str]:
        """The connectors that run, or that are being started or stopped."""
        return frozenset(name for name, duty in self._duties.items() if duty.phase is not _Phase.IDLE)

    @property
    def connectors(self) -> frozenset[str]:
        """The connectors that this worker has been assigned, and those that it still runs."""
        return self._assigned | self.busy

    @property
    def running(self) -> frozenset[str]:
        return frozenset(name for name, duty in self._duties.items() if duty.phase is _Phase.RUNNING)

    def assign(self, names: Collection[str], generation: int) -> None:
        """Set the connectors that this worker runs, as of a generation of the group."""
        self._assigned = frozenset(names)
        self.generation = generation

    def release(self, names: Collection[str]) -> None:
        """Take connectors from this worker, which will get them again only by `assign`."""
        self._assigned -= frozenset(names)

    def next_steps(self, state: ConnectState) -> list[Step]:
        """The steps that can begin now, in the order of the names."""
        steps: list[Step] = []
        for name in sorted(self._assigned | set(self._duties)):
            duty = self._duties.setdefault(name, _Duty())
            entry = state.connectors.get(name) if name in self._assigned else None
            step = self._step(name, duty, entry)
            if step is not None:
                steps.append(step)
            elif entry is None and duty.phase is _Phase.IDLE:
                del self._duties[name]
        return steps

    def _step(self, name: str, duty: _Duty, entry: ConnectorEntry | None) -> Step | None:
        if duty.phase in (_Phase.STARTING, _Phase.STOPPING):
            return None
        if entry is None:
            return self._stop(name, duty) if duty.phase is _Phase.RUNNING else None
        wanted = (entry.revision, entry.target, entry.restarts)
        if duty.done == wanted:
            return None
        if duty.done is not None and duty.done[:2] == wanted[:2] and not self._restarts(duty, entry):
            duty.done = wanted
            return None
        if duty.phase is _Phase.RUNNING:
            return self._stop(name, duty)
        if entry.target is TargetState.STARTED:
            duty.phase = _Phase.STARTING
            duty.done = wanted
            return StartStep(entry)
        return self._stop(name, duty)  # reports the state; stopping what does not run has no effect

    def _restarts(self, duty: _Duty, entry: ConnectorEntry) -> bool:
        states = {task: state for task, (state, _) in duty.tasks.items()}
        return entry.target is TargetState.STARTED and to_restart(entry.restart, duty.state, states)

    def _stop(self, name: str, duty: _Duty) -> StopStep:
        duty.phase = _Phase.STOPPING
        return StopStep(name)

    # -- what has happened

    def on_started(self, name: str, started: StartedConnector, known_tasks: int) -> list[StatusRecord]:
        """The connector runs. `known_tasks` are those in the status topic."""
        duty = self._duties[name]
        assert duty.phase is _Phase.STARTING
        duty.phase, duty.state, duty.trace, duty.version = _Phase.RUNNING, ConnectorState.RUNNING, None, started.version
        duty.tasks = dict.fromkeys(range(len(started.tasks)), (ConnectorState.RUNNING, None))
        duty.topics = set()
        return [*self._all_statuses(name, duty), *_gone(name, len(duty.tasks), known_tasks)]

    def on_failed(self, name: str, trace: str, known_tasks: int) -> list[StatusRecord]:
        """The connector could not be started."""
        duty = self._duties[name]
        assert duty.phase is _Phase.STARTING
        duty.phase, duty.state, duty.trace, duty.tasks = _Phase.IDLE, ConnectorState.FAILED, trace, {}
        return [*self._all_statuses(name, duty), *_gone(name, 0, known_tasks)]

    def on_stopped(self, name: str, state: ConnectState, known_tasks: int) -> list[StatusRecord]:
        """Nothing of the connector runs in this worker any more. `known_tasks` are those in the status topic."""
        duty = self._duties[name]
        assert duty.phase is _Phase.STOPPING
        duty.phase, duty.trace, duty.done = _Phase.IDLE, None, None
        entry = state.connectors.get(name)
        count = max(len(duty.tasks), known_tasks)
        if entry is None:
            duty.tasks = {}
            return [ConnectorStatusRecord(name, None), *_gone(name, 0, count)]
        if name not in self._assigned:
            return self._rest(name, duty, ConnectorState.UNASSIGNED, count)
        if entry.target is TargetState.STARTED:  # it is started again: a new configuration, or a restart
            return self._rest(name, duty, ConnectorState.RESTARTING, count)
        duty.done = (entry.revision, entry.target, entry.restarts)
        if entry.target is TargetState.PAUSED:
            return self._rest(name, duty, ConnectorState.PAUSED, count)
        duty.state, duty.tasks = ConnectorState.STOPPED, {}
        return [*self._all_statuses(name, duty), *_gone(name, 0, count)]

    def _rest(self, name: str, duty: _Duty, state: ConnectorState, tasks: int) -> list[StatusRecord]:
        duty.state = state
        duty.tasks = dict.fromkeys(range(tasks), (state, None))
        return self._all_statuses(name, duty)

    def on_report(self, name: str, report: ConnectorReport | None, now_ms: int) -> list[StatusRecord]:
        """What has changed since the last report about a running connector. None: it ended without an error."""
        duty = self._duties.get(name)
        if duty is None or duty.phase is not _Phase.RUNNING:
            return []
        if report is None:
            report = ConnectorReport(())
        records: list[StatusRecord] = []
        for task, found in enumerate(report.tasks):
            if duty.tasks.get(task) != (found.state, found.trace):
                duty.tasks[task] = (found.state, found.trace)
                records.append(TaskStatusRecord(name, task, self._status(duty, found.state, found.trace)))
        for topic in sorted(set(report.topics) - duty.topics):
            duty.topics.add(topic)
            records.append(TopicUseRecord(name, topic, TopicUse(topic, name, 0, now_ms)))
        return records

    # -- statuses

    def _all_statuses(self, name: str, duty: _Duty) -> list[StatusRecord]:
        assert duty.state is not None
        records: list[StatusRecord] = [ConnectorStatusRecord(name, self._status(duty, duty.state, duty.trace))]
        for task, (state, trace) in sorted(duty.tasks.items()):
            records.append(TaskStatusRecord(name, task, self._status(duty, state, trace)))
        return records

    def _status(self, duty: _Duty, state: ConnectorState, trace: str | None) -> ConnectStatus:
        return ConnectStatus(state, self.worker_id, self.generation, trace, duty.version)


def _gone(name: str, first: int, end: int) -> list[StatusRecord]:
    return [TaskStatusRecord(name, task, None) for task in range(first, end)]
