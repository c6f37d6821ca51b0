"""Shell: looks at the nodes of a cluster while it runs: at the quorum after each step, at replicas many times a second.

What must hold is in `raft_rules`, `replica_rules`, `group_rules` and `coordinator_rules`, one class a rule; its
docstring is the promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.testing.sim.cluster.coordinator_rules import COORDINATOR_RULES, AcknowledgedOffsetIsCommitted
from barnabas.testing.sim.cluster.group_rules import GROUP_RULES
from barnabas.testing.sim.cluster.raft_rules import RAFT_RULES
from barnabas.testing.sim.cluster.replica_rules import REPLICA_RULES, AcknowledgedIsCommitted
from barnabas.testing.sim.cluster.sight import Sight
from barnabas.testing.sim.cluster.view import quorum_of

if TYPE_CHECKING:
    from barnabas.server.raft.machine.raft import RaftMachine
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.node import SimNode
    from barnabas.testing.sim.process import Process
    from barnabas.testing.sim.workload import Workload

_LOOK_S: Final = 0.05
"""Between two looks at everything."""
_SOON_S: Final = 0.001
"""After a change of the metadata."""


class ClusterWatch:
    """Begins with the world's loop, and ends with the world. Raises CorrectnessError out of the loop."""

    def __init__(self, cluster: SimCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._raft = [rule(cluster) for rule in RAFT_RULES]
        self._rest = [rule(cluster) for rule in (*REPLICA_RULES, *GROUP_RULES, *COORDINATOR_RULES)]
        for rule in self._rest:
            if isinstance(rule, AcknowledgedIsCommitted):
                workload.on_acknowledged = rule.on_acknowledged
            if isinstance(rule, AcknowledgedOffsetIsCommitted):
                workload.on_committed = rule.on_committed
        self._loop = cluster.world.loop
        self._hosts = cluster.hosts
        self._states: dict[Process, tuple[object, ...]] = {}
        self._next_look = 0.0
        self._loop.after_step = self._step

    def _step(self, process: Process | None) -> None:
        node = None if process is None else self._hosts.get(process.host)
        if process is not None and node is not None and node.process is process:
            found = quorum_of(node)
            if found is not None and found[1] != self._states.get(process):
                self._on_quorum(process, node, *found)
        if self._loop.time() >= self._next_look:
            self.look()

    def _on_quorum(self, process: Process, node: SimNode, machine: RaftMachine, state: tuple[object, ...]) -> None:
        self._states[process] = state
        for rule in self._raft:
            rule.step(node, machine)
        if machine.is_leader:  # metadata is committed: soon others act on it
            self._next_look = min(self._next_look, self._loop.time() + _SOON_S)

    def look(self) -> None:
        """Now."""
        self._next_look = self._loop.time() + _LOOK_S
        seen = Sight(self._cluster)
        for rule in self._raft:
            rule.look(seen)
        for rule in self._rest:
            rule.look(seen)

    def at_rest(self) -> None:
        """Nobody writes, everything is replicated: what must be equal by now is."""
        self.look()
        for rule in (*self._raft, *self._rest):
            rule.at_rest()
