"""The scenarios of Kafka's RaftEventSimulationTest and of KIP-853, with several seeds and an unreliable network."""

from __future__ import annotations

import pytest

from barnabas.server.raft.machine.messages import AddVoterRequest, RemoveVoterRequest
from barnabas.server.raft.machine.values import ReplicaKey
from tests.configs import raft_config
from tests.property.raft_chaos import change_voters, settle
from tests.property.raft_invariants import MajorityReachedHighWatermark, MonotonicEpoch, all_invariants
from tests.property.raft_world import Node, World, voter_of

SEEDS = range(6)
each_seed = pytest.mark.parametrize("seed", SEEDS)
each_size = pytest.mark.parametrize("voters", [3, 5])


def running(seed: int, voters: int = 3, **options: object) -> World:
    """A cluster in which values have been acknowledged."""
    world = World(seed, voters=voters, invariants=all_invariants(), **options)  # type: ignore[arg-type]
    settle(world)
    return world


def the_leader(world: World) -> Node:
    leader = world.leader()
    assert leader is not None
    return leader


@each_seed
@each_size
def test_can_elect_initial_leader(seed: int, voters: int) -> None:
    world = World(seed, voters=voters, invariants=all_invariants())
    assert world.run(20_000, until=lambda: world.leader() is not None)
    settle(world)


@each_seed
@each_size
def test_can_elect_new_leader_after_old_leader_failure(seed: int, voters: int) -> None:
    world = running(seed, voters)
    old = the_leader(world)
    world.crash(old)
    assert world.run(20_000, until=lambda: world.leader() is not None)
    assert the_leader(world) is not old
    world.start(old)
    settle(world)


@each_seed
@each_size
def test_can_recover_after_all_nodes_killed(seed: int, voters: int) -> None:
    world = running(seed, voters)
    acked = list(world.acked)
    for node in list(world.running):
        world.crash(node)
    for node in world.nodes.values():
        world.start(node)
    settle(world)
    values = dict(the_leader(world).state)
    assert [(a.offset, values[a.offset]) for a in acked] == [(a.offset, a.value) for a in acked]


@each_seed
@each_size
def test_can_elect_new_leader_after_old_leader_partitioned_away(seed: int, voters: int) -> None:
    world = running(seed, voters)
    old = the_leader(world)
    others = [node_id for node_id in world.nodes if node_id != old.id]
    world.partition([old.id], others)
    assert world.run(30_000, until=lambda: old not in world.leaders and world.leader() is not None)
    world.heal()
    settle(world)


@each_seed
def test_can_make_progress_if_majority_is_reachable(seed: int) -> None:
    world = running(seed, 5)
    leader = the_leader(world)
    others = [node_id for node_id in world.nodes if node_id != leader.id]
    for minority in ([leader.id, others[0]], others[:2]):
        world.partition(minority, [node_id for node_id in world.nodes if node_id not in minority])
        target = len(world.acked) + 3
        end = world.now + 40_000
        while len(world.acked) < target and world.now < end:
            for node in world.leaders:
                world.propose(node)
            world.run(50)
        assert len(world.acked) >= target
        world.heal()
        settle(world)


@each_seed
def test_can_elect_leaders_after_back_to_back_leader_failures(seed: int) -> None:
    world = running(seed, 5)
    for _ in range(3):
        leader = the_leader(world)
        world.crash(leader)
        assert world.run(20_000, until=lambda: world.leader() is not None)
        world.start(leader)
        settle(world)


@each_seed
def test_can_recover_from_one_nodes_committed_data_loss(seed: int) -> None:
    """A quorum without directory ids, as in Kafka's test. Every other node has all records when one node loses its
    data."""
    world = running(seed, 5, kraft_version=0)
    kept = [i for i in all_invariants() if not isinstance(i, MonotonicEpoch | MajorityReachedHighWatermark)]
    world.invariants = list(kept)
    victim = next(node for node in world.running if node is not world.leader())
    world.wipe(victim, new_directory=False)
    world.start(victim)
    settle(world)


@each_seed
def test_can_replace_a_voter_that_lost_its_disk(seed: int) -> None:
    """KIP-853: a node with a new disk is another replica, an observer at first, which then replaces the old voter."""
    world = running(seed, 3)
    victim = next(node for node in world.running if node is not world.leader())
    old = victim.key
    world.wipe(victim, new_directory=True)
    world.start(victim)
    change_voters(world, RemoveVoterRequest(old))
    settle(world)
    change_voters(world, AddVoterRequest(victim.key, voter_of(victim.key).endpoints))
    settle(world)
    assert victim.key in the_leader(world).machine.voters.keys  # type: ignore[union-attr]


@each_seed
def test_can_grow_from_one_voter_to_three_by_auto_join(seed: int) -> None:
    config = raft_config(
        controller_quorum_auto_join_enable=True,
        controller_quorum_fetch_timeout_ms=1000,
        controller_quorum_election_timeout_ms=500,
    )
    world = World(seed, voters=1, observers=2, config=config, invariants=all_invariants())

    def all_in() -> bool:
        return all(node.machine is not None and len(node.machine.voters.members) == 3 for node in world.nodes.values())

    assert world.run(60_000, until=all_in)
    settle(world)


@each_seed
def test_removed_leader_hands_over_leadership(seed: int) -> None:
    world = running(seed, 3)
    leader = the_leader(world)
    change_voters(world, RemoveVoterRequest(leader.key))
    assert world.run(20_000, until=lambda: not leader.machine.is_leader)  # type: ignore[union-attr]
    settle(world)
    assert leader.key not in the_leader(world).machine.voters.keys  # type: ignore[union-attr]


@each_seed
def test_voter_below_the_log_start_catches_up_with_a_snapshot(seed: int) -> None:
    world = running(seed, 3)
    late = next(node for node in world.running if node is not world.leader())
    world.crash(late)
    settle_without = len(world.acked) + 20
    end = world.now + 40_000
    while len(world.acked) < settle_without and world.now < end:
        for node in world.leaders:
            world.propose(node)
        world.run(30)
    for node in world.running:
        world.take_snapshot(node)
    assert all(node.disk.start.offset > late.disk.end_offset for node in world.running)
    world.start(late)
    settle(world)
    assert late.disk.start.offset > 0


@each_seed
def test_observers_find_the_leader_and_follow(seed: int) -> None:
    world = running(seed, 3, observers=2)
    leader = the_leader(world)
    view = leader.machine.describe(world.now)  # type: ignore[union-attr]
    assert [replica.key for replica in view.observers] == [world.nodes[4].key, world.nodes[5].key]
    assert ReplicaKey(4) not in view.voters
    world.crash(leader)
    world.run(20_000, until=lambda: world.leader() is not None)
    world.start(leader)
    settle(world)
