"""What a worker does with its connectors; and a pair of workers, of which one dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.unit.spark.connectors.connect.memory_connect import (
    MemoryConfigLog,
    MemoryOffsets,
    MemoryRuntime,
    MemoryStatusLog,
    MemoryTopics,
)

from barnabas.spark.connectors.connect.cluster import herder
from barnabas.spark.connectors.connect.cluster.assignment import assign_connectors
from barnabas.spark.connectors.connect.cluster.duties import StartStep, Step, StopStep, WorkerDuties
from barnabas.spark.connectors.connect.cluster.ports import ConnectorReport, StartedConnector, TaskReport
from barnabas.spark.connectors.connect.cluster.records import (
    ConnectorRecord,
    ConnectorStatusRecord,
    RestartRecord,
    TargetRecord,
    TaskStatusRecord,
)
from barnabas.spark.connectors.connect.cluster.state import ConnectState, StatusBoard
from barnabas.spark.connectors.connect.cluster.values import ConnectorState, ConnectStatus, RestartRequest, TargetState
from barnabas.spark.connectors.connect.cluster.worker import ConnectStore, ConnectWorker

STARTED = StartedConnector(({"t": "0"},))


class OneWorker:
    """A worker whose steps the test carries out, and the statuses that it reports."""

    def __init__(self) -> None:
        self.state = ConnectState()
        self.board = StatusBoard()
        self.duties = WorkerDuties("w:1")
        self.duties.assign({"n"}, 1)

    def step(self) -> list[Step]:
        """Carry out the next steps; the steps."""
        steps = self.duties.next_steps(self.state)
        for step in steps:
            if isinstance(step, StartStep):
                records = self.duties.on_started(step.entry.name, STARTED, 0)
            else:
                records = self.duties.on_stopped(step.name, self.state, 1)
            for record in records:
                self.board.apply(record)
        return steps

    def statuses(self) -> list[str]:
        connector = self.board.connector("n")
        return [] if connector is None else [connector.state, *(task.state for task in self.board.tasks("n").values())]


def kinds(steps: list[Step]) -> list[str]:
    return ["start" if isinstance(step, StartStep) else "stop" for step in steps]


def test_a_connector_is_started_paused_stopped_and_deleted() -> None:
    worker = OneWorker()
    assert worker.step() == []
    worker.state.apply(ConnectorRecord("n", {"a": "1"}))
    assert kinds(worker.step()) == ["start"]
    assert worker.statuses() == ["RUNNING", "RUNNING"]
    assert worker.step() == []
    worker.state.apply(TargetRecord("n", TargetState.PAUSED))
    assert kinds(worker.step()) == ["stop"]
    assert worker.statuses() == ["PAUSED", "PAUSED"]
    worker.state.apply(TargetRecord("n", TargetState.STARTED))
    assert kinds(worker.step()) == ["start"]
    worker.state.apply(TargetRecord("n", TargetState.STOPPED))
    assert kinds(worker.step()) == ["stop"]
    assert worker.statuses() == ["STOPPED"]
    assert worker.step() == []
    worker.state.apply(TargetRecord("n", TargetState.STARTED))
    worker.step()
    worker.state.apply(ConnectorRecord("n", None))
    assert kinds(worker.step()) == ["stop"]
    assert worker.statuses() == []
    assert worker.step() == []


def test_a_paused_connector_is_not_started_by_a_worker_that_gets_it() -> None:
    worker = OneWorker()
    worker.state.apply(ConnectorRecord("n", {"a": "1"}))
    worker.state.apply(TargetRecord("n", TargetState.PAUSED))
    assert kinds(worker.step()) == ["stop"]
    assert worker.statuses()[0] == "PAUSED"


def test_a_new_configuration_restarts_the_connector() -> None:
    worker = OneWorker()
    worker.state.apply(ConnectorRecord("n", {"a": "1"}))
    worker.step()
    worker.state.apply(ConnectorRecord("n", {"a": "2"}))
    assert kinds(worker.step()) == ["stop"]
    assert kinds(worker.step()) == ["start"]


def test_a_connector_that_cannot_start_stays_failed_until_a_restart_is_requested() -> None:
    worker = OneWorker()
    worker.state.apply(ConnectorRecord("n", {"a": "1"}))
    (step,) = worker.duties.next_steps(worker.state)
    assert isinstance(step, StartStep)
    for record in worker.duties.on_failed("n", "OSError: no", 0):
        worker.board.apply(record)
    status = worker.board.connector("n")
    assert status is not None and (status.state, status.trace) == (ConnectorState.FAILED, "OSError: no")
    assert worker.step() == []
    worker.state.apply(RestartRecord("n", RestartRequest(only_failed=True)))
    assert kinds(worker.step()) == ["start"]
    worker.state.apply(RestartRecord("n", RestartRequest(only_failed=True)))
    assert worker.step() == []  # nothing has failed
    worker.state.apply(RestartRecord("n", RestartRequest(include_tasks=True)))
    assert kinds(worker.step()) == ["stop"]
    assert kinds(worker.step()) == ["start"]


def test_a_failed_task_is_reported_and_restarted_on_request() -> None:
    worker = OneWorker()
    worker.state.apply(ConnectorRecord("n", {"a": "1"}))
    worker.step()
    failed = ConnectorReport((TaskReport(ConnectorState.FAILED, "boom"),), ("orders",))
    records = worker.duties.on_report("n", failed, 17)
    assert len(records) == 2
    assert worker.duties.on_report("n", failed, 18) == []
    worker.state.apply(RestartRecord("n", RestartRequest(only_failed=True)))
    assert worker.step() == []  # only the connector, which has not failed
    worker.state.apply(RestartRecord("n", RestartRequest(include_tasks=True, only_failed=True)))
    assert kinds(worker.step()) == ["stop"]


def test_no_second_step_begins_while_one_is_under_way() -> None:
    worker = OneWorker()
    worker.state.apply(ConnectorRecord("n", {"a": "1"}))
    assert kinds(worker.duties.next_steps(worker.state)) == ["start"]
    worker.duties.release({"n"})
    assert worker.duties.next_steps(worker.state) == []
    worker.duties.on_started("n", STARTED, 0)
    assert worker.duties.next_steps(worker.state) == [StopStep("n")]
    assert worker.duties.busy == {"n"}
    worker.duties.on_stopped("n", worker.state, 1)
    assert worker.duties.busy == frozenset()


def test_a_connector_that_comes_back_while_it_stops_is_started_again() -> None:
    worker = OneWorker()
    worker.state.apply(ConnectorRecord("n", {"a": "1"}))
    worker.step()
    worker.duties.release({"n"})
    assert worker.step() == [StopStep("n")]
    worker.duties.assign({"n"}, 2)
    assert kinds(worker.step()) == ["start"]


# -- a pair of workers


class Pair:
    """Two workers on the same topics. The test is the group's coordinator."""

    def __init__(self) -> None:
        self.topics = MemoryTopics()
        self.runtimes = {"a:1": MemoryRuntime(), "b:1": MemoryRuntime()}
        self.stores = {name: self._store() for name in self.runtimes}
        self.workers = {
            name: ConnectWorker(self.stores[name], runtime, MemoryOffsets(), name, tracks_topics=True)
            for name, runtime in self.runtimes.items()
        }
        for name, worker in self.workers.items():
            self.stores[name].on_change = worker.wake
        self.owned: dict[str, list[str]] = {name: [] for name in self.runtimes}
        self.generation = 0

    def _store(self) -> ConnectStore:
        return ConnectStore(MemoryConfigLog(self.topics), MemoryStatusLog(self.topics))

    async def rebalance(self, *alive: str) -> None:
        """Rebalance until nothing moves any more, as the leader of the group does."""
        while True:
            self.generation += 1
            leader = self.stores[alive[0]]
            await leader.refresh()
            owned = {name: self.owned[name] for name in alive}
            assigned = assign_connectors(leader.state.connectors, owned, dict.fromkeys(alive, self.generation - 1))
            lost = {name: frozenset(owned[name]) - frozenset(assigned[name]) for name in alive}
            for name in alive:
                if lost[name]:
                    await self.workers[name].give_up(lost[name])
                self.owned[name] = assigned[name]
                self.workers[name].set_assignment(frozenset(assigned[name]), self.generation)
            if not any(lost.values()):
                return

    async def create(self, name: str, **config: str) -> None:
        body = {"name": name, "connector.class": "Memory", "path": "p", **config}
        await self.stores["a:1"].change(lambda state: herder.decide_create(state, name, body, None))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                for store in self.stores.values():
                    await store.refresh()
                await asyncio.sleep(0)

    def running(self, name: str) -> list[str]:
        return sorted(self.runtimes[name].running)


def test_a_worker_that_dies_is_replaced_and_its_late_reports_are_ignored() -> None:
    async def play() -> None:
        pair = Pair()
        async with asyncio.TaskGroup() as tasks:
            runs = {name: tasks.create_task(worker.run()) for name, worker in pair.workers.items()}
            await asyncio.sleep(0)
            for name in ("n1", "n2", "n3"):
                await pair.create(name)
            await pair.rebalance("a:1", "b:1")
            await pair.until(lambda: len(pair.running("a:1") + pair.running("b:1")) == 3)
            assert set(pair.running("a:1")).isdisjoint(pair.running("b:1"))
            moved = pair.running("a:1")
            assert moved

            pair.runtimes["a:1"].running.clear()  # killed
            runs["a:1"].cancel()
            await pair.rebalance("b:1")
            await pair.until(lambda: pair.running("b:1") == ["n1", "n2", "n3"])
            board = pair.stores["b:1"].board
            await pair.until(lambda: all(_worker_of(board, name) == "b:1" for name in moved))
            zombie = pair.workers["a:1"]
            for name in moved:
                failed = ConnectorReport((TaskReport(ConnectorState.FAILED, "x"),))
                zombie._note(zombie.duties.on_report(name, failed, 0), is_claim=False)
            await zombie._flush()
            await pair.stores["b:1"].refresh()
            assert all(board.tasks(name)[0].state is ConnectorState.RUNNING for name in moved)
            zombie.duties.release(zombie.duties.connectors)
            for step in zombie.duties.next_steps(pair.stores["a:1"].state):
                assert isinstance(step, StopStep)
                await zombie._carry_out(step)
            await pair.stores["b:1"].refresh()
            assert all(_worker_of(board, name) == "b:1" for name in moved)
            assert not zombie._unwritten
            runs["b:1"].cancel()

    asyncio.run(play())


@pytest.mark.parametrize("path", ["p", "bad"])
def test_the_statuses_of_a_group_that_begins_anew_replace_those_of_the_last_one(path: str) -> None:
    """All workers died, the empty group was deleted, and the next worker has generation 1."""

    async def play() -> None:
        pair = Pair()
        dead = ConnectStatus(ConnectorState.RUNNING, "dead:1", 7)
        await pair.create("n1", path=path)
        await pair.stores["a:1"].report([ConnectorStatusRecord("n1", dead), TaskStatusRecord("n1", 0, dead)])
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(pair.workers["a:1"].run())
            await asyncio.sleep(0)
            await pair.rebalance("a:1")
            board = pair.stores["a:1"].board
            await pair.until(lambda: _worker_of(board, "n1") == "a:1")
            expected = ConnectorState.RUNNING if path == "p" else ConnectorState.FAILED
            status = board.connector("n1")
            assert status is not None and (status.state, status.generation) == (expected, 1)
            if path == "p":
                await pair.until(lambda: board.tasks("n1")[0].worker_id == "a:1")
            run.cancel()

    asyncio.run(play())


def test_a_failure_is_written_if_the_start_before_it_was_not() -> None:
    """The failure has the claim of the start, which it replaces among the statuses that are not written yet."""

    async def play() -> None:
        pair = Pair()
        worker, store = pair.workers["a:1"], pair.stores["a:1"]
        dead = ConnectStatus(ConnectorState.RUNNING, "dead:1", 7)
        await store.report([TaskStatusRecord("n1", 0, dead)])
        own = ConnectStatus(ConnectorState.RUNNING, "a:1", 1)
        worker._note([TaskStatusRecord("n1", 0, own)])
        worker._note([TaskStatusRecord("n1", 0, replace(own, state=ConnectorState.FAILED))], is_claim=False)
        await worker._flush()
        await store.refresh()
        assert store.board.tasks("n1")[0].state is ConnectorState.FAILED
        worker._note([TaskStatusRecord("n1", 0, own)])
        worker._note([TaskStatusRecord("n1", 0, replace(own, state=ConnectorState.UNASSIGNED))])
        await store.report([TaskStatusRecord("n1", 0, replace(own, worker_id="b:1", generation=2))])
        await worker._flush()
        await store.refresh()
        assert store.board.tasks("n1")[0].worker_id == "b:1"

    asyncio.run(play())


def test_a_worker_that_joins_gets_a_connector_after_it_was_stopped_on_the_other() -> None:
    async def play() -> None:
        pair = Pair()
        async with asyncio.TaskGroup() as tasks:
            runs = [tasks.create_task(worker.run()) for worker in pair.workers.values()]
            await asyncio.sleep(0)
            await pair.create("n1")
            await pair.create("n2")
            await pair.rebalance("a:1")
            await pair.until(lambda: pair.running("a:1") == ["n1", "n2"])
            await pair.rebalance("a:1", "b:1")
            await pair.until(lambda: pair.running("a:1") == ["n1"] and pair.running("b:1") == ["n2"])
            assert pair.runtimes["a:1"].events[-1] == "stop n2"
            await pair.until(lambda: _worker_of(pair.stores["a:1"].board, "n2") == "b:1")
            assert len(pair.stores["a:1"].state.connector("n2").tasks) == 1
            for run in runs:
                run.cancel()

    asyncio.run(play())


def test_statuses_that_cannot_be_written_are_written_later() -> None:
    async def play() -> None:
        pair = Pair()
        log = pair.stores["a:1"]._status_log
        assert isinstance(log, MemoryStatusLog)
        append, refused = log.append, 0

        async def refuse(records: object) -> None:
            nonlocal refused
            refused += 1
            raise TimeoutError

        log.append = refuse  # type: ignore[assignment,method-assign]
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(pair.workers["a:1"].run())
            await asyncio.sleep(0)
            await pair.create("n1")
            await pair.rebalance("a:1")
            await pair.until(lambda: pair.running("a:1") == ["n1"] and refused > 0)
            log.append = append  # type: ignore[method-assign]
            await pair.until(lambda: _worker_of(pair.stores["a:1"].board, "n1") == "a:1")
            run.cancel()

    asyncio.run(play())


def _worker_of(board: StatusBoard, name: str) -> str | None:
    status = board.connector(name)
    return None if status is None else status.worker_id
