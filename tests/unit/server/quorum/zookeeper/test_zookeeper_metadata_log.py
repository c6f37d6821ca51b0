"""The shell over a ZooKeeper in memory, and without kazoo."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
from barnabas.server.metadata.records.codec import TopicRecord
from barnabas.server.quorum.zookeeper.config import ZooKeeperConfig
from barnabas.server.quorum.zookeeper.errors import ZooKeeperError
from barnabas.server.quorum.zookeeper.layout import TAIL, entry_path, read_tail
from barnabas.server.quorum.zookeeper.machine.requests import Answer, Delete, Get, Multi, Request
from barnabas.server.quorum.zookeeper.metadata_log import NodeInfo, ZooKeeperMetadataLog
from barnabas.server.quorum.zookeeper.session import ZooKeeperSession
from tests.property.zookeeper_model import Ensemble

TIMEOUT_MS = 60_000


class FakeSession:
    """ZooKeeperSession over an Ensemble: answers in the next turn of the loop."""

    def __init__(self, ensemble: Ensemble, log: ZooKeeperMetadataLog) -> None:
        self._ensemble, self._log = ensemble, log
        self.session = ensemble.open_session(TIMEOUT_MS, 0)
        log.on_connected(self.session.id, TIMEOUT_MS)

    def submit(self, request: Request, on_answer: Callable[[Answer], Any]) -> None:
        loop = asyncio.get_running_loop()
        server = self._ensemble.servers[0]
        if isinstance(request, Get) and request.watch:
            self._ensemble.exists_watch(
                server, 0, request.path, lambda path: loop.call_soon(self._log.on_changed, path) and None
            )
        answer = self._ensemble.execute(server, self.session, request)
        loop.call_soon(on_answer, answer)

    async def stop(self) -> None:
        self.stop_now()

    def stop_now(self) -> None:
        self._ensemble.end_session(self.session)
        self._ensemble.catch_up(self._ensemble.servers[0])


class Remembering:
    """A MetadataListener that keeps what it is told."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.leaders: list[int] = []
        self.told = asyncio.Event()

    def on_commit(self, batch: CommittedBatch) -> None:
        self.names += [record.name for record in batch.records if isinstance(record, TopicRecord)]

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.names = [record.name for record in snapshot.records if isinstance(record, TopicRecord)]

    def on_leader(self, leader_id: int, epoch: int) -> None:
        self.leaders.append(leader_id)
        self.told.set()


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=UUID(int=1))


def join(ensemble: Ensemble, node_id: int = 1, *, eligible: bool = True) -> tuple[ZooKeeperMetadataLog, Remembering]:
    me = NodeInfo(node_id, [ListenerEndpoint("PLAINTEXT", "h", 9092)], (f"c{node_id}", 9093), eligible=eligible)
    log = ZooKeeperMetadataLog(ZooKeeperConfig("nowhere:1", 18_000, 18_000), me, SystemClock())
    log._session = cast("ZooKeeperSession", FakeSession(ensemble, log))
    listener = Remembering()
    log.register(listener)
    return log, listener


async def end(run: asyncio.Task[None]) -> None:
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


def test_single_node_leads_and_its_log_survives_a_restart() -> None:
    async def scenario() -> None:
        ensemble = Ensemble()
        log, listener = join(ensemble)
        await log.find_quorum()
        with pytest.raises(KafkaError, match="not the active controller"):
            log.propose([topic("early")])
        run = asyncio.create_task(log.run())
        await log.wait_caught_up()
        assert (log.leader_id, log.leader_epoch, log.leader_endpoint()) == (1, 1, ("c1", 9093))
        offsets = await asyncio.gather(*(log.propose([topic(f"a{n}"), topic(f"b{n}")]) for n in range(3)))
        assert offsets == [1, 3, 5]
        assert listener.names == ["a0", "b0", "a1", "b1", "a2", "b2"]
        assert (log.high_watermark, log.voters()) == (6, ((1, 6),))
        await log.resign()
        assert (log.leader_id, log.leader_endpoint(), listener.leaders) == (-1, None, [1, -1])
        await end(run)

        again, heard = join(ensemble)
        await again.find_quorum()
        assert heard.names == listener.names
        run = asyncio.create_task(again.run())
        await again.wait_caught_up()
        assert again.leader_epoch == 2
        assert await again.propose([topic("later")]) == 6
        await end(run)
        again.close()

    asyncio.run(scenario())


def test_late_listener_is_notified_of_all_records() -> None:
    async def scenario() -> None:
        log, first = join(Ensemble())
        await log.find_quorum()
        run = asyncio.create_task(log.run())
        await log.wait_caught_up()
        for number in range(5):
            await log.propose([topic(f"t{number}")])
        await log.write_snapshot(3, 1, 9, [topic("t0"), topic("t1"), topic("t2")])
        late = Remembering()
        log.register(late)
        await late.told.wait()
        assert (late.names, late.leaders) == (first.names, [1])
        await log.propose([topic("t5")])
        assert late.names == first.names == ["t0", "t1", "t2", "t3", "t4", "t5"]
        await end(run)

    asyncio.run(scenario())


def test_node_that_is_not_eligible_follows_without_elections() -> None:
    async def scenario() -> None:
        ensemble = Ensemble()
        observer, seen = join(ensemble, 2, eligible=False)
        await observer.find_quorum()
        watching = asyncio.create_task(observer.run())
        leader, _ = join(ensemble, 1)
        await leader.find_quorum()
        run = asyncio.create_task(leader.run())
        await observer.wait_caught_up()
        assert observer.leader_endpoint() == ("c1", 9093)
        await leader.wait_caught_up()
        await leader.propose([topic("t")])
        seen.told.clear()
        await leader.resign()
        await seen.told.wait()
        assert (seen.names, seen.leaders) == (["t"], [1, -1])
        for task in (run, watching):
            await end(task)

    asyncio.run(scenario())


def test_snapshot_replaces_entries() -> None:
    async def scenario() -> None:
        ensemble = Ensemble()
        log, _ = join(ensemble)
        await log.find_quorum()
        run = asyncio.create_task(log.run())
        await log.wait_caught_up()
        for number in range(6):
            await log.propose([topic(f"t{number}")])
        for end_offset in (2, 5):
            await log.write_snapshot(end_offset, 1, 9, [topic(f"t{n}") for n in range(end_offset)])
            snapshot = None
            while snapshot is None or snapshot.end_offset != end_offset:
                await asyncio.sleep(0)
                snapshot = read_tail(ensemble.tree[TAIL].data).snapshot
            await log.propose([topic("after")])  # answers come in order: now it knows that the snapshot counts
        while entry_path(1) in ensemble.tree:
            await asyncio.sleep(0)
        assert entry_path(2) in ensemble.tree
        await end(run)
        again, heard = join(ensemble)
        await again.find_quorum()
        assert heard.names == ["t0", "t1", "t2", "t3", "t4", "t5", "after", "after"]
        again.close()

    asyncio.run(scenario())


def test_invalid_entry_stops_the_node() -> None:
    async def scenario() -> None:
        ensemble = Ensemble()
        log, _ = join(ensemble)
        await log.find_quorum()
        run = asyncio.create_task(log.run())
        await log.wait_caught_up()
        for number in range(3):
            await log.propose([topic(f"t{number}")])
        await end(run)
        ensemble._transaction((Delete(entry_path(1)),), ensemble.open_session(1, 0))
        ensemble.catch_up(ensemble.servers[0])
        again, _ = join(ensemble)
        with pytest.raises(MetadataError, match="does not continue at 1"):
            await again.find_quorum()

    asyncio.run(scenario())


def test_pending_proposals_fail_when_the_node_stops() -> None:
    async def scenario() -> None:
        log, _ = join(Ensemble())
        await log.find_quorum()
        run = asyncio.create_task(log.run())
        await log.wait_caught_up()
        proposal = asyncio.ensure_future(log.propose([topic("t")]))
        await end(run)
        with pytest.raises(KafkaError, match="may or may not") as caught:
            await proposal
        assert caught.value.code is ErrorCode.NOT_CONTROLLER

    asyncio.run(scenario())


def test_raft_requests_are_rejected() -> None:
    async def scenario() -> None:
        log, _ = join(Ensemble())
        assert log.describe() is None
        assert list(log.voter_set.ids) == []
        with pytest.raises(KafkaError, match="ZooKeeper stores the metadata"):
            await log.handle(cast("Any", Multi(())))

    asyncio.run(scenario())


def test_missing_kazoo_raises_an_error_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        me = NodeInfo(1, [], ("", -1))
        log = ZooKeeperMetadataLog(ZooKeeperConfig("nowhere:1", 18_000, 18_000), me, SystemClock())
        with pytest.raises(ZooKeeperError, match=r"pip install 'barnabas\[zookeeper\]'"):
            await log.connect("id")
        log.close()

    monkeypatch.setitem(sys.modules, "kazoo", None)
    monkeypatch.delitem(sys.modules, "barnabas.server.quorum.zookeeper.session", raising=False)
    asyncio.run(scenario())


def test_unreachable_servers_raise_zookeeper_error() -> None:
    async def scenario() -> None:
        settings = ZooKeeperConfig("127.0.0.1:1", 18_000, zookeeper_connection_timeout_ms=50)
        log = ZooKeeperMetadataLog(settings, NodeInfo(1, [], ("", -1)), SystemClock())
        with pytest.raises(
            ZooKeeperError, match=r"No ZooKeeper server of zookeeper.connect=127.0.0.1:1 could be reached"
        ):
            await log.connect("id")

    asyncio.run(scenario())


def test_leader_is_unknown_without_a_connection_to_zookeeper() -> None:
    async def scenario() -> None:
        ensemble = Ensemble()
        observer, _ = join(ensemble, 2, eligible=False)
        leader, _ = join(ensemble, 1)
        await observer.find_quorum()
        await leader.find_quorum()
        runs = [asyncio.create_task(log.run()) for log in (observer, leader)]
        await observer.wait_caught_up()
        machine, now = observer._machine, observer._now_ms()
        machine.on_suspended(now)
        lease_ms = TIMEOUT_MS * 2 // 3
        assert [machine.leader_id(now + later) for later in (0, lease_ms, lease_ms + 1)] == [1, 1, -1]
        machine.on_connected(1, TIMEOUT_MS)
        assert machine.leader_id(now + lease_ms + 1) == 1
        for run in runs:
            await end(run)

    asyncio.run(scenario())
