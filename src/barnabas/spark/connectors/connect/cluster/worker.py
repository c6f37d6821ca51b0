"""Shell: one worker of a Connect cluster: follows the topics, takes part in the group, and runs its connectors."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from barnabas.client.single_writer.state import SharedLog, SharedState
from barnabas.core.decision import Decision
from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.spark.connectors.connect.cluster.duties import StartStep, Step, StopStep, WorkerDuties
from barnabas.spark.connectors.connect.cluster.herder import decide_tasks
from barnabas.spark.connectors.connect.cluster.ports import (
    ConnectorJob,
    ConnectorReport,
    ConnectorRuntime,
    OffsetStore,
    StatusLog,
    TaskReport,
)
from barnabas.spark.connectors.connect.cluster.records import (
    ConnectorStatusRecord,
    ConnectRecord,
    StatusRecord,
    TaskStatusRecord,
    TopicUseRecord,
)
from barnabas.spark.connectors.connect.cluster.state import ConnectState, StatusBoard
from barnabas.spark.connectors.connect.cluster.values import (
    ConnectorConfig,
    ConnectorState,
    ConnectRequestError,
    TargetState,
)

log = get_logger("barnabas.connect")

R = TypeVar("R")
FOLLOW_INTERVAL_S: Final = 0.5
"""How often a worker reads the config topic and the states of its connectors."""


class ConnectStore:
    """The state of the cluster, as this worker reads and changes it. Requests and the worker share it."""

    def __init__(self, config_log: SharedLog[ConnectRecord], status_log: StatusLog) -> None:
        self.state = ConnectState()
        self.board = StatusBoard()
        self.on_change: Callable[[], None] = lambda: None
        """Called after a record of the config topic was applied."""
        self._shared: SharedState[ConnectRecord] = SharedState(config_log, self._apply, ConnectRequestError)
        self._status_log = status_log

    def _apply(self, record: ConnectRecord) -> None:
        self.state.apply(record)
        self.on_change()

    async def refresh(self) -> None:
        """Read both topics to their ends."""
        await self.refresh_config()
        await self.refresh_statuses()

    async def refresh_statuses(self) -> None:
        """Read the status topic to its end."""
        await self._status_log.catch_up(self.board.apply)

    async def refresh_config(self) -> None:
        """Read the config topic to its end."""
        await self._shared.refresh()

    async def change(self, decide: Callable[[ConnectState], Decision[ConnectRecord, R]]) -> R:
        """Decide a change and write it to the config topic. `decide` may be called several times."""
        return await self._shared.change(lambda: decide(self.state))

    async def report(self, records: Sequence[StatusRecord]) -> None:
        """Write to the status topic."""
        if records:
            await self._status_log.append(records)


class ConnectWorker:
    """Runs the connectors that `set_assignment` names, until `stop_all`."""

    def __init__(
        self,
        store: ConnectStore,
        runtime: ConnectorRuntime,
        offsets: OffsetStore,
        worker_id: str,
        *,
        tracks_topics: bool,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._offsets = offsets
        self._tracks_topics = tracks_topics
        self.duties = WorkerDuties(worker_id)
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._steps: asyncio.TaskGroup | None = None
        self._unwritten: dict[tuple[str, str, object], _Unwritten] = {}
        self._reporting = asyncio.Lock()

    def wake(self) -> None:
        """Let `run` look for work now."""
        self._wake.set()

    def set_assignment(self, names: frozenset[str], generation: int) -> None:
        self.duties.assign(names, generation)
        self.wake()

    async def give_up(self, names: frozenset[str]) -> None:
        """Stop connectors that another worker will get, and wait until they are stopped."""
        self.duties.release(names)
        self._begin_steps()
        async with self._changed:
            await self._changed.wait_for(lambda: not names & self.duties.busy)

    async def stop_all(self) -> None:
        """Stop all connectors of this worker, and report them as UNASSIGNED."""
        await self.give_up(self.duties.connectors)
        await self._flush()

    async def run(self) -> None:
        """Start, stop and watch connectors until cancelled."""
        async with asyncio.TaskGroup() as self._steps:
            while True:
                await self._follow()
                self._begin_steps()
                await self._note_reports()
                await self._flush()
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FOLLOW_INTERVAL_S):
                        await self._wake.wait()

    async def _follow(self) -> None:
        try:
            await self._store.refresh_config()
        except (BarnabasError, TimeoutError) as error:
            log.warning("the config topic cannot be read; the worker keeps trying", reason=str(error))

    async def _note_reports(self) -> None:
        for name in sorted(self.duties.running):
            try:
                report = await self._runtime.report(name)
            except Exception as error:  # noqa: BLE001  # Py4J raises several kinds, for example when the JVM has ended
                report = ConnectorReport((TaskReport(ConnectorState.FAILED, f"{type(error).__name__}: {error}"),))
            records = self.duties.on_report(name, report, time.time_ns() // 1_000_000)
            kept = [r for r in records if self._tracks_topics or not isinstance(r, TopicUseRecord)]
            self._note(kept, is_claim=False)

    # -- steps

    def _begin_steps(self) -> None:
        assert self._steps is not None, "run must be running"
        for step in self.duties.next_steps(self._store.state):
            self._steps.create_task(self._carry_out(step), name="connect step")

    async def _carry_out(self, step: Step) -> None:
        if isinstance(step, StartStep):
            name, revision, tasks = await self._start(step)
        else:
            name, revision, tasks = await self._stop(step)
        async with self._changed:
            self._changed.notify_all()
        self.wake()
        if tasks is not None:
            await self._publish_tasks(name, revision, tasks)
        await self._flush()

    async def _start(self, step: StartStep) -> _Outcome:
        entry = step.entry
        log.info("a connector is being started", connector=entry.name)
        try:
            places = await self._offsets.places(entry.name)
            started = await self._runtime.start(ConnectorJob(entry.name, entry.config, places))
        except Exception as error:  # noqa: BLE001  # the runtime starts the code of any connector and driver
            log.warning("a connector could not be started", connector=entry.name, reason=str(error))
            self._note(self.duties.on_failed(entry.name, f"{type(error).__name__}: {error}", len(entry.tasks)))
            return entry.name, entry.revision, None
        self._note(self.duties.on_started(entry.name, started, len(entry.tasks)))
        log.info("a connector was started", connector=entry.name, tasks=len(started.tasks))
        return entry.name, entry.revision, started.tasks

    async def _stop(self, step: StopStep) -> _Outcome:
        try:
            await self._runtime.stop(step.name)
        except Exception as error:  # noqa: BLE001  # the runtime stops the code of any connector and driver
            log.warning("a connector did not stop in order", connector=step.name, reason=str(error))
        entry = self._store.state.connectors.get(step.name)
        self._note(self.duties.on_stopped(step.name, self._store.state, 0 if entry is None else len(entry.tasks)))
        log.info("a connector was stopped", connector=step.name)
        if entry is None:
            return step.name, 0, None
        return entry.name, entry.revision, () if entry.target is TargetState.STOPPED else None

    async def _publish_tasks(self, name: str, revision: int, tasks: Sequence[ConnectorConfig]) -> None:
        try:
            await self._store.change(lambda state: decide_tasks(state, name, revision, tasks))
        except (BarnabasError, TimeoutError) as error:
            log.warning("the tasks of a connector cannot be published", connector=name, reason=str(error))

    # -- statuses

    def _note(self, records: Sequence[StatusRecord], *, is_claim: bool = True) -> None:
        """Statuses to write. The newest one about a connector, a task or a topic replaces an older one.

        A claim is written whatever the status topic says: this worker has started or stopped what it was assigned.
        """
        for record in records:
            key = _status_key(record)
            before = self._unwritten.get(key)
            claims = (is_claim or (before is not None and before.is_claim)) and not _is_unassigned(record)
            self._unwritten[key] = _Unwritten(record, claims)

    async def _flush(self) -> None:
        """Write the statuses. What cannot be written now is written by a later call.

        Another worker may have got the connector since a status was noted that is no claim. Such a status is written
        only if the board allows it.
        """
        async with self._reporting:
            sent = dict(self._unwritten)
            try:
                if not all(each.is_claim for each in sent.values()):
                    await self._store.refresh_statuses()
                may_write = self._store.board.may_write
                await self._store.report([e.record for e in sent.values() if e.is_claim or may_write(e.record)])
            except (BarnabasError, TimeoutError) as error:
                log.warning("the statuses of connectors cannot be written yet", reason=str(error))
                return
            for key, each in sent.items():
                if self._unwritten.get(key) is each:
                    del self._unwritten[key]


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A status that is to be written, and whether it is a claim."""

    record: StatusRecord
    is_claim: bool


_Outcome = tuple[str, int, Sequence[ConnectorConfig] | None]
"""A connector, the revision of its configuration, and the tasks to publish."""


def _is_unassigned(record: StatusRecord) -> bool:
    """Whether a worker says that it no longer runs a connector or a task, which another worker may run now."""
    match record:
        case ConnectorStatusRecord(_, status) | TaskStatusRecord(_, _, status):
            return status is not None and status.state is ConnectorState.UNASSIGNED
        case _:
            return False


def _status_key(record: StatusRecord) -> tuple[str, str, object]:
    """What a status record is about."""
    match record:
        case ConnectorStatusRecord(name, _):
            return "connector", name, None
        case TaskStatusRecord(name, task, _):
            return "task", name, task
        case TopicUseRecord(name, topic, _):
            return "topic", name, topic
