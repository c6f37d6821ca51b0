"""Shell: checks the rules while a cluster runs: the rules of the quorum after each step of the loop, the other rules
many times a second.

The rules are in `raft_rules`, `replica_rules`, `group_rules`, `coordinator_rules`, `fencing_rules`, and, for clusters
with SASL, `session_rules`; where clients are hostile, `memory_rules`. Each rule is a class whose docstring states it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.testing.sim.cluster.coordinator_rules import COORDINATOR_RULES, AcknowledgedOffsetIsCommitted
from barnabas.testing.sim.cluster.fencing_rules import FENCING_RULES
from barnabas.testing.sim.cluster.group_rules import GROUP_RULES
from barnabas.testing.sim.cluster.memory_rules import MEMORY_RULES, MemoryRule
from barnabas.testing.sim.cluster.observation import ClusterObservation
from barnabas.testing.sim.cluster.raft_rules import RAFT_RULES
from barnabas.testing.sim.cluster.replica_rules import REPLICA_RULES, AcknowledgedIsCommitted
from barnabas.testing.sim.cluster.rule import Rule
from barnabas.testing.sim.cluster.session_rules import SESSION_RULES, witness
from barnabas.testing.sim.cluster.view import quorum_of

if TYPE_CHECKING:
    from barnabas.protocol.transport.ports import Peer
    from barnabas.protocol.wire.server_conn import ReceivedRequest
    from barnabas.server.raft.machine.raft import RaftMachine
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.hostile_clients import RequestCosts
    from barnabas.testing.sim.node import SimNode
    from barnabas.testing.sim.process import Process
    from barnabas.testing.sim.workload import Workload

_CHECK_INTERVAL_S: Final = 0.05
"""Seconds between two observations of the whole cluster."""
_AFTER_COMMIT_S: Final = 0.001
"""Seconds between a change of the metadata and an extra observation."""


class ClusterWatch:
    """Checks the rules from the start to the end of the run. A violation raises CorrectnessError out of the loop."""

    def __init__(self, cluster: SimCluster, workload: Workload, costs: RequestCosts | None = None) -> None:
        """`costs` are given if clients are hostile."""
        self._cluster = cluster
        self._raft = [rule(cluster) for rule in RAFT_RULES]
        self._rest: list[Rule] = [
            rule(cluster) for rule in (*REPLICA_RULES, *GROUP_RULES, *COORDINATOR_RULES, *FENCING_RULES)
        ]
        for rule in self._rest:
            if isinstance(rule, AcknowledgedIsCommitted):
                workload.on_acknowledged = rule.on_acknowledged
            if isinstance(rule, AcknowledgedOffsetIsCommitted):
                workload.on_committed = rule.on_committed
        self._sessions = [rule(cluster) for rule in SESSION_RULES] if cluster.layout.sasl else []
        self._rest += self._sessions
        self._costs = costs
        if costs is not None:
            self._rest += [rule(cluster) for rule in MEMORY_RULES]
        if self._sessions or costs is not None:
            cluster.world.network.on_accepted = self._on_accepted
        self._loop = cluster.world.loop
        self._hosts = cluster.hosts
        self._states: dict[Process, tuple[object, ...]] = {}
        self._next_check = 0.0
        self._loop.after_step = self._step

    def _step(self, process: Process | None) -> None:
        node = None if process is None else self._hosts.get(process.host)
        if process is not None and node is not None and node.process is process:
            found = quorum_of(node)
            if found is not None and found[1] != self._states.get(process):
                self._on_quorum(process, node, *found)
        if self._loop.time() >= self._next_check:
            self.check()

    def _on_accepted(self, host: str, connection: Any) -> None:
        witness(host, connection, self._on_request)
        for rule in self._rest:
            if isinstance(rule, MemoryRule):
                rule.on_accepted(host, connection)

    def _on_request(self, host: str, request: ReceivedRequest, peer: Peer) -> None:
        if self._costs is not None:
            self._costs.on_request(host, request, peer)
        for rule in self._sessions:
            rule.on_request(host, request, peer)

    def _on_quorum(self, process: Process, node: SimNode, machine: RaftMachine, state: tuple[object, ...]) -> None:
        self._states[process] = state
        for rule in self._raft:
            rule.step(node, machine)
        if machine.is_leader:  # metadata was committed, and other nodes act on it soon
            self._next_check = min(self._next_check, self._loop.time() + _AFTER_COMMIT_S)

    def check(self) -> None:
        """Observes the cluster now, and checks every rule."""
        self._next_check = self._loop.time() + _CHECK_INTERVAL_S
        seen = ClusterObservation(self._cluster)
        for rule in self._raft:
            rule.observe(seen)
        for rule in self._rest:
            rule.observe(seen)

    def at_rest(self) -> None:
        """Checks the rules for a cluster in which no client writes and every replica is in sync."""
        self.check()
        for rule in (*self._raft, *self._rest):
            rule.at_rest()
