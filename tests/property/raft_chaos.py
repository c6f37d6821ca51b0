"""Injects faults into a Raft cluster in simulated time, then repairs the cluster and requires progress."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.core.errors import ErrorCode
from barnabas.server.raft.errors import NotRaftLeaderError
from barnabas.server.raft.machine.events import Resign, UpgradeKRaftVersion
from barnabas.server.raft.machine.messages import AddVoterRequest, ChangeVoterResponse, RemoveVoterRequest
from tests.configs import raft_config
from tests.property.raft_invariants import all_invariants
from tests.property.raft_world import Faults, LivenessFailure, Node, World, voter_of


@dataclass(frozen=True)
class Plan:
    """The faults of a run. The weights of the faults are relative to each other."""

    voters: int = 3
    observers: int = 0
    kraft_version: int = 1
    duration_ms: int = 15_000
    period_ms: int = 40
    fault_rate: float = 0.04
    crash: int = 4
    crash_leader: int = 3
    crash_all: int = 1
    partition: int = 4
    one_way: int = 3
    pause: int = 2
    snapshot: int = 5
    resign: int = 1
    membership: int = 0
    upgrade: int = 0
    crash_in_step: float = 0.002
    loss: float = 0.05
    sync_ms: int = 25
    store_ms: int = 200
    election_timeout_ms: int = 500
    fetch_timeout_ms: int = 1000


def run_chaos(seed: int, plan: Plan) -> World:
    """Run one seed. Raises InvariantViolation or LivenessFailure."""
    faults = Faults(loss=plan.loss, crash_in_step=plan.crash_in_step, sync=(0, plan.sync_ms), store=(0, plan.store_ms))
    config = raft_config(
        controller_quorum_fetch_snapshot_max_bytes=100,
        controller_quorum_fetch_timeout_ms=plan.fetch_timeout_ms,
        controller_quorum_election_timeout_ms=plan.election_timeout_ms,
    )
    world = World(
        seed,
        voters=plan.voters,
        observers=plan.observers,
        kraft_version=plan.kraft_version,
        faults=faults,
        config=config,
        invariants=all_invariants(),
    )
    chaos = Chaos(world, plan)
    end = world.now + plan.duration_ms
    while world.now < end:
        chaos.workload()
        if world.rng.random() < plan.fault_rate:
            chaos.strike()
        world.run(plan.period_ms)
    mend(world)
    settle(world)
    return world


class Chaos:
    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self._strikes: list[tuple[int, Callable[[], None]]] = [
            (plan.crash, lambda: self._crash(self._any())),
            (plan.crash_leader, lambda: self._crash(world.leader())),
            (plan.crash_all, self._crash_all),
            (plan.partition, self._partition),
            (plan.one_way, self._one_way),
            (plan.pause, self._pause),
            (plan.snapshot, self._snapshot),
            (plan.resign, self._resign),
            (plan.membership, self._change_voters),
            (plan.upgrade, self._upgrade),
        ]

    @property
    def rng(self) -> random.Random:
        return self.world.rng

    def workload(self) -> None:
        """Propose a value to a node that believes that it leads, also an outdated leader."""
        for node in self.world.leaders:
            if self.rng.random() < 0.7:
                self.world.propose(node)
        for node in self.world.nodes.values():
            if node.machine is None and self.rng.random() < 0.05:
                self.world.start(node)

    def strike(self) -> None:
        weights = [weight for weight, _ in self._strikes]
        self.rng.choices(self._strikes, weights)[0][1]()

    def _any(self) -> Node | None:
        return self.rng.choice(self.world.running) if self.world.running else None

    def _crash(self, node: Node | None) -> None:
        if node is not None:
            self.world.crash(node)

    def _crash_all(self) -> None:
        for node in self.world.running:
            self.world.crash(node)

    def _partition(self) -> None:
        ids = list(self.world.nodes)
        self.rng.shuffle(ids)
        cut = self.rng.randint(1, max(len(ids) // 2, 1))
        self.world.partition(ids[:cut], ids[cut:])
        self.world.at(self.rng.randint(200, 4000), self.world.heal)

    def _one_way(self) -> None:
        a, b = self.rng.sample(list(self.world.nodes), 2)
        self.world.note(f"cut {a} -> {b}")
        self.world.cut.add((a, b))
        self.world.at(self.rng.randint(200, 4000), lambda: self.world.cut.discard((a, b)))

    def _pause(self) -> None:
        node = self._any()
        if node is not None:
            self.world.pause(node, self.rng.randint(50, 3000))

    def _snapshot(self) -> None:
        node = self._any()
        if node is not None:
            self.world.take_snapshot(node)

    def _resign(self) -> None:
        node = self.world.leader()
        if node is not None and node.machine is not None:
            self.world.deliver(node, node.life, Resign(node.machine.epoch))

    def _upgrade(self) -> None:
        """kraft.version 0 -> 1, which may not be possible yet."""
        for node in self.world.leaders:
            with contextlib.suppress(NotRaftLeaderError):
                if node.paused_until <= self.world.now:
                    self.world.deliver(node, node.life, UpgradeKRaftVersion())

    def _change_voters(self) -> None:
        leader = self.world.leader()
        if leader is None or leader.machine is None:
            return
        voters = leader.machine.voters
        outside = [node for node in self.world.nodes.values() if not voters.has(node.key)]
        if outside and (len(voters.members) <= 2 or self.rng.random() < 0.5):
            key = self.rng.choice(outside).key
            self.world.note(f"ask {leader.key} to add {key}")
            self.world.request(leader, AddVoterRequest(key, voter_of(key).endpoints))
        elif len(voters.members) > 2:
            key = self.rng.choice(voters.keys)
            self.world.note(f"ask {leader.key} to remove {key}")
            self.world.request(leader, RemoveVoterRequest(key))


def mend(world: World) -> None:
    """Repair the network, resume paused nodes and start stopped ones."""
    world.heal()
    world.faults.crash_in_step = 0.0
    world.faults.loss = 0.0
    world.faults.store = (0, 20)
    for node in world.nodes.values():
        node.paused_until = 0
        if node.machine is None:
            world.start(node)


def settle(world: World, *, within_ms: int = 40_000, values: int = 3) -> None:
    """Require that a leader is elected, new values are acknowledged, and every node applies them."""
    target = len(world.acked) + values

    def offer() -> None:
        for node in world.leaders:
            world.propose(node)
        if len(world.acked) < target:
            world.at(50, offer)

    offer()
    if not world.run(within_ms, until=lambda: len(world.acked) >= target):
        world.fail(LivenessFailure, "ProgressWithMajority", f"nothing acknowledged for {within_ms} ms, all being well")
    mark = world.acked[-1].offset + 1

    def reached() -> bool:
        return all(node.applied >= mark for node in world.nodes.values())

    if not world.run(within_ms, until=reached):
        behind = {str(node.key): node.applied for node in world.nodes.values()}
        world.fail(LivenessFailure, "EverybodyCatchesUp", f"{mark} is not reached by all: {behind}")


def change_voters(world: World, request: AddVoterRequest | RemoveVoterRequest, *, within_ms: int = 60_000) -> None:
    """Repeat the request until it succeeds, as an operator would."""
    end = world.now + within_ms
    while world.now < end:
        leader = world.leader()
        if leader is not None and leader.machine is not None:
            token = world.request(leader, request)
            world.run(3000, until=lambda token=token: token in world.answers)  # type: ignore[misc]
            answer = world.answers.get(token)
            assert answer is None or isinstance(answer, ChangeVoterResponse)
            done = (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)
            if answer is not None and answer.error in done:
                return
        world.run(300)
    world.fail(LivenessFailure, "ChangeOfVoters", f"{request} was not done in {within_ms} ms")
