"""Three production nodes over real sockets: the quorum as clients see it, its leader's death, a voter that leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from barnabas.protocol.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from barnabas.server.quorum.metadata_log import RaftMetadataLog
from barnabas.testing.ports import free_ports
from tests.progress import until

ALL = (1, 2, 3)


@dataclass
class Nodes:
    """Nodes 1 to 3 in this process, each with its ports and its directory."""

    path: Path
    settings: dict[str, str]
    clients: dict[int, int]
    controllers: dict[int, int]
    running: dict[int, tuple[Node, asyncio.Task[None]]] = field(default_factory=dict)

    async def start(self, node_id: int) -> None:
        listeners = f"PLAINTEXT://127.0.0.1:{self.clients[node_id]},CONTROLLER://127.0.0.1:{self.controllers[node_id]}"
        given = {**self.settings, "node.id": str(node_id), "listeners": listeners}
        node = Node(build_config(given, data_dir=str(self.path / str(node_id)), metadata_fsync=False))
        ready = asyncio.Event()
        self.running[node_id] = (node, asyncio.create_task(node.run(lambda _: ready.set())))
        done = asyncio.create_task(ready.wait())
        await asyncio.wait((done, self.running[node_id][1]), return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        assert ready.is_set(), self.running[node_id][1].exception()

    async def kill(self, node_id: int) -> None:
        _, task = self.running.pop(node_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def log(self, node_id: int) -> RaftMetadataLog:
        parts = self.running[node_id][0].parts
        assert parts is not None
        log = parts.metadata
        assert isinstance(log, RaftMetadataLog)
        return log

    async def leader(self) -> int:
        """Everyone who runs agrees on it."""
        while True:
            said = {self.log(node_id).leader_id for node_id in self.running}
            if len(said) == 1 and said <= self.running.keys():
                return said.pop()
            await asyncio.sleep(0.02)  # until the nodes agree

    async def ask(self, node_id: int, request: Any) -> Any:
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{self.clients[node_id]}") as admin:
            return await admin.cluster.send_any(request)


@contextlib.asynccontextmanager
async def nodes(path: Path, *, static: bool) -> AsyncIterator[Nodes]:
    found = free_ports(6)
    clients, controllers = dict(zip(ALL, found[:3], strict=True)), dict(zip(ALL, found[3:], strict=True))
    settings = {
        "controller.listener.names": "CONTROLLER",
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "1500",
    }
    if static:
        settings["controller.quorum.voters"] = ",".join(f"{n}@127.0.0.1:{port}" for n, port in controllers.items())
    else:
        servers = ",".join(f"127.0.0.1:{port}" for port in controllers.values())
        settings |= {"controller.quorum.bootstrap.servers": servers, "controller.quorum.auto.join.enable": "true"}
    made = Nodes(path, settings, clients, controllers)
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*(made.start(node_id) for node_id in ALL))
            yield made
    finally:
        for node_id in list(made.running):
            await made.kill(node_id)


def describe() -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )


def test_any_broker_describes_a_static_quorum_after_the_loss_of_its_leader(tmp_path: Path) -> None:
    async def main() -> None:
        async with nodes(tmp_path, static=True) as made:
            first = await made.leader()
            for node_id in ALL:
                answer = await made.ask(node_id, describe())
                partition = answer.topics[0].partitions[0]
                assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, first)
                assert [voter.replica_id for voter in partition.current_voters] == [1, 2, 3]
                assert all(voter.log_end_offset > 0 for voter in partition.current_voters)
                ports = [(node.node_id, node.listeners[0].port) for node in answer.nodes]
                assert ports == list(made.controllers.items())
            await made.kill(first)
            second = await made.leader()
            assert second != first
            other = next(node_id for node_id in ALL if node_id not in (first, second))
            partition = (await made.ask(other, describe())).topics[0].partitions[0]
            assert (partition.leader_id, partition.leader_epoch) == (second, made.log(second).leader_epoch)
            await made.start(first)
            assert await made.leader() == second
            async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{made.clients[first]}") as admin:
                await admin.create_topics([NewTopic("after")])

    asyncio.run(main())


def test_any_broker_removes_a_voter_that_joined_automatically(tmp_path: Path) -> None:
    async def main() -> None:
        async with nodes(tmp_path, static=False) as made:
            await until(lambda: all(made.log(node_id).voter_set.ids == ALL for node_id in ALL), "all are voters")
            leader = await made.leader()
            removed, asked = (node_id for node_id in ALL if node_id != leader)
            directory = next(key for key in made.log(leader).voter_set.keys if key.id == removed).directory_id
            await made.kill(removed)
            request = RemoveRaftVoterRequest(cluster_id=None, voter_id=removed, voter_directory_id=directory)
            answer = await made.ask(asked, request)
            assert (answer.error_code, answer.error_message) == (0, None)
            again = await made.ask(asked, request)
            assert again.error_code == ErrorCode.VOTER_NOT_FOUND
            partition = (await made.ask(asked, describe())).topics[0].partitions[0]
            assert [voter.replica_id for voter in partition.current_voters] == sorted({leader, asked})

    asyncio.run(main())
