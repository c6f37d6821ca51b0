"""One quorum of three: two nodes of ours and an Apache Kafka, which vote for, follow, lead and register each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from barnabas.server.quorum.metadata_log import RaftMetadataLog
from barnabas.testing.ports import free_ports
from tests.interop.apache_kafka import CLUSTER_ID, ApacheKafka
from tests.progress import until

KAFKA = 3


@contextlib.asynccontextmanager
async def ours(path: Path, voters: str, addresses: dict[int, tuple[int, int]]) -> AsyncIterator[dict[int, Node]]:
    """Nodes 1 and 2 in this process."""
    nodes: dict[int, Node] = {}
    for node_id, (client, controller) in addresses.items():
        given = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
        }
        nodes[node_id] = Node(build_config(given, data_dir=str(path / str(node_id))), cluster_id=CLUSTER_ID)
    tasks = [asyncio.create_task(node.run()) for node in nodes.values()]
    try:
        yield nodes
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def leader(nodes: dict[int, Node], among: set[int]) -> int:
    """When both of ours agree on one of these."""
    while True:
        said = {node.parts.metadata.leader_id if node.parts else -1 for node in nodes.values()}
        if len(said) == 1 and said <= among:
            return said.pop()
        await asyncio.sleep(0.05)  # Apache Kafka's controller is another process


async def caught_up(nodes: dict[int, Node]) -> None:
    """When the one of ours that leads says that every voter has what it has."""
    while True:
        for node in nodes.values():
            log = node.parts.metadata if node.parts else None
            view = log.describe() if isinstance(log, RaftMetadataLog) else None
            if view is not None and {replica.log_end_offset for replica in view.voters} == {view.high_watermark}:
                return
        await asyncio.sleep(0.05)  # Apache Kafka's controller is another process


async def registered(nodes: dict[int, Node]) -> None:
    """When the images of ours name every controller."""
    await until(
        lambda: all(n.parts and n.parts.image.brokers.controllers.keys() == {1, 2, KAFKA} for n in nodes.values()),
        "the images of ours name every controller",
    )


@pytest.mark.timeout(300)
def test_a_quorum_with_apache_kafka(tmp_path: Path) -> None:
    ports = free_ports(6)
    addresses = {1: (ports[0], ports[1]), 2: (ports[2], ports[3])}
    client, controller = ports[4:]
    voters = ",".join(f"{node}@127.0.0.1:{at}" for node, at in ((1, ports[1]), (2, ports[3]), (KAFKA, controller)))
    root = tmp_path / "kafka"
    root.mkdir()
    settings = [
        f"node.id={KAFKA}",
        f"controller.quorum.voters={voters}",
        f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{client}",
    ]
    kafka = ApacheKafka(root, settings)
    kafka._port = client

    async def main() -> None:
        async with asyncio.timeout(240), ours(tmp_path, voters, addresses) as nodes:
            try:
                await asyncio.to_thread(kafka.start)
                first = await leader(nodes, {1, 2, KAFKA})
                told = await asyncio.to_thread(describe, f"127.0.0.1:{ports[0]}")
                assert told["LeaderId"] == str(first)
                await registered(nodes)
                for at in (ports[1], controller):
                    assert sorted(await asyncio.to_thread(endpoints, at)) == sorted((ports[1], ports[3], controller))
                await asyncio.to_thread(kafka.kill)
                second = await leader(nodes, {1, 2})
                await asyncio.to_thread(kafka.start)
                assert await leader(nodes, {second}) == second
                await caught_up(nodes)
                assert (await asyncio.to_thread(describe, kafka.bootstrap))["LeaderId"] == str(second)
            finally:
                await asyncio.to_thread(kafka.kill)

    def endpoints(at: int) -> list[int]:
        """What an AdminClient that asks a controller hears of all."""
        tool = "org.apache.kafka.tools.ClusterTool"
        rows = kafka.tool(tool, "list-endpoints", "--bootstrap-controller", f"127.0.0.1:{at}").splitlines()
        return [int(row.split()[2]) for row in rows if row[:1].isdigit()]

    def describe(bootstrap: str) -> dict[str, str]:
        tool = "org.apache.kafka.tools.MetadataQuorumCommand"
        lines = kafka.tool(tool, "--bootstrap-server", bootstrap, "describe", "--status").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    asyncio.run(main())
