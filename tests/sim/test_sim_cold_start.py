"""The first requests of clients to a new cluster: some clients give up after one error that Kafka does not return."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.testing import sim
from barnabas.testing.sim.cluster.cluster import SimCluster
from barnabas.testing.sim.cluster.layout import ClusterLayout
from barnabas.testing.sim.node import SimNode
from barnabas.testing.sim.world import World

LAYOUT = ClusterLayout(3, 3, combined=True)


async def found(world: World, group: str, asked: int | None = None) -> tuple[ErrorCode, ErrorCode | None, float]:
    """The answers to one FindCoordinator, of any broker or of `asked`, and to the JoinGroup that follows at once at
    another broker than `asked`, and the seconds of the first."""
    async with world.admin() as admin:
        began = world.loop.time()
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        response = await (admin.cluster.send_any(request) if asked is None else admin.cluster.send(asked, request))
        took = world.loop.time() - began
        assert isinstance(response, FindCoordinatorResponse)
        (coordinator,) = response.coordinators
        if coordinator.error_code:
            return ErrorCode(coordinator.error_code), None, took
        if coordinator.node_id == asked:
            return ErrorCode.NONE, None, took
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        answer = await admin.cluster.send(coordinator.node_id, join)
        return ErrorCode.NONE, ErrorCode(answer.error_code), took


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 20), marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("first_ready", [True, False], ids=["when the first broker is ready", "when all are ready"])
def test_the_first_group_of_a_new_cluster_finds_its_coordinator_at_once(first_ready: bool, seeds: range) -> None:
    async def scenario(world: World) -> tuple[ErrorCode, ErrorCode | None, float]:
        cluster = SimCluster(world, LAYOUT, {})
        for node in cluster.hosts.values():
            node.launch()
        if first_ready:
            await world.until(lambda: any(node.ready for node in cluster.brokers), 30.0, "a broker is ready")
        else:
            await cluster.until_well(30.0)
        return await found(world, "first")

    answers = [sim.run(scenario, seed=seed) for seed in seeds]
    assert {find for find, _, _ in answers} == {ErrorCode.NONE}
    # Kafka's codes for a broker that does not know the topic yet, or loads the partition.
    may_be = {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert {join for _, join, _ in answers} <= may_be, Counter(join for _, join, _ in answers)
    assert max(took for _, _, took in answers) < 1.0


def test_a_coordinator_that_does_not_know_its_topic_yet_answers_as_kafka() -> None:
    """The broker to which FindCoordinator points has an older image than the broker that answered."""

    async def scenario(world: World) -> set[ErrorCode | None]:
        cluster = SimCluster(world, ClusterLayout(3, 1), {"offsets.topic.num.partitions": "6"})
        await cluster.start()
        await cluster.until_well(30.0)
        for broker in cluster.brokers[1:]:
            world.network.cut(broker.name, "c1")  # shorter than the session time-out: the brokers stay in the cluster
        return {(await found(world, f"group-{number}", asked=1))[1] for number in range(6)}

    assert sim.run(scenario, seed=1) == {None, ErrorCode.NOT_COORDINATOR}


def test_a_coordinator_whose_leader_died_is_found_when_the_next_one_leads() -> None:
    async def scenario(world: World) -> tuple[ErrorCode, float]:
        cluster = SimCluster(world, ClusterLayout(3, 1), {})
        await cluster.start()
        await cluster.until_well(30.0)
        async with world.admin() as admin:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            first = (await admin.cluster.send_any(request)).coordinators[0]
            node = cluster.broker(first.node_id)
            assert node is not None
            other = next(broker for broker in cluster.brokers if broker is not node)
            await cluster.until_well(30.0)
            SimNode.kill(node)
            fenced = world.loop.time()
            answer = (await admin.cluster.send(other.node_id, request)).coordinators[0]
            return ErrorCode(answer.error_code), world.loop.time() - fenced

    code, took = sim.run(scenario, seed=3)
    assert code is ErrorCode.NONE
    assert took < 1.1


def test_a_broker_without_a_controller_refuses_after_a_second() -> None:
    async def scenario(world: World) -> tuple[ErrorCode, float]:
        cluster = SimCluster(world, ClusterLayout(3, 1), {})
        await cluster.start()
        await cluster.until_well(30.0)
        world.network.cut("b2", "c1")
        code, _, took = await found(world, "g", asked=2)
        return code, took

    code, took = sim.run(scenario, seed=1)
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 1.0 <= took < 1.2


def test_a_coordinator_that_cannot_be_created_is_refused_after_a_second() -> None:
    async def scenario(world: World) -> tuple[ErrorCode, float]:
        await world.start_broker({"offsets.topic.replication.factor": "3"})
        code, _, took = await found(world, "g")
        return code, took

    code, took = sim.run(scenario, seed=1)
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 1.0 <= took < 1.2
