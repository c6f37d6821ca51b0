"""For how long writes stay away when a node stops or hears nothing: simulated time, with Kafka's default time-outs.

docs/OPERATIONS.md lists what the seconds are. The bound is the time after which the controller knows that the node is
gone, and one second for everything else.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.server.peers.controller import ActiveController
from barnabas.testing import sim
from barnabas.testing.sim.cluster.cluster import SimCluster
from barnabas.testing.sim.cluster.fencing_rules import DeafBrokerIsSilent
from barnabas.testing.sim.cluster.layout import ClusterLayout
from barnabas.testing.sim.cluster.observation import ClusterObservation
from barnabas.testing.sim.cluster.view import group_coordinator_of
from barnabas.testing.sim.errors import CorrectnessError
from barnabas.testing.sim.node import SimNode
from barnabas.testing.sim.world import World

SESSION_S: Final = 9.0
HEARTBEAT_S: Final = 2.0
DEFAULTS: Final = {
    "broker.session.timeout.ms": f"{SESSION_S * 1000:.0f}",
    "broker.heartbeat.interval.ms": f"{HEARTBEAT_S * 1000:.0f}",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.election.backoff.max.ms": "1000",
    "controller.quorum.request.timeout.ms": "2000",
    "replica.lag.time.max.ms": "30000",
    "replica.socket.timeout.ms": "30000",
    "replica.fetch.backoff.ms": "1000",
}
"""Kafka's defaults, in place of the shorter times of simulated clusters."""
TOPIC: Final = "t"
WRITER: Final = "writer"
GROUP: Final = "g"
COMBINED: Final = ClusterLayout(3, 3, combined=True)
FAULT_S: Final = 16.0
"""Longer than any detection."""


def pause(world: World, cluster: SimCluster, node: SimNode) -> None:
    node.pause()


def cut(world: World, cluster: SimCluster, node: SimNode) -> None:
    deafen(world, cluster, node)
    mute(world, cluster, node)


def deafen(world: World, cluster: SimCluster, node: SimNode) -> None:
    """No packet reaches the node."""
    for other in (*cluster.hosts, WRITER):
        if other != node.name:
            world.network.cut(other, node.name, both=False)


def mute(world: World, cluster: SimCluster, node: SimNode) -> None:
    """No packet of the node reaches another host."""
    for other in (*cluster.hosts, WRITER):
        if other != node.name:
            world.network.cut(node.name, other, both=False)


Deed = Callable[[World, SimCluster, SimNode], None]


async def start(world: World, layout: ClusterLayout) -> SimCluster:
    """A topic with three partitions, each led by another broker."""
    cluster = SimCluster(world, layout, DEFAULTS)
    await cluster.start()
    async with world.admin() as admin:
        await admin.create_topic(TOPIC, 3)
    await cluster.until_well(60.0)
    return cluster


def led_by(cluster: SimCluster, *, controller: bool) -> tuple[TopicPartition, SimNode]:
    """A partition that the active controller leads, or one that another node leads, and that node."""
    for index in range(3):
        node = cluster.leader(TopicPartition(TOPIC, index))
        if node is not None and (node is cluster.active_controller()) == controller:
            return TopicPartition(TOPIC, index), node
    raise AssertionError("each broker leads a partition")


async def write(world: World, partition: int, acknowledged: list[float]) -> None:
    async with world.producer(linger_ms=0) as producer:
        while True:
            await producer.send_and_wait(TOPIC, b"x", partition=partition)
            acknowledged.append(world.loop.time())
            await asyncio.sleep(0.02)


async def longest_wait(world: World, who: str, deed: Deed) -> float:
    """The longest time without an acknowledged write after `deed` to a leader, in seconds."""
    cluster = await start(world, COMBINED)
    tp, node = led_by(cluster, controller=who == "controller")
    acknowledged: list[float] = []
    world.start_client(WRITER, write(world, tp.partition, acknowledged))
    await asyncio.sleep(3.0 + world.random_stream("phase").random() * HEARTBEAT_S)
    began = world.loop.time()
    deed(world, cluster, node)
    await asyncio.sleep(FAULT_S)
    return max((after - before for before, after in pairwise(acknowledged) if after > began), default=FAULT_S)


@pytest.mark.parametrize("who", ["leader", "controller"])  # the controller leads the partition, too
@pytest.mark.parametrize(
    ("deed", "detected_s"),
    [
        (pause, SESSION_S),
        (cut, SESSION_S),
        (mute, SESSION_S),
        # The heartbeat that is due next still arrives, and a controller that hears nothing sends until it resigns.
        (deafen, SESSION_S + HEARTBEAT_S),
    ],
)
def test_writes_go_on_a_second_after_the_detection(who: str, deed: Deed, detected_s: float) -> None:
    wait_s = sim.run(lambda world: longest_wait(world, who, deed), seed=2)
    assert SESSION_S / 2 < wait_s < detected_s + 1.0


def heartbeats_over_a_dead_connection(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat without a response leaves its connection open, and the next one is sent over it."""
    real = ActiveController.__init__
    limits_s: dict[ActiveController, float] = {}

    def init(self: ActiveController, *args: Any, **options: Any) -> None:
        limits_s[self] = options.pop("heartbeat_timeout_ms") / 1000
        real(self, *args, **options, heartbeat_timeout_ms=30_000)

    call = ActiveController.call

    async def limited(self: ActiveController, request: Any, version: int, ctx: Any = None) -> Any:
        limit_s = limits_s.get(self)  # a broker of other tests, which runs in this process, has none
        if limit_s is None or not isinstance(request, BrokerHeartbeatRequest):
            return await call(self, request, version, ctx)
        try:
            async with asyncio.timeout(limit_s):
                return await call(self, request, version, ctx)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None

    patch.setattr(ActiveController, "__init__", init)
    patch.setattr(ActiveController, "call", limited)


@pytest.mark.parametrize("planted", [False, True])
def test_the_controller_gets_no_heartbeat_of_a_broker_that_hears_nothing(
    planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storms rarely leave such a cut alone for long enough to find the bug."""

    async def scenario(world: World) -> None:
        cluster = await start(world, COMBINED)
        rule = DeafBrokerIsSilent(cluster)
        _, node = led_by(cluster, controller=False)
        deafen(world, cluster, node)
        for _ in range(int(FAULT_S / 0.1)):
            rule.observe(ClusterObservation(cluster))
            await asyncio.sleep(0.1)

    if not planted:
        sim.run(scenario, seed=2)
        return
    heartbeats_over_a_dead_connection(monkeypatch)
    with pytest.raises(CorrectnessError, match="after its last packet could reach that broker"):
        sim.run(scenario, seed=2)


def test_a_leader_that_is_cut_off_sends_its_clients_away() -> None:
    """A client that waits for its response gets one when the leader has been fenced at the latest, and not at its own
    time-out; the leader still answers it, because only the other nodes do not reach the leader."""

    async def scenario(world: World) -> tuple[ErrorCode, float]:
        cluster = await start(world, COMBINED)
        tp, node = led_by(cluster, controller=False)
        for other in cluster.hosts:
            if other != node.name:
                world.network.cut(node.name, other)
        began = world.loop.time()
        batch = build_batch([SimpleRecord(None, b"x", 0)])
        data = [PartitionProduceData(index=tp.partition, records=batch)]
        image = cluster.newest_image()
        assert image is not None
        topic = image.topics.get(TOPIC)
        assert topic is not None
        request = ProduceRequest(
            acks=-1,
            timeout_ms=60_000,
            topic_data=[TopicProduceData(name=TOPIC, topic_id=topic.topic_id, partition_data=data)],
        )
        async with world.admin(request_timeout_ms=60_000) as admin:
            response = await admin.cluster.send(node.node_id, request, purpose="a client that only waits")
        assert isinstance(response, ProduceResponse)
        code = response.responses[0].partition_responses[0].error_code
        return ErrorCode(code), world.loop.time() - began

    for seed in (0, 1):
        code, after_s = sim.run(scenario, seed=seed)
        assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert SESSION_S < after_s < SESSION_S + HEARTBEAT_S + 0.5


def test_requests_behind_a_paused_coordinator_go_to_its_successor() -> None:
    """A member of a group does not wait for the time-out of its request (30 s): the client asks others who coordinates,
    every second, while an answer is missing."""

    async def scenario(world: World) -> float:
        cluster = await start(world, COMBINED)
        committed: list[float] = []

        async def commit() -> None:
            async with world.producer() as producer:
                await producer.send_and_wait(TOPIC, b"x", partition=0)
            async with world.consumer(group_id=GROUP, enable_auto_commit=False) as consumer:
                consumer.subscribe([TOPIC])
                while True:
                    await consumer.poll(50)
                    await consumer.commit()
                    committed.append(world.loop.time())
                    await asyncio.sleep(0.1)

        world.start_client("member", commit())
        await asyncio.sleep(6.0 + world.random_stream("phase").random() * HEARTBEAT_S)
        coordinator = next(node for node in cluster.brokers if group_coordinator_of(node, GROUP) is not None)
        began = world.loop.time()
        coordinator.pause()
        await asyncio.sleep(FAULT_S)
        return max((after - before for before, after in pairwise(committed) if after > began), default=FAULT_S)

    waits = [sim.run(scenario, seed=seed) for seed in (0, 5)]  # the coordinator of 5 is the controller
    assert all(SESSION_S / 2 < wait_s < SESSION_S + HEARTBEAT_S + 1.0 for wait_s in waits), waits


def test_leaders_serve_writes_without_any_controller() -> None:
    """A broker that no controller answers leads as long as its followers fetch."""

    async def scenario(world: World) -> float:
        cluster = await start(world, ClusterLayout(3, 1))
        acknowledged: list[float] = []
        world.start_client(WRITER, write(world, 0, acknowledged))
        await asyncio.sleep(1.0)
        cluster.controllers[0].pause()
        await asyncio.sleep(2 * SESSION_S)
        return max(after - before for before, after in pairwise(acknowledged))

    assert sim.run(scenario) < 1.0


def test_followers_fetch_soon_after_an_orderly_change_of_the_leader() -> None:
    """A follower that fetches from the new leader already waits for replica.fetch.wait.max.ms (0.5 s) at most."""

    async def scenario(world: World) -> float:
        cluster = await start(world, COMBINED)
        tp, node = led_by(cluster, controller=False)
        acknowledged: list[float] = []
        world.start_client(WRITER, write(world, tp.partition, acknowledged))
        await asyncio.sleep(1.0)
        await cluster.stop(node)
        await asyncio.sleep(3.0)
        return max(after - before for before, after in pairwise(acknowledged))

    assert max(sim.run(scenario, seed=seed) for seed in (0, 4)) < 0.8
