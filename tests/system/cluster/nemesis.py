"""Faults for a cluster of real processes: kills, pauses and partitions, one after another.

A fault is applied, lasts for a while, and is undone; between two faults the cluster works without faults. The seed
decides the faults and their victims. At most one host is affected at a time, except when all processes are killed at
once. So the cluster must make progress after each fault, and must keep every acknowledged record.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from barnabas.testing.process_cluster import ClusterProcess
from tests.system.cluster.hosts import Hosts

Fault = Callable[[], str]


class Nemesis:
    """Applies faults: `strike` applies one fault, undoes it, and returns its description."""

    def __init__(self, cluster: ClusterProcess, hosts: Hosts | None, rng: random.Random) -> None:
        self.cluster = cluster
        self.done: Counter[str] = Counter()
        self._hosts = hosts
        self.rng = rng
        self._ids = sorted(cluster.nodes)
        self._faults: list[Fault] = [self._kill, self._kill, self._pause, self._restart, self._kill_all]
        if hosts is not None:
            self._faults += [self._cut_off, self._cut_one_way, self._cut_off]

    def strike(self) -> str:
        fault = self.rng.choice(self._faults)
        said = fault()
        self.done[said.partition(" ")[0]] += 1
        return said

    # ---- processes

    def _kill(self) -> str:
        node_id = self._victim()
        self.cluster.node(node_id).kill()
        self._last(0.1, 5.0)
        self.cluster.node(node_id).launch()
        return f"killed {node_id}"

    def _restart(self) -> str:
        node_id = self._victim()
        self.cluster.node(node_id).stop(60)
        self.cluster.node(node_id).launch()
        return f"restarted {node_id}"

    def _pause(self) -> str:
        node_id = self._victim()
        node = self.cluster.node(node_id)
        node.pause()
        self._last(0.5, 12.0)  # sometimes longer than the broker session
        node.resume()
        return f"paused {node_id}"

    def _kill_all(self) -> str:
        self.cluster.kill_all()
        for node in self.cluster.nodes.values():
            node.launch()
        return "everything killed"

    # ---- the network

    def _cut_off(self) -> str:
        assert self._hosts is not None
        host, others = self._host()
        self._hosts.part([host], others)
        self._last(1.0, 12.0)
        self._hosts.heal()
        return f"cut-off {self._ids[host - 1]}"

    def _cut_one_way(self) -> str:
        assert self._hosts is not None
        host, others = self._host()
        for other in others:
            self._hosts.cut(*((host, other) if self.rng.random() < 0.5 else (other, host)))
        self._last(1.0, 12.0)
        self._hosts.heal()
        return f"half-deaf {self._ids[host - 1]}"

    # ---- random choices

    def _victim(self) -> int:
        return self.rng.choice(self._ids)

    def _host(self) -> tuple[int, list[int]]:
        numbers = range(1, len(self._ids) + 1)
        host = self.rng.choice(numbers)
        return host, [other for other in numbers if other != host]

    def _last(self, low: float, high: float) -> None:
        """Sleeps for a random time, for which the fault lasts."""
        time.sleep(self.rng.uniform(low, high))  # no condition is waited for: the fault lasts so long
